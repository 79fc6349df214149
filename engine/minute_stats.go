package engine

import (
	"math"
	"sync"
	"time"

	"github.com/progressor-engine/progressor/storage"
)

const (
	minuteSeconds = 60
	// lateBuckets is the number of duration buckets. The first bound is 1 ms, and each further
	// bound is √2 times the previous one, up to 12 minutes.
	lateBuckets = 40
)

// minuteStats counts what the node did in the last minute, second by second.
type minuteStats struct {
	began time.Time
	mu    sync.Mutex
	ring  [minuteSeconds]second
}

type second struct {
	number int64 // since began
	tasks  int64
	late   buckets // lateness of timers
	took   buckets // processing times
}

// buckets is a histogram of durations. A duration counts in the first bucket whose bound is at
// least as large, or in the last bucket if it exceeds all bounds.
type buckets [lateBuckets]int64

func (b *buckets) add(d time.Duration) {
	bucket := 0
	if d > time.Millisecond {
		bucket = min(int(math.Ceil(2*math.Log2(float64(d)/float64(time.Millisecond)))), lateBuckets-1)
	}
	b[bucket]++
}

// percentile returns the bound that percent of the durations do not exceed, or -1 if there are
// none.
func (b *buckets) percentile(percent int64) time.Duration {
	var all int64
	for _, count := range b {
		all += count
	}
	rest := all - all*(100-percent)/100
	for n := 0; n < lateBuckets && rest > 0; n++ {
		if rest -= b[n]; rest <= 0 {
			return time.Duration(float64(time.Millisecond) * math.Pow(2, float64(n)/2))
		}
	}
	return -1
}

func newMinuteStats(began time.Time) *minuteStats { return &minuteStats{began: began} }

// entry returns the entry of a second. The caller holds the lock.
func (m *minuteStats) entry(now time.Time) *second {
	number := int64(now.Sub(m.began) / time.Second)
	s := &m.ring[number%minuteSeconds]
	if s.number != number {
		*s = second{number: number}
	}
	return s
}

// stored counts a result.
func (m *minuteStats) stored(now time.Time) {
	m.mu.Lock()
	m.entry(now).tasks++
	m.mu.Unlock()
}

// timer counts a claimed timer and its lateness.
func (m *minuteStats) timer(now time.Time, late time.Duration) {
	m.mu.Lock()
	m.entry(now).late.add(late)
	m.mu.Unlock()
}

// processed counts a task and its processing time.
func (m *minuteStats) processed(now time.Time, took time.Duration) {
	m.mu.Lock()
	m.entry(now).took.add(took)
	m.mu.Unlock()
}

// sum returns the sum of the last minute. The caller holds the lock.
func (m *minuteStats) sum(now time.Time) second {
	all := second{number: int64(now.Sub(m.began) / time.Second)}
	for n := range m.ring {
		s := &m.ring[n]
		if all.number-s.number >= minuteSeconds {
			continue
		}
		all.tasks += s.tasks
		for b := range lateBuckets {
			all.late[b] += s.late[b]
			all.took[b] += s.took[b]
		}
	}
	return all
}

// report returns the totals of the last minute for the row of this node.
func (m *minuteStats) report(now time.Time, draining bool) storage.NodeReport {
	m.mu.Lock()
	defer m.mu.Unlock()
	all := m.sum(now)
	age := min(max(now.Sub(m.began).Seconds(), 1), minuteSeconds)
	return storage.NodeReport{
		Draining: draining, TasksPerSecond: float64(all.tasks) / age, TimerLateness: all.late.percentile(99),
	}
}

// processing returns the median and the 99th percentile of the processing times, or -1 if there
// were no tasks.
func (m *minuteStats) processing(now time.Time) (p50, p99 time.Duration) {
	m.mu.Lock()
	defer m.mu.Unlock()
	all := m.sum(now)
	return all.took.percentile(50), all.took.percentile(99)
}

// timerLate records the lateness of a claimed timer.
func (e *Engine) timerLate(late time.Duration) {
	e.metrics.timerLate(late)
	e.minuteStats.timer(time.Now(), late)
}

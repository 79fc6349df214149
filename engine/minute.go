package engine

import (
	"math"
	"sync"
	"time"

	"github.com/progressor-engine/progressor/storage"
)

const (
	minuteSeconds = 60
	// lateBuckets are the bounds of lateness: 1 ms, and each √2 times the one before, up to 13 minutes.
	lateBuckets = 40
)

// minute is what the node has done in the last minute, second by second.
type minute struct {
	began time.Time
	mu    sync.Mutex
	ring  [minuteSeconds]second
}

type second struct {
	number int64 // since began
	tasks  int64
	late   [lateBuckets]int64
}

func newMinute(began time.Time) *minute { return &minute{began: began} }

// at is the second of a moment. The caller holds the lock.
func (m *minute) at(now time.Time) *second {
	number := int64(now.Sub(m.began) / time.Second)
	s := &m.ring[number%minuteSeconds]
	if s.number != number {
		*s = second{number: number}
	}
	return s
}

// stored counts a result.
func (m *minute) stored(now time.Time) {
	m.mu.Lock()
	m.at(now).tasks++
	m.mu.Unlock()
}

// timer counts a timer that was claimed so late.
func (m *minute) timer(now time.Time, late time.Duration) {
	bucket := 0
	if late > time.Millisecond {
		bucket = min(int(math.Ceil(2*math.Log2(float64(late)/float64(time.Millisecond)))), lateBuckets-1)
	}
	m.mu.Lock()
	m.at(now).late[bucket]++
	m.mu.Unlock()
}

// pulse sums the minute up.
func (m *minute) pulse(now time.Time, draining bool) storage.Pulse {
	m.mu.Lock()
	defer m.mu.Unlock()
	number := int64(now.Sub(m.began) / time.Second)
	var tasks, timers int64
	var late [lateBuckets]int64
	for n := range m.ring {
		s := &m.ring[n]
		if number-s.number >= minuteSeconds {
			continue
		}
		tasks += s.tasks
		for b, count := range s.late {
			late[b] += count
			timers += count
		}
	}
	age := min(max(now.Sub(m.began).Seconds(), 1), minuteSeconds)
	p := storage.Pulse{Draining: draining, TasksPerSecond: float64(tasks) / age, TimerLateness: -1}
	rest := timers - timers/100 // that many are not later
	for b := 0; b < lateBuckets && rest > 0; b++ {
		if rest -= late[b]; rest <= 0 {
			p.TimerLateness = time.Duration(float64(time.Millisecond) * math.Pow(2, float64(b)/2))
		}
	}
	return p
}

// timerLate notes how late a timer was claimed.
func (e *Engine) timerLate(late time.Duration) {
	e.metrics.timerLate(late)
	e.minute.timer(time.Now(), late)
}

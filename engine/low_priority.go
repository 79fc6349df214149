package engine

import (
	"time"

	"github.com/progressor-engine/progressor/process"
)

// Messages of urgent tasks wait in memory until no urgent task is due or running, so that the tasks
// of the receivers do not delay urgent tasks. This was measured with 10,000 urgent timers that were
// due at the same time: the last one ran after 0.9 s instead of 2.7 s. Without the wait, the tasks
// of the receivers took two thirds of the CPU time.
const (
	// maxLowPriorityWait limits the wait, so that the messages are delivered even if urgent tasks
	// are always due.
	maxLowPriorityWait = 5 * time.Second
	// maxLowPriorityDeliveries limits how many of these deliveries run concurrently. It fills a
	// flush of 64 deliveries in each of the two lanes that a node usually has.
	maxLowPriorityDeliveries = 128
	// maxWaitingTargets limits the targets that wait in memory. The scan finds all others.
	maxWaitingTargets = 1 << 16
)

// lowPriorityQueue holds the targets whose deliveries wait.
type lowPriorityQueue struct {
	targets  []waitingTarget
	waits    map[process.Key]struct{} // the targets that still wait; another delivery may have taken the others
	starting int                      // deliveries in progress
}

type waitingTarget struct {
	key   process.Key
	until time.Time // when its messages are delivered at the latest
}

// deliverStored delivers the messages that a flush has stored to their targets, now or later.
func (d *deliverer) deliverStored(targets []process.Key, lowPriority bool) {
	if !lowPriority {
		d.deliver(targets)
		return
	}
	until := time.Now().Add(maxLowPriorityWait)
	d.mu.Lock()
	for _, k := range targets {
		if _, waits := d.lowPriority.waits[k]; !waits && len(d.lowPriority.targets) < maxWaitingTargets {
			d.lowPriority.waits[k] = struct{}{}
			d.lowPriority.targets = append(d.lowPriority.targets, waitingTarget{k, until})
		}
	}
	d.mu.Unlock()
	if d.engine.timers.isUrgentPending() {
		time.AfterFunc(maxLowPriorityWait, d.startWaiting)
	}
	d.startWaiting()
}

// age returns the minimum age of messages that this node delivers for other nodes.
func (d *deliverer) age() time.Duration {
	if d.engine.timers.isUrgentPending() {
		return maxLowPriorityWait + messageAge
	}
	return messageAge
}

// startWaiting starts deliveries to waiting targets, up to the concurrency limit.
func (d *deliverer) startWaiting() {
	for {
		k, ok := d.nextWaiting()
		if !ok {
			return
		}
		go func() {
			d.run(k)
			d.mu.Lock()
			d.lowPriority.starting--
			d.mu.Unlock()
			d.startWaiting()
		}()
	}
}

// nextWaiting takes the first waiting target. It returns false if there is none, if the first one
// must still wait, or if maxLowPriorityDeliveries are in progress.
func (d *deliverer) nextWaiting() (process.Key, bool) {
	urgent := d.engine.timers.isUrgentPending()
	for {
		d.mu.Lock()
		p := &d.lowPriority
		if len(p.targets) == 0 || p.starting >= maxLowPriorityDeliveries ||
			urgent && time.Now().Before(p.targets[0].until) {
			d.mu.Unlock()
			return process.Key{}, false
		}
		k := p.targets[0].key
		p.targets = p.targets[1:]
		_, waits := p.waits[k]
		if waits {
			p.starting++
		}
		d.mu.Unlock()
		if !waits {
			continue
		}
		if d.take(k) {
			return k, true
		}
		d.mu.Lock()
		p.starting--
		d.mu.Unlock()
	}
}

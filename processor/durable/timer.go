package durable

import (
	"encoding/json"
	"strconv"
	"time"

	"github.com/progressor-engine/progressor/internal/durations"
	"github.com/progressor-engine/progressor/process"
)

// retryTimer is the prefix of the timers for the next try of a step. Names that users choose
// contain no colon.
const retryTimer = "retry:"

// Timer is a timer that After has set.
type Timer struct {
	branch *branch
	name   string
}

// After sets a timer that fires after d, and returns at once. The timer runs in the database: it
// also fires after a crash. At most 80 timers may be pending.
func After(ctx Ctx, name string, d time.Duration) *Timer {
	b := ctx.branch
	t := &Timer{branch: b, name: b.name(kindTimer, name)}
	if d > process.MaxDuration {
		b.owner.misuse("timer %s: must be at most %d days", t.name, process.MaxDuration/(24*time.Hour))
	}
	if e, ok := b.owner.journal.find(kindTimer, t.name); ok {
		b.compareTimer(e, d)
	} else {
		if len(b.owner.journal.pendingTimers()) >= maxTimers {
			b.owner.misuse("timer %s: %d timers are pending, and more are not allowed", t.name, maxTimers)
		}
		seconds := strconv.FormatFloat(d.Seconds(), 'f', -1, 64)
		b.record(entry{Kind: kindTimer, Name: t.name, Value: json.RawMessage(seconds)})
		b.owner.effects.setTimer(t.name, d)
	}
	return t
}

// compareTimer lets a check compare the duration in an entry with that of the function.
func (b *branch) compareTimer(e *entry, d time.Duration) {
	if b.owner.check == nil {
		return
	}
	var seconds float64
	_ = json.Unmarshal(e.Value, &seconds) // this package has written it
	if before := time.Duration(seconds * float64(time.Second)); (before - d).Abs() > time.Microsecond {
		b.owner.check.differs(kindTimer, e.Name, "was set to %s, not to %s",
			durations.Exact(before), durations.Exact(d))
	}
}

// Sleep waits for d.
func Sleep(ctx Ctx, name string, d time.Duration) { After(ctx, name, d).Wait() }

// Wait waits until the timer has fired or was stopped.
func (t *Timer) Wait() {
	t.branch.enter()
	j := t.branch.owner.journal
	t.branch.await(&wait{until: []entryKey{{kindFired, t.name}},
		ready: func() bool { return j.has(kindFired, t.name) || j.has(kindStopped, t.name) }})
}

// Stop stops the timer. It returns false if the timer has already fired.
func (t *Timer) Stop() bool {
	b := t.branch
	b.enter()
	switch j := b.owner.journal; {
	case j.has(kindStopped, t.name):
		return true
	case j.has(kindFired, t.name):
		return false
	}
	b.record(entry{Kind: kindStopped, Name: t.name})
	b.owner.effects.unsetTimer(t.name)
	return true
}

func (t *Timer) source() source {
	until := entryKey{kindFired, t.name}
	return source{branch: t.branch, id: "timer " + t.name, until: until, position: func() (int, bool) {
		return t.branch.owner.journal.position(kindFired, t.name)
	}}
}

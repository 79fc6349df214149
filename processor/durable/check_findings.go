package durable

import (
	"bytes"
	"context"
	"fmt"
	"slices"

	"github.com/progressor-engine/progressor/processor/durable/durablecheck"
)

// newDetails says what happens to new operations.
var newDetails = map[string]string{
	kindStep:    "the next task runs it",
	kindValue:   "the next task makes it",
	kindTimer:   "the next task sets it",
	kindChild:   "the next task starts it",
	kindFirst:   "the next task waits for it",
	kindStopped: "the next task stops the timer",
	kindCancel:  "the next task asks the child to end",
	kindReply:   "the next task answers the call",
}

// findNew reports the operations that the process has passed, and that are not in its journal. If a
// task will run soon, it may begin these operations. Then only those before a recorded operation
// are new.
func (c *checker) findNew(r *run, made []entry) {
	passed := 0
	switch {
	case !c.isIdle():
	case r.check.waited > 0:
		passed = r.check.waited // the rest follows after a wait
	default:
		passed = len(r.check.began)
	}
	for i, key := range r.check.began {
		if key.kind != kindCall && r.check.recorded[key] {
			passed = max(passed, i)
		}
	}
	for _, key := range r.check.began[:passed] {
		if key.kind == kindFirst && !r.journal.has(kindFirst, key.name) {
			continue // the process waits for it
		}
		if detail, ok := newDetails[key.kind]; ok && !r.check.recorded[key] {
			c.found(durablecheck.New, key.kind, key.name, detail, r.check.places[key])
		}
	}
	if !c.isIdle() {
		return
	}
	for _, e := range made {
		switch {
		case e.Kind != kindStep && bytes.Equal(e.Value, assumedValue):
			return // the rest follows after a wait
		case e.Kind == kindStopped && r.check.recorded[entryKey{kindTimer, e.Name}],
			e.Kind == kindCancel && r.check.recorded[entryKey{kindChild, e.Name}],
			e.Kind == kindReply:
			c.found(durablecheck.New, e.Kind, e.Name, newDetails[e.Kind], "")
		}
	}
}

// findRequests reports the queues whose accepted calls do not fit the function: their callers wait
// for a reply that the function does not send, or the function replies to calls that do not wait
// for a reply.
func (c *checker) findRequests(r *run, stored []entry) {
	seen, reported := map[string]int{}, map[string]bool{}
	for _, e := range stored {
		q := r.queues[e.Name]
		if e.Kind != kindCall || q == nil || reported[e.Name] {
			continue
		}
		isTaken := seen[e.Name] < *q.taken
		seen[e.Name]++
		var detail string
		switch {
		case q.deferred && e.Task == 0 && !isTaken:
			detail = "was accepted without a reply: Reply and Reject have no effect"
		case !q.deferred && e.Task > 0 && !r.journal.hasReply(e.Task):
			detail = "its caller waits for a reply, which Calls does not send"
		default:
			continue
		}
		reported[e.Name] = true
		c.found(durablecheck.Changed, kindCall, e.Name, detail, "")
	}
}

// foundEnd adds a finding: the function returns, although the older build waits. It reports whether
// the function fails.
func (c *checker) foundEnd(err error) (fails bool) {
	_, restarts := restartOf(err)
	switch {
	case err == nil:
		c.found(durablecheck.Changed, kindEnd, "", "the function returns a value here, and no longer waits", "")
	case restarts:
		c.found(durablecheck.Changed, kindEnd, "", "the function restarts here, and no longer waits", "")
	default:
		failed := recorded(err)
		c.found(durablecheck.Error, "", "", fmt.Sprintf(
			"the function returns an error here, and no longer waits: %s: %s", failed.Reason, failed.Message), "")
		return true
	}
	return false
}

// findOrphans reports the entries for which the function does not ask. It also looks for the
// operations after the place where the process waits, because they may have been moved.
func (c *checker) findOrphans(r *run, stored []entry) error {
	left := map[entryKey]bool{}
	for key := range r.check.recorded {
		left[key] = true
	}
	settle := func(began []entryKey) {
		for _, key := range began {
			delete(left, key)
		}
	}
	settle(r.check.began)
	var blind error
	for _, g := range guesses {
		if len(left) == 0 {
			return nil
		}
		began, err := c.lookAhead(g)
		if c.ctx.Err() != nil {
			return c.ctx.Err()
		}
		settle(began)
		if g == guesses[0] || err == nil {
			blind = err
		}
	}
	for i := range stored {
		key, ok := operationOf(&stored[i])
		if !ok || !left[key] {
			continue
		}
		delete(left, key)
		detail := c.orphanDetail(r, key)
		if blind != nil {
			detail += "; it may be later, but with guessed values the function fails: " + messageOf(blind)
		}
		c.found(durablecheck.Orphan, key.kind, key.name, detail, "")
	}
	return nil
}

// guess is what lookAhead assumes.
type guess struct {
	timersFirst bool // timers fire before calls arrive and children end
	fills       bool // values are not empty
}

var guesses = []guess{{}, {fills: true}, {timersFirst: true}, {timersFirst: true, fills: true}}

// lookAhead runs the function to its end, with guessed values for everything that is not in the
// journal. It returns the operations that the function began, and its error.
func (c *checker) lookAhead(g guess) ([]entryKey, error) {
	ctx, cancel := context.WithTimeout(c.ctx, maxLook)
	defer cancel()
	r, err := c.newRun(ctx)
	if err != nil {
		return nil, err
	}
	defer r.close()
	r.check.fills = g.fills
	err = r.pretend(func(b *branch) (ends entryKey, ok bool) {
		all := b.wait.endings()
		if len(all) == 0 {
			return entryKey{}, false
		}
		at := slices.IndexFunc(all, func(key entryKey) bool { return (key.kind == kindFired) == g.timersFirst })
		return all[max(at, 0)], true
	})
	if err == nil && r.returned != nil {
		if _, restarts := restartOf(r.returned.err); !restarts {
			err = r.returned.err
		}
	}
	r.mu.Lock() // the function may still run
	defer r.mu.Unlock()
	return slices.Clone(r.check.began), err
}

// orphanDetail says what happens to an entry for which the function does not ask.
func (c *checker) orphanDetail(r *run, key entryKey) string {
	detail := c.fateOf(r, key)
	for _, f := range c.report.Findings {
		if f.Class == durablecheck.New && f.Kind == key.kind && scopeOf(f.Name) == scopeOf(key.name) {
			return detail + ", perhaps renamed to " + f.Name
		}
	}
	return detail
}

func (c *checker) fateOf(r *run, key entryKey) string {
	j := r.journal
	switch key.kind {
	case kindStep:
		e, ok := j.find(kindStep, key.name)
		switch {
		case !ok:
			return "has failed and waits for its next try"
		case e.Error != nil:
			return "has failed"
		case e.Undo && !e.Skipped && !j.has(kindUndo, key.name):
			return "has completed, and cannot be undone if the function fails"
		default:
			return "has completed"
		}
	case kindTimer:
		if !j.has(kindFired, key.name) && !j.has(kindStopped, key.name) {
			return "is pending, and will have no effect"
		}
		return "has ended"
	case kindChild:
		if !j.has(kindEnded, key.name) {
			return "runs, and its end will have no effect"
		}
		return "has ended"
	case kindCall:
		if r.hasOpenRequest(key.name) {
			return "its caller waits for a reply, and the function does not open this call"
		}
		return "was accepted, and the function does not open this call"
	case kindFirst:
		return "has chosen"
	default:
		return "was recorded"
	}
}

package crons

import (
	"context"
	"time"

	"github.com/progressor-engine/progressor/cron"
	"github.com/progressor-engine/progressor/processor"
	"github.com/progressor-engine/progressor/storage/crons"
)

const (
	// maxBackfills is the maximum number of waiting backfills of one cron.
	maxBackfills = 20
	// maxBackfillFires is the maximum number of fire times in one backfill.
	maxBackfillFires = 100_000
	// backfillStep is the number of fire times that one task checks.
	backfillStep = 1000
	// backfillLook is the number of fire times that one task of an in-order backfill checks, in
	// addition to those that it can start.
	backfillLook = 100
)

func (t *task) startBackfill(o *command) error {
	if len(t.state.Backfills) >= maxBackfills {
		return processor.Reject(rejectedFull, "at most %d backfills of a cron can run at a time (%d are running)",
			maxBackfills, len(t.state.Backfills))
	}
	t.state.Backfills = append(t.state.Backfills, backfill{
		From: o.From, To: o.To, Overlap: o.Overlap, Concurrency: o.Concurrency,
	})
	return nil
}

// backfill runs the next part of the oldest backfill.
func (t *task) backfill() error {
	s := t.state
	if !s.canBackfill() || len(s.Unsent) >= maxOutgoing {
		return nil
	}
	b, window := &s.Backfills[0], backfillStep
	if b.inOrder() {
		window = min(window, s.backfillSlots()+backfillLook)
	}
	to, n := b.To, 0
	for fire := range t.cron.Schedule.Past().Between(b.From, b.To) {
		if n == window {
			to = fire
			break
		}
		n++
	}
	known, err := t.crons.decidedTimes(t.Ctx, s.definition.GetNamespace(), s.definition.GetCronId(), b.From, to)
	if err != nil {
		return err
	}
	rest := t.backfillUntil(b, to, func(fire time.Time) bool { return known[fire.Unix()] })
	switch {
	case !rest.IsZero():
		b.From = rest
	case to.Before(b.To):
		b.From = to
	default:
		s.Backfills = s.Backfills[1:]
	}
	return nil
}

// backfillUntil decides or starts the next fire times of a backfill before the time to, except
// those that have rows in the ledger. It returns the time at which to continue, or zero if it has
// reached the end.
func (t *task) backfillUntil(b *backfill, to time.Time, inLedger func(time.Time) bool) time.Time {
	s := t.state
	if !b.inOrder() {
		step, rest := t.cron.Backfill(s.Cron, b.From, to, inLedger, b.Overlap, t.Now)
		t.applyStep(step)
		return rest
	}
	step, rest := t.cron.StartPast(s.Cron, b.From, to, inLedger, s.backfillSlots(), t.Now)
	for _, fire := range step.Fires {
		s.Independent = append(s.Independent, independentRun{Fire: fire.Time, Backfill: true})
	}
	t.applyStep(step)
	return rest
}

// backfill is an incomplete backfill.
type backfill struct {
	From    time.Time          `json:"from"`
	To      time.Time          `json:"to"`
	Overlap cron.OverlapAction `json:"overlap,omitempty"`
	// Concurrency is the maximum number of concurrent runs. If it is 0, Overlap and the policies
	// decide each fire time immediately.
	Concurrency int32 `json:"concurrency,omitempty"`
}

func (b *backfill) inOrder() bool { return b.Concurrency > 0 }

// backfillSlots returns how many runs of the oldest backfill can start now.
func (s *state) backfillSlots() int {
	slots := int(s.Backfills[0].Concurrency)
	for _, run := range s.Independent {
		if run.Backfill {
			slots--
		}
	}
	return slots
}

// canBackfill reports whether the oldest backfill can continue without waiting for its runs to end.
func (s *state) canBackfill() bool {
	return len(s.Backfills) > 0 && (!s.Backfills[0].inOrder() || s.backfillSlots() > 0)
}

// decidedTimes returns the whole seconds in a range that have rows in the ledger.
func (c *Crons) decidedTimes(
	ctx context.Context, namespace, cronID string, from, to time.Time,
) (map[int64]bool, error) {
	times, err := crons.Times(ctx, c.store, namespace, cronID, from, to)
	known := make(map[int64]bool, len(times))
	for _, at := range times {
		if at.Nanosecond() == 0 {
			known[at.Unix()] = true
		}
	}
	return known, err
}

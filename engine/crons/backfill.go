package crons

import (
	"context"
	"time"

	"github.com/progressor-engine/progressor/processor"
	"github.com/progressor-engine/progressor/storage/crons"
)

const (
	// maxBackfills is how many backfills of one cron wait at the most.
	maxBackfills = 20
	// maxBackfillFires is how many fire times one order of a backfill covers.
	maxBackfillFires = 100_000
	// backfillStep is how many fire times one task looks at.
	backfillStep = 1000
)

func (t *task) startBackfill(o *command) error {
	if len(t.state.Backfills) >= maxBackfills {
		return processor.Reject(rejectedFull, "%d backfills of the cron are under way, at most %d", len(t.state.Backfills), maxBackfills)
	}
	t.state.Backfills = append(t.state.Backfills, backfill{From: o.From, To: o.To, Overlap: o.Overlap})
	return nil
}

// backfill does the next part of the oldest backfill.
func (t *task) backfill(ctx context.Context) error {
	s := t.state
	if len(s.Backfills) == 0 || len(s.Unsent) >= maxOutgoing {
		return nil
	}
	b := &s.Backfills[0]
	to, n := b.To, 0
	for fire := range t.cron.Schedule.Past().Between(b.From, b.To) {
		if n == backfillStep {
			to = fire
			break
		}
		n++
	}
	known, err := t.crons.decidedTimes(ctx, s.definition.GetNamespace(), s.definition.GetCronId(), b.From, to)
	if err != nil {
		return err
	}
	step, rest := t.cron.Backfill(s.Cron, b.From, to, func(fire time.Time) bool { return known[fire.Unix()] }, b.Overlap, t.now)
	t.follow(step)
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

// decidedTimes are the whole seconds in a range that have rows in the ledger.
func (c *Crons) decidedTimes(ctx context.Context, namespace, cronID string, from, to time.Time) (map[int64]bool, error) {
	times, err := crons.Times(ctx, c.store, namespace, cronID, from, to)
	known := make(map[int64]bool, len(times))
	for _, at := range times {
		if at.Nanosecond() == 0 {
			known[at.Unix()] = true
		}
	}
	return known, err
}

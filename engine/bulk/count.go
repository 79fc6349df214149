package bulk

import (
	"context"
	"time"

	progressorv1 "github.com/progressor-engine/progressor/proto/progressor/v1"
	"github.com/progressor-engine/progressor/storage/search"
)

// counted contains the number of matching processes, and the first of them.
type counted struct {
	matched int64
	refused int64 // number of processes whose status does not allow the verb
	more    bool  // the time limit was reached before all were counted
	samples []string
}

// samples is the maximum number of process IDs that a dry run returns.
const samples = 20

// count counts the processes that match a command. It stops after the time limit.
func (b *Bulks) count(ctx context.Context, namespace string, o *command, limit time.Duration) (counted, error) {
	var c counted
	var at place
	began := time.Now()
	verb := b.verbs(o.Kind)[o.Verb]
	for c.more = true; c.more; {
		found, next, more, err := b.find(ctx, namespace, o, time.Time{}, at, search.MaxPageSize)
		if err != nil {
			return c, err
		}
		c.matched += int64(len(found))
		for _, s := range found {
			if len(c.samples) < samples {
				c.samples = append(c.samples, s.ProcessID)
			}
			if !verb.allows(s.State) {
				c.refused++
			}
		}
		at, c.more = next, more
		if time.Since(began) > limit {
			break
		}
	}
	return c, nil
}

// dryRun returns the bulk of a dry run.
func (c counted) dryRun(namespace string, o *command) *progressorv1.Bulk {
	return &progressorv1.Bulk{
		Namespace: namespace, Kind: o.Kind, Filter: o.Filter, Verb: o.Verb, Rate: o.Rate, Reason: o.Reason,
		Actor: o.Actor, DryRun: true,
		Matched: c.matched, Skipped: c.refused, Expected: c.matched, ExpectedMore: c.more, SampleProcessIds: c.samples,
	}
}

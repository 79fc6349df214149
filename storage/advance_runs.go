package storage

import (
	"context"
	"encoding/json"

	"github.com/progressor-engine/progressor/process"
	"github.com/progressor-engine/progressor/storage/internal/dbsqlc"
)

// Advance is the result of a run that waits for a job. It is stored in the transaction that stores
// the end of the job, unless the run has changed since the result was decided, or PostgreSQL does
// not store the result. In these cases, EndSteps notifies the run instead.
type Advance struct {
	Completion *Completion // the result, whose attempt has the numbers of Saved.Reserved
	State      []byte      // the state of the run from which the result was decided
}

// ReservedTask has the numbers that StartSteps has drawn in advance for the task that reports the
// end of a step. AdvanceRuns stores the task with these numbers when the task has already ended.
type ReservedTask struct {
	TaskID       int64
	FencingToken int64 // zero if no task is reserved
}

// MayAdvance reports whether AdvanceRuns can store the completion.
func (c *Completion) MayAdvance() bool {
	return c.plain() && c.Record == nil && len(c.Events)+len(c.Metadata) == 0
}

// EncodeChildEnd encodes the child of a NOTIFY task that reports an end. See ChildEnds.
func EncodeChildEnd(end ChildEnd) ([]byte, error) {
	return json.Marshal(map[string][]ChildEnd{"ends": {end}})
}

// advanceRuns stores the results of runs whose jobs end in a flush.
type advanceRuns struct {
	store *Store
	items []*saveItem
	arg   dbsqlc.AdvanceRunsParams
}

// advanceRunStages returns the statement that follows the ends of the jobs. It takes only one
// result of each run, because a second one was decided without knowing the first.
func advanceRunStages(s *Store, saves []*saveItem) []stage {
	b := &advanceRuns{store: s}
	advanced := map[process.Key]bool{}
	for _, it := range saves {
		c := it.completion
		if c.Advance == nil || advanced[c.Run] {
			continue
		}
		advanced[c.Run] = true
		run := c.Advance.Completion
		b.arg.Append(dbsqlc.AdvanceRunsItem{
			Ord: int32(len(b.items)), Key: c.Key, TaskID: c.TaskID, FencingToken: c.FencingToken,
			RunID: run.Key.ProcessID, RunTaskID: run.TaskID, RunToken: run.FencingToken,
			OldState: c.Advance.State, NewState: run.AuxState, Response: run.Response,
			Completes: run.Outcome == Completed,
		})
		b.items = append(b.items, it)
	}
	if len(b.items) == 0 {
		return nil
	}
	return []stage{b.run}
}

func (b *advanceRuns) run(ctx context.Context, db DB) error {
	rows, err := b.store.q.AdvanceRuns(ctx, db, b.arg)
	for _, it := range b.items {
		it.saved.Advanced = false
	}
	for _, r := range rows {
		b.items[r.Ord].saved.Advanced = true
	}
	return err
}

package storage

import (
	"context"

	"github.com/progressor-engine/progressor/process"
	"github.com/progressor-engine/progressor/storage/fastpath"
	"github.com/progressor-engine/progressor/storage/internal/dbsqlc"
)

// This file decides which items of a flush use the fast path. The documentation of package fastpath
// describes what it saves and when it does not apply.

// minFastPath is the minimum number of items for the fast path if other items of the flush need the
// general statement. Fewer items would not save as much as the additional statement costs. This
// number is an estimate.
const minFastPath = 8

// splitPaths divides the items of a flush into those that use the fast path and the others. If too
// few items fit, all use the general statement.
func splitPaths[I operation](items []I, fits func(I) bool) (fast, general []I) {
	n := 0
	for _, it := range items {
		if fits(it) {
			n++
		}
	}
	for _, it := range items {
		i := it.base()
		i.fast = n >= min(minFastPath, len(items)) && fits(it)
		if i.fast {
			fast = append(fast, it)
		} else {
			general = append(general, it)
		}
	}
	return fast, general
}

// captureCallStage returns the fast-path statement for calls to different processes.
func captureCallStage(s *Store, items []*callItem) stage {
	arg := callParams(s, items)
	return func(ctx context.Context, db DB) error { return captureCalls(ctx, db, items, arg) }
}

// captureCalls stores calls with the fast path.
func captureCalls(ctx context.Context, db DB, items []*callItem, arg *dbsqlc.PrepareCallParams) error {
	rows, err := fastpath.CaptureCalls(ctx, db, arg)
	if err != nil {
		return err
	}
	for _, it := range items {
		it.fallback = true
	}
	for i := range rows {
		r := &rows[i]
		it := items[r.Ord]
		it.fallback = false
		c := it.call.claim(it.call.TaskType, r.TaskID, r.FencingToken, r.Now)
		c.Status, c.PreviousStatus, c.StatusChangedTime = process.StatusRunning, r.PreviousStatus, r.StatusChangedTime
		c.AuxState, c.Metadata, c.LastEventID, c.FirstEventID, c.Kind, c.CreatedTime = r.AuxState, r.Metadata,
			r.LastEventID, r.FirstEventID, r.Kind, r.CreatedTime
		it.prepared = Prepared{
			Outcome: Captured, ProcessID: it.key.ProcessID, TaskID: r.TaskID, Status: c.Status, Claim: c,
		}
	}
	return nil
}

// skipFastPath excludes results from the fast path if a command of the same flush may end their
// process. Effects are stored if this transaction has ended the task of their result. If the fast
// path did not apply and the command ended the task instead, the effects would be stored without
// their result.
func (b *batch) skipFastPath() {
	if len(b.saves) == 0 || len(b.cancels)+len(b.removes) == 0 {
		return
	}
	ends := map[process.Key]bool{}
	for _, it := range b.cancels {
		ends[it.key] = true
	}
	for _, it := range b.removes {
		ends[it.key] = true
	}
	for _, it := range b.saves {
		it.general = it.general || ends[it.key]
	}
}

// fastPathStages returns the fast-path statements for results: one for finished tasks, one for
// those whose process continues, one for tasks that end their process, and one for those that also
// end a job or free keys.
func fastPathStages(s *Store, items []*saveItem) []stage {
	var finished, continued, ended, completed []*saveItem
	for _, it := range items {
		switch c := it.completion; {
		case c.Outcome == Completed && c.Record == nil && !c.freesKeys():
			ended = append(ended, it)
		case c.Outcome == Completed:
			completed = append(completed, it)
		case it.completion.continues():
			continued = append(continued, it)
		default:
			finished = append(finished, it)
		}
	}
	var stages []stage
	if len(finished) > 0 {
		stages = append(stages, newSaveBatch(s, finished).saveFinished)
	}
	if len(continued) > 0 {
		stages = append(stages, newSaveBatch(s, continued).saveContinued)
	}
	if len(ended) > 0 {
		stages = append(stages, newSaveBatch(s, ended).saveEnded)
	}
	if len(completed) > 0 {
		stages = append(stages, newSaveBatch(s, completed).saveCompleted)
	}
	return stages
}

func (b *saveBatch) saveFinished(ctx context.Context, db DB) error {
	rows, err := fastpath.SaveFinished(ctx, db, &b.arg)
	if err == nil {
		b.savedFast(rows, process.StatusRunning)
	}
	return err
}

func (b *saveBatch) saveContinued(ctx context.Context, db DB) error {
	rows, err := fastpath.SaveContinued(ctx, db, &b.arg)
	if err != nil {
		return err
	}
	for _, it := range b.items {
		it.fallback = true
	}
	for i := range rows {
		r := &rows[i]
		it := b.items[r.Ord]
		it.fallback = false
		c := it.completion
		it.saved = Saved{Status: process.StatusRunning, Now: r.Now, Next: &Claim{
			Namespace: c.Key.Namespace, ProcessID: c.Key.ProcessID, TaskID: r.NextTaskID,
			TaskType: process.TaskType(c.Timer.taskType()), Attempt: 1, Priority: r.Priority, FencingToken: r.NextToken,
			ScheduledTime: r.Now, RunningTime: r.Now, Context: r.Context, Status: process.StatusRunning,
			FirstEventID: r.FirstEventID, LastEventID: r.LastEventID + int64(len(c.events())),
		}}
	}
	return nil
}

func (b *saveBatch) saveEnded(ctx context.Context, db DB) error {
	awaited := make([]bool, len(b.items))
	for n, it := range b.items {
		awaited[n] = it.completion.notifiesRun()
	}
	rows, err := fastpath.SaveEnded(ctx, db, &b.arg, awaited)
	if err == nil {
		b.savedFast(rows, process.StatusCompleted)
	}
	return err
}

func (b *saveBatch) saveCompleted(ctx context.Context, db DB) error {
	ends := fastpath.Ends{
		Names: make([]string, len(b.items)), Awaited: make([]bool, len(b.items)),
		Frees: make([]bool, len(b.items)), Modes: b.store.EventModes(b.arg.Namespaces),
	}
	for n, it := range b.items {
		ends.Awaited[n], ends.Frees[n] = it.completion.notifiesRun(), it.completion.freesKeys()
		if record := it.completion.Record; record != nil {
			ends.Names[n] = record.Name()
		}
	}
	rows, err := fastpath.SaveCompleted(ctx, db, &b.arg, ends)
	if err == nil {
		b.savedFast(rows, process.StatusCompleted)
	}
	return err
}

// savedFast records the results that the fast path has stored. The others are fallbacks.
func (b *saveBatch) savedFast(rows []fastpath.Saved, status process.Status) {
	for _, it := range b.items {
		it.fallback = true
	}
	for _, r := range rows {
		it := b.items[r.Ord]
		it.fallback = false
		it.saved = Saved{Status: status, Now: r.Now, TimerDelay: -1}
	}
}

// fallsBack updates the lane after an item was committed. It returns true if the fast path did not
// apply. The next flush then stores the item with the general statement.
func (l *lane) fallsBack(op operation) bool {
	i := op.base()
	if i.fallback {
		i.fallback, i.general = false, true
		l.busy.Add(i.key)
		l.store.metrics.fastPathFallbacks.Inc()
		return true
	}
	switch op := op.(type) {
	case *callItem:
		if op.prepared.Outcome == Postponed {
			l.busy.Add(i.key)
		}
	case *saveItem:
		if op.saved.Next == nil && !op.saved.Deferred {
			l.busy.Remove(i.key)
		}
		if op.behind {
			l.busy.Add(op.completion.Run)
		}
	}
	return false
}

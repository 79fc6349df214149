package storage

import (
	"context"
	"errors"
	"slices"
	"strings"

	"github.com/jackc/pgx/v5/pgconn"

	"github.com/progressor-engine/progressor/process"
	"github.com/progressor-engine/progressor/storage/internal/dbsqlc"
)

// saveItem is a Completion in a lane.
type saveItem struct {
	item
	completion *Completion
	saved      Saved
	behind     bool // the run is busy and has another waiting task now
	// next is the first call that waits in memory for the process, or nil. It is stored with the
	// result.
	next  *callItem
	group *commitGroup
}

// SaveResult stores the result of an attempt, under its fencing token. It returns when the result
// is durable. The error is process.ErrFenced if something else has ended the attempt, and a
// *process.InvalidError if more than process.MaxTimers timers would be pending, more than
// process.MaxOpenTasks tasks would wait for a reply, a reply is to a task that does not wait for
// one, or the process has events after c.LastEventID. In all these cases nothing is stored.
func (s *Store) SaveResult(c *Completion) (Saved, error) {
	if c.removes() {
		return s.saveRemoval(c)
	}
	it := &saveItem{item: newItem(c.Key, c.bytes(), true), completion: c}
	it.general = !c.plain()
	if c.notifiesRun() {
		it.also = c.Run // use the lane of the run, so that no other lane waits for its lock
	}
	s.callQueues.join(it)
	err := s.submit(it)
	if next := nextOf(it); next != nil { // no lane has taken the result and the call
		finish(next, err)
	}
	var outcome groupOutcome
	if err == nil && it.saved.Next != nil && it.saved.Next.ProcessID == c.Key.ProcessID {
		outcome.nextTask = it.saved.Next.TaskID
	}
	s.callQueues.recordGroup(c.Key, it.group, outcome)
	return it.saved, resultError(err)
}

// raised lists the errors that statements of results raise. The statements cast the message to a
// number, because plain SQL has no RAISE.
var raised = []struct{ part, field string }{
	{" timers may be pending (got ", "result.named_timers"},
	{" is not a task that waits for a reply", "result.replies"},
	{" calls may wait for a reply (got ", "result.defer_response"},
}

// resultError converts an error that a statement of results has raised to a *process.InvalidError.
func resultError(err error) error {
	var pg *pgconn.PgError
	if !errors.As(err, &pg) {
		return err
	}
	if pg.Code == stateUniqueViolation && pg.TableName == "events" {
		return &process.InvalidError{Field: "last_event_id",
			Message: "must be the last event of the process, which has more events"}
	}
	_, text, _ := strings.Cut(pg.Message, `"`)
	for _, r := range raised {
		if strings.Contains(text, r.part) {
			return &process.InvalidError{Field: r.field, Message: strings.TrimSuffix(text, `"`)}
		}
	}
	return err
}

// saveStages returns the general statements for results, and those that record the ends of attempts
// after them. It omits statements that have no rows.
func saveStages(s *Store, items []*saveItem) (stages, records []stage) {
	if len(items) == 0 {
		return nil, nil
	}
	b := newSaveBatch(s, items)
	if len(b.reply.Namespaces) > 0 {
		stages = append(stages, func(ctx context.Context, db DB) error { return s.q.ReplyTasks(ctx, db, b.reply) })
	}
	if len(b.restore.Namespaces) > 0 {
		stages = append(stages, func(ctx context.Context, db DB) error { return s.q.RestoreTimers(ctx, db, b.restore) })
	}
	if len(b.drop.Namespaces) > 0 {
		stages = append(stages, func(ctx context.Context, db DB) error { return s.q.DropTimers(ctx, db, b.drop) })
	}
	if len(b.set.Namespaces) > 0 {
		stages = append(stages, func(ctx context.Context, db DB) error { return s.q.SetTimers(ctx, db, b.set) })
		stages = append(stages, func(ctx context.Context, db DB) error { return s.q.CheckTimers(ctx, db, b.check) })
	}
	if len(b.restart.Namespaces) > 0 {
		stages = append(stages, func(ctx context.Context, db DB) error {
			_, err := s.q.RestartHistories(ctx, db, b.restart)
			return err
		})
	}
	if len(b.failed.Namespaces) > 0 {
		stages = append(stages, func(ctx context.Context, db DB) error {
			return s.q.WriteFailedAttempts(ctx, db, b.failed)
		})
	}
	if len(b.retry.Namespaces) > 0 {
		stages = append(stages, func(ctx context.Context, db DB) error { return s.q.RetryTasks(ctx, db, b.retry) })
	}
	if len(b.count.Namespaces) > 0 {
		stages = append(stages, func(ctx context.Context, db DB) error { return s.q.CountResults(ctx, db, b.count) })
	}
	stages = append(stages, b.save)
	if len(b.cancel.Namespaces) > 0 {
		stages = append(stages, b.cancelScheduled)
	}
	return stages, b.records.stages(s)
}

func newSaveBatch(s *Store, items []*saveItem) *saveBatch {
	b := &saveBatch{store: s, items: items}
	b.arg.NodeID = s.nodeID.Load()
	b.arg.Grow(len(items))
	events := 0
	for _, it := range items {
		events += len(it.completion.events())
	}
	b.arg.GrowEvent(events)
	for n, it := range items {
		b.add(int32(n), it.completion)
	}
	return b
}

// endLeaseStages deletes the leases of workers whose answers a flush has stored. A single statement
// deletes them in the order of their keys, in which heartbeats also lock leases. It must run before
// statements that change jobs, because a heartbeat also locks leases first.
func endLeaseStages(s *Store, items []*saveItem) []stage {
	var ended []*Completion
	for _, it := range items {
		if it.completion.Leased {
			ended = append(ended, it.completion)
		}
	}
	if len(ended) == 0 {
		return nil
	}
	slices.SortFunc(ended, func(a, b *Completion) int { return a.Key.Compare(b.Key) })
	var a dbsqlc.EndLeasesParams
	for _, c := range ended {
		a.Append(dbsqlc.EndLeasesItem{Key: c.Key, FencingToken: c.FencingToken})
	}
	return []stage{func(ctx context.Context, db DB) error { return s.q.EndLeases(ctx, db, a) }}
}

// saveBatch collects the arguments of the statements.
type saveBatch struct {
	store   *Store
	items   []*saveItem
	arg     dbsqlc.SaveResultParams
	failed  dbsqlc.WriteFailedAttemptsParams
	retry   dbsqlc.RetryTasksParams
	restore dbsqlc.RestoreTimersParams
	drop    dbsqlc.DropTimersParams
	set     dbsqlc.SetTimersParams
	check   dbsqlc.CheckTimersParams
	count   dbsqlc.CountResultsParams
	restart dbsqlc.RestartHistoriesParams
	reply   dbsqlc.ReplyTasksParams
	cancel  dbsqlc.CancelScheduledParams
	records effectBatches
}

func (b *saveBatch) add(ord int32, c *Completion) {
	row := dbsqlc.SaveResultItem{
		Ord: ord, Key: c.Key, TaskID: c.TaskID, FencingToken: c.FencingToken,
		Outcome: string(c.Outcome), AuxState: c.AuxState, Metadata: string(c.Metadata),
		EventCount: int32(len(c.events())), Response: c.Response, Failure: string(c.Failure),
		Rejection: string(c.Rejection), Detail: c.Detail, Promote: c.Promote,
		StepTimeoutUs: c.StepTimeout.Microseconds(), WorkerID: c.AnsweredBy,
	}
	b.addTimers(&row, c)
	b.arg.Append(row)
	b.addEvents(ord, c)
	if c.RestartHistory && c.applies() {
		addRestart(&b.restart, ord, c.Key, c.FencingToken)
	}
	b.addReplies(c)
	if c.changesStatus() {
		b.count.Append(dbsqlc.CountResultsItem{
			Key: c.Key, TaskID: c.TaskID, FencingToken: c.FencingToken, Outcome: string(c.Outcome),
		})
	}
	if c.Record != nil {
		b.records.add(c, c.Record)
	}
	switch c.Outcome {
	case Retry:
		b.addRetry(c)
	case Failed, Completed, Cancelled:
		b.cancel.Append(dbsqlc.CancelScheduledItem{
			Key: c.Key, TaskID: c.TaskID, FencingToken: c.FencingToken,
		})
	}
}

// addTimers sets the default timer in the row for SaveResult. If the result sets or removes named
// timers, separate statements before SaveResult remove and set the timers. SaveResult then only
// adds the default timer.
func (b *saveBatch) addTimers(row *dbsqlc.SaveResultItem, c *Completion) {
	row.TimerType, row.TimerAt, row.TimerAfterUs = string(process.TaskTimeout), epoch, -1
	named := c.applies() && len(c.NamedTimers)+len(c.UnsetNames) > 0
	switch {
	case !c.applies():
	case c.Timer != nil:
		row.TimerAction, row.TimerType = "set", c.Timer.taskType()
		row.TimerAt, row.TimerAfterUs = c.Timer.when()
		if named || c.Fired { // no pending timer is left; skipping the search saves a tenth of SaveResult
			row.TimerAction = "add"
		}
	case c.UnsetTimers && !named:
		row.TimerAction = "unset"
	}
	if c.TaskType == process.TaskRepair && c.Outcome == Finished && !c.UnsetTimers {
		b.restore.Append(dbsqlc.RestoreTimersItem{
			Key: c.Key, FencingToken: c.FencingToken, KeepDefault: c.Timer == nil,
		})
	}
	if !named {
		return
	}
	if c.UnsetTimers {
		b.addDrop(c, "", true)
	}
	if c.Timer != nil {
		b.addDrop(c, "", false)
	}
	for _, name := range c.UnsetNames {
		b.addDrop(c, name, false)
	}
	if len(c.NamedTimers) > 0 {
		b.addCheck(c)
	}
	for _, t := range lastOfEachName(c.NamedTimers) {
		b.addDrop(c, t.Name, false)
		at, after := t.when()
		b.set.Append(dbsqlc.SetTimersItem{
			Key: c.Key, FencingToken: c.FencingToken, TimerName: t.Name, TimerType: t.taskType(),
			At: at, AfterUs: after,
		})
	}
}

// addCheck makes CheckTimers count the timers of a process that gets named timers. Other results
// set at most the default timer.
func (b *saveBatch) addCheck(c *Completion) {
	extra := int32(0)
	if c.Timer != nil {
		extra = 1
	}
	b.check.MaxTimers = process.MaxTimers
	b.check.Append(dbsqlc.CheckTimersItem{Key: c.Key, FencingToken: c.FencingToken, Extra: extra})
}

// lastOfEachName removes timers that a later one with the same name replaces.
func lastOfEachName(timers []SetTimer) []SetTimer {
	last := make(map[string]int, len(timers))
	for n, t := range timers {
		last[t.Name] = n
	}
	var kept []SetTimer
	for n, t := range timers {
		if last[t.Name] == n {
			kept = append(kept, t)
		}
	}
	return kept
}

func (b *saveBatch) addDrop(c *Completion, name string, all bool) {
	b.drop.Append(dbsqlc.DropTimersItem{
		Key: c.Key, FencingToken: c.FencingToken, TimerName: name, DropAll: all,
	})
}

func (b *saveBatch) addRetry(c *Completion) {
	b.retry.Append(dbsqlc.RetryTasksItem{
		Key: c.Key, TaskID: c.TaskID, FencingToken: c.FencingToken,
		AfterUs: c.RetryAfter.Microseconds(), Counted: !c.Uncounted, Failure: string(c.Failure),
	})
	if len(c.Failure) > 0 && c.Record == nil && !c.Uncounted {
		b.failed.Append(dbsqlc.WriteFailedAttemptsItem{
			Key: c.Key, TaskID: c.TaskID, FencingToken: c.FencingToken, Failure: string(c.Failure),
		})
	}
}

func (b *saveBatch) addEvents(ord int32, c *Completion) {
	for n := range c.events() {
		b.arg.AppendEvent(c.eventRow(ord, n))
	}
}

// eventRow returns the nth event of a completion, for the item ord of a statement.
func (c *Completion) eventRow(ord int32, n int) dbsqlc.SaveResultEvent {
	e := &c.Events[n]
	payload := e.Payload
	if payload == nil {
		payload = []byte{}
	}
	return dbsqlc.SaveResultEvent{
		Ord: ord, Key: c.Key, EventID: c.LastEventID + int64(n) + 1, TaskID: c.TaskID,
		Attempt: c.Attempt, Ts: e.Timestamp, Metadata: string(e.Metadata), Payload: payload,
	}
}

func (b *saveBatch) save(ctx context.Context, db DB) error {
	rows, err := b.store.q.SaveResult(ctx, db, b.arg)
	if err != nil {
		return err
	}
	for _, it := range b.items {
		it.saved, it.err = Saved{}, process.ErrFenced
	}
	for i := range rows {
		it := b.items[rows[i].Ord]
		it.err = nil
		it.saved = savedOf(it.completion, &rows[i])
	}
	return nil
}

func savedOf(c *Completion, r *dbsqlc.SaveResultRow) Saved {
	saved := Saved{Status: r.Status, Now: r.Now, Deferred: r.Deferred, TimerDelay: -1}
	if r.TimerDelayUs >= 0 {
		saved.TimerDelay = microseconds(r.TimerDelayUs)
	}
	if r.Promoted {
		saved.Next = &Claim{
			Namespace: c.Key.Namespace, ProcessID: c.Key.ProcessID, TaskID: r.NextTaskID, TaskType: r.NextTaskType,
			Attempt: r.NextAttempt, Priority: r.NextPriority, FencingToken: r.NextToken,
			ScheduledTime: r.NextScheduledTime,
			RunningTime:   r.Now, RetryInterval: r.NextRetryInterval, TimerName: r.NextTimerName,
			HistoryRange:   r.NextHistoryRange,
			IdempotencyKey: r.NextIdempotencyKey, Args: r.NextArgs, Context: r.NextContext, Child: r.NextChild,
			Status:       r.Status,
			FirstEventID: r.FirstEventID, LastEventID: r.LastEventID + int64(len(c.events())),
		}
	}
	return saved
}

func (b *saveBatch) cancelScheduled(ctx context.Context, db DB) error {
	b.cancel.Lim = queueLimit(len(b.cancel.Namespaces))
	rows, err := b.store.q.CancelScheduled(ctx, db, b.cancel)
	if err != nil {
		return err
	}
	for _, it := range b.items {
		it.saved.Cancelled = nil
	}
	for _, r := range rows {
		for _, it := range b.items {
			if it.err == nil && it.key.Namespace == r.Namespace && it.key.ProcessID == r.ProcessID {
				it.saved.Cancelled = append(it.saved.Cancelled, r.TaskID)
			}
		}
	}
	return nil
}

package engine

import (
	"context"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/progressor-engine/progressor/process"
	progressorv1 "github.com/progressor-engine/progressor/proto/progressor/v1"
	"github.com/progressor-engine/progressor/storage"
	"github.com/progressor-engine/progressor/wire"
)

// taskEnd is the end of a task, as it is sent to the clients that wait for it.
type taskEnd struct {
	status        process.TaskStatus
	response      []byte
	failure       *progressorv1.Failure
	rejection     *progressorv1.Rejection
	processStatus process.Status // status of the process of a failed task; "" if it was removed
	lost          bool           // a database failover lost the task
}

func taskEndOf(d *decision, saved *storage.Saved) taskEnd {
	a := taskEnd{status: process.TaskStatusFinished, response: d.completion.Response, rejection: d.rejection}
	if d.completion.Outcome == storage.Failed {
		a.status, a.failure, a.processStatus = process.TaskStatusError, d.failure, saved.Status
	}
	return a
}

func taskEndOfRow(r *storage.Answer) (taskEnd, error) {
	a := taskEnd{status: r.Status, response: r.Response, processStatus: process.Status(r.ProcessStatus)}
	var err error
	if a.failure, err = wire.Failure(r.Failure); err != nil {
		return a, err
	}
	a.rejection, err = wire.Rejection(r.Rejection)
	return a, err
}

const (
	// maxPolled is the maximum number of tasks in one query. If clients wait for more tasks, the
	// tasks take turns.
	maxPolled = 1000
	// ownQueryInterval is the interval between queries for a task whose process runs on this node.
	// Normally the end of the task is delivered in memory. This does not happen if another node ran
	// the process in between, or took the process over from an attempt here that does not end.
	ownQueryInterval = time.Second
)

// waiter is one client that waits for a task.
type waiter struct {
	ref          storage.TaskRef
	ended        chan taskEnd // buffered for one end
	mayHaveEnded bool         // the task may have ended without a delivery, so query the database once
	asked        time.Time    // time of the last query, initially of the registration
}

// waiters holds the clients of this node that wait for tasks. Tasks that end on this node are
// delivered in memory. For tasks that run on other nodes, one query for all clients runs every
// AnswerPoll, unless there is nothing to query.
type waiters struct {
	engine *Engine
	mu     sync.Mutex
	byTask map[storage.TaskRef][]*waiter
	order  []*waiter // the waiters take turns; ended ones are dropped when their turn comes
	woken  chan struct{}
	ended  chan struct{}            // receives a value after another node has ended tasks
	stale  map[process.Key]struct{} // processes whose tasks may have ended, for the next turn
	done   chan struct{}

	failing bool // the last query failed; used only by Run
}

func newWaiters(e *Engine) *waiters {
	return &waiters{
		engine: e, byTask: map[storage.TaskRef][]*waiter{},
		woken: make(chan struct{}, 1), ended: make(chan struct{}, 1),
		stale: map[process.Key]struct{}{}, done: make(chan struct{}),
	}
}

// register starts a wait for a task. mayHaveEnded is true if the task may have ended before this
// call.
func (w *waiters) register(ref storage.TaskRef, mayHaveEnded bool) *waiter {
	wt := &waiter{ref: ref, ended: make(chan taskEnd, 1), mayHaveEnded: mayHaveEnded, asked: time.Now()}
	w.mu.Lock()
	defer w.mu.Unlock()
	w.byTask[ref] = append(w.byTask[ref], wt)
	w.order = append(w.order, wt)
	if len(w.order) == 1 {
		signal(w.woken)
	}
	return wt
}

// forget ends the wait of one client.
func (w *waiters) forget(wt *waiter) {
	w.mu.Lock()
	defer w.mu.Unlock()
	list := w.byTask[wt.ref]
	for n, other := range list {
		if other == wt {
			list = append(list[:n], list[n+1:]...)
			break
		}
	}
	if len(list) == 0 {
		delete(w.byTask, wt.ref)
	} else {
		w.byTask[wt.ref] = list
	}
	wt.ended = nil
}

// deliver sends the end of a task to all clients that wait for it.
func (w *waiters) deliver(ref storage.TaskRef, a taskEnd) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, wt := range w.byTask[ref] {
		select {
		case wt.ended <- a:
		default: // already delivered
		}
	}
	delete(w.byTask, ref)
}

// cancelNamespace ends the waits for tasks of a namespace. The clients learn that their tasks were
// cancelled.
func (w *waiters) cancelNamespace(name string) {
	for _, ref := range w.refs() {
		if ref.Key.Namespace == name {
			w.deliver(ref, taskEnd{status: process.TaskStatusCancelled})
		}
	}
}

// recheck schedules a database query for all tasks of a process for which clients wait.
func (w *waiters) recheck(key process.Key) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.stale[key] = struct{}{}
	signal(w.woken)
}

// endedElsewhere schedules a database query, because another node has ended tasks.
func (w *waiters) endedElsewhere() { signal(w.ended) }

// count returns the number of tasks for which clients wait.
func (w *waiters) count() int {
	w.mu.Lock()
	defer w.mu.Unlock()
	return len(w.byTask)
}

// refs returns all tasks for which clients wait.
func (w *waiters) refs() []storage.TaskRef {
	w.mu.Lock()
	defer w.mu.Unlock()
	return slices.Collect(maps.Keys(w.byTask))
}

// close ends all waits.
func (w *waiters) close() { close(w.done) }

// answerRest is the minimum pause after a query, as a multiple of its duration. The pause limits
// the load of the queries that notices of other nodes cause. It is at most AnswerPoll.
const answerRest = 10

// Run queries answers until ctx is cancelled.
func (w *waiters) Run(ctx context.Context) error {
	timer, rest := time.NewTimer(w.engine.cfg.AnswerPoll), time.NewTimer(0)
	defer timer.Stop()
	defer rest.Stop()
	for {
		began := time.Now()
		idle := w.runOnce(ctx)
		var tick <-chan time.Time
		if !idle {
			timer.Reset(w.engine.cfg.AnswerPoll)
			tick = timer.C
		}
		rest.Reset(min(answerRest*time.Since(began), w.engine.cfg.AnswerPoll))
		select {
		case <-ctx.Done():
			return nil
		case <-rest.C:
		}
		woken := w.woken
		if !idle { // at most one query per AnswerPoll, even if waits begin and end often
			woken = nil
		}
		select {
		case <-ctx.Done():
			return nil
		case <-woken:
		case <-w.ended:
		case <-tick:
		}
	}
}

// runOnce makes one query for all tasks that may have ended elsewhere. idle is true if no client
// waits.
func (w *waiters) runOnce(ctx context.Context) (idle bool) {
	refs, waiting := w.due()
	if len(refs) == 0 {
		return waiting == 0
	}
	limit, cancel := context.WithTimeout(ctx, 5*time.Second)
	defer cancel()
	rows, cut, err := w.engine.store.ReadAnswers(limit, refs)
	if err != nil {
		if ctx.Err() == nil && !w.failing { // log only once while the database is unavailable
			w.failing = true
			w.engine.log.Warn("cannot read the results of tasks", "tasks", len(refs), "error", err)
		}
		for _, r := range refs {
			w.recheck(r.Key)
		}
		return false
	}
	if w.failing {
		w.failing = false
		w.engine.log.Info("reading the results of tasks works again", "tasks", len(refs))
	}
	if cut { // query the others again
		read := int(slices.MaxFunc(rows, func(a, b storage.Answer) int { return int(a.Ord - b.Ord) }).Ord)
		for _, r := range refs[read+1:] {
			w.recheck(r.Key)
		}
	}
	for i := range rows {
		a, err := taskEndOfRow(&rows[i])
		if err != nil {
			w.engine.log.Error("cannot decode the result of a task", "namespace", refs[rows[i].Ord].Key.Namespace,
				"process_id", refs[rows[i].Ord].Key.ProcessID, "task_id", refs[rows[i].Ord].TaskID, "error", err)
			continue
		}
		w.deliver(refs[rows[i].Ord], a)
	}
	return false
}

// due returns the next tasks to query, at most maxPolled: tasks whose process does not run on this
// node, tasks whose end may have been missed, and tasks that were not queried for ownQueryInterval.
func (w *waiters) due() (refs []storage.TaskRef, waiting int) {
	w.mu.Lock()
	defer w.mu.Unlock()
	now := time.Now()
	kept := make([]*waiter, 0, len(w.order))
	var asked []*waiter
	runs := map[process.Key]bool{}
	for _, wt := range w.order {
		if wt.ended == nil || len(w.byTask[wt.ref]) == 0 {
			continue
		}
		here, ok := runs[wt.ref.Key]
		if !ok {
			here = w.engine.attempts.runs(wt.ref.Key)
			runs[wt.ref.Key] = here
		}
		if _, stale := w.stale[wt.ref.Key]; stale {
			wt.mayHaveEnded = true
		}
		if len(asked) < maxPolled && (wt.mayHaveEnded || !here || now.Sub(wt.asked) >= ownQueryInterval) {
			wt.mayHaveEnded, wt.asked = false, now
			asked = append(asked, wt)
			refs = append(refs, wt.ref)
			continue
		}
		kept = append(kept, wt)
	}
	clear(w.stale) // every waiter of these processes is marked
	w.order = append(kept, asked...)
	return refs, len(w.order)
}

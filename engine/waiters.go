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

// answer is how a task ended, as the client that waits for it is told.
type answer struct {
	status        process.TaskStatus
	response      []byte
	failure       *progressorv1.Failure
	rejection     *progressorv1.Rejection
	processStatus process.Status // of a task that failed; "": the process is gone
	lost          bool           // a failover of the database lost the task
}

func answerOf(d *decision, saved *storage.Saved) answer {
	a := answer{status: process.TaskStatusFinished, response: d.completion.Response, rejection: d.rejection}
	if d.completion.Outcome == storage.Failed {
		a.status, a.failure, a.processStatus = process.TaskStatusError, d.failure, saved.Status
	}
	return a
}

func answerOfRow(r *storage.Answer) (answer, error) {
	a := answer{status: r.Status, response: r.Response, processStatus: process.Status(r.ProcessStatus)}
	var err error
	if a.failure, err = wire.Failure(r.Failure); err != nil {
		return a, err
	}
	a.rejection, err = wire.Rejection(r.Rejection)
	return a, err
}

const (
	// maxPolled is how many waiting tasks one query asks for; more take turns.
	maxPolled = 1000
	// maxUnasked is how long a task is not asked for because its process runs on this node. Its end is delivered in memory then,
	// unless another node had the process for a moment, or has taken it from an attempt here that does not end.
	maxUnasked = time.Second
)

// waiter is one client that waits for a task.
type waiter struct {
	ref     storage.TaskRef
	answers chan answer // holds one
	fresh   bool        // the task may have ended without a delivery, so the database is asked for it once
	asked   time.Time   // when the database was last asked; of a new one: when it came
}

// waiters holds the clients of this node that wait for tasks. What ends on this node is delivered in memory; for what runs
// elsewhere one query for all of them is made every AnswerPoll, and none while there is nothing to ask.
type waiters struct {
	engine *Engine
	mu     sync.Mutex
	byTask map[storage.TaskRef][]*waiter
	order  []*waiter // in the order of registration, for taking turns; those that are gone are dropped in passing
	kick   chan struct{}
	stale  map[process.Key]struct{} // processes whose waiters the next turn marks as fresh
	done   chan struct{}

	failing bool // the last query failed; Run alone looks at it
}

func newWaiters(e *Engine) *waiters {
	return &waiters{
		engine: e, byTask: map[storage.TaskRef][]*waiter{}, kick: make(chan struct{}, 1), stale: map[process.Key]struct{}{}, done: make(chan struct{}),
	}
}

// register begins to wait for a task. fresh: the task was there before this client came.
func (w *waiters) register(ref storage.TaskRef, fresh bool) *waiter {
	wt := &waiter{ref: ref, answers: make(chan answer, 1), fresh: fresh, asked: time.Now()}
	w.mu.Lock()
	defer w.mu.Unlock()
	w.byTask[ref] = append(w.byTask[ref], wt)
	w.order = append(w.order, wt)
	if len(w.order) == 1 {
		signal(w.kick)
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
	wt.answers = nil
}

// deliver notifies all clients that wait for a task of its end.
func (w *waiters) deliver(ref storage.TaskRef, a answer) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, wt := range w.byTask[ref] {
		select {
		case wt.answers <- a:
		default: // answered already
		}
	}
	delete(w.byTask, ref)
}

// recheck has the database asked for everything that waits for a process.
func (w *waiters) recheck(key process.Key) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.stale[key] = struct{}{}
	signal(w.kick)
}

// count is how many clients wait.
func (w *waiters) count() int {
	w.mu.Lock()
	defer w.mu.Unlock()
	return len(w.byTask)
}

// refs returns all tasks that are waited for.
func (w *waiters) refs() []storage.TaskRef {
	w.mu.Lock()
	defer w.mu.Unlock()
	return slices.Collect(maps.Keys(w.byTask))
}

// close ends all waits.
func (w *waiters) close() { close(w.done) }

// Run asks for answers until ctx ends.
func (w *waiters) Run(ctx context.Context) error {
	timer := time.NewTimer(w.engine.cfg.AnswerPoll)
	defer timer.Stop()
	for {
		idle := w.runOnce(ctx)
		var tick <-chan time.Time
		if !idle {
			timer.Reset(w.engine.cfg.AnswerPoll)
			tick = timer.C
		}
		select {
		case <-ctx.Done():
			return nil
		case <-w.kick:
			if !idle { // at most one query in AnswerPoll, however many clients come and go
				select {
				case <-tick:
				case <-ctx.Done():
					return nil
				}
			}
		case <-tick:
		}
	}
}

// runOnce makes one query for all tasks that may have ended elsewhere. idle: nobody waits.
func (w *waiters) runOnce(ctx context.Context) (idle bool) {
	refs, waiting := w.due()
	if len(refs) == 0 {
		return waiting == 0
	}
	limit, cancel := context.WithTimeout(ctx, 5*time.Second)
	defer cancel()
	rows, cut, err := w.engine.store.ReadAnswers(limit, refs)
	if err != nil {
		if ctx.Err() == nil && !w.failing { // not every AnswerPoll while the database is away
			w.failing = true
			w.engine.log.Warn("answers not read", "tasks", len(refs), "error", err)
		}
		for _, r := range refs {
			w.recheck(r.Key)
		}
		return false
	}
	if w.failing {
		w.failing = false
		w.engine.log.Info("answers are read again", "tasks", len(refs))
	}
	if cut { // the others are asked for again
		read := int(slices.MaxFunc(rows, func(a, b storage.Answer) int { return int(a.Ord - b.Ord) }).Ord)
		for _, r := range refs[read+1:] {
			w.recheck(r.Key)
		}
	}
	for i := range rows {
		a, err := answerOfRow(&rows[i])
		if err != nil {
			w.engine.log.Error("answer cannot be read", "namespace", refs[rows[i].Ord].Key.Namespace, "process_id", refs[rows[i].Ord].Key.ProcessID, "task_id", refs[rows[i].Ord].TaskID, "error", err)
			continue
		}
		w.deliver(refs[rows[i].Ord], a)
	}
	return false
}

// due takes the next turn of at most maxPolled tasks to ask for: those whose process does not run on this node, those that may
// have been missed, and those that were not asked for in a while.
func (w *waiters) due() (refs []storage.TaskRef, waiting int) {
	w.mu.Lock()
	defer w.mu.Unlock()
	now := time.Now()
	kept := make([]*waiter, 0, len(w.order))
	var asked []*waiter
	runs := map[process.Key]bool{}
	for _, wt := range w.order {
		if wt.answers == nil || len(w.byTask[wt.ref]) == 0 {
			continue
		}
		here, ok := runs[wt.ref.Key]
		if !ok {
			here = w.engine.attempts.runs(wt.ref.Key)
			runs[wt.ref.Key] = here
		}
		if _, stale := w.stale[wt.ref.Key]; stale {
			wt.fresh = true
		}
		if len(asked) < maxPolled && (wt.fresh || !here || now.Sub(wt.asked) >= maxUnasked) {
			wt.fresh, wt.asked = false, now
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

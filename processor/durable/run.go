package durable

import (
	"context"
	"fmt"
	"log/slog"
	"runtime"
	"runtime/debug"
	"sync"
	"sync/atomic"

	"github.com/progressor-engine/progressor/process"
	"github.com/progressor-engine/progressor/processor"
	progressorv1 "github.com/progressor-engine/progressor/proto/progressor/v1"
)

// run is one run of the function, from its start to the point where it waits. A parked run
// continues in the next task (see park.go). Its driver is the goroutine of Process. The function
// and the branches of Each are separate goroutines, but only one of them or the driver runs at a
// time, so they share the fields without a lock.
type run struct {
	ctx     context.Context // ends with the attempt
	program *program
	request *progressorv1.ProcessRequest
	journal *journal

	begun    bool
	branches []*branch // those that have not ended
	current  *branch   // the last one that the driver let run
	returned *outcome  // nil until the function has returned
	undos    map[string]undo
	order    beginOrder // nil if the journal contains no repair by step
	queues   map[string]*queue
	due      map[string]bool // steps whose wait before the next try has ended
	effects  effects
	check    *checking // nil unless the run only checks the journal
	quiet    bool      // panics are not logged

	signals
	wg sync.WaitGroup

	mu     sync.Mutex            // guards err, bodies, undos, order, check, and names of the branches
	err    error                 // the first panic or misuse
	bodies map[*goroutine]string // descriptions of the bodies that run
}

// signals are the channels of the driver and the branches.
type signals struct {
	yield  chan struct{} // a branch sends when it begins to wait or ends
	over   chan struct{} // closed when the driver ends the run
	failed chan struct{} // closed when err is set
	parked atomic.Bool   // no task runs, and the next one may continue the run
}

// outcome contains the results of the function.
type outcome struct {
	value []byte
	err   error
}

func newRun(ctx context.Context, p *program, req *progressorv1.ProcessRequest, j *journal) *run {
	r := &run{ctx: ctx, program: p, request: req, journal: j, undos: map[string]undo{},
		queues: map[string]*queue{}, due: map[string]bool{}, bodies: map[*goroutine]string{},
		effects: newEffects(), signals: signals{
			yield: make(chan struct{}), over: make(chan struct{}), failed: make(chan struct{}),
		}}
	if j.repaired {
		r.order = beginOrder{}
	}
	return r
}

// advance runs the function until every branch waits for something that the journal does not
// contain, or until the function has returned. It returns the context's error, or a FailureError.
func (r *run) advance() error {
	if !r.begun {
		r.begun = true
		root := r.newBranch("", func(b *branch) {
			value, err := r.program.call(Ctx{b}, r.journal.entries[0].Value)
			r.returned = &outcome{value: value, err: err}
		})
		root.wait = &wait{ready: func() bool { return true }}
	}
	for progress := true; progress; {
		progress = false
		for i := 0; i < len(r.branches); i++ { // a branch may add branches
			b := r.branches[i]
			if b.wait == nil || !b.wait.ready() {
				continue
			}
			if err := r.resume(b); err != nil {
				return err
			}
			progress = true
		}
		r.forgetEnded()
	}
	return nil
}

// resume lets a branch run until it waits or ends.
func (r *run) resume(b *branch) error {
	b.wait, r.current = nil, b
	if b.started {
		b.resume <- struct{}{}
	} else {
		b.started = true
		r.wg.Go(b.run)
	}
	select {
	case <-r.yield:
		return r.failure()
	case <-r.failed:
		return r.failure()
	case <-r.ctx.Done():
		return r.ctx.Err()
	}
}

func (r *run) forgetEnded() {
	kept := r.branches[:0]
	for _, b := range r.branches {
		if !b.ended {
			kept = append(kept, b)
		}
	}
	clear(r.branches[len(kept):])
	r.branches = kept
}

// steps returns the steps that wait to be run, without those that wait for their next try.
func (r *run) steps() []*stepRun {
	var found []*stepRun
	for _, b := range r.branches {
		if b.wait == nil || b.wait.step == nil {
			continue
		}
		if step := b.wait.step; r.journal.tries[step.name] == 0 || r.due[step.name] {
			found = append(found, step)
		}
	}
	return found
}

// runnable returns the steps that the next task can run. A step that may be retried needs a timer.
func (r *run) runnable() []*stepRun {
	room := process.MaxTimers - 1 - len(r.journal.pendingTimers()) - len(r.journal.pendingRetries())
	var found []*stepRun
	for _, step := range r.steps() {
		if step.tries > 1 && !r.due[step.name] { // otherwise its timer is pending already
			if room <= 0 {
				continue
			}
			room--
		}
		if found = append(found, step); len(found) == maxSteps {
			break
		}
	}
	return found
}

// close ends the goroutines of the branches. It waits for them unless one of them may still run
// user code.
func (r *run) close() {
	close(r.over)
	if r.ctx.Err() == nil && r.failure() == nil {
		r.wg.Wait()
	}
}

func (r *run) failure() error {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.err
}

// fail records the first failure and wakes the driver.
func (r *run) fail(err error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.err == nil {
		r.err = err
		close(r.failed)
	}
}

// misuse fails the task and ends the calling goroutine.
func (r *run) misuse(format string, args ...any) {
	r.stop(ReasonMisuse, format, args...)
}

// mismatch fails the task because the journal does not match the function. It ends the calling
// goroutine.
func (r *run) mismatch(format string, args ...any) {
	r.stop(ReasonJournal, format, args...)
}

func (r *run) stop(reason, format string, args ...any) {
	r.fail(processor.Fail(reason, "%s: %s", caller(), fmt.Sprintf(format, args...)).NonRetryable())
	runtime.Goexit()
}

// recovered logs a panic of user code, and fails the task.
func (r *run) recovered(v any) {
	if !r.quiet {
		key := r.request.GetProcess()
		slog.ErrorContext(r.ctx, "durable function panicked", "function", r.program.name,
			"namespace", key.GetNamespace(), "process_id", key.GetProcessId(), "task_id", r.request.GetTaskId(),
			"panic", v, "stack", string(debug.Stack()))
	}
	r.fail(processor.Fail(process.ReasonPanic, "function %s panicked: %v", r.program.name, v))
}

// body runs user code, such as the body of a step, in its own goroutine. User code in this
// goroutine must not call operations of the function. done is called when the goroutine ends, even
// after misuse or a panic.
func (r *run) body(what string, f func(), done func()) {
	go func() {
		defer done()
		own, completed := &goroutine{}, false
		defer func() {
			if v := recover(); v != nil {
				r.recovered(v)
			} else if !completed { // after misuse, the failure is set already
				r.fail(processor.Fail(ReasonMisuse, "%s called runtime.Goexit, as t.FailNow does", what).NonRetryable())
			}
		}()
		own.run(func() {
			r.mu.Lock()
			r.bodies[own] = what
			r.mu.Unlock()
			defer func() {
				r.mu.Lock()
				delete(r.bodies, own)
				r.mu.Unlock()
			}()
			f()
			completed = true
		})
	}()
}

// bodyAlone runs one body and waits for it.
func (r *run) bodyAlone(what string, f func()) error {
	ended := make(chan struct{})
	r.body(what, f, func() { close(ended) })
	<-ended
	return r.failure()
}

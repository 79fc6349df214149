package engine_test

import (
	"context"
	"testing"
	"time"

	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/progressor-engine/progressor/engine"
	"github.com/progressor-engine/progressor/process"
	"github.com/progressor-engine/progressor/processor"
	progressorv1 "github.com/progressor-engine/progressor/proto/progressor/v1"
	"github.com/progressor-engine/progressor/storage/storagetest"
)

const cancelTask = progressorv1.TaskType_TASK_TYPE_CANCEL

// cancelled requests a cancel, which must succeed.
func (n *node) cancelled(t testing.TB, id string, grace time.Duration) *progressorv1.Process {
	t.Helper()
	p, err := n.CancelProcess(t.Context(), engine.CancelParams{Key: key(id), Reason: "no more", Grace: &grace})
	if err != nil {
		t.Fatalf("cancel %s: %v", id, err)
	}
	return p
}

// ends waits until a process is CANCELLED.
func (n *node) ends(t testing.TB, id string) {
	t.Helper()
	eventually(t, "process "+id+" is CANCELLED", func() bool { return n.status(t, id) == "CANCELLED" })
}

// cancelTaskOf returns the CANCEL task of a process.
func (n *node) cancelTaskOf(t testing.TB, id string) *progressorv1.Task {
	t.Helper()
	page, err := n.TraceProcess(t.Context(), key(id), 100, "")
	if err != nil {
		t.Fatal(err)
	}
	for _, task := range page.GetTasks() {
		if task.GetType() == cancelTask {
			return task
		}
	}
	t.Fatalf("process %s has no CANCEL task", id)
	return nil
}

// The result of a CANCEL task is stored, but its action is ignored.
func TestCancelRunsTask(t *testing.T) {
	t.Parallel()
	dsn := storagetest.DSN(t)
	asked := make(chan *progressorv1.ProcessRequest, 1)
	n := start(t, dsn, by{cancelTask: func(
		_ context.Context, r *progressorv1.ProcessRequest,
	) (*progressorv1.ProcessResponse, error) {
		asked <- r
		return processor.Result().Event([]byte("end")).AuxState([]byte("ended")).Response([]byte("bye")).
			SetTimerAfter(0).Done()
	}})
	n.started(t, "p")
	p := n.cancelled(t, "p", time.Minute)
	if p.GetCancelReason() != "no more" || p.GetCancelRequestedTime() == nil {
		t.Errorf("the answer: %v", p)
	}
	r := receive(t, "the CANCEL task", asked)
	if r.GetCancelReason() != "no more" || len(r.GetArgs()) != 0 || r.GetProcess().GetCancelReason() != "no more" {
		t.Errorf("the request: %v", r)
	}
	if left := time.Until(r.GetDeadline().AsTime()); left > time.Minute {
		t.Errorf("the deadline is %s away", left)
	}
	n.ends(t, "p")
	p, err := n.GetProcess(t.Context(), key("p"), nil, 0)
	if err != nil || string(p.GetAuxState()) != "ended" || p.GetLastEventId() != 2 || len(p.GetTimers()) != 0 ||
		p.GetCancelReason() != "no more" {
		t.Errorf("%v, %v", p, err)
	}
	task := n.cancelTaskOf(t, "p")
	if task.GetStatus() != progressorv1.TaskStatus_TASK_STATUS_FINISHED || string(task.GetResponse()) != "bye" {
		t.Errorf("the task: %v", task)
	}
	_, again := n.CancelProcess(t.Context(), engine.CancelParams{Key: key("p")})
	_, call := n.Call(t.Context(), engine.CallParams{Key: key("p")})
	_, repair := n.Repair(t.Context(), engine.RepairParams{Key: key("p"), Simple: true})
	for what, err := range map[string]error{"a cancel": again, "a call": call, "a repair": repair} {
		if !refusedIn(err, process.StatusCancelled) {
			t.Errorf("%s of a cancelled process: %v", what, err)
		}
	}
}

// A CANCEL task runs before waiting calls, on any node. The calls are cancelled.
func TestCancelAheadOfCalls(t *testing.T) {
	t.Parallel()
	dsn := storagetest.DSN(t)
	g := newGate()
	defer g.release()
	a, b := start(t, dsn, by{callTask: g.held(true)}), start(t, dsn, by{callTask: g.held(true)})
	a.started(t, "p")
	first := a.calling("p", "1")
	receive(t, "the call runs", g.entered)
	second, third := b.calling("p", "2"), a.calling("p", "3")
	eventually(t, "both wait", func() bool { return look(t, dsn).count(t, "SELECT count(*) FROM schedule") == 2 })
	b.cancelled(t, "p", time.Minute)
	g.release()
	if res := receive(t, "the running call", first); res.err != nil || string(res.ans.Response) != "1" {
		t.Errorf("the running call: %+v", res)
	}
	for _, c := range []<-chan result{second, third} {
		if res := receive(t, "the waiting call", c); !taskError(t, res.err).Cancelled {
			t.Errorf("the waiting call: %+v", res)
		}
	}
	b.ends(t, "p")
}

// A call that fails while its process is being cancelled ends the process. Its clients on this node
// and on other nodes, and repeated requests, learn that it is CANCELLED, not in ERROR.
func TestCallThatFailsWhileCancelling(t *testing.T) {
	t.Parallel()
	dsn := storagetest.DSN(t)
	g := newGate()
	defer g.release()
	fails := by{callTask: func(
		ctx context.Context, r *progressorv1.ProcessRequest,
	) (*progressorv1.ProcessResponse, error) {
		_ = g.pass(ctx, r, false)
		return nil, processor.Fail("odd", "it broke")
	}}
	a, b := start(t, dsn, fails), start(t, dsn, fails)
	a.started(t, "p")
	answered := map[string]<-chan result{"the node that ran it": a.calling("p", "x", keyed("k"))}
	receive(t, "the call runs", g.entered)
	answered["another node"] = b.calling("p", "x", keyed("k"))
	a.cancelled(t, "p", time.Minute)
	g.release()
	for who, c := range answered {
		if te := taskError(t, receive(t, who, c).err); te.Failure.GetReason() != "odd" ||
			te.ProcessStatus != process.StatusCancelled {
			t.Errorf("%s: %+v", who, te)
		}
	}
	if te := taskError(t, (<-a.calling("p", "x", keyed("k"))).err); te.Failure.GetReason() != "odd" ||
		te.ProcessStatus != process.StatusCancelled {
		t.Errorf("repeated: %+v", te)
	}
	if got := a.status(t, "p"); got != "CANCELLED" {
		t.Errorf("the process is %s", got)
	}
}

// A process in ERROR or SUSPENDED is cancelled without a CANCEL task.
func TestCancelAtOnce(t *testing.T) {
	t.Parallel()
	dsn := storagetest.DSN(t)
	g := newGate()
	defer g.release()
	n := start(t, dsn, by{
		callTask: func(context.Context, *progressorv1.ProcessRequest) (*progressorv1.ProcessResponse, error) {
			return nil, processor.Fail("odd", "it broke")
		},
		repairTask: g.held(true), notifyTask: g.held(true),
	})
	n.started(t, "broken")
	<-n.calling("broken", "x")
	repair := make(chan result, 1)
	go func() {
		ans, err := n.Repair(context.Background(), engine.RepairParams{Key: key("broken")})
		repair <- result{ans, err}
	}()
	receive(t, "the repair runs", g.entered)
	n.started(t, "held")
	if res := <-n.calling("held", "x", func(p *engine.CallParams) { p.Accepted = true }); res.err != nil {
		t.Fatal(res.err)
	}
	receive(t, "the notify runs", g.entered)
	n.suspended(t, "held")
	for _, id := range []string{"broken", "held"} {
		if p := n.cancelled(t, id, time.Minute); p.GetStatus() != progressorv1.ProcessStatus_PROCESS_STATUS_CANCELLED ||
			p.GetDetail() != "" || p.GetCorruptedBy() != 0 {
			t.Errorf("%s: %v", id, p)
		}
	}
	// The running attempts are cancelled, and their results are not stored. The gate stays closed.
	if res := receive(t, "the repair's answer", repair); !taskError(t, res.err).Cancelled {
		t.Errorf("the repair: %+v", res)
	}
	eventually(t, "the slots are free", func() bool { return n.Attempts() == 0 })
}

// A CANCEL task that fails is retried. If it fails permanently, its process ends anyway and does
// not go to ERROR.
func TestCancelTaskThatGoesWrong(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		answer   func(r *progressorv1.ProcessRequest) (*progressorv1.ProcessResponse, error)
		attempts int32
		reason   string
	}{
		"fails once": {func(r *progressorv1.ProcessRequest) (*progressorv1.ProcessResponse, error) {
			if r.GetAttempt() == 1 {
				return nil, processor.Fail("odd", "not yet")
			}
			return processor.Result().Done()
		}, 2, ""},
		"fails": {func(*progressorv1.ProcessRequest) (*progressorv1.ProcessResponse, error) {
			return nil, processor.Fail("odd", "never")
		}, 3, "odd"},
		"fails for good": {func(*progressorv1.ProcessRequest) (*progressorv1.ProcessResponse, error) {
			return nil, processor.Fail("odd", "never").NonRetryable()
		}, 1, "odd"},
		"rejects": {func(*progressorv1.ProcessRequest) (*progressorv1.ProcessResponse, error) {
			return nil, processor.Reject("no", "I will not")
		}, 3, process.ReasonBadResponse},
		"panics": {func(*progressorv1.ProcessRequest) (*progressorv1.ProcessResponse, error) { panic("odd") }, 3,
			process.ReasonPanic},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			n := start(t, storagetest.DSN(t),
				by{cancelTask: func(
					_ context.Context, r *progressorv1.ProcessRequest,
				) (*progressorv1.ProcessResponse, error) {
					return c.answer(r)
				}})
			n.put(t, quick())
			n.started(t, "p")
			n.cancelled(t, "p", time.Hour)
			n.ends(t, "p")
			task := n.cancelTaskOf(t, "p")
			if task.GetAttempt() != c.attempts || task.GetFailure().GetReason() != c.reason {
				t.Errorf("the task: %v", task)
			}
		})
	}
}

// After the grace period the engine ends the process, even if its processor is still running.
func TestCancelGrace(t *testing.T) {
	t.Parallel()
	hang := func(heeds bool) func(g *gate) by {
		return func(g *gate) by { return by{cancelTask: g.held(heeds)} }
	}
	for name, c := range map[string]struct {
		processor func(g *gate) by
		busy      bool // a call runs when the cancel is requested
	}{
		"hangs":                         {hang(true), false},
		"hangs and ignores its context": {hang(false), false},
		"behind a call":                 {func(g *gate) by { return by{callTask: g.held(false)} }, true},
		"retried too late": {func(*gate) by {
			return by{cancelTask: func(
				context.Context, *progressorv1.ProcessRequest,
			) (*progressorv1.ProcessResponse, error) {
				return nil, processor.Fail("odd", "not yet")
			}}
		}, false},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			dsn := storagetest.DSN(t)
			g := newGate()
			defer g.release()
			a, b := start(t, dsn, c.processor(g)), start(t, dsn, c.processor(g))
			a.put(t, &progressorv1.Namespace{
				Namespace: "ns", RetryPolicy: &progressorv1.RetryPolicy{InitialInterval: durationpb.New(time.Hour)},
			})
			a.started(t, "p")
			var running <-chan result
			if c.busy {
				running = a.calling("p", "slow")
				receive(t, "the call runs", g.entered)
			}
			a.cancelled(t, "p", 200*time.Millisecond)
			waiting := b.calling("p", "waiting")
			b.ends(t, "p")
			task := a.cancelTaskOf(t, "p")
			if task.GetStatus() != progressorv1.TaskStatus_TASK_STATUS_ERROR ||
				task.GetFailure().GetReason() != process.ReasonGraceExpired {
				t.Errorf("the task: %v", task)
			}
			if res := receive(t, "the waiting call", waiting); !refusedIn(res.err, process.StatusCancelled) &&
				!taskError(t, res.err).Cancelled {
				t.Errorf("the waiting call: %+v", res)
			}
			if c.busy {
				if res := receive(t, "the running call", running); !taskError(t, res.err).Cancelled {
					t.Errorf("the running call: %+v", res)
				}
			}
			g.release() // the late result is not stored
			eventually(t, "the slots are free", func() bool { return a.Attempts()+b.Attempts() == 0 })
			if p, err := a.GetProcess(t.Context(), key("p"), nil, 0); err != nil || p.GetLastEventId() != 1 {
				t.Errorf("%v, %v", p, err)
			}
		})
	}
}

// The default grace period is 30 s.
func TestCancelDefaultGrace(t *testing.T) {
	t.Parallel()
	dsn := storagetest.DSN(t)
	g := newGate()
	defer g.release()
	n := start(t, dsn, by{cancelTask: g.held(true)})
	n.started(t, "p")
	if _, err := n.CancelProcess(t.Context(), engine.CancelParams{Key: key("p")}); err != nil {
		t.Fatal(err)
	}
	r := receive(t, "the CANCEL task", g.entered)
	if left := time.Until(r.GetDeadline().AsTime()); left > 30*time.Second {
		t.Errorf("the deadline is %s away", left)
	}
	got := look(t, dsn).count(t, `SELECT extract(epoch FROM cancel_deadline - cancel_requested_time)::int
		FROM processes`)
	if got != 30 {
		t.Errorf("the grace is %d s", got)
	}
}

// Without a grace period there is no CANCEL task.
func TestCancelWithoutGrace(t *testing.T) {
	t.Parallel()
	n := start(t, storagetest.DSN(t), by{})
	n.started(t, "p")
	if p := n.cancelled(t, "p", 0); p.GetStatus() != progressorv1.ProcessStatus_PROCESS_STATUS_CANCELLED {
		t.Errorf("%v", p)
	}
}

// In INIT, the CANCEL task waits for the INIT task.
func TestCancelInInit(t *testing.T) {
	t.Parallel()
	dsn := storagetest.DSN(t)
	g := newGate()
	defer g.release()
	n := start(t, dsn, by{initTask: g.held(true)})
	started := make(chan error, 1)
	go func() {
		_, err := n.Start(context.Background(), engine.StartParams{Key: key("p")})
		started <- err
	}()
	receive(t, "INIT runs", g.entered)
	if p := n.cancelled(t, "p", time.Minute); p.GetStatus() != progressorv1.ProcessStatus_PROCESS_STATUS_INIT {
		t.Errorf("%v", p)
	}
	g.release()
	if err := receive(t, "the start", started); err != nil {
		t.Error(err)
	}
	n.ends(t, "p")
}

// A process that removes itself in its CANCEL task is removed.
func TestCancelTaskRemoves(t *testing.T) {
	t.Parallel()
	n := start(t, storagetest.DSN(t), by{cancelTask: answers(processor.Result().Remove())})
	n.started(t, "p")
	n.cancelled(t, "p", time.Minute)
	eventually(t, "the process is removed", func() bool { return n.status(t, "p") == "" })
}

// If the node with a CANCEL task dies, another node runs it within the grace period.
func TestCancelOfDeadNode(t *testing.T) {
	t.Parallel()
	dsn := storagetest.DSN(t)
	g := newGate()
	defer g.release()
	held := by{cancelTask: func(
		ctx context.Context, r *progressorv1.ProcessRequest,
	) (*progressorv1.ProcessResponse, error) {
		if r.GetAttempt() == 1 {
			_ = g.pass(ctx, r, false)
		}
		return processor.Echo().Process(ctx, r)
	}}
	line, slow := through(t, dsn)
	a := start(t, slow, held, brief)
	a.started(t, "p")
	a.cancelled(t, "p", time.Minute)
	receive(t, "the CANCEL task runs on a", g.entered)
	b := start(t, dsn, held, brief)
	line.away()
	b.ends(t, "p")
	task := b.cancelTaskOf(t, "p")
	if task.GetAttempt() != 2 || task.GetStatus() != progressorv1.TaskStatus_TASK_STATUS_FINISHED {
		t.Errorf("the task: %v", task)
	}
	line.back()
	g.release()
}

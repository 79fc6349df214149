package engine_test

import (
	"context"
	"errors"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/progressor-engine/progressor/engine"
	"github.com/progressor-engine/progressor/process"
	"github.com/progressor-engine/progressor/processor"
	progressorv1 "github.com/progressor-engine/progressor/proto/progressor/v1"
	"github.com/progressor-engine/progressor/storage/storagetest"
)

// failing returns a function that fails the first n times with a reason and then succeeds.
func failing(
	n int32, reason string, b *processor.ResultBuilder,
) (func(context.Context, *progressorv1.ProcessRequest) (*progressorv1.ProcessResponse, error), *atomic.Int32) {
	var tries atomic.Int32
	return func(context.Context, *progressorv1.ProcessRequest) (*progressorv1.ProcessResponse, error) {
		if try := tries.Add(1); try <= n {
			return nil, processor.Fail(reason, "try %d", try)
		}
		return b.Done()
	}, &tries
}

// Timers and notifications are retried as the same task, with the backoff of the namespace.
func TestRetries(t *testing.T) {
	t.Parallel()
	dsn := storagetest.DSN(t)
	timer, timerTries := failing(2, "odd", processor.Result())
	note, noteTries := failing(2, "odd", processor.Result().Response([]byte("noted")))
	j := newJournal()
	n := start(t, dsn, j.keeps(by{callTask: words, timeoutTask: timer, notifyTask: note}))
	n.put(t, &progressorv1.Namespace{Namespace: "ns", RetryPolicy: &progressorv1.RetryPolicy{
		InitialInterval: durationpb.New(60 * time.Millisecond), BackoffCoefficient: new(2.0), MaxAttempts: 3,
		Jitter: new(0.0),
	}})
	n.started(t, "p")
	n.called(t, "p", "set 1ms")
	rows := look(t, dsn)
	eventually(t, "the timer backs off", func() bool {
		return rows.count(t, `SELECT count(*) FROM schedule WHERE attempt = 1 AND retry_interval = interval '60 ms'
			AND failure->>'reason' = 'odd' AND timer_name = ''`) == 1
	})
	n.called(t, "p", "a call runs before it")
	eventually(t, "the timer has run", func() bool { return timerTries.Load() == 3 })
	entries := j.of("p", timeoutTask)
	for k, e := range entries {
		if e.attempt != int32(k+1) || e.task != entries[0].task {
			t.Errorf("attempt %d: %+v", k+1, e)
		}
	}
	noted, err := n.Call(t.Context(), engine.CallParams{Key: key("p"), Args: []byte("n"), Accepted: true})
	if err != nil {
		t.Fatal(err)
	}
	task, err := n.AwaitTask(t.Context(), engine.AwaitParams{Key: key("p"), TaskID: noted.TaskID, Timeout: longWait})
	if err != nil || string(task.GetResponse()) != "noted" || task.GetAttempt() != 3 || noteTries.Load() != 3 ||
		task.GetFailure() != nil {
		t.Errorf("%v, %v", task, err)
	}
	waits := rows.texts(t, "SELECT (running_time - scheduled_time)::text FROM tasks WHERE attempt = 3")
	if len(waits) != 2 || n.status(t, "p") != "RUNNING" {
		t.Errorf("%v, %s", waits, n.status(t, "p"))
	}
	// A timer in backoff is still the pending timer of its name.
	again, againTries := failing(1, "odd", processor.Result())
	m := start(t, storagetest.DSN(t), by{callTask: words, timeoutTask: again})
	m.started(t, "q")
	m.called(t, "q", "set 1ms")
	eventually(t, "it fails once", func() bool { return againTries.Load() == 1 })
	eventually(t, "it backs off", func() bool { return m.Attempts() == 0 })
	m.called(t, "q", "unset")
	p, err := m.GetProcess(t.Context(), key("q"), nil, 0)
	if err != nil || len(p.GetTimers()) != 0 {
		t.Errorf("%v, %v", p.GetTimers(), err)
	}
}

// A timer without attempts left, or with a non-retryable reason, breaks its process. Waiting tasks
// are cancelled. A repair restores the timers.
func TestTimerBreaksProcess(t *testing.T) {
	t.Parallel()
	for name, tt := range map[string]struct {
		failures int32
		reason   string
		attempts int
	}{
		"out of attempts": {3, "odd", 3},
		"not again":       {1, "hopeless", 1},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			dsn := storagetest.DSN(t)
			g := newGate()
			defer g.release()
			timer, tries := failing(tt.failures, tt.reason, processor.Result().AuxState([]byte("fired")))
			held := func(ctx context.Context, r *progressorv1.ProcessRequest) (*progressorv1.ProcessResponse, error) {
				if int(r.GetAttempt()) == tt.attempts {
					if err := g.pass(ctx, r, true); err != nil {
						return nil, err
					}
				}
				return timer(ctx, r)
			}
			n := start(t, dsn, by{initTask: words, callTask: words, timeoutTask: held})
			ns := quick()
			ns.RetryPolicy.NonRetryableErrors = []string{"hopeless"}
			n.put(t, ns)
			if _, err := n.Start(t.Context(), engine.StartParams{
				Key: key("p"), Args: []byte("set 1ms,name other 1h"), Context: []byte("ctx"),
			}); err != nil {
				t.Fatal(err)
			}
			receive(t, "the last attempt runs", g.entered)
			waiting := n.calling("p", "waits")
			rows := look(t, dsn)
			eventually(t, "a call waits", func() bool {
				return rows.count(t, "SELECT count(*) FROM schedule WHERE task_type = 'CALL'") == 1
			})
			g.release()
			if res := receive(t, "the waiting call", waiting); !taskError(t, res.err).Cancelled {
				t.Errorf("%+v", res)
			}
			p, err := n.GetProcess(t.Context(), key("p"), nil, 0)
			if err != nil || p.GetStatus() != progressorv1.ProcessStatus_PROCESS_STATUS_ERROR ||
				!strings.HasPrefix(p.GetDetail(), "try ") || len(p.GetTimers()) != 0 ||
				p.GetPreviousStatus() != progressorv1.ProcessStatus_PROCESS_STATUS_RUNNING {
				t.Fatalf("%v, %v", p, err)
			}
			culprit, err := n.AwaitTask(t.Context(), engine.AwaitParams{Key: key("p"), TaskID: p.GetCorruptedBy()})
			if err != nil || culprit.GetType() != timeoutTask || culprit.GetFailure().GetReason() != tt.reason ||
				int(culprit.GetAttempt()) != tt.attempts {
				t.Errorf("%v, %v", culprit, err)
			}
			got := rows.count(t, "SELECT count(*) FROM tasks WHERE status = 'CANCELLED' AND cancelled_by = $1",
				p.GetCorruptedBy())
			if got != 2 {
				t.Errorf("%d tasks were cancelled, want a call and a timer", got)
			}
			before := tries.Load()
			ans, err := n.Repair(t.Context(), engine.RepairParams{Key: key("p"), Simple: true})
			if err != nil || ans.TaskID == 0 || ans.TaskID == culprit.GetTaskId() {
				t.Fatalf("%+v, %v", ans, err)
			}
			task, err := n.AwaitTask(t.Context(), engine.AwaitParams{
				Key: key("p"), TaskID: ans.TaskID, Timeout: longWait,
			})
			if err != nil || task.GetStatus() != progressorv1.TaskStatus_TASK_STATUS_FINISHED ||
				task.GetAttempt() != 1 || tries.Load() != before+1 || string(task.GetContext()) != "ctx" {
				t.Errorf("the timer of the repair: %v, %v", task, err)
			}
			p, err = n.GetProcess(t.Context(), key("p"), nil, 0)
			if err != nil || p.GetStatus() != progressorv1.ProcessStatus_PROCESS_STATUS_RUNNING ||
				p.GetDetail() != "" || len(p.GetTimers()) != 1 || p.GetTimers()[0].GetName() != "other" ||
				string(p.GetAuxState()) != "fired" {
				t.Errorf("%v, %v", p, err)
			}
		})
	}
}

// A repair by the processor: its result, its rejection and its failure.
func TestRepair(t *testing.T) {
	t.Parallel()
	dsn := storagetest.DSN(t)
	j := newJournal()
	n := start(t, dsn, j.keeps(by{initTask: words, callTask: words,
		repairTask: func(_ context.Context, r *progressorv1.ProcessRequest) (*progressorv1.ProcessResponse, error) {
			if r.GetProcess().GetStatus() != progressorv1.ProcessStatus_PROCESS_STATUS_ERROR ||
				r.GetProcess().GetDetail() != "it was asked to" || r.GetProcess().GetCorruptedBy() == 0 {
				t.Errorf("the repair is shown %v", r.GetProcess())
			}
			switch string(r.GetArgs()) {
			case "no":
				return nil, processor.Reject("no", "not like this")
			case "fail":
				return nil, processor.Fail("worse", "now it is worse")
			}
			return processor.Result().Event([]byte("repaired")).AuxState([]byte("well")).Response(r.GetArgs()).Done()
		}}))
	ctx := t.Context()
	var wrong *process.WrongStatusError
	if _, err := n.Start(ctx, engine.StartParams{Key: key("p"), Args: []byte("set 1h")}); err != nil {
		t.Fatal(err)
	}
	for _, simple := range []bool{true, false} {
		if _, err := n.Repair(ctx, engine.RepairParams{Key: key("p"), Simple: simple}); !errors.As(err, &wrong) ||
			wrong.Status != process.StatusRunning {
			t.Errorf("a repair of a sound process: %v", err)
		}
		if _, err := n.Repair(ctx, engine.RepairParams{Key: key("none"), Simple: simple}); !errors.Is(err,
			process.ErrProcessNotFound) {
			t.Errorf("%v", err)
		}
	}
	broken := <-n.calling("p", "fail")
	taskError(t, broken.err)
	if _, err := n.Repair(ctx, engine.RepairParams{
		Key: key("p"), Args: []byte("no"),
	}); taskError(t, err).Rejection.GetReason() != "no" {
		t.Errorf("%v", err)
	}
	if _, err := n.Repair(ctx, engine.RepairParams{
		Key: key("p"), Args: []byte("fail"), IdempotencyKey: "k",
	}); taskError(t, err).Failure.GetReason() != "worse" {
		t.Errorf("%v", err)
	}
	if _, err := n.Repair(ctx, engine.RepairParams{
		Key: key("p"), Args: []byte("fail"), IdempotencyKey: "k",
	}); taskError(t, err).Failure.GetReason() != "worse" {
		t.Errorf("again: %v", err)
	}
	p, err := n.GetProcess(ctx, key("p"), nil, 0)
	if err != nil || p.GetDetail() != "it was asked to" || p.GetCorruptedBy() != broken.ans.TaskID ||
		p.GetStatus() != progressorv1.ProcessStatus_PROCESS_STATUS_ERROR {
		t.Errorf("after a failed repair: %v, %v", p, err)
	}
	ans, err := n.Repair(ctx, engine.RepairParams{Key: key("p"), Args: []byte("well"), IdempotencyKey: "k2"})
	if err != nil || string(ans.Response) != "well" {
		t.Fatalf("%+v, %v", ans, err)
	}
	again, err := n.Repair(ctx, engine.RepairParams{Key: key("p"), Args: []byte("well"), IdempotencyKey: "k2"})
	sameResult(t, result{ans, nil}, result{again, err})
	p, err = n.GetProcess(ctx, key("p"), nil, 0)
	if err != nil || p.GetStatus() != progressorv1.ProcessStatus_PROCESS_STATUS_RUNNING || p.GetDetail() != "" ||
		p.GetCorruptedBy() != 0 || string(p.GetAuxState()) != "well" || len(p.GetTimers()) != 1 {
		t.Errorf("after the repair: %v, %v", p, err)
	}
	n.called(t, "p", "continues")
	if got := len(j.of("p", repairTask)); got != 3 {
		t.Errorf("%d repairs ran", got)
	}
}

// A process whose INIT failed can be repaired, also by a simple repair, and without waiting.
func TestRepairOfInit(t *testing.T) {
	t.Parallel()
	n := start(t, storagetest.DSN(t), by{initTask: words, callTask: words})
	_, err := n.Start(t.Context(), engine.StartParams{Key: key("p"), Args: []byte("fail")})
	if te := taskError(t, err); te.Failure.GetReason() != "asked" || n.status(t, "p") != "ERROR" {
		t.Fatalf("%v, %s", te, n.status(t, "p"))
	}
	if _, err := n.Start(t.Context(), engine.StartParams{Key: key("p")}); !errors.Is(err, process.ErrProcessExists) {
		t.Errorf("%v", err)
	}
	if ans, err := n.Repair(t.Context(), engine.RepairParams{Key: key("p"), Simple: true}); err != nil ||
		ans.TaskID != 0 {
		t.Errorf("%+v, %v", ans, err)
	}
	n.called(t, "p", "continues")
	taskError(t, (<-n.calling("p", "fail")).err)
	ans, err := n.Repair(t.Context(), engine.RepairParams{Key: key("p"), Accepted: true})
	if err != nil || ans.TaskID == 0 {
		t.Errorf("%+v, %v", ans, err)
	}
	eventually(t, "the repair has run", func() bool { return n.status(t, "p") == "RUNNING" })
}

// Only one repair runs at a time.
func TestRepairsAtOnce(t *testing.T) {
	t.Parallel()
	g := newGate()
	defer g.release()
	n := start(t, storagetest.DSN(t), by{callTask: words, repairTask: g.held(true)})
	n.started(t, "p")
	taskError(t, (<-n.calling("p", "fail")).err)
	first := make(chan error, 1)
	go func() {
		_, err := n.Repair(context.Background(), engine.RepairParams{Key: key("p")})
		first <- err
	}()
	receive(t, "a repair runs", g.entered)
	var wrong *process.WrongStatusError
	for _, simple := range []bool{true, false} {
		if _, err := n.Repair(t.Context(), engine.RepairParams{Key: key("p"), Simple: simple}); !errors.As(err,
			&wrong) {
			t.Errorf("a second repair: %v", err)
		}
	}
	g.release()
	if err := receive(t, "the repair", first); err != nil || n.status(t, "p") != "RUNNING" {
		t.Errorf("%v, %s", err, n.status(t, "p"))
	}
}

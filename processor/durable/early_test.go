package durable_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/jackc/pgx/v5"
	"google.golang.org/protobuf/types/known/timestamppb"

	"github.com/progressor-engine/progressor/engine"
	"github.com/progressor-engine/progressor/engine/enginetest"
	"github.com/progressor-engine/progressor/process"
	"github.com/progressor-engine/progressor/processor"
	"github.com/progressor-engine/progressor/processor/durable"
	progressorv1 "github.com/progressor-engine/progressor/proto/progressor/v1"
	"github.com/progressor-engine/progressor/storage/storagetest"
)

// A function whose only step is short ends in its INIT task, and the response of the start is the
// value of the function.
func TestEarlyStep(t *testing.T) {
	t.Parallel()
	n := node(t, storagetest.DSN(t), function(func(ctx durable.Ctx) (string, error) {
		return durable.Step(ctx, "a", func(context.Context) (string, error) { return "done", nil })
	}))
	started := 0
	enginetest.Eventually(t, time.Minute, "a step ends in time", func() bool {
		started++
		k := process.Key{Namespace: "ns", ProcessID: fmt.Sprint("p", started)}
		answer, err := n.Start(t.Context(), engine.StartParams{Key: k, Args: []byte(`{}`)})
		if err != nil {
			t.Fatal(err)
		}
		p, err := n.GetProcess(t.Context(), k, &progressorv1.HistoryRange{}, 0)
		if err != nil || p.GetStatus() != progressorv1.ProcessStatus_PROCESS_STATUS_COMPLETED {
			return false
		}
		check(t, "response", string(answer.Response), `"done"`)
		check(t, "end", lastEvent(p), `{"k":"end","n":"f","v":"done"}`)
		return true
	})
}

// A start does not wait for a step that is not short. The next task takes the result of the step,
// whose body runs once.
func TestEarlyStepTakesLong(t *testing.T) {
	t.Parallel()
	var done effects
	g := make(chan struct{})
	n := node(t, storagetest.DSN(t), function(func(ctx durable.Ctx) (string, error) {
		return durable.Step(ctx, "a", func(ctx context.Context) (string, error) {
			done.add(durable.StepKey(ctx))
			<-g
			return "done", nil
		})
	}))
	begin(t, n)
	close(g)
	p := stored(t, n, progressorv1.ProcessStatus_PROCESS_STATUS_COMPLETED)
	check(t, "end", lastEvent(p), `{"k":"end","n":"f","v":"done"}`)
	check(t, "keys of the bodies", done.String(), fmt.Sprintf("ns/p/%d.1/a", p.GetCreatedTime().AsTime().UnixMicro()))
}

// If the body of an early step panics, the next task runs the step again. The start succeeds.
func TestEarlyStepPanics(t *testing.T) {
	t.Parallel()
	panics := make(chan struct{}, 2)
	panics <- struct{}{}
	panics <- struct{}{}
	n := node(t, storagetest.DSN(t), function(func(ctx durable.Ctx) (string, error) {
		return durable.Step(ctx, "a", func(context.Context) (string, error) {
			select {
			case <-panics:
				panic("odd")
			default:
				return "done", nil
			}
		})
	}))
	begin(t, n)
	p := stored(t, n, progressorv1.ProcessStatus_PROCESS_STATUS_COMPLETED)
	check(t, "end", lastEvent(p), `{"k":"end","n":"f","v":"done"}`)
	if len(panics) > 0 {
		t.Error("the body did not panic twice")
	}
}

// A rejection after a step is not a rejection of the start.
func TestRejectionAfterEarlyStep(t *testing.T) {
	t.Parallel()
	n := node(t, storagetest.DSN(t), function(func(ctx durable.Ctx) (string, error) {
		if err := durable.Run(ctx, "a", func(context.Context) error { return nil }); err != nil {
			return "", err
		}
		return "", processor.Reject("full", "x")
	}))
	begin(t, n)
	p := stored(t, n, progressorv1.ProcessStatus_PROCESS_STATUS_COMPLETED)
	check(t, "end", lastEvent(p), `{"k":"fail","n":"f","e":{"reason":"full","message":"x","rejected":true}}`)
}

// initOf returns an INIT task.
func initOf() *request {
	return &request{Type: progressorv1.TaskType_TASK_TYPE_INIT, TaskId: 1, Attempt: 1, Args: []byte(`{}`),
		Process: &progressorv1.Process{Namespace: "ns", ProcessId: "p", FirstEventId: 1,
			CreatedTime: timestamppb.New(time.Unix(1e9, 0))}}
}

// after returns a task that follows a result.
func after(req *request, r *response, next progressorv1.TaskType) *request {
	p := &progressorv1.Process{Namespace: "ns", ProcessId: "p", FirstEventId: 1,
		CreatedTime: req.GetProcess().GetCreatedTime()}
	for n, e := range r.GetResult().GetEvents() {
		p.History = append(p.History, &progressorv1.Event{EventId: int64(n + 1), TaskId: 1, Payload: e.GetPayload()})
	}
	p.LastEventId = int64(len(p.GetHistory()))
	return &request{Type: next, TaskId: 2, Attempt: 1, Process: p}
}

// attempt runs f with the context that the engine passes for an INIT task.
func attempt(t *testing.T, f processor.Processor, kept *processor.Kept, req *request) *response {
	t.Helper()
	ctx, cancel := context.WithTimeout(processor.WithKept(t.Context(), kept), time.Minute)
	defer cancel()
	resp, err := f.Process(ctx, req)
	if err != nil {
		t.Fatal(err)
	}
	return resp
}

func eventsOf(r *response) string {
	var all []byte
	for _, e := range r.GetResult().GetEvents() {
		all = append(all, e.GetPayload()...)
	}
	return string(all)
}

// A CANCEL waits for an early step and undoes it. If the undo fails, the next attempt at the CANCEL
// undoes the step, because a checkpoint has stored the result of the step.
func TestCancelAfterEarlyStep(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var done effects
		undone := errors.New("busy")
		f := function(func(ctx durable.Ctx) (string, error) {
			return durable.Step(ctx, "a", func(context.Context) (string, error) {
				<-time.After(30 * time.Second)
				done.add("a")
				return "a", nil
			}, durable.Undo(func(context.Context, string) error {
				done.add("undo")
				return undone
			}))
		})
		kept, req, stored := &processor.Kept{}, initOf(), &checkpointed{}
		first := attempt(t, f, kept, req)
		check(t, "entries", eventsOf(first), `{"k":"start","n":"f","v":{}}`)
		cancelled := after(req, first, progressorv1.TaskType_TASK_TYPE_CANCEL)
		ctx, cancel := context.WithTimeout(processor.WithKept(t.Context(), kept), time.Minute)
		defer cancel()
		if resp, err := f.Process(processor.WithCheckpointer(ctx, stored), cancelled); err == nil {
			t.Error(resp)
		}
		check(t, "checkpoint", eventsOf(stored.response()), `{"k":"step","n":"a","v":"a","u":true}`)
		first.GetResult().Events = append(first.GetResult().GetEvents(), stored.GetEvents()...)
		undone = nil
		last := attempt(t, f, nil, after(req, first, progressorv1.TaskType_TASK_TYPE_CANCEL))
		check(t, "entries", eventsOf(last), `{"k":"undo","n":"a"}`)
		check(t, "effects", done.String(), "a undo undo")
	})
}

// checkpointed is a Checkpointer that keeps the last checkpoint.
type checkpointed struct{ *progressorv1.Result }

func (c *checkpointed) Checkpoint(_ context.Context, r *progressorv1.Result) (yield bool, err error) {
	c.Result = r
	return false, nil
}

func (c *checkpointed) response() *response {
	return &response{Outcome: &progressorv1.ProcessResponse_Result{Result: c.Result}}
}

// If the attempt of the INIT is cancelled, its early steps are cancelled too, and their results are
// not used.
func TestEarlyStepOfCancelledAttempt(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var done effects
		f := function(func(ctx durable.Ctx) (string, error) {
			return durable.Step(ctx, "a", func(ctx context.Context) (string, error) {
				<-ctx.Done()
				done.add("a")
				return "", ctx.Err()
			})
		})
		ctx, cancel := context.WithTimeout(processor.WithKept(t.Context(), &processor.Kept{}), time.Minute)
		defer cancel()
		time.AfterFunc(time.Millisecond, cancel)
		if resp, err := f.Process(ctx, initOf()); !errors.Is(err, context.Canceled) {
			t.Error(resp, err)
		}
		check(t, "effects", done.String(), "a")
	})
}

// If the next task does not follow in this program, the early step is cancelled, and runs again in
// the next task.
func TestEarlyStepIsDropped(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var done effects
		f := function(func(ctx durable.Ctx) (string, error) {
			return durable.Step(ctx, "a", func(ctx context.Context) (string, error) {
				select {
				case <-ctx.Done():
					done.add("cancelled")
				case <-time.After(time.Second):
					done.add("a")
				}
				return "", ctx.Err()
			})
		})
		kept, req := &processor.Kept{}, initOf()
		first := attempt(t, f, kept, req)
		kept.Drop()
		check(t, "effects", done.String(), "cancelled")
		second := attempt(t, f, nil, after(req, first, progressorv1.TaskType_TASK_TYPE_TIMEOUT))
		check(t, "entries", eventsOf(second), `{"k":"step","n":"a","v":""}{"k":"end","n":"f","v":""}`)
		check(t, "effects", done.String(), "cancelled a")
	})
}

// If a function restarts after an early step, it restarts in the next task, so that the steps
// before and after the restart have different keys.
func TestRestartAfterEarlyStep(t *testing.T) {
	t.Parallel()
	var done effects
	n := node(t, storagetest.DSN(t), durable.Func("f", func(ctx durable.Ctx, in struct{ Last bool }) (string, error) {
		err := durable.Run(ctx, "a", func(ctx context.Context) error {
			done.add(durable.StepKey(ctx))
			return nil
		})
		if err == nil && !in.Last {
			err = durable.Restart(struct{ Last bool }{true})
		}
		return "done", err
	}))
	begin(t, n)
	stored(t, n, progressorv1.ProcessStatus_PROCESS_STATUS_COMPLETED)
	first, second, ok := strings.Cut(done.String(), " ")
	if !ok || first == second {
		t.Errorf("keys of the bodies: %s", &done)
	}
}

// If a process is suspended while its INIT task runs, its early step is cancelled, because no task
// follows.
func TestEarlyStepOfSuspendedProcess(t *testing.T) {
	t.Parallel()
	cancelled, suspended := make(chan error, 1), make(chan struct{})
	f := function(func(ctx durable.Ctx) (string, error) {
		return durable.Step(ctx, "a", func(ctx context.Context) (string, error) {
			<-ctx.Done()
			cancelled <- ctx.Err()
			return "", ctx.Err()
		})
	})
	n := node(t, storagetest.DSN(t), processor.Func(func(ctx context.Context, req *request) (*response, error) {
		resp, err := f.Process(ctx, req)
		<-suspended
		return resp, err
	}))
	started := make(chan error, 1)
	go func() {
		_, err := n.Start(t.Context(), engine.StartParams{Key: key, Args: []byte(`{}`)})
		started <- err
	}()
	enginetest.Eventually(t, 20*time.Second, "the process is suspended", func() bool {
		_, err := n.SuspendProcess(t.Context(), key, "test", process.Actor{})
		return err == nil
	})
	close(suspended)
	if err := <-started; err != nil {
		t.Error(err)
	}
	if err := <-cancelled; !errors.Is(err, context.Canceled) {
		t.Error(err)
	}
}

// noDB begins no transactions, and records the tries.
type noDB struct{ done *effects }

func (db noDB) Begin(context.Context) (pgx.Tx, error) {
	db.done.add("begin")
	return nil, errors.New("no database")
}

// Only the first attempt at an INIT task in the engine's program runs steps, and only steps that
// depend on nothing but the args of the start.
func TestNoEarlyStep(t *testing.T) {
	step := func(ctx durable.Ctx, done *effects) (string, error) {
		return durable.Step(ctx, "a", done.says("a"))
	}
	for name, test := range map[string]struct {
		f        func(ctx durable.Ctx, done *effects) (string, error)
		versions durable.Versions
		init     func(req *request)
		away     bool // the next task may run in another program
		early    bool
	}{
		"a step":                          {f: step, early: true},
		"the next task may run elsewhere": {f: step, away: true},
		"a function with versions":        {f: step, versions: durable.Versions{"v": 2}},
		"a step of Tx": {f: func(ctx durable.Ctx, done *effects) (string, error) {
			return "", durable.RunTx(ctx, "a", noDB{done}, func(context.Context, pgx.Tx) error { return nil })
		}},
		"a second attempt": {f: step, init: func(req *request) { req.Attempt = 2 }},
		"a REPAIR": {f: step, init: func(req *request) {
			req.Type = progressorv1.TaskType_TASK_TYPE_REPAIR
		}},
		"after a value": {f: func(ctx durable.Ctx, done *effects) (string, error) {
			durable.UUID(ctx, "id")
			return step(ctx, done)
		}},
		"after a timer": {f: func(ctx durable.Ctx, done *effects) (string, error) {
			durable.After(ctx, "late", time.Hour)
			return step(ctx, done)
		}},
		"a second step": {early: true, f: func(ctx durable.Ctx, done *effects) (string, error) {
			if _, err := step(ctx, done); err != nil {
				return "", err
			}
			return durable.Step(ctx, "b", done.says("b"))
		}},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				var done effects
				f := durable.Func("f", func(ctx durable.Ctx, _ struct{}) (string, error) { return test.f(ctx, &done) },
					test.versions)
				req, ctx := initOf(), t.Context()
				if test.init != nil {
					test.init(req)
				}
				if !test.away {
					kept := &processor.Kept{}
					defer kept.Drop()
					ctx = processor.WithKept(ctx, kept)
				}
				ctx, cancel := context.WithTimeout(ctx, time.Minute)
				defer cancel()
				if _, err := f.Process(ctx, req); err != nil {
					t.Fatal(err)
				}
				want := ""
				if test.early {
					want = "a"
				}
				check(t, "effects", done.String(), want)
			})
		})
	}
}

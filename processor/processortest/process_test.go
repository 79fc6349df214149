package processortest_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"go.uber.org/goleak"
	"google.golang.org/protobuf/proto"

	"github.com/progressor-engine/progressor/process"
	"github.com/progressor-engine/progressor/processor"
	"github.com/progressor-engine/progressor/processor/processortest"
	progressorv1 "github.com/progressor-engine/progressor/proto/progressor/v1"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// started returns a process whose tasks are answered by the script of the recorder.
func started(t *testing.T, opts ...processortest.Option) (*processortest.Process, *processortest.Recorder) {
	t.Helper()
	recorder := processortest.NewRecorder(nil)
	p := processortest.New(recorder, opts...)
	if _, err := p.Start(t.Context(), []byte("start")); err != nil {
		t.Fatal(err)
	}
	return p, recorder
}

func result(b *processor.ResultBuilder) processor.Func {
	return func(context.Context, *progressorv1.ProcessRequest) (*progressorv1.ProcessResponse, error) {
		return b.Done()
	}
}

func call(t *testing.T, p *processortest.Process) {
	t.Helper()
	if _, err := p.Call(t.Context(), nil); err != nil {
		t.Fatal(err)
	}
}

// ran returns the tasks that have run, as type:task_id:attempt:timer.
func ran(r *processortest.Recorder) string {
	var all []string
	for _, req := range r.Requests() {
		name := strings.TrimPrefix(req.GetType().String(), "TASK_TYPE_")
		all = append(all, fmt.Sprintf("%s:%d:%d%s", name, req.GetTaskId(), req.GetAttempt(), req.GetTimerName()))
	}
	return strings.Join(all, " ")
}

func TestResults(t *testing.T) {
	p, recorder := started(t, processortest.WithKey("shop", "order-1"))
	recorder.Script(
		result(processor.Result().Event([]byte("a")).Event([]byte("b")).AuxState([]byte("s1")).Metadata(
			map[string]any{"k": "v"}).
			Response([]byte("one")).Notify("", "other", []byte("hi"))),
		result(processor.Result().EventWith([]byte("c"), map[string]any{"format_version": 2})),
	)
	response, err := p.Call(t.Context(), []byte("x"), processortest.Context([]byte("trace")))
	if err != nil || string(response) != "one" {
		t.Fatal(string(response), err)
	}
	call(t, p)
	events := p.Events()
	if len(events) != 3 || events[2].GetEventId() != 3 || events[2].GetTaskId() != 3 || string(p.State()) != "s1" ||
		p.Metadata()["k"] != "v" || p.Commands()[0].GetNotify().GetProcessId() != "other" {
		t.Errorf("%v", p.Snapshot())
	}
	last := recorder.Requests()[2]
	if last.GetProcess().GetNamespace() != "shop" || len(last.GetProcess().GetHistory()) != 2 ||
		last.GetFencingToken() != 3 {
		t.Errorf("the last request %v", last)
	}
	if got := string(recorder.Requests()[1].GetContext()); got != "trace" {
		t.Errorf("context %q", got)
	}
	if trace := p.Trace(); len(trace) != 3 || len(trace[1].GetEvents()) != 2 ||
		string(trace[1].GetResponse()) != "one" {
		t.Errorf("trace %v", trace)
	}
}

func TestTimers(t *testing.T) {
	p, recorder := started(t)
	begin := p.Now()
	recorder.Script(
		result(processor.Result().SetTimerAfter(time.Hour).SetNamedTimerAfter("b", 2*time.Minute).SetNamedTimerAt("a",
			begin.Add(time.Minute))),
		result(processor.Result().SetTimerAfter(3*time.Minute)), // a
		// The response to timer b removes nothing, because b has fired. The default timer fires at
		// once.
		result(processor.Result().UnsetNamedTimer("b").SetTimerAfter(-1)),
		result(processor.Result().SetTimerAt(begin).SetNamedTimerAfter("c", 0)), // "": both at once
	)
	call(t, p)
	if timers := p.Timers(); len(timers) != 3 || timers[0].GetName() != "a" ||
		timers[2].GetFireTime().AsTime() != begin.Add(time.Hour) {
		t.Errorf("timers %v", timers)
	}
	if err := p.Advance(t.Context(), time.Minute-1); err != nil || len(recorder.Requests()) != 2 {
		t.Errorf("early: %v %s", err, ran(recorder))
	}
	if err := p.Advance(t.Context(), 10*time.Minute); err != nil {
		t.Fatal(err)
	}
	if got, want := ran(recorder),
		"INIT:1:1 CALL:2:1 TIMEOUT:5:1a TIMEOUT:4:1b TIMEOUT:7:1 TIMEOUT:8:1 TIMEOUT:9:1c"; got != want {
		t.Errorf("ran %s\nwant %s", got, want)
	}
	if got := recorder.Requests()[3].GetScheduledTime().AsTime(); got != begin.Add(2*time.Minute) {
		t.Errorf("scheduled %s", got)
	}
	if p.Now() != begin.Add(11*time.Minute-1) || len(p.Timers()) != 0 {
		t.Errorf("now %s, timers %v", p.Now(), p.Timers())
	}
}

func TestActions(t *testing.T) {
	for name, test := range map[string]struct {
		action *processor.ResultBuilder
		status process.Status
		timers int
	}{
		"none":         {processor.Result(), process.StatusRunning, 2},
		"unset":        {processor.Result().UnsetTimers(), process.StatusRunning, 0},
		"complete":     {processor.Result().Complete(), process.StatusCompleted, 0},
		"remove":       {processor.Result().Remove(), "", 0},
		"remove later": {processor.Result().RemoveAfter(time.Minute), process.StatusRunning, 2},
	} {
		t.Run(name, func(t *testing.T) {
			p, recorder := started(t)
			recorder.Script(result(processor.Result().SetTimerAfter(time.Hour).SetNamedTimerAfter("n", time.Hour)),
				result(test.action))
			call(t, p)
			call(t, p)
			if p.Status() != test.status || len(p.Timers()) != test.timers {
				t.Errorf("%s %v", p.Status(), p.Timers())
			}
			if name != "remove later" {
				return
			}
			if err := p.Advance(t.Context(), time.Minute); err != nil || p.Status() != "" {
				t.Errorf("%v %s", err, p.Status())
			}
			if _, err := p.Call(t.Context(), nil); !errors.Is(err, process.ErrProcessNotFound) {
				t.Error(err)
			}
		})
	}
}

// TestFailures checks that a timer is retried by the policy, with growing waits, and finally sets
// the process to ERROR. A repair runs it again and restores the timers that the error had
// cancelled.
func TestFailures(t *testing.T) {
	for name, repair := range map[string]func(*processortest.Process) error{
		"simple": func(p *processortest.Process) error { return p.RepairSimple(t.Context()) },
		"args": func(p *processortest.Process) error {
			_, err := p.Repair(t.Context(), []byte("fix"))
			return err
		},
	} {
		t.Run(name, func(t *testing.T) {
			policy := process.RetryPolicy{Initial: time.Second, Coefficient: 2, Max: time.Minute, MaxAttempts: 3}
			p, recorder := started(t, processortest.WithRetryPolicy(policy))
			begin := p.Now()
			recorder.Script(
				result(processor.Result().SetTimerAfter(0).SetNamedTimerAfter("later", time.Hour)),
				processortest.Err(processor.Fail("a", "one")), processortest.Err(errors.New("two")),
				processortest.Err(processor.Fail("c", "three")))
			call(t, p)
			if err := p.Advance(t.Context(), time.Second); err != nil || len(recorder.Requests()) != 4 ||
				p.Status() != process.StatusRunning {
				t.Errorf("%v %s", err, ran(recorder))
			}
			if err := p.Advance(t.Context(), 2*time.Second); err != nil || p.Status() != process.StatusError ||
				p.Detail() != "three" {
				t.Errorf("%v %s %s", err, p.Status(), p.Detail())
			}
			if p.Now() != begin.Add(3*time.Second) || p.Snapshot().GetCorruptedBy() != 3 || len(p.Timers()) != 0 {
				t.Errorf("%s %v", p.Now(), p.Snapshot())
			}
			wrong, _ := errors.AsType[*process.WrongStatusError](second(p.Call(t.Context(), nil)))
			if wrong == nil || wrong.Status != process.StatusError {
				t.Error("a process in ERROR takes calls")
			}
			if err := repair(p); err != nil {
				t.Fatal(err)
			}
			last := recorder.Requests()[len(recorder.Requests())-1]
			if last.GetType() != progressorv1.TaskType_TASK_TYPE_TIMEOUT || last.GetAttempt() != 1 ||
				last.GetTaskId() <= 4 {
				t.Errorf("after the repair: %s", ran(recorder))
			}
			if p.Status() != process.StatusRunning || p.Detail() != "" || len(p.Timers()) != 1 ||
				p.Timers()[0].GetName() != "later" {
				t.Errorf("%v", p.Snapshot())
			}
		})
	}
}

func second(_ []byte, err error) error { return err }

func TestFailedCall(t *testing.T) {
	p, recorder := started(t)
	recorder.Script(
		processortest.Err(processor.Reject("no", "not now")),
		processortest.Respond(make([]byte, process.MaxPayloadBytes+1)),
		processortest.Err(processor.Fail("again", "the repair failed")),
		result(processor.Result().AuxState([]byte("repaired"))))
	if _, ok := errors.AsType[*processor.RejectionError](second(p.Call(t.Context(), nil))); !ok ||
		p.Status() != process.StatusRunning {
		t.Error("a rejection changed the process")
	}
	failure, ok := errors.AsType[*processor.FailureError](second(p.Call(t.Context(), nil)))
	if !ok || failure.Failure.GetReason() != process.ReasonBadResponse ||
		!strings.Contains(p.Detail(), "result.response") {
		t.Errorf("%v %s", failure, p.Detail())
	}
	if err := second(p.Repair(t.Context(), nil)); err == nil || p.Status() != process.StatusError ||
		!strings.Contains(p.Detail(), "result.response") {
		t.Errorf("a failed repair: %v %s", err, p.Detail())
	}
	if err := second(p.Repair(t.Context(), nil)); err != nil || p.Status() != process.StatusRunning ||
		string(p.State()) != "repaired" {
		t.Errorf("%v %s", err, p.Status())
	}
}

func TestStart(t *testing.T) {
	recorder := processortest.NewRecorder(nil).Script(processortest.Err(processor.Reject("no", "no")))
	p := processortest.New(recorder)
	if err := second(p.Start(t.Context(), nil, processortest.IdempotencyKey("k"))); err == nil || p.Status() != "" {
		t.Errorf("a rejected start leaves %s", p.Status())
	}
	if err := second(p.Start(t.Context(), nil, processortest.IdempotencyKey("k"))); err != nil ||
		len(recorder.Requests()) != 2 {
		t.Errorf("a new start: %v", err)
	}
	if err := second(p.Start(t.Context(), nil, processortest.IdempotencyKey("k"))); err != nil ||
		len(recorder.Requests()) != 2 {
		t.Errorf("a repeated start: %v", err)
	}
	if err := second(p.Start(t.Context(), []byte("other"), processortest.IdempotencyKey("k"))); !errors.Is(err,
		process.ErrIdempotencyMismatch) {
		t.Error(err)
	}
	if err := second(p.Start(t.Context(), nil)); !errors.Is(err, process.ErrProcessExists) {
		t.Error(err)
	}
}

func TestCancelSuspendNotify(t *testing.T) {
	p, recorder := started(t)
	recorder.Script(result(processor.Result().SetTimerAfter(time.Minute)))
	call(t, p)
	if err := p.Suspend(); err != nil {
		t.Fatal(err)
	}
	if err := p.Advance(t.Context(), time.Hour); err != nil || len(recorder.Requests()) != 2 {
		t.Errorf("a suspended process runs timers: %v", err)
	}
	if err := p.Notify(t.Context(), nil); err == nil {
		t.Error("a suspended process accepts a NOTIFY")
	}
	if err := p.Resume(t.Context()); err != nil || len(recorder.Requests()) != 3 {
		t.Errorf("%v %s", err, ran(recorder))
	}
	recorder.Script(processortest.Err(processor.Fail("again", "x")))
	if err := p.Notify(t.Context(), []byte("n")); err != nil || p.Status() != process.StatusRunning {
		t.Error(err, p.Status())
	}
	if err := p.ChildEnded(t.Context(), &progressorv1.ChildEnd{ProcessId: "child"}, nil); err != nil {
		t.Error(err)
	}
	if err := p.Advance(t.Context(), time.Hour); err != nil {
		t.Error(err)
	}
	recorder.Script(processortest.Err(errors.New("cannot clean up")))
	if err := p.Cancel(t.Context(), "no more"); err != nil || p.Status() != process.StatusRunning {
		t.Error(err, p.Status())
	}
	if _, err := p.Call(t.Context(), nil); err == nil {
		t.Error("a process that is being cancelled accepts a call")
	}
	if err := p.Cancel(t.Context(), "again"); err != nil || len(recorder.Requests()) != 7 {
		t.Errorf("a second cancel: %v, %s", err, ran(recorder))
	}
	if err := p.Advance(t.Context(), 5*time.Second); err != nil || p.Status() != process.StatusCancelled {
		t.Error(err, p.Status())
	}
	if got, want := ran(recorder),
		"INIT:1:1 CALL:2:1 TIMEOUT:3:1 NOTIFY:4:1 NOTIFY:5:1 NOTIFY:4:2 CANCEL:6:1 CANCEL:6:2"; got != want {
		t.Errorf("ran %s\nwant %s", got, want)
	}
	all := recorder.Requests()
	if all[4].GetChild().GetProcessId() != "child" || all[6].GetCancelReason() != "no more" {
		t.Errorf("%v %v", all[4], all[6])
	}
	if err := p.Cancel(t.Context(), "again"); err == nil {
		t.Error("a cancelled process is cancelled again")
	}
}

// After the grace period, or without attempts left, a process is CANCELLED regardless of its
// processor.
func TestCancelThatFails(t *testing.T) {
	for name, test := range map[string]struct {
		policy  process.RetryPolicy
		advance time.Duration
		reason  string
	}{
		"out of attempts": {process.RetryPolicy{Initial: time.Second, Max: time.Second, Coefficient: 1, MaxAttempts: 2},
			time.Second, "odd"},
		"grace period over": {process.RetryPolicy{Initial: time.Hour, Max: time.Hour, Coefficient: 1, MaxAttempts: 2},
			process.DefaultCancelGrace, process.ReasonGraceExpired},
	} {
		t.Run(name, func(t *testing.T) {
			p := processortest.New(&processor.Router{
				OnInit: func(context.Context, *progressorv1.ProcessRequest) (*progressorv1.ProcessResponse, error) {
					return processor.Result().Done()
				},
				OnCancel: func(context.Context, *progressorv1.ProcessRequest) (*progressorv1.ProcessResponse, error) {
					return nil, processor.Fail("odd", "x")
				},
			}, processortest.WithRetryPolicy(test.policy))
			if _, err := p.Start(t.Context(), nil); err != nil {
				t.Fatal(err)
			}
			if err := p.Cancel(t.Context(), "no more"); err != nil {
				t.Fatal(err)
			}
			if err := p.Advance(t.Context(), test.advance-time.Millisecond); err != nil ||
				p.Status() != process.StatusRunning {
				t.Error(err, p.Status())
			}
			if err := p.Advance(t.Context(), time.Millisecond); err != nil || p.Status() != process.StatusCancelled {
				t.Error(err, p.Status())
			}
			tasks := p.Trace()
			if last := tasks[len(tasks)-1]; last.GetFailure().GetReason() != test.reason {
				t.Errorf("the last task is %v", last)
			}
		})
	}
}

func TestHistory(t *testing.T) {
	backward := &progressorv1.HistoryRange{
		Direction: progressorv1.HistoryRange_DIRECTION_BACKWARD, Offset: proto.Int64(4), Limit: proto.Int32(2),
	}
	for name, test := range map[string]struct {
		mode process.HistoryMode
		r    *progressorv1.HistoryRange
		want string
	}{
		"full": {process.HistoryFull, nil, "[1 2 3 4 5]"},
		"none": {process.HistoryNone, nil, "[]"},
		"last": {process.HistoryLast, nil, "[5]"},
		"forward": {process.HistoryNone, &progressorv1.HistoryRange{Offset: proto.Int64(2), Limit: proto.Int32(2)},
			"[3 4]"},
		"backward": {process.HistoryNone, backward, "[3 2]"},
		"nothing":  {process.HistoryFull, &progressorv1.HistoryRange{Limit: proto.Int32(0)}, "[]"},
	} {
		p, recorder := started(t, processortest.WithHistory(test.mode))
		five := processor.Result()
		for range 5 {
			five.Event(nil)
		}
		recorder.Script(result(five))
		call(t, p)
		var opts []processortest.RequestOption
		if test.r != nil {
			opts = append(opts, processortest.Range(test.r))
		}
		if _, err := p.Call(t.Context(), nil, opts...); err != nil {
			t.Fatal(err)
		}
		ids := []int64{}
		for _, event := range recorder.Requests()[2].GetProcess().GetHistory() {
			ids = append(ids, event.GetEventId())
		}
		if got := fmt.Sprint(ids); got != test.want {
			t.Errorf("%s: %s, want %s", name, got, test.want)
		}
	}
}

func TestEndless(t *testing.T) {
	p := processortest.New(processortest.NewRecorder(result(processor.Result().SetTimerAfter(0))))
	if _, err := p.Start(t.Context(), nil); !errors.Is(err, processortest.ErrEndless) {
		t.Error(err)
	}
}

func TestRecorder(t *testing.T) {
	recorder := processortest.NewRecorder(nil)
	release := recorder.Hold()
	answered := make(chan error, 3)
	send := func(ctx context.Context) {
		_, err := recorder.Process(ctx, &progressorv1.ProcessRequest{Process: &progressorv1.Process{ProcessId: "a"}})
		answered <- err
	}
	ctx, cancel := context.WithCancel(t.Context())
	go send(ctx)
	if _, err := recorder.Next(t.Context()); err != nil {
		t.Fatal(err)
	}
	cancel()
	if err := <-answered; !errors.Is(err, context.Canceled) {
		t.Error(err)
	}
	go send(t.Context())
	go send(t.Context())
	for range 2 {
		if _, err := recorder.Next(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	if recorder.Running() != 2 || len(recorder.Overlaps()) != 1 {
		t.Errorf("%d running, overlaps %v", recorder.Running(), recorder.Overlaps())
	}
	release()
	release()
	if err := recorder.Idle(t.Context()); err != nil || recorder.Running() != 0 {
		t.Error(err)
	}
	if err := errors.Join(<-answered, <-answered); err != nil {
		t.Error(err)
	}
	go send(t.Context()) // no longer held
	if err := <-answered; err != nil {
		t.Error(err)
	}
	if _, err := recorder.Next(ctx); err != nil {
		t.Errorf("an existing request was not returned at once: %v", err)
	}
	if _, err := recorder.Next(ctx); !errors.Is(err, context.Canceled) {
		t.Error(err)
	}
}

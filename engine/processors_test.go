package engine_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"google.golang.org/protobuf/types/known/durationpb"
	"google.golang.org/protobuf/types/known/structpb"

	"github.com/progressor-engine/progressor/engine"
	"github.com/progressor-engine/progressor/process"
	"github.com/progressor-engine/progressor/processor"
	progressorv1 "github.com/progressor-engine/progressor/proto/progressor/v1"
	"github.com/progressor-engine/progressor/storage/storagetest"
)

// If a processor misbehaves in one of these ways, the client gets a failure with a reason, the
// process is in ERROR, and the engine continues.
func TestBadProcessors(t *testing.T) {
	t.Parallel()
	unset := &structpb.Struct{Fields: map[string]*structpb.Value{"a": {}}}
	for name, tt := range map[string]struct {
		call   func(context.Context, *progressorv1.ProcessRequest) (*progressorv1.ProcessResponse, error)
		reason string
	}{
		"panics": {func(context.Context, *progressorv1.ProcessRequest) (*progressorv1.ProcessResponse, error) {
			panic("ouch\x00")
		}, process.ReasonPanic},
		"has a bug": {func(_ context.Context, r *progressorv1.ProcessRequest) (*progressorv1.ProcessResponse, error) {
			return nil, []error{}[len(r.GetArgs())]
		}, process.ReasonPanic},
		"errs": {func(context.Context, *progressorv1.ProcessRequest) (*progressorv1.ProcessResponse, error) {
			return nil, errors.New("no\x00t today")
		}, processor.ReasonError},
		"says nothing": {func(context.Context, *progressorv1.ProcessRequest) (*progressorv1.ProcessResponse, error) {
			return nil, nil
		}, process.ReasonBadResponse},
		"is empty": {answersWith(&progressorv1.ProcessResponse{}), process.ReasonBadResponse},
		"nil failure": {answersWith(&progressorv1.ProcessResponse{Outcome: &progressorv1.ProcessResponse_Failure{}}),
			""},
		"not JSON": {answersWith(&progressorv1.ProcessResponse{Outcome: &progressorv1.ProcessResponse_Result{
			Result: &progressorv1.Result{AuxState: []byte("x"), Metadata: unset},
		}}), process.ReasonBadResponse},
		"NUL in a timer's name": {answers(processor.Result().AuxState([]byte("x")).SetNamedTimerAfter("a\x00b",
			time.Hour)), process.ReasonBadResponse},
		"NUL in an unset name": {answers(processor.Result().AuxState([]byte("x")).UnsetNamedTimer("a\x00b")),
			process.ReasonBadResponse},
		"deep": {answers(processor.Result().AuxState([]byte("x")).Metadata(deepObject(4000))),
			process.ReasonBadResponse},
		"fails deep": {func(context.Context, *progressorv1.ProcessRequest) (*progressorv1.ProcessResponse, error) {
			details, err := structpb.NewValue(deepObject(4900))
			return nil, &processor.FailureError{
				Failure: &progressorv1.Failure{Reason: fmt.Sprint(err), Details: details},
			}
		}, process.ReasonBadResponse},
		"too large": {answers(processor.Result().Response(make([]byte, 2<<20))), process.ReasonBadResponse},
		"commands":  {answers(processor.Result().Notify("", "~q", nil)), process.ReasonBadResponse},
		"lost": {func(context.Context, *progressorv1.ProcessRequest) (*progressorv1.ProcessResponse, error) {
			return nil, &processor.LostError{Err: errors.New("reset")}
		}, process.ReasonUnavailable},
		"slow": {func(ctx context.Context, _ *progressorv1.ProcessRequest) (*progressorv1.ProcessResponse, error) {
			<-ctx.Done()
			return nil, ctx.Err()
		}, process.ReasonTimeout},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			n := start(t, storagetest.DSN(t), byTask{callTask: tt.call})
			n.put(t, &progressorv1.Namespace{Namespace: "ns", StepTimeout: durationpb.New(300 * time.Millisecond)})
			n.started(t, "p")
			res := receive(t, "an answer", n.calling("p", "x", func(p *engine.CallParams) { p.Timeout = longWait }))
			te := taskError(t, res.err)
			if te.Failure == nil || te.Failure.GetReason() != tt.reason {
				t.Fatalf("%+v", te)
			}
			p, err := n.GetProcess(t.Context(), key("p"), nil, 0)
			if err != nil || p.GetStatus() != progressorv1.ProcessStatus_PROCESS_STATUS_ERROR ||
				p.GetCorruptedBy() != res.ans.TaskID || string(p.GetAuxState()) != "start" {
				t.Errorf("%v, %v", p, err)
			}
			n.started(t, "q")
		})
	}
}

// deepObject returns an object with nested lists.
func deepObject(depth int) map[string]any {
	var v any = true
	for range depth {
		v = []any{v}
	}
	return map[string]any{"a": v}
}

func answersWith(
	r *progressorv1.ProcessResponse,
) func(context.Context, *progressorv1.ProcessRequest) (*progressorv1.ProcessResponse, error) {
	return func(context.Context, *progressorv1.ProcessRequest) (*progressorv1.ProcessResponse, error) {
		return r, nil
	}
}

// An attempt of a processor that hangs and ignores its context is collected after the deadline and
// the margin, and retried. Its late result is rejected. The client gets the response of the second
// attempt.
func TestHangingProcessor(t *testing.T) {
	t.Parallel()
	dsn := storagetest.DSN(t)
	g := newGate()
	defer g.release()
	reg := newRegistry()
	n := start(t, dsn, byTask{callTask: func(
		ctx context.Context, r *progressorv1.ProcessRequest,
	) (*progressorv1.ProcessResponse, error) {
		if r.GetAttempt() == 1 {
			_ = g.pass(ctx, r, false)
			return processor.Result().Event([]byte("late")).AuxState([]byte("late")).Response([]byte("late")).Done()
		}
		return processor.Echo().Process(ctx, r)
	}}, reg.use, func(c *engine.Config) {
		c.ZombieAfter, c.ZombieMargin = time.Second, 100*time.Millisecond
	})
	n.put(t, &progressorv1.Namespace{Namespace: "ns", StepTimeout: durationpb.New(200 * time.Millisecond)})
	n.started(t, "p")
	res := receive(t, "the answer of the second attempt",
		n.calling("p", "x", func(p *engine.CallParams) { p.Timeout = longWait }))
	if res.err != nil || string(res.ans.Response) != "x" {
		t.Fatalf("%+v", res)
	}
	if got := reg.value(t, "progressor_zombies_total", "namespace=ns"); got != 1 {
		t.Errorf("%v zombies were counted", got)
	}
	g.release()
	eventually(t, "the late result is rejected", func() bool {
		return reg.value(t, "progressor_stale_results_total", "namespace=ns") == 1
	})
	p, err := n.GetProcess(t.Context(), key("p"), nil, 0)
	if err != nil || string(p.GetAuxState()) != "x" || p.GetLastEventId() != 2 ||
		p.GetStatus() != progressorv1.ProcessStatus_PROCESS_STATUS_RUNNING {
		t.Errorf("%v, %v", p, err)
	}
	eventually(t, "no slot is taken", func() bool { taken, _ := n.Slots("ns"); return taken == 0 })
}

// lockedBuffer is a buffer for concurrent log writers.
type lockedBuffer struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (l *lockedBuffer) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.Write(p)
}

func (l *lockedBuffer) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.String()
}

// A request that never reached its processor is retried in place by the retry policy. A later call
// does not overtake it.
func TestUnreachable(t *testing.T) {
	t.Parallel()
	j := newJournal()
	var down atomic.Bool
	down.Store(true)
	var log lockedBuffer
	n := start(t, storagetest.DSN(t),
		j.recording(byTask{callTask: func(
			ctx context.Context, r *progressorv1.ProcessRequest,
		) (*progressorv1.ProcessResponse, error) {
			if down.Load() {
				return nil, &processor.UnreachableError{Err: errors.New("refused")}
			}
			return processor.Echo().Process(ctx, r)
		}}), func(c *engine.Config) { c.Logger = slog.New(slog.NewTextHandler(&log, nil)) })
	n.put(t, &progressorv1.Namespace{
		Namespace: "ns",
		RetryPolicy: &progressorv1.RetryPolicy{
			InitialInterval: durationpb.New(20 * time.Millisecond), MaxAttempts: 1000,
		},
	})
	n.started(t, "p")
	first := n.calling("p", "1")
	eventually(t, "the call was tried a few times", func() bool { return len(j.of("p", callTask)) > 2 })
	if said, err := n.ExplainProcess(t.Context(), key("p")); err != nil ||
		!strings.Contains(said.GetWaitsForDetail(), "its processor was not reached in ") ||
		!strings.Contains(said.GetWaitsForDetail(), " tries (refused)") {
		t.Errorf("explained: %v, %v", said, err)
	}
	second := n.calling("p", "2")
	down.Store(false)
	for _, c := range []<-chan result{first, second} {
		if res := receive(t, "call", c); res.err != nil {
			t.Error(res.err)
		}
	}
	away := strings.Count(log.String(), "processor not reached; its tasks are retried")
	if back := strings.Count(log.String(), "processor reached again"); away != 1 || back != 1 {
		t.Errorf("logged %d times that the processor is not reached, %d times that it is reached again:\n%s", away,
			back, log.String())
	}
	tries := j.of("p", callTask)
	for _, e := range tries[:len(tries)-1] {
		if e.attempt != 1 || e.args != "1" || e.token != tries[0].token {
			t.Errorf("%+v", e)
		}
	}
	// The policy may exclude the reason or limit the attempts.
	for _, policy := range []*progressorv1.RetryPolicy{
		{InitialInterval: durationpb.New(time.Millisecond), NonRetryableErrors: []string{process.ReasonUnavailable}},
		{InitialInterval: durationpb.New(time.Millisecond), MaxAttempts: 1},
	} {
		down.Store(true)
		n.put(t, &progressorv1.Namespace{Namespace: "ns", RetryPolicy: policy})
		before := len(j.of("p", callTask))
		res := receive(t, "the failure", n.calling("p", "3"))
		if te := taskError(t, res.err); te.Failure.GetReason() != process.ReasonUnavailable ||
			len(j.of("p", callTask)) != before+1 {
			t.Errorf("%+v after %d tries", te, len(j.of("p", callTask))-before)
		}
		if _, err := n.Repair(t.Context(), engine.RepairParams{Key: key("p"), Simple: true}); err != nil {
			t.Fatal(err)
		}
	}
	// The retries end with the step timeout.
	n.put(t, &progressorv1.Namespace{Namespace: "ns", StepTimeout: durationpb.New(100 * time.Millisecond),
		RetryPolicy: &progressorv1.RetryPolicy{
			InitialInterval: durationpb.New(20 * time.Millisecond), MaxAttempts: 1000,
		}})
	res := receive(t, "the failure", n.calling("p", "4", func(p *engine.CallParams) { p.Timeout = longWait }))
	if te := taskError(t, res.err); te.Failure.GetReason() != process.ReasonUnavailable {
		t.Errorf("%+v", te)
	}
}

// By default, a wait lasts as long as the step timeout. If a processor does not answer in time or
// cannot be reached, the client always gets the failure of the task, and never a wait timeout.
func TestWaitAsLongAsTheStep(t *testing.T) {
	t.Parallel()
	n := start(t, storagetest.DSN(t),
		byTask{callTask: func(
			ctx context.Context, r *progressorv1.ProcessRequest,
		) (*progressorv1.ProcessResponse, error) {
			switch string(r.GetArgs()) {
			case "away":
				return nil, &processor.UnreachableError{Err: errors.New("refused")}
			case "dials":
				<-ctx.Done()
				return nil, &processor.UnreachableError{Err: ctx.Err()}
			}
			<-ctx.Done()
			return nil, ctx.Err()
		}})
	n.put(t, &progressorv1.Namespace{Namespace: "ns", StepTimeout: durationpb.New(2 * time.Second),
		RetryPolicy: &progressorv1.RetryPolicy{
			InitialInterval: durationpb.New(100 * time.Millisecond), MaxAttempts: 1000,
		}})
	var answers []<-chan result
	var want []string
	for k, args := range []string{"slow", "away", "dials", "slow", "away", "dials"} {
		id := fmt.Sprint("p", k)
		n.started(t, id)
		change := func(*engine.CallParams) {}
		if k > 2 {
			change = func(p *engine.CallParams) { p.Timeout = 2 * time.Second }
		}
		answers = append(answers, n.calling(id, args, change))
		want = append(want, map[string]string{"slow": process.ReasonTimeout}[args])
		if args != "slow" {
			want[k] = process.ReasonUnavailable
		}
	}
	for k, c := range answers {
		if te := taskError(t, receive(t, "an answer", c).err); te.WaitTimeout || te.Failure.GetReason() != want[k] {
			t.Errorf("call %d: %v, want the failure %q", k, te, want[k])
		}
	}
}

// For a timer, each try of an unreachable processor is an attempt. The timer fails when it is out
// of attempts.
func TestUnreachableTimer(t *testing.T) {
	t.Parallel()
	dsn := storagetest.DSN(t)
	n := start(t, dsn, byTask{callTask: words,
		timeoutTask: func(context.Context, *progressorv1.ProcessRequest) (*progressorv1.ProcessResponse, error) {
			return nil, &processor.UnreachableError{Err: errors.New("refused")}
		}})
	n.put(t, quick())
	n.started(t, "p")
	n.called(t, "p", "set 1ms")
	eventually(t, "the timer is out of attempts", func() bool { return n.status(t, "p") == "ERROR" })
	p, err := n.GetProcess(t.Context(), key("p"), nil, 0)
	if err != nil || !strings.Contains(p.GetDetail(), "refused") {
		t.Errorf("%v, %v", p, err)
	}
}

// A rejected NOTIFY task has finished. A rejected timer has failed.
func TestRejections(t *testing.T) {
	t.Parallel()
	dsn := storagetest.DSN(t)
	no := func(context.Context, *progressorv1.ProcessRequest) (*progressorv1.ProcessResponse, error) {
		return nil, processor.Reject("no", "no")
	}
	n := start(t, dsn, byTask{callTask: words, timeoutTask: no, notifyTask: no})
	n.put(t, &progressorv1.Namespace{Namespace: "ns", RetryPolicy: &progressorv1.RetryPolicy{MaxAttempts: 1}})
	n.started(t, "p")
	ans, err := n.Call(t.Context(), engine.CallParams{Key: key("p"), Accepted: true})
	if err != nil {
		t.Fatal(err)
	}
	task, err := n.AwaitTask(t.Context(), engine.AwaitParams{Key: key("p"), TaskID: ans.TaskID, Timeout: longWait})
	if err != nil || task.GetStatus() != progressorv1.TaskStatus_TASK_STATUS_FINISHED ||
		task.GetRejection().GetReason() != "no" || n.status(t, "p") != "RUNNING" {
		t.Errorf("%v, %v", task, err)
	}
	n.called(t, "p", "set 1ms")
	eventually(t, "the timer has failed", func() bool { return n.status(t, "p") == "ERROR" })
	got := openDB(t, dsn).texts(t, "SELECT failure->>'reason' FROM tasks WHERE task_type = 'TIMEOUT'")
	if len(got) != 1 || got[0] != process.ReasonBadResponse {
		t.Errorf("%v", got)
	}
}

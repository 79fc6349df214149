package engine_test

import (
	"context"
	"errors"
	"strings"
	"sync"
	"testing"
	"time"

	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/trace"

	"github.com/progressor-engine/progressor/engine"
	"github.com/progressor-engine/progressor/engine/enginetest"
	"github.com/progressor-engine/progressor/internal/tracing"
	"github.com/progressor-engine/progressor/process"
	"github.com/progressor-engine/progressor/processor"
	progressorv1 "github.com/progressor-engine/progressor/proto/progressor/v1"
	"github.com/progressor-engine/progressor/storage/storagetest"
)

// spans records the spans of the engines and processors of a test.
type spans struct{ *enginetest.Spans }

func newSpans() spans { return spans{enginetest.NewSpans(1)} }

func (s spans) use(c *engine.Config) { c.Traces = s.Spans }

func (s spans) await(t testing.TB, name string, n int) []sdktrace.ReadOnlySpan {
	t.Helper()
	return s.Await(t, longWait, name, n)
}

// traced returns a processor that starts a span for each task, in the context of its attempt.
func (s spans) traced(p processor.Processor) processor.Processor {
	return processor.Func(func(
		ctx context.Context, r *progressorv1.ProcessRequest,
	) (*progressorv1.ProcessResponse, error) {
		ctx, span := s.Begin(ctx, "processor of "+r.GetType().String())
		defer span.End()
		return p.Process(ctx, r)
	})
}

func childOf(t testing.TB, child sdktrace.ReadOnlySpan, parent trace.SpanContext) {
	t.Helper()
	if child.SpanContext().TraceID() != parent.TraceID() || child.Parent().SpanID() != parent.SpanID() {
		t.Errorf("%s is not a child of %s: trace %s, parent %s", child.Name(), parent.SpanID(),
			child.SpanContext().TraceID(), child.Parent().SpanID())
	}
}

func wantAttributes(t testing.TB, span sdktrace.ReadOnlySpan, want map[string]string) {
	t.Helper()
	for key, value := range want {
		if got := enginetest.Attribute(span, key); got != value {
			t.Errorf("%s: %s is %q, want %q", span.Name(), key, got, value)
		}
	}
}

// The trace of a request continues with its task, and with the timer that the task sets, on another
// node after the first one has stopped.
func TestTraceAcrossNodes(t *testing.T) {
	t.Parallel()
	dsn, s := storagetest.DSN(t), newSpans()
	gone := make(chan struct{})
	p := s.traced(byTask{
		callTask: answers(processor.Result().SetTimerAfter(500 * time.Millisecond).Response([]byte("set"))),
		timeoutTask: func(context.Context, *progressorv1.ProcessRequest) (*progressorv1.ProcessResponse, error) {
			select {
			case <-gone:
				return processor.Result().Done()
			default:
				return nil, errors.New("the first node is still there")
			}
		},
	})
	a := start(t, dsn, p, s.use)
	a.put(t, quick())
	a.started(t, "p")
	ctx, asking := s.Begin(t.Context(), "client")
	_, err := a.Call(ctx, engine.CallParams{Key: key("p"), Args: []byte("secret-args"), IdempotencyKey: "secret-key"})
	if err != nil {
		t.Fatal(err)
	}
	asking.End()
	call := s.await(t, "task CALL", 1)[0]
	childOf(t, call, asking.SpanContext())
	childOf(t, s.await(t, "processor of TASK_TYPE_CALL", 1)[0], call.SpanContext())
	wantAttributes(t, call, map[string]string{
		"progressor.namespace": "ns", "progressor.process_id": "p", "progressor.task_type": "CALL",
		"progressor.attempt": "1", "progressor.outcome": "finish",
	})
	a.stop()
	close(gone)
	start(t, dsn, p, s.use)
	timers := s.await(t, "task TIMEOUT", 1)
	timer := timers[len(timers)-1] // if the first node was slow to stop, it may have made an attempt before
	childOf(t, timer, asking.SpanContext())
	inside := s.await(t, "processor of TASK_TYPE_TIMEOUT", len(timers))
	childOf(t, inside[len(inside)-1], timer.SpanContext())
	if text := s.Text(); strings.Contains(text, "secret") {
		t.Errorf("spans contain payloads or keys: %s", text)
	}
	if s.Named("task INIT") != nil {
		t.Error("a request without a trace has a trace")
	}
}

// Every attempt of a task has its own span with its outcome.
func TestTraceOfRetries(t *testing.T) {
	t.Parallel()
	s := newSpans()
	n := start(t, storagetest.DSN(t), byTask{
		notifyTask: func(_ context.Context, r *progressorv1.ProcessRequest) (*progressorv1.ProcessResponse, error) {
			if r.GetAttempt() == 1 {
				return nil, processor.Fail("busy", "secret message")
			}
			return nil, processor.Fail("broken", "secret message").NonRetryable()
		},
		repairTask: answers(processor.Result()),
		callTask: func(context.Context, *progressorv1.ProcessRequest) (*progressorv1.ProcessResponse, error) {
			return nil, processor.Reject("no_stock", "secret message")
		},
	}, s.use)
	n.put(t, quick())
	n.started(t, "p")
	ctx, asking := s.Begin(t.Context(), "client")
	if _, err := n.Call(ctx, engine.CallParams{Key: key("p"), Accepted: true}); err != nil {
		t.Fatal(err)
	}
	tries := s.await(t, "task NOTIFY", 2)
	for try, want := range []map[string]string{
		{"progressor.attempt": "1", "progressor.outcome": "retry", "progressor.failure_reason": "busy"},
		{"progressor.attempt": "2", "progressor.outcome": "fail", "progressor.failure_reason": "broken"},
	} {
		childOf(t, tries[try], asking.SpanContext())
		wantAttributes(t, tries[try], want)
	}
	eventually(t, "the process is in ERROR", func() bool { return n.status(t, "p") == "ERROR" })
	if _, err := n.Repair(ctx, engine.RepairParams{Key: key("p")}); err != nil {
		t.Fatal(err)
	}
	childOf(t, s.await(t, "task REPAIR", 1)[0], asking.SpanContext())
	if _, err := n.Call(ctx, engine.CallParams{Key: key("p")}); taskError(t, err).Rejection == nil {
		t.Error(err)
	}
	wantAttributes(t, s.await(t, "task CALL", 1)[0], map[string]string{
		"progressor.outcome": "reject", "progressor.rejection_reason": "no_stock",
	})
	if _, err := n.CancelProcess(ctx, engine.CancelParams{Key: key("p"), Reason: "secret reason"}); err != nil {
		t.Fatal(err)
	}
	end := s.await(t, "task CANCEL", 1)[0]
	childOf(t, end, asking.SpanContext())
	wantAttributes(t, end, map[string]string{"progressor.outcome": "cancel"})
	if text := s.Text(); strings.Contains(text, "secret") {
		t.Errorf("spans contain messages: %s", text)
	}
}

// A context of the caller is stored unchanged. The task that runs immediately is still linked to
// the request, but a timer is not.
func TestTraceWithAContextOfTheCaller(t *testing.T) {
	t.Parallel()
	dsn, s := storagetest.DSN(t), newSpans()
	var mu sync.Mutex
	var seen []string
	n := start(t, dsn, s.traced(processor.Func(func(
		ctx context.Context, r *progressorv1.ProcessRequest,
	) (*progressorv1.ProcessResponse, error) {
		mu.Lock()
		seen = append(seen, r.GetType().String()+" "+string(r.GetContext()))
		mu.Unlock()
		if r.GetType() == callTask {
			return processor.Result().SetTimerAfter(0).Done()
		}
		return processor.Echo().Process(ctx, r)
	})), s.use)
	n.started(t, "p")
	ctx, asking := s.Begin(t.Context(), "client")
	if _, err := n.Call(ctx, engine.CallParams{Key: key("p"), Context: []byte("mine")}); err != nil {
		t.Fatal(err)
	}
	childOf(t, s.await(t, "task CALL", 1)[0], asking.SpanContext())
	s.await(t, "processor of TASK_TYPE_TIMEOUT", 1)
	mu.Lock()
	defer mu.Unlock()
	if got := strings.Join(seen[1:], ", "); got != "TASK_TYPE_CALL mine, TASK_TYPE_TIMEOUT mine" {
		t.Errorf("the processor received %s", got)
	}
	if s.Named("task TIMEOUT") != nil {
		t.Error("a timer with the caller's context has a trace")
	}
}

// The context of a caller that does not record its trace is passed on, so that the processor does
// not start a trace. Nothing is recorded.
func TestTraceNotRecorded(t *testing.T) {
	t.Parallel()
	s := newSpans()
	var handed trace.SpanContext
	n := start(t, storagetest.DSN(t),
		byTask{callTask: func(
			ctx context.Context, _ *progressorv1.ProcessRequest,
		) (*progressorv1.ProcessResponse, error) {
			handed = trace.SpanContextFromContext(ctx)
			return processor.Result().Done()
		}}, s.use)
	n.started(t, "p")
	asked := tracing.OfText([]byte("00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-00"))
	_, err := n.Call(trace.ContextWithRemoteSpanContext(t.Context(), asked), engine.CallParams{Key: key("p")})
	if err != nil {
		t.Fatal(err)
	}
	if handed.TraceID() != asked.TraceID() || handed.IsSampled() {
		t.Errorf("the processor got %v", handed)
	}
	if text := s.Text(); text != "" {
		t.Errorf("unexpected text: %s", text)
	}
}

// With tracing off, no trace is stored, even if the caller sends one. With tracing on, none is
// stored for the engine's own processes.
func TestNoTrace(t *testing.T) {
	t.Parallel()
	dsn, s := storagetest.DSN(t), newSpans()
	off, on := start(t, dsn, processor.Echo()), start(t, dsn, processor.Echo(), s.use)
	ctx, _ := s.Begin(t.Context(), "client")
	if _, err := off.Start(ctx, engine.StartParams{Key: key("p")}); err != nil {
		t.Fatal(err)
	}
	if _, err := off.Call(ctx, engine.CallParams{Key: key("p")}); err != nil {
		t.Fatal(err)
	}
	if _, err := on.Start(ctx, engine.StartParams{Key: key("~cron/c")}); err != nil {
		t.Fatal(err)
	}
	const kept = "SELECT count(*) FROM tasks WHERE context IS NOT NULL"
	if k := openDB(t, dsn).count(t, kept); k != 0 {
		t.Errorf("%d tasks have a context", k)
	}
	if _, err := on.Call(ctx, engine.CallParams{Key: key("p")}); err != nil {
		t.Fatal(err)
	}
	if k := openDB(t, dsn).count(t, kept); k != 1 {
		t.Errorf("%d tasks have a context, but only one was traced", k)
	}
}

// A trace is not part of a request: requests with the same key in different traces are the same
// request.
func TestTraceIsNotPartOfAKey(t *testing.T) {
	t.Parallel()
	s := newSpans()
	n := start(t, storagetest.DSN(t), processor.Echo(), s.use)
	for _, name := range []string{"first", "second"} {
		ctx, _ := s.Begin(t.Context(), name)
		if _, err := n.Start(ctx, engine.StartParams{
			Key: key("p"), Args: []byte("a"), IdempotencyKey: "k1",
		}); err != nil {
			t.Errorf("%s start: %v", name, err)
		}
		if ans, err := n.Call(ctx, engine.CallParams{
			Key: key("p"), Args: []byte("b"), IdempotencyKey: "k2",
		}); err != nil || string(ans.Response) != "b" {
			t.Errorf("%s call: %v", name, err)
		}
	}
	if k := len(s.Named("task CALL")); k != 1 {
		t.Errorf("%d calls ran", k)
	}
}

// Messages of a result continue its trace.
func TestTraceOfMessages(t *testing.T) {
	t.Parallel()
	s := newSpans()
	n := start(t, storagetest.DSN(t), byTask{
		callTask: answers(processor.Result().Command(startOf("child")).Notify("", "child", []byte("more"))),
	}, s.use)
	n.started(t, "p")
	ctx, asking := s.Begin(t.Context(), "client")
	if _, err := n.Call(ctx, engine.CallParams{Key: key("p")}); err != nil {
		t.Fatal(err)
	}
	call := s.await(t, "task CALL", 1)[0]
	childOf(t, call, asking.SpanContext())
	for _, name := range []string{"task INIT", "task NOTIFY"} {
		notified := s.await(t, name, 1)[0]
		childOf(t, notified, call.SpanContext())
		wantAttributes(t, notified, map[string]string{"progressor.process_id": "child"})
	}
}

// If the node of an attempt has died, another node records the span of the attempt. The spans of
// the processor are children of this span.
func TestTraceOfALostAttempt(t *testing.T) {
	t.Parallel()
	dsn, s, g := storagetest.DSN(t), newSpans(), newGate()
	defer g.release()
	soon := func(c *engine.Config) { c.ZombieAfter = time.Second }
	a := start(t, dsn, s.traced(byTask{callTask: g.held(false)}), s.use, soon)
	a.started(t, "p")
	ctx, asking := s.Begin(t.Context(), "client")
	go a.Call(ctx, engine.CallParams{Key: key("p")}) // its node will die
	receive(t, "the call begins", g.entered)
	a.crash()
	start(t, dsn, processor.Echo(), s.use, soon)
	lost := s.await(t, "task CALL", 1)[0]
	childOf(t, lost, asking.SpanContext())
	wantAttributes(t, lost, map[string]string{
		"progressor.outcome": "retry", "progressor.failure_reason": process.ReasonZombie,
	})
	g.release()
	childOf(t, s.await(t, "processor of TASK_TYPE_CALL", 1)[0], lost.SpanContext())
}

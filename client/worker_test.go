package client_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"go.opentelemetry.io/otel/trace"
	"google.golang.org/protobuf/types/known/durationpb"
	"google.golang.org/protobuf/types/known/structpb"

	"github.com/progressor-engine/progressor/client"
	"github.com/progressor-engine/progressor/engine/enginetest"
	"github.com/progressor-engine/progressor/engine/rpc"
	"github.com/progressor-engine/progressor/processor"
	progressorv1 "github.com/progressor-engine/progressor/proto/progressor/v1"
	"github.com/progressor-engine/progressor/storage/storagetest"
)

func TestMain(m *testing.M) { storagetest.Main(m) }

// testTimeout is how long a test waits for an event. It is long, because the machine may be busy.
const testTimeout = time.Minute

// testEngine is an engine behind HTTP, with a namespace "pull" for workers.
type testEngine struct {
	t      *testing.T
	url    string
	client *client.Client
}

func newTestEngine(t *testing.T) *testEngine {
	t.Helper()
	t.Parallel()
	n := enginetest.Start(t, storagetest.DSN(t), processor.Echo(), enginetest.Kinds)
	return newServer(t, n, nil)
}

// newServer serves the API of an engine over HTTP. It also adds the namespace "pull" for workers.
func newServer(t *testing.T, n *enginetest.Node, traces trace.TracerProvider) *testEngine {
	t.Helper()
	n.Put(t, enginetest.Pull("pull"))
	server := httptest.NewServer(rpc.NewHandler(rpc.Config{
		Engine: n.Engine, Insight: n.Insight, Workers: n.Server, Jobs: n.Jobs, Traces: traces,
		Logger: slog.New(slog.DiscardHandler),
	}))
	t.Cleanup(server.Close)
	return &testEngine{t, server.URL, client.New(server.URL)}
}

// testWorker is a running worker, with the outcomes of its attempts.
type testWorker struct {
	*client.Worker
	stop  func()        // stops the worker and waits until Run has returned
	over  chan struct{} // closed when Run has returned
	ended chan client.Attempt
}

// worker starts a worker of the namespace "pull", which stops at the end of the test. f registers
// its handlers.
func (h *testEngine) worker(c *client.Client, f func(*client.Worker), opts ...client.WorkerOption) *testWorker {
	h.t.Helper()
	w := &testWorker{ended: make(chan client.Attempt, 1000), over: make(chan struct{})}
	w.Worker = client.NewWorker(c, []string{"pull"}, append([]client.WorkerOption{
		client.WithWorkerLogger(slog.New(slog.DiscardHandler)),
		client.WithAttemptEnded(func(a client.Attempt) { w.ended <- a }),
	}, opts...)...)
	f(w.Worker)
	ctx, cancel := context.WithCancel(context.Background())
	go func() {
		defer close(w.over)
		if err := w.Run(ctx); err != nil {
			h.t.Errorf("Run: %v", err)
		}
	}()
	w.stop = func() {
		cancel()
		<-w.over
	}
	h.t.Cleanup(w.stop)
	return w
}

// outcome returns the outcome of the next attempt.
func (w *testWorker) outcome(t *testing.T) client.Attempt {
	t.Helper()
	select {
	case a := <-w.ended:
		return a
	case <-time.After(testTimeout):
		t.Fatal("no attempt has ended")
		return client.Attempt{}
	}
}

// enqueue enqueues a job in the namespace "pull".
func (h *testEngine) enqueue(id, name string, args *structpb.Value, o *progressorv1.JobOptions) {
	h.t.Helper()
	_, err := h.client.Job.Enqueue(h.t.Context(),
		&progressorv1.EnqueueRequest{Namespace: "pull", JobId: id, Name: name, Args: args, Options: o})
	if err != nil {
		h.t.Fatal(err)
	}
}

// job waits until a job has ended, and checks its state.
func (h *testEngine) job(id string, want progressorv1.JobState) *progressorv1.Job {
	h.t.Helper()
	resp, err := h.client.Job.GetJob(h.t.Context(),
		&progressorv1.GetJobRequest{Namespace: "pull", JobId: id, AwaitEnd: durationpb.New(testTimeout)})
	if err != nil {
		h.t.Fatal(err)
	}
	if resp.GetJob().GetState() != want {
		h.t.Fatalf("%s: %v, want %v", id, resp.GetJob(), want)
	}
	return resp.GetJob()
}

const (
	succeeded = progressorv1.JobState_JOB_STATE_SUCCEEDED
	failed    = progressorv1.JobState_JOB_STATE_FAILED
	cancelled = progressorv1.JobState_JOB_STATE_CANCELLED
)

type sum struct {
	A int `json:"a"`
	B int `json:"b"`
}

// Two workers share the jobs. Every job runs once and ends with the outcome that its handler
// returns.
func TestWorkersRunJobs(t *testing.T) {
	h := newTestEngine(t)
	var ran sync.Map
	add := func(w *client.Worker) {
		client.Handle(w, "add", func(ctx context.Context, s sum) (map[string]int, error) {
			l := client.LeaseOf(ctx)
			if _, twice := ran.LoadOrStore(l.GetJob().GetJobId(), true); twice || l.GetJob().GetWorkerId() != w.ID() {
				t.Errorf("%s ran on %s (it ran twice: %v)", l.GetJob().GetJobId(), l.GetJob().GetWorkerId(), twice)
			}
			return map[string]int{"sum": s.A + s.B}, nil
		})
		client.Handle(w, "break", func(_ context.Context, how string) (any, error) {
			switch how {
			case "panic":
				panic("expected")
			case "abort":
				panic(http.ErrAbortHandler)
			case "reject":
				return nil, processor.Reject("no", "not this one")
			case "large":
				return map[string]int64{"n": 1<<53 + 1}, nil
			case "unencodable":
				return func() {}, nil
			default:
				return nil, processor.Fail(how, "expected")
			}
		})
	}
	one, two := h.worker(h.client, add, client.WithConcurrency(8)), h.worker(h.client, add, client.WithConcurrency(8))
	batch := &progressorv1.EnqueueBatchRequest{}
	for n := range 200 {
		args, err := structpb.NewValue(map[string]any{"a": n, "b": 1})
		if err != nil {
			t.Fatal(err)
		}
		batch.Jobs = append(batch.Jobs, &progressorv1.EnqueueRequest{
			Namespace: "pull", JobId: fmt.Sprint("add-", n), Name: "add", Args: args,
			Options: &progressorv1.JobOptions{KeepResult: true},
		})
	}
	if _, err := h.client.Job.EnqueueBatch(t.Context(), batch); err != nil {
		t.Fatal(err)
	}
	broken := map[string]string{"panic": "panic", "abort": "panic", "reject": "no", "unencodable": "error",
		"large": "error", "mine": "mine"}
	for how := range broken {
		h.enqueue(how, "break", structpb.NewStringValue(how), nil)
	}
	h.enqueue("args", "add", structpb.NewStringValue("no object"), &progressorv1.JobOptions{MaxRetry: 5})
	h.enqueue("none", "add", nil, &progressorv1.JobOptions{KeepResult: true})
	for n := range 200 {
		if got := h.job(fmt.Sprint("add-", n),
			succeeded).GetResult().GetStructValue().GetFields()["sum"].GetNumberValue(); got != float64(n+1) {
			t.Errorf("add-%d: %v", n, got)
		}
	}
	for how, reason := range broken {
		if f := h.job(how, failed).GetFailures(); len(f) != 1 || f[0].GetReason() != reason {
			t.Errorf("%s: %v", how, f)
		}
	}
	if f := h.job("args", failed).GetFailures(); len(f) != 1 || f[0].GetReason() != processor.ReasonBadArgs {
		t.Errorf("args: %v", f)
	}
	h.job("none", succeeded)
	// h.job may return before the worker receives the response to its result.
	enginetest.Eventually(t, testTimeout, "the workers report the end of every attempt", func() bool {
		return len(one.ended)+len(two.ended) == 202+len(broken)
	})
}

// A job shows the progress that its handler reports. A cancel stops the handler and the job.
func TestProgressAndCancel(t *testing.T) {
	h := newTestEngine(t)
	w := h.worker(h.client, func(w *client.Worker) {
		client.Handle(w, "slow", func(ctx context.Context, _ any) (any, error) {
			client.Report(ctx, 150, "bytes \x00\xff")
			<-ctx.Done()
			return nil, fmt.Errorf("halfway: %w", context.Cause(ctx))
		})
	})
	h.enqueue("j", "slow", nil,
		&progressorv1.JobOptions{HeartbeatInterval: durationpb.New(20 * time.Millisecond),
			LeaseDuration: durationpb.New(testTimeout)})
	enginetest.Eventually(t, testTimeout, "progress is shown", func() bool {
		resp, err := h.client.Job.GetJob(t.Context(), &progressorv1.GetJobRequest{Namespace: "pull", JobId: "j"})
		if err != nil {
			t.Fatal(err)
		}
		p := resp.GetJob().GetProgress()
		return p.GetPercent() == 100 && p.GetSummary() == "bytes \uFFFD\uFFFD"
	})
	if _, err := h.client.Job.CancelJob(t.Context(),
		&progressorv1.CancelJobRequest{Namespace: "pull", JobId: "j", Reason: "enough"}); err != nil {
		t.Fatal(err)
	}
	job := h.job("j", cancelled)
	if job.GetCancelReason() != "enough" {
		t.Errorf("%v", job)
	}
	if a := w.outcome(t); a.Outcome != client.OutcomeCancelled {
		t.Errorf("%v", a)
	}
}

// An attempt that exceeds its timeout fails, and the context of its handler is cancelled.
func TestWorkerTimeout(t *testing.T) {
	h := newTestEngine(t)
	causes := make(chan error, 1)
	h.worker(h.client, func(w *client.Worker) {
		client.Handle(w, "slow", func(ctx context.Context, _ any) (any, error) {
			<-ctx.Done()
			causes <- context.Cause(ctx)
			return nil, ctx.Err()
		})
	})
	h.enqueue("j", "slow", nil, &progressorv1.JobOptions{Timeout: durationpb.New(50 * time.Millisecond)})
	if f := h.job("j", failed).GetFailures(); len(f) != 1 || f[0].GetReason() != "timeout" ||
		f[0].GetMessage() != "the attempt exceeded its timeout of 50ms" {
		t.Errorf("%v", f)
	}
	if cause := <-causes; !errors.Is(cause, context.DeadlineExceeded) {
		t.Errorf("cause %v", cause)
	}
}

// faultyTransport sends requests to the engine. It makes requests fail and drops responses.
type faultyTransport struct {
	closed atomic.Value // name of the method whose requests fail, or "all"
	lose   atomic.Int32 // number of responses of CompleteBatch to lose
	sent   atomic.Int32 // number of requests of CompleteBatch
}

func (r *faultyTransport) RoundTrip(req *http.Request) (*http.Response, error) {
	path := req.URL.Path
	method := path[len("/progressor.v1.WorkerService/"):]
	if closed, _ := r.closed.Load().(string); closed == method || closed == "all" {
		return nil, errors.New("the connection is closed")
	}
	resp, err := http.DefaultTransport.RoundTrip(req)
	if method == "CompleteBatch" && err == nil {
		r.sent.Add(1)
		if r.lose.Add(-1) >= 0 {
			resp.Body.Close()
			return nil, errors.New("the answer was lost")
		}
	}
	return resp, err
}

// by returns a client whose requests pass through r.
func (h *testEngine) by(r *faultyTransport) *client.Client {
	return client.New(h.url, client.WithHTTPClient(&http.Client{Transport: r}))
}

// A worker whose heartbeats fail loses its job to another worker. The context of its handler is
// cancelled, and the engine rejects its result.
func TestLostLease(t *testing.T) {
	for _, reported := range []bool{true, false} {
		t.Run(fmt.Sprint("reported ", reported), func(t *testing.T) {
			h := newTestEngine(t)
			r := &faultyTransport{}
			r.closed.Store("Heartbeat")
			causes := make(chan error, 1)
			leased, second := make(chan struct{}), make(chan struct{})
			first := h.worker(h.by(r), func(w *client.Worker) {
				client.Handle(w, "work", func(ctx context.Context, _ any) (string, error) {
					close(leased)
					if reported { // the engine reports the loss before a heartbeat fails
						<-second
						r.closed.Store("")
					}
					<-ctx.Done()
					causes <- context.Cause(ctx)
					<-second // otherwise this worker could lease the job again
					return "first", nil
				})
			}, client.WithConcurrency(1))
			h.enqueue("j", "work", nil,
				&progressorv1.JobOptions{LeaseDuration: durationpb.New(600 * time.Millisecond), KeepResult: true})
			<-leased
			h.worker(h.client, func(w *client.Worker) {
				client.Handle(w, "work", func(context.Context, any) (string, error) {
					close(second)
					return "second", nil
				})
			})
			if job := h.job("j", succeeded); job.GetResult().GetStringValue() != "second" {
				t.Errorf("%v", job)
			}
			if cause := <-causes; !errors.Is(cause, client.ErrLeaseLost) {
				t.Errorf("cause %v", cause)
			}
			if a := first.outcome(t); a.Outcome != client.OutcomeLost {
				t.Errorf("%v", a.Outcome)
			}
		})
	}
}

// A worker that stops waits for its handlers until the grace period ends. It then releases the
// tasks of the handlers that have not finished. Another worker runs these tasks as attempt 1,
// because a release does not count as an attempt.
func TestStop(t *testing.T) {
	h := newTestEngine(t)
	started, proceed := make(chan struct{}, 3), make(chan struct{})
	stubborn := make(chan struct{})
	defer close(stubborn)
	w := h.worker(h.client, func(w *client.Worker) {
		client.Handle(w, "work", func(ctx context.Context, how string) (any, error) {
			started <- struct{}{}
			switch how {
			case "quick":
				<-proceed
				return nil, nil
			case "stubborn":
				<-stubborn
			}
			<-ctx.Done()
			return nil, context.Cause(ctx)
		})
	}, client.WithStopGrace(300*time.Millisecond))
	for _, how := range []string{"quick", "patient", "stubborn"} {
		h.enqueue(how, "work", structpb.NewStringValue(how),
			&progressorv1.JobOptions{Timeout: durationpb.New(time.Hour)})
		<-started
	}
	stopped := make(chan struct{})
	go func() { w.stop(); close(stopped) }()
	close(proceed)
	h.job("quick", succeeded)
	<-stopped
	outcomes := map[client.Outcome]int{}
	for range 3 {
		outcomes[w.outcome(t).Outcome]++
	}
	if outcomes[client.OutcomeDone] != 1 || outcomes[client.OutcomeReleased] != 2 {
		t.Errorf("%v", outcomes)
	}
	h.worker(h.client, func(w *client.Worker) {
		client.Handle(w, "work", func(context.Context, string) (any, error) { return nil, nil })
	})
	for _, id := range []string{"patient", "stubborn"} {
		if job := h.job(id, succeeded); job.GetAttempt() != 1 || len(job.GetFailures()) != 0 {
			t.Errorf("%v", job)
		}
	}
}

// stoppingTransport stops a worker when the engine has responded to its poll. It delays the
// response until the worker has asked the engine to end the poll, or has cancelled the poll.
type stoppingTransport struct {
	stop     context.CancelFunc
	released chan struct{} // closed when the engine has responded to a Release
	once     sync.Once
}

func (r *stoppingTransport) RoundTrip(req *http.Request) (*http.Response, error) {
	resp, err := http.DefaultTransport.RoundTrip(req)
	switch path := req.URL.Path; {
	case strings.HasSuffix(path, "/Release"):
		r.once.Do(func() { close(r.released) })
	case strings.HasSuffix(path, "/Poll"):
		r.stop()
		select {
		case <-r.released:
		case <-req.Context().Done():
		}
	}
	return resp, err
}

// A worker that stops releases the leases in the response to its last poll.
func TestStopDuringPoll(t *testing.T) {
	h := newTestEngine(t)
	h.enqueue("late", "work", nil, nil)
	ctx, stop := context.WithCancel(t.Context())
	r := &stoppingTransport{stop: stop, released: make(chan struct{})}
	w := client.NewWorker(client.New(h.url, client.WithHTTPClient(&http.Client{Transport: r})), []string{"pull"},
		client.WithWorkerLogger(slog.New(slog.DiscardHandler)))
	client.Handle(w, "work", func(context.Context, any) (any, error) {
		t.Error("the job ran")
		return nil, nil
	})
	if err := w.Run(ctx); err != nil {
		t.Fatal(err)
	}
	resp, err := h.client.Job.GetJob(t.Context(), &progressorv1.GetJobRequest{Namespace: "pull", JobId: "late"})
	if err != nil || resp.GetJob().GetState() != progressorv1.JobState_JOB_STATE_AVAILABLE {
		t.Errorf("%v, %v", resp, err)
	}
}

// A worker sends the result of a job again until it gets a response, whether the request or the
// response was lost. Each job runs once.
func TestEngineUnreachable(t *testing.T) {
	h := newTestEngine(t)
	r := &faultyTransport{}
	r.lose.Store(1)
	count := atomic.Int32{}
	w := h.worker(h.by(r), func(w *client.Worker) {
		client.Handle(w, "work", func(_ context.Context, how string) (any, error) {
			if how == "close" {
				r.closed.Store("all")
			}
			return count.Add(1), nil
		})
	}, client.WithConcurrency(1))
	h.enqueue("lost", "work", nil, nil)
	h.job("lost", succeeded)
	if a := w.outcome(t); a.Outcome != client.OutcomeDone || r.sent.Load() != 2 {
		t.Errorf("%v in %d requests", a.Outcome, r.sent.Load())
	}
	h.enqueue("away", "work", structpb.NewStringValue("close"), nil)
	enginetest.Eventually(t, testTimeout, "the second job has run", func() bool { return count.Load() == 2 })
	h.enqueue("next", "work", nil, nil)
	r.closed.Store("")
	h.job("away", succeeded)
	h.job("next", succeeded)
	if count.Load() != 3 {
		t.Errorf("%d attempts", count.Load())
	}
}

// A worker sends results that are ready at the same time in one request: 1,000 results take at most
// 500 requests.
func TestAnswersAreBatched(t *testing.T) {
	h := newTestEngine(t)
	r := &faultyTransport{}
	w := h.worker(h.by(r), func(w *client.Worker) {
		client.Handle(w, "work", func(context.Context, any) (any, error) { return nil, nil })
	}, client.WithConcurrency(100))
	batch := &progressorv1.EnqueueBatchRequest{}
	for range 1000 {
		batch.Jobs = append(batch.Jobs, &progressorv1.EnqueueRequest{Namespace: "pull", Name: "work"})
	}
	if _, err := h.client.Job.EnqueueBatch(t.Context(), batch); err != nil {
		t.Fatal(err)
	}
	for range 1000 {
		if a := w.outcome(t); a.Outcome != client.OutcomeDone {
			t.Fatalf("%v", a)
		}
	}
	if n := r.sent.Load(); n > 500 {
		t.Errorf("%d requests for 1000 results, want at most 500", n)
	}
}

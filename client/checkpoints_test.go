package client_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/progressor-engine/progressor/client"
	"github.com/progressor-engine/progressor/engine/enginetest"
	"github.com/progressor-engine/progressor/process"
	"github.com/progressor-engine/progressor/processor"
	"github.com/progressor-engine/progressor/processor/durable"
	progressorv1 "github.com/progressor-engine/progressor/proto/progressor/v1"
	"github.com/progressor-engine/progressor/storage/storagetest"
)

// effects records the names of the steps that have run, in order.
type effects struct {
	mu   sync.Mutex
	list []string
}

func (e *effects) add(what string) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.list = append(e.list, what)
}

func (e *effects) String() string {
	e.mu.Lock()
	defer e.mu.Unlock()
	return strings.Join(e.list, " ")
}

// threeSteps returns a durable function with the steps a, b and c, which adds each step to done
// when it runs.
func threeSteps(done *effects) processor.Processor {
	return durable.Func("steps", func(ctx durable.Ctx, _ struct{}) (string, error) {
		var all []string
		for _, name := range []string{"a", "b", "c"} {
			result, err := durable.Step(ctx, name, func(context.Context) (string, error) {
				done.add(name)
				return name, nil
			})
			if err != nil {
				return "", err
			}
			all = append(all, result)
			durable.Publish(ctx, all)
		}
		return strings.Join(all, " "), nil
	})
}

// completeJournal is the journal of threeSteps after its end, as journal returns it.
const completeJournal = `"k":"start" "k":"step","n":"a" "k":"step","n":"b" "k":"step","n":"c" "k":"end"`

// journal returns the kind of each event of a process, and the name of each step.
func journal(p *progressorv1.Process) string {
	var list []string
	for _, e := range p.GetHistory() {
		fields := strings.Split(strings.Trim(string(e.GetPayload()), "{}"), ",")
		if kind := fields[0]; kind == `"k":"step"` {
			list = append(list, kind+","+fields[1])
		} else {
			list = append(list, kind)
		}
	}
	return strings.Join(list, " ")
}

// start starts a process in a namespace and does not wait for its INIT task.
func (h *testEngine) start(namespace, id string) {
	h.t.Helper()
	_, err := h.client.Start(h.t.Context(), &progressorv1.StartRequest{
		Namespace: namespace, ProcessId: id, Args: []byte(`{}`), Wait: progressorv1.Wait_WAIT_ACCEPTED})
	if err != nil {
		h.t.Fatal(err)
	}
}

// completed waits until a process is COMPLETED and returns it.
func (h *testEngine) completed(namespace, id string) *progressorv1.Process {
	h.t.Helper()
	var p *progressorv1.Process
	enginetest.Eventually(h.t, testTimeout, "the process is completed", func() bool {
		resp, err := h.client.Process.GetProcess(h.t.Context(),
			&progressorv1.GetProcessRequest{Namespace: namespace, ProcessId: id})
		p = resp.GetProcess()
		return err == nil && p.GetStatus() == progressorv1.ProcessStatus_PROCESS_STATUS_COMPLETED
	})
	return p
}

// connection sends the requests of a worker to the engine. Before each request, it calls before,
// which can make the request fail or choose another host. After each response, it calls after,
// which can drop the response by returning an error.
type connection struct {
	before func(method string) (host string, err error)
	after  func(method string) error
}

func (l *connection) RoundTrip(req *http.Request) (*http.Response, error) {
	method := req.URL.Path[strings.LastIndexByte(req.URL.Path, '/')+1:]
	if l.before != nil {
		host, err := l.before(method)
		if err != nil {
			return nil, err
		}
		if host != "" {
			req = req.Clone(req.Context())
			req.URL.Host, req.Host = host, host
		}
	}
	resp, err := http.DefaultTransport.RoundTrip(req)
	if err == nil && l.after != nil {
		if lost := l.after(method); lost != nil {
			resp.Body.Close()
			return nil, lost
		}
	}
	return resp, err
}

// over returns a client whose requests pass through l.
func (h *testEngine) over(l *connection, opts ...client.Option) *client.Client {
	return client.New(h.url, append(opts, client.WithHTTPClient(&http.Client{Transport: l}))...)
}

// A durable function that a worker serves runs its steps in one task. The worker stores each step
// with a checkpoint. If the worker has a codec, the payloads in the database are encoded.
func TestWorkerStoresCheckpoints(t *testing.T) {
	t.Parallel()
	for name, opts := range map[string][]client.Option{
		"plain": nil, "encoded": {client.WithCodec(newCodec(t, "k1"))},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			n := enginetest.Start(t, storagetest.DSN(t), processor.Echo(), enginetest.Kinds)
			h := newServer(t, n, nil)
			h.client = client.New(h.url, opts...)
			var done effects
			h.worker(h.client, func(w *client.Worker) { w.HandleProcesses(threeSteps(&done)) })
			h.start("pull", "p")
			p := h.completed("pull", "p")
			if journal(p) != completeJournal || string(p.GetAuxState()) != `["a","b","c"]` || done.String() != "a b c" {
				t.Errorf("the journal is %s, the state %s, and the steps %s ran", journal(p), p.GetAuxState(), &done)
			}
			if tasks := n.Count(t, "SELECT count(*) FROM tasks"); tasks != 2 {
				t.Errorf("%d tasks, want 2", tasks)
			}
			plain := n.Count(t, `SELECT count(*) FROM events WHERE position('"k"'::bytea IN payload) > 0`)
			plain += n.Count(t, `SELECT count(*) FROM processes WHERE position('"a"'::bytea IN aux_state) > 0`)
			if (plain > 0) != (opts == nil) {
				t.Errorf("%d payloads are not encoded", plain)
			}
		})
	}
}

// death defines when a worker dies: before or after the nth of its requests that store something.
type death struct {
	n     int32
	after bool
}

// dying returns a connection that fails all requests after the death of the worker. It closes dead
// when the worker dies.
func (d death) dying(dead chan<- struct{}) *connection {
	var stored atomic.Int32
	var broken atomic.Bool
	die := func() error {
		if broken.CompareAndSwap(false, true) {
			close(dead)
		}
		return errors.New("the worker is dead")
	}
	stores := func(method string) bool { return method == "Checkpoint" || method == "CompleteBatch" }
	return &connection{
		before: func(method string) (string, error) {
			if broken.Load() || stores(method) && stored.Add(1) == d.n && !d.after {
				return "", die()
			}
			return "", nil
		},
		after: func(method string) error {
			if broken.Load() || stores(method) && stored.Load() == d.n {
				return die()
			}
			return nil
		},
	}
}

// A worker dies before or after one of its checkpoints, or before or after the final result. When
// its lease has expired, a worker of another node continues the function. The journal and the state
// are the same each time. A step runs again only if its result was not stored.
func TestWorkerDiesAtEachCheckpoint(t *testing.T) {
	t.Parallel()
	dsn := storagetest.DSN(t)
	one := newServer(t, enginetest.Start(t, dsn, processor.Echo(), enginetest.Kinds), nil)
	node := enginetest.Start(t, dsn, processor.Echo(), enginetest.Kinds)
	two := newServer(t, node, nil)
	// want are the steps that run. Request 1 of the worker stores the result of INIT, requests 2
	// and 3 store the steps a and b, and request 4 stores the step c and the end.
	for at, want := range map[death]string{
		{2, false}: "a a b c", {2, true}: "a b c",
		{3, false}: "a b b c", {3, true}: "a b c",
		{4, false}: "a b c c", {4, true}: "a b c",
	} {
		t.Run(fmt.Sprintf("%d, after %v", at.n, at.after), func(t *testing.T) {
			t.Parallel()
			namespace := fmt.Sprintf("pull-%d-%v", at.n, at.after)
			node.Put(t, enginetest.Pull(namespace))
			var done effects
			dead := make(chan struct{})
			run := func(c *client.Client) (stop func()) {
				w := client.NewWorker(c, []string{namespace}, client.WithLeaseDuration(600*time.Millisecond),
					client.WithWorkerLogger(slog.New(slog.DiscardHandler)), client.WithStopGrace(0))
				w.HandleProcesses(threeSteps(&done))
				ctx, cancel := context.WithCancel(context.Background())
				ended := make(chan struct{})
				go func() {
					defer close(ended)
					_ = w.Run(ctx) // the poll of a dead worker may be its first one
				}()
				return func() {
					cancel()
					<-ended
				}
			}
			defer run(one.over(at.dying(dead)))()
			h := &testEngine{t, two.url, two.client}
			h.start(namespace, "p")
			select {
			case <-dead:
			case <-time.After(testTimeout):
				t.Fatal("the worker did not die")
			}
			defer run(h.client)()
			p := h.completed(namespace, "p")
			if journal(p) != completeJournal || string(p.GetAuxState()) != `["a","b","c"]` || done.String() != want {
				t.Errorf("the journal is %s, the state %s, and the steps %s ran, want %s", journal(p), p.GetAuxState(),
					&done, want)
			}
		})
	}
}

// Any node can store the checkpoints and the result of a lease, even a node whose cache contains
// the lease as it was before the checkpoints.
func TestCheckpointsOnAnyNode(t *testing.T) {
	t.Parallel()
	dsn := storagetest.DSN(t)
	one := newServer(t, enginetest.Start(t, dsn, processor.Echo(), enginetest.Kinds), nil)
	two := newServer(t, enginetest.Start(t, dsn, processor.Echo(), enginetest.Kinds), nil)
	host := strings.TrimPrefix(two.url, "http://")
	for name, elsewhere := range map[string]func(method string, n int32) bool{
		"checkpoints":           func(method string, _ int32) bool { return method == "Checkpoint" },
		"the second checkpoint": func(method string, n int32) bool { return method == "Checkpoint" && n == 2 },
		"the result":            func(method string, _ int32) bool { return method == "CompleteBatch" },
	} {
		var made atomic.Int32
		l := &connection{before: func(method string) (string, error) {
			if method == "Checkpoint" {
				made.Add(1)
			}
			if elsewhere(method, made.Load()) {
				return host, nil
			}
			return "", nil
		}}
		var done effects
		w := one.worker(one.over(l), func(w *client.Worker) { w.HandleProcesses(threeSteps(&done)) })
		one.start("pull", name)
		if p := one.completed("pull", name); journal(p) != completeJournal || done.String() != "a b c" ||
			made.Load() != 2 {
			t.Errorf("%s: the journal is %s, the steps %s ran with %d checkpoints", name, journal(p), &done,
				made.Load())
		}
		w.stop()
	}
}

// A checkpoint whose response is lost is sent again and stored once.
func TestCheckpointsWhoseResponsesAreLost(t *testing.T) {
	h := newTestEngine(t)
	var sent atomic.Int32
	l := &connection{after: func(method string) error {
		if method == "Checkpoint" && sent.Add(1)%2 == 1 {
			return errors.New("the response was lost")
		}
		return nil
	}}
	var done effects
	h.worker(h.over(l), func(w *client.Worker) { w.HandleProcesses(threeSteps(&done)) })
	h.start("pull", "p")
	if p := h.completed("pull", "p"); journal(p) != completeJournal || done.String() != "a b c" || sent.Load() != 4 {
		t.Errorf("the journal is %s, the steps %s ran with %d requests", journal(p), &done, sent.Load())
	}
}

// The response to a checkpoint is lost, and the retry fails, so the worker does not know whether
// the checkpoint was stored. It then releases the task and ignores what the handler returns. The
// next attempt gets the stored events.
func TestCheckpointWithUnknownOutcome(t *testing.T) {
	h := newTestEngine(t)
	proxy := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		w.WriteHeader(http.StatusBadRequest)
		_, _ = io.WriteString(w, `{"code":"invalid_argument"}`)
	}))
	defer proxy.Close()
	var sent atomic.Int32
	c := &connection{
		before: func(method string) (host string, err error) {
			if method == "Checkpoint" && sent.Add(1) > 1 {
				return strings.TrimPrefix(proxy.URL, "http://"), nil
			}
			return "", nil
		},
		after: func(method string) error {
			if method == "Checkpoint" && sent.Load() == 1 {
				return errors.New("the response was lost")
			}
			return nil
		},
	}
	attempts, errs := make(chan *progressorv1.ProcessRequest, 2), make(chan error, 2)
	w := h.worker(h.over(c), func(w *client.Worker) {
		w.HandleProcesses(processor.Func(func(
			ctx context.Context, r *progressorv1.ProcessRequest,
		) (*progressorv1.ProcessResponse, error) {
			if r.GetType() == progressorv1.TaskType_TASK_TYPE_INIT {
				return processor.Result().SetTimerAfter(0).Done()
			}
			if attempts <- r; r.GetProcess().GetLastEventId() == 0 {
				for _, text := range []string{"a", "b"} {
					_, err := processor.Checkpoint(ctx, processor.Result().Event([]byte(text)))
					errs <- err
				}
			}
			return processor.Result().Event([]byte("c")).Complete().Done()
		}))
	})
	h.start("pull", "p")
	p := h.completed("pull", "p")
	if len(p.GetHistory()) != 2 || string(p.GetHistory()[0].GetPayload()) != "a" ||
		string(p.GetHistory()[1].GetPayload()) != "c" || sent.Load() != 2 {
		t.Errorf("%v after %d requests", p.GetHistory(), sent.Load())
	}
	for _, want := range []client.Outcome{client.OutcomeDone, client.OutcomeReleased, client.OutcomeDone} {
		if a := w.outcome(t); a.Outcome != want {
			t.Fatalf("%v, want %s", a, want)
		}
	}
	for range 2 {
		if err := <-errs; !errors.Is(err, process.ErrUnavailable) {
			t.Errorf("%v", err)
		}
	}
	<-attempts
	if again := <-attempts; again.GetProcess().GetLastEventId() != 1 || again.GetAttempt() != 1 {
		t.Errorf("%v", again)
	}
}

// A worker cannot store checkpoints if the engine is too old to support them. The function then
// runs each step in its own task, even if the worker learns this only from its first checkpoint.
func TestCheckpointsOfAnOlderEngine(t *testing.T) {
	t.Parallel()
	n := enginetest.Start(t, storagetest.DSN(t), processor.Echo(), enginetest.Kinds)
	h := newServer(t, n, nil)
	var refused atomic.Int32
	old := client.New(h.url, client.WithHTTPClient(&http.Client{Transport: roundTrip(
		func(req *http.Request) (*http.Response, error) {
			if strings.HasSuffix(req.URL.Path, "/Checkpoint") {
				refused.Add(1)
				req = req.Clone(req.Context())
				req.URL.Path += "OfTheFuture"
			}
			return http.DefaultTransport.RoundTrip(req)
		})}))
	var done effects
	h.worker(old, func(w *client.Worker) { w.HandleProcesses(threeSteps(&done)) })
	h.start("pull", "p")
	if p := h.completed("pull", "p"); journal(p) != completeJournal || done.String() != "a b c" || refused.Load() == 0 {
		t.Errorf("the journal is %s, the steps %s ran, %d checkpoints were refused", journal(p), &done, refused.Load())
	}
	if tasks := n.Count(t, "SELECT count(*) FROM tasks"); tasks != 4 {
		t.Errorf("%d tasks, want 4", tasks)
	}
}

type roundTrip func(*http.Request) (*http.Response, error)

func (f roundTrip) RoundTrip(req *http.Request) (*http.Response, error) { return f(req) }

package rpc

import (
	"context"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/progressor-engine/progressor/engine/auth"
	progressorv1 "github.com/progressor-engine/progressor/proto/progressor/v1"
)

// blocking holds every AwaitTask and every stream until the client disconnects.
type blocking struct {
	script
	waiting chan struct{}
}

func (p *blocking) AwaitTask(
	ctx context.Context, _ *progressorv1.AwaitTaskRequest,
) (*progressorv1.AwaitTaskResponse, error) {
	p.waiting <- struct{}{}
	<-ctx.Done()
	return nil, ctx.Err()
}

// refusals counts rejected requests by bound.
type refusals struct {
	mu sync.Mutex
	by map[string]int
}

func (r *refusals) count(bound string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.by[bound]++
}

// requestAs sends a request to a handler as a client with an address.
func requestAs(ctx context.Context, h http.Handler, client, method, body string) *httptest.ResponseRecorder {
	r := httptest.NewRequestWithContext(ctx, http.MethodPost, "http://localhost/progressor.v1."+method,
		strings.NewReader(body))
	r.Header.Set("Content-Type", "application/json")
	r.RemoteAddr = client
	w := httptest.NewRecorder()
	h.ServeHTTP(w, r)
	return w
}

const awaitBody = `{"namespace":"n","processId":"p","taskId":1,"timeout":"600s"}`

// A client that sends any number of AwaitTask requests uses up only its own share. Its other
// requests and the requests of other clients are still served.
func TestOneClientDoesNotFillTheNode(t *testing.T) {
	t.Parallel()
	const share = 5
	p := &blocking{script: *echo(), waiting: make(chan struct{}, 100)}
	refused := &refusals{by: map[string]int{}}
	h, err := newHandler(Config{
		Registerer: prometheus.NewRegistry(), Limits: Limits{ClientRequests: share, refused: refused.count},
	}, scripted(p), func() error { return nil })
	if err != nil {
		t.Fatal(err)
	}
	ctx, leave := context.WithCancel(t.Context())
	var attack sync.WaitGroup
	defer attack.Wait()
	defer leave()
	results := make(chan *httptest.ResponseRecorder, 40)
	for n := range 40 {
		attack.Go(func() {
			results <- requestAs(ctx, h, fmt.Sprintf("10.0.0.1:%d", n+1), "ProcessService/AwaitTask", awaitBody)
		})
	}
	for range 40 - share {
		var w *httptest.ResponseRecorder
		select {
		case w = <-results:
		case <-time.After(10 * time.Second):
			t.Fatal("more requests wait than the share of the client allows")
		}
		if w.Code != http.StatusTooManyRequests || !strings.Contains(w.Body.String(), "REASON_OVERLOADED") ||
			!strings.Contains(w.Body.String(), "the client 10.0.0.1 has 5 waiting requests on this node") {
			t.Fatalf("%d %s", w.Code, w.Body)
		}
	}
	for range share {
		<-p.waiting
	}
	refused.mu.Lock()
	if refused.by["client_awaits"] != 40-share {
		t.Errorf("counted: %v", refused.by)
	}
	refused.mu.Unlock()
	for what, c := range map[string]struct{ client, method, body string }{
		"a call of the client":     {"10.0.0.1:99", "ProcessService/Call", `{"namespace":"n","processId":"p"}`},
		"a call of another client": {"10.0.0.2:1", "ProcessService/Call", `{"namespace":"n","processId":"p"}`},
		"a read of the task":       {"10.0.0.3:1", "ProcessService/Start", `{"namespace":"n","processId":"p"}`},
	} {
		if w := requestAs(ctx, h, c.client, c.method, c.body); w.Code != http.StatusOK {
			t.Errorf("%s: %d %s", what, w.Code, w.Body)
		}
	}
	leave()
	attack.Wait()
	again, end := context.WithCancel(t.Context())
	defer end()
	attack.Go(func() { requestAs(again, h, "10.0.0.1:1", "ProcessService/AwaitTask", awaitBody) })
	<-p.waiting // the share is free again
	end()
}

// With authentication, a principal has one share, regardless of its address. Principals with the
// same address have separate shares.
func TestPrincipalHasOneShare(t *testing.T) {
	t.Parallel()
	p := &blocking{script: *echo(), waiting: make(chan struct{}, 3)}
	h, err := newHandler(Config{Limits: Limits{ClientRequests: 1}}, scripted(p), func() error { return nil })
	if err != nil {
		t.Fatal(err)
	}
	ctx, leave := context.WithCancel(t.Context())
	var waits sync.WaitGroup
	defer waits.Wait()
	defer leave()
	await := func(key, address string) *httptest.ResponseRecorder {
		principal := auth.NewPrincipal(key, []auth.Grant{{Role: auth.RoleRoot, Namespaces: auth.Everywhere}})
		as := context.WithValue(ctx, principalKey{}, principal)
		return requestAs(as, h, address, "ProcessService/AwaitTask", awaitBody)
	}
	waits.Go(func() { await("key:a", "10.0.0.1:1") })
	<-p.waiting
	w := await("key:a", "10.0.0.2:1")
	if w.Code != http.StatusTooManyRequests ||
		!strings.Contains(w.Body.String(), "the client key:a has 1 waiting requests on this node") {
		t.Errorf("a second request of the principal: %d %s", w.Code, w.Body)
	}
	waits.Go(func() { await("key:b", "10.0.0.1:2") })
	<-p.waiting
}

// A client whose share of calls is full can still send the answers of its workers and commands.
func TestFullShareOfCalls(t *testing.T) {
	t.Parallel()
	held, entered := make(chan struct{}), make(chan struct{})
	p := echo()
	p.call = func(context.Context, *progressorv1.CallRequest) (*progressorv1.CallResponse, error) {
		entered <- struct{}{}
		<-held
		return &progressorv1.CallResponse{}, nil
	}
	h, err := newHandler(Config{Limits: Limits{ClientRequests: 1}}, scripted(p), func() error { return nil })
	if err != nil {
		t.Fatal(err)
	}
	var calls sync.WaitGroup
	calls.Go(func() {
		requestAs(t.Context(), h, "[2001:db8::1]:1", "ProcessService/Call", `{"namespace":"n","processId":"p"}`)
	})
	defer calls.Wait()
	defer close(held)
	<-entered
	for method, status := range map[string]int{
		"ProcessService/Start":            http.StatusTooManyRequests,
		"ProcessService/ListProcesses":    http.StatusTooManyRequests,
		"WorkerService/Complete":          http.StatusNotImplemented,
		"WorkerService/Heartbeat":         http.StatusNotImplemented,
		"WorkerService/Release":           http.StatusNotImplemented,
		"NamespaceService/PauseNamespace": http.StatusNotImplemented,
	} {
		body := map[string]string{
			"WorkerService/Complete":  `{"leaseToken":"t","jobResult":{}}`,
			"WorkerService/Heartbeat": `{"workerId":"w","beats":[{"leaseToken":"t"}]}`,
			"WorkerService/Release":   `{"workerId":"w","leaseTokens":["t"]}`,
		}[method]
		if body == "" {
			body = `{"namespace":"n"}`
		}
		if w := requestAs(t.Context(), h, "[2001:db8::2]:7", method, body); w.Code != status {
			t.Errorf("%s of another address of the same network: %d %s", method, w.Code, w.Body)
		}
	}
	w := requestAs(t.Context(), h, "[2001:db8:0:1::1]:7", "ProcessService/Start", `{"namespace":"n"}`)
	if w.Code != http.StatusOK {
		t.Errorf("another network: %d %s", w.Code, w.Body)
	}
}

// Streams have a limit for each client and one for the node.
func TestLimitsOfStreams(t *testing.T) {
	t.Parallel()
	refused := &refusals{by: map[string]int{}}
	c := newClients(Limits{ClientStreams: 2, Streams: 3, refused: refused.count})
	for n, step := range []struct {
		client string
		err    string
	}{
		{"a", ""}, {"a", ""},
		{"a", "the client a has 2 streams on this node, and max_streams_per_client does not allow more"},
		{"b", ""},
		{"c", "the node has reached its max_streams (3)"},
	} {
		err := c.enter(step.client, classStream)
		if (err == nil) != (step.err == "") || err != nil && !strings.Contains(err.Error(), step.err) {
			t.Errorf("step %d: %v", n, err)
		}
	}
	c.leave("a", classStream)
	if err := c.enter("c", classStream); err != nil {
		t.Error(err)
	}
	for _, client := range []string{"a", "b", "c"} {
		c.leave(client, classStream)
	}
	if len(c.held) != 0 || c.streams != 0 {
		t.Errorf("left: %v, %d", c.held, c.streams)
	}
	if refused.by["streams"] != 1 || refused.by["client_streams"] != 1 {
		t.Errorf("counted: %v", refused.by)
	}
}

func TestMachineOf(t *testing.T) {
	t.Parallel()
	for address, want := range map[string]string{
		"10.1.2.3:80": "10.1.2.3", "[::ffff:10.1.2.3]:80": "10.1.2.3",
		"127.0.0.1:1": "localhost", "[::1]:1": "localhost",
		"[2001:db8:1:2:3:4:5:6]:80": "2001:db8:1:2::/64", "[fe80::1%eth0]:80": "fe80::/64", "@": "@", "": "",
	} {
		if got := machineOf(address); got != want {
			t.Errorf("%s: %s", address, got)
		}
	}
}

// These methods, which can wait for an event, accept a wait of at most 10 minutes.
func TestWaitsAreBounded(t *testing.T) {
	t.Parallel()
	s := newSite(t, echo())
	for method, body := range map[string]string{
		"ProcessService/AwaitTask":  `{"namespace":"n","processId":"p","taskId":1,"timeout":"%s"}`,
		"ProcessService/GetProcess": `{"namespace":"n","processId":"p","awaitInit":"%s"}`,
		"JobService/GetJob":         `{"namespace":"n","jobId":"j","awaitEnd":"%s"}`,
		"JobService/FetchResult":    `{"namespace":"n","jobId":"j","awaitEnd":"%s"}`,
		"FlowService/GetRun":        `{"namespace":"n","runId":"r","awaitEnd":"%s"}`,
	} {
		for wait, rejected := range map[time.Duration]bool{10 * time.Minute: false, 10*time.Minute + 1: true} {
			status, text := send(t, s.url+"/progressor.v1."+method, "application/json",
				fmt.Appendf(nil, body, fmt.Sprintf("%.9fs", wait.Seconds())))
			if got := status == http.StatusBadRequest; got != rejected {
				t.Errorf("%s for %s: %d %s", method, wait, status, text)
			}
		}
	}
}

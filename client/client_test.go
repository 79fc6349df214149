package client_test

import (
	"context"
	"errors"
	"net"
	"net/http"
	"net/http/httptest"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"connectrpc.com/connect"

	"github.com/progressor-engine/progressor/client"
	progressorv1 "github.com/progressor-engine/progressor/proto/progressor/v1"
	"github.com/progressor-engine/progressor/proto/progressor/v1/progressorv1connect"
)

// scripted returns the next of its errors for each request, and success when no errors are left.
type scripted struct {
	progressorv1connect.UnimplementedProcessServiceHandler

	mu    sync.Mutex
	errs  []error                   // for the next requests; nil means success
	keys  []string                  // idempotency keys of the requests
	tasks []progressorv1.TaskStatus // for the next AwaitTask requests; the last one is repeated

	args     [][]byte // args of the calls
	response []byte   // response of a call; nil means its args

	streams []scriptedStream
}

func (s *scripted) next(key string) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.keys = append(s.keys, key)
	if len(s.errs) == 0 {
		return nil
	}
	err := s.errs[0]
	s.errs = s.errs[1:]
	return err
}

func (s *scripted) Start(_ context.Context, req *progressorv1.StartRequest) (*progressorv1.StartResponse, error) {
	return &progressorv1.StartResponse{ProcessId: req.GetProcessId(), TaskId: 1}, s.next(req.GetIdempotencyKey())
}

func (s *scripted) Call(_ context.Context, req *progressorv1.CallRequest) (*progressorv1.CallResponse, error) {
	s.mu.Lock()
	s.args = append(s.args, req.GetArgs())
	response := s.response
	s.mu.Unlock()
	if response == nil {
		response = req.GetArgs()
	}
	return &progressorv1.CallResponse{TaskId: 2, Response: response}, s.next(req.GetIdempotencyKey())
}

func (s *scripted) Repair(_ context.Context, req *progressorv1.RepairRequest) (*progressorv1.RepairResponse, error) {
	return &progressorv1.RepairResponse{TaskId: 3}, s.next(req.GetIdempotencyKey())
}

func (s *scripted) AwaitTask(
	_ context.Context, req *progressorv1.AwaitTaskRequest,
) (*progressorv1.AwaitTaskResponse, error) {
	if err := s.next(""); err != nil {
		return nil, err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	status := s.tasks[0]
	if len(s.tasks) > 1 {
		s.tasks = s.tasks[1:]
	}
	return &progressorv1.AwaitTaskResponse{Task: &progressorv1.Task{TaskId: req.GetTaskId(), Status: status}}, nil
}

func serve(t *testing.T, s *scripted, opts ...client.Option) *client.Client {
	t.Helper()
	mux := http.NewServeMux()
	mux.Handle(progressorv1connect.NewProcessServiceHandler(s))
	server := httptest.NewUnstartedServer(mux)
	server.Config.Protocols = new(http.Protocols)
	server.Config.Protocols.SetHTTP1(true)
	server.Config.Protocols.SetUnencryptedHTTP2(true)
	server.Start()
	t.Cleanup(server.Close)
	fast := client.WithRetry(client.Retry{MaxAttempts: 4, Initial: time.Millisecond, Max: 2 * time.Millisecond})
	return client.New(server.URL, append([]client.Option{fast}, opts...)...)
}

func engineError(code connect.Code, detail *progressorv1.ErrorDetail) error {
	err := connect.NewError(code, errors.New("scripted"))
	d, detailErr := connect.NewErrorDetail(detail)
	if detailErr != nil {
		panic(detailErr)
	}
	err.AddDetail(d)
	return err
}

func unavailable() error {
	return engineError(connect.CodeUnavailable,
		&progressorv1.ErrorDetail{Reason: progressorv1.ErrorDetail_REASON_UNAVAILABLE})
}

func overloaded() error {
	return engineError(connect.CodeResourceExhausted,
		&progressorv1.ErrorDetail{Reason: progressorv1.ErrorDetail_REASON_OVERLOADED})
}

// All attempts of a call have the same idempotency key. The next call has another key.
func TestRetriesKeepOneKey(t *testing.T) {
	for _, protocol := range []client.Protocol{client.ProtocolConnect, client.ProtocolGRPC} {
		s := &scripted{errs: []error{unavailable(), overloaded()}}
		c := serve(t, s, client.WithProtocol(protocol))
		req := &progressorv1.CallRequest{Namespace: "n", ProcessId: "p", Args: []byte("x")}
		resp, err := c.Call(t.Context(), req)
		if err != nil || string(resp.GetResponse()) != "x" {
			t.Fatalf("Call = %v, %v", resp, err)
		}
		if len(s.keys) != 3 || s.keys[0] == "" || s.keys[0] != s.keys[1] || s.keys[1] != s.keys[2] {
			t.Errorf("keys = %q, want one key three times", s.keys)
		}
		if req.GetIdempotencyKey() != "" {
			t.Error("Call changed its request")
		}
		if _, err := c.Call(t.Context(), req); err != nil || s.keys[3] == s.keys[0] {
			t.Errorf("the next request has the key of the previous request (err %v)", err)
		}
	}
}

// As with UNAVAILABLE, a request whose connection breaks is retried only if it has a key.
func TestBrokenConnection(t *testing.T) {
	for name, opts := range map[string][]client.Option{"with key": nil, "without": {client.WithoutKeys()}} {
		s := &scripted{}
		handler := http.NewServeMux()
		handler.Handle(progressorv1connect.NewProcessServiceHandler(s))
		var requests atomic.Int32
		server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if requests.Add(1) > 1 {
				handler.ServeHTTP(w, r)
				return
			}
			conn, _, err := http.NewResponseController(w).Hijack()
			if err == nil {
				err = conn.(*net.TCPConn).SetLinger(0) // a reset, not an orderly close
				conn.Close()
			}
			if err != nil {
				t.Error(err)
			}
		}))
		t.Cleanup(server.Close)
		c := client.New(server.URL,
			append(opts, client.WithRetry(
				client.Retry{MaxAttempts: 4, Initial: time.Millisecond, Max: time.Millisecond}))...)
		_, err := c.Call(t.Context(), &progressorv1.CallRequest{Namespace: "n", ProcessId: "p"})
		if keyed := opts == nil; (err == nil) != keyed || (requests.Load() == 2) != keyed {
			t.Errorf("%s: %d requests, %v", name, requests.Load(), err)
		}
	}
}

// If the caller sets an idempotency key, all attempts of the request have that key.
func TestCallersKeyIsKept(t *testing.T) {
	s := &scripted{errs: []error{unavailable(), nil, unavailable(), nil}}
	c := serve(t, s)
	if _, err := c.Start(t.Context(), &progressorv1.StartRequest{Namespace: "n", IdempotencyKey: "mine"}); err != nil {
		t.Fatal(err)
	}
	if _, err := c.Repair(t.Context(), &progressorv1.RepairRequest{Namespace: "n",
		IdempotencyKey: "mine"}); err != nil {
		t.Fatal(err)
	}
	if len(s.keys) != 4 {
		t.Errorf("%d requests, want 4", len(s.keys))
	}
	for _, k := range s.keys {
		if k != "mine" {
			t.Errorf("key = %q, want mine", k)
		}
	}
}

func TestNotRetried(t *testing.T) {
	rejected := engineError(connect.CodeFailedPrecondition, &progressorv1.ErrorDetail{
		Reason: progressorv1.ErrorDetail_REASON_TASK_REJECTED, TaskId: 9,
	})
	tooLarge := connect.NewError(connect.CodeResourceExhausted, errors.New("message too large"))
	tests := []struct {
		name string
		opts []client.Option
		err  error
		want int // number of requests
	}{
		{"rejection", nil, rejected, 1},
		{"message too large", nil, tooLarge, 1},
		{"unavailable without key", []client.Option{client.WithoutKeys()}, unavailable(), 1},
		{"overloaded without key: nothing was stored", []client.Option{client.WithoutKeys()}, overloaded(), 4},
		{"no attempts left", nil, unavailable(), 4},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			s := &scripted{errs: []error{tt.err, tt.err, tt.err, tt.err, tt.err}}
			_, err := serve(t, s, tt.opts...).Call(t.Context(),
				&progressorv1.CallRequest{Namespace: "n", ProcessId: "p"})
			if connect.CodeOf(err) != connect.CodeOf(tt.err) || client.Reason(err) != client.Reason(tt.err) {
				t.Errorf("err = %v", err)
			}
			if len(s.keys) != tt.want {
				t.Errorf("%d requests, want %d", len(s.keys), tt.want)
			}
		})
	}
}

func TestDetail(t *testing.T) {
	if client.Detail(nil) != nil || client.Detail(errors.New("x")) != nil {
		t.Error("an error that does not come from the engine has a detail")
	}
	s := &scripted{errs: []error{engineError(connect.CodeAborted, &progressorv1.ErrorDetail{
		Reason: progressorv1.ErrorDetail_REASON_TASK_FAILED, TaskId: 9,
		Failure: &progressorv1.Failure{Reason: "out_of_stock"},
	})}}
	_, err := serve(t, s).Call(t.Context(), &progressorv1.CallRequest{})
	if d := client.Detail(err); d.GetTaskId() != 9 || d.GetFailure().GetReason() != "out_of_stock" {
		t.Errorf("detail = %v", d)
	}
}

func TestAwait(t *testing.T) {
	waiting, finished := progressorv1.TaskStatus_TASK_STATUS_WAITING, progressorv1.TaskStatus_TASK_STATUS_FINISHED
	s := &scripted{errs: []error{unavailable()}, tasks: []progressorv1.TaskStatus{waiting, waiting, finished}}
	c := serve(t, s)
	byID := &progressorv1.AwaitTaskRequest{Key: &progressorv1.AwaitTaskRequest_TaskId{TaskId: 7}}
	task, err := c.Await(t.Context(), byID)
	if err != nil || task.GetStatus() != finished || task.GetTaskId() != 7 {
		t.Fatalf("Await = %v, %v", task, err)
	}
	s.tasks = []progressorv1.TaskStatus{waiting}
	ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	if task, err = c.Await(ctx, byID); !errors.Is(err, context.DeadlineExceeded) || task.GetStatus() != waiting {
		t.Errorf("Await = %v, %v; want the waiting task and the deadline", task, err)
	}
}

// If the token source returns an error, all requests and streams fail before they are sent.
func TestTokenSourceFails(t *testing.T) {
	s := &scripted{}
	failure := errors.New("the login has expired")
	c := serve(t, s, client.WithTokenSource(func(ctx context.Context) (string, error) {
		if ctx.Err() != nil {
			return "", ctx.Err()
		}
		return "", failure
	}))
	for name, send := range map[string]func(context.Context) error{
		"call": func(ctx context.Context) error {
			_, err := c.Call(ctx, &progressorv1.CallRequest{Namespace: "n"})
			return err
		},
		"stream": func(ctx context.Context) error {
			stream, err := c.Process.WatchProcess(ctx, &progressorv1.WatchProcessRequest{Namespace: "n"})
			if err == nil {
				err = errors.Join(stream.Err(), stream.Close())
			}
			return err
		},
	} {
		if err := send(t.Context()); !errors.Is(err, failure) || connect.CodeOf(err) != connect.CodeUnauthenticated {
			t.Errorf("%s: %v", name, err)
		}
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		if err := send(ctx); connect.CodeOf(err) != connect.CodeCanceled {
			t.Errorf("%s, interrupted: %v", name, err)
		}
		ctx, cancel = context.WithTimeout(t.Context(), 0)
		cancel()
		if err := send(ctx); connect.CodeOf(err) != connect.CodeDeadlineExceeded {
			t.Errorf("%s, timed out: %v", name, err)
		}
	}
	err := c.Watch(t.Context(), &progressorv1.WatchProcessRequest{Namespace: "n"},
		func(*progressorv1.WatchProcessResponse) error { return nil })
	if !errors.Is(err, failure) {
		t.Errorf("watch: %v", err)
	}
	if len(s.keys) != 0 {
		t.Errorf("requests without a token were sent: %q", s.keys)
	}
}

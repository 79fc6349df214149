package client_test

import (
	"context"
	"net"
	"testing"
	"time"

	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/trace"
	"google.golang.org/protobuf/types/known/structpb"

	"github.com/progressor-engine/progressor/client"
	"github.com/progressor-engine/progressor/engine"
	"github.com/progressor-engine/progressor/engine/enginetest"
	"github.com/progressor-engine/progressor/processor"
	"github.com/progressor-engine/progressor/processor/remote"
	progressorv1 "github.com/progressor-engine/progressor/proto/progressor/v1"
	"github.com/progressor-engine/progressor/storage/storagetest"
)

// tracedTestEngine is an engine behind HTTP with tracing. Its namespace "ns" pushes to a processor
// in Go, which creates a span for each task.
func tracedTestEngine(
	t *testing.T, dsn string, s *enginetest.Spans, push *progressorv1.ConnectProcessor,
) (*testEngine, *enginetest.Node) {
	t.Helper()
	n := enginetest.Start(t, dsn, processor.Echo(), enginetest.Kinds,
		enginetest.Config(func(c *engine.Config) { c.Traces, c.Dial = s, remote.Dial }))
	if push != nil {
		n.Put(t, &progressorv1.Namespace{Namespace: "ns",
			Processor: &progressorv1.ProcessorConfig{Transport: &progressorv1.ProcessorConfig_Connect{Connect: push}}})
	}
	return newServer(t, n, s), n
}

// pushed serves a processor and returns its URL.
func pushed(t *testing.T, p processor.Processor) string {
	t.Helper()
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithCancel(context.Background())
	over := make(chan error, 1)
	go func() { over <- processor.ServeOn(ctx, ln, p) }()
	t.Cleanup(func() {
		stop()
		if err := <-over; err != nil {
			t.Error(err)
		}
	})
	return "http://" + ln.Addr().String()
}

func wantChild(t *testing.T, child sdktrace.ReadOnlySpan, parent trace.SpanContext) {
	t.Helper()
	if child.SpanContext().TraceID() != parent.TraceID() || child.Parent().SpanID() != parent.SpanID() {
		t.Errorf("%s (%s) is not a child of %s", child.Name(), child.Parent().SpanID(), parent.SpanID())
	}
}

// With each protocol and encoding, one trace contains the client, the processor and its timer.
func TestOneTrace(t *testing.T) {
	t.Parallel()
	for name, way := range map[string]*progressorv1.ConnectProcessor{
		"connect": {}, "grpc": {Protocol: progressorv1.ConnectProcessor_PROTOCOL_GRPC},
		"json":    {Encoding: progressorv1.ConnectProcessor_ENCODING_JSON},
		"msgpack": {Encoding: progressorv1.ConnectProcessor_ENCODING_MSGPACK},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := enginetest.NewSpans(1)
			way.Url = pushed(t,
				processor.Func(
					func(ctx context.Context, r *progressorv1.ProcessRequest) (*progressorv1.ProcessResponse, error) {
						_, span := s.Begin(ctx, "inside "+r.GetType().String())
						defer span.End()
						if r.GetType() == progressorv1.TaskType_TASK_TYPE_CALL {
							return processor.Result().SetTimerAfter(50 * time.Millisecond).Response(
								[]byte("yes")).Done()
						}
						return processor.Result().Done()
					}))
			h, _ := tracedTestEngine(t, storagetest.DSN(t), s, way)
			if _, err := h.client.Start(t.Context(),
				&progressorv1.StartRequest{Namespace: "ns", ProcessId: "p"}); err != nil {
				t.Fatal(err)
			}
			ctx, asking := s.Begin(t.Context(), "client")
			resp, err := h.client.Call(ctx, &progressorv1.CallRequest{Namespace: "ns", ProcessId: "p"})
			if err != nil || string(resp.GetResponse()) != "yes" {
				t.Fatalf("%v, %v", resp, err)
			}
			request := s.Await(t, testTimeout, "progressor.v1.ProcessService/Call", 1)[0]
			wantChild(t, request, asking.SpanContext())
			call := s.Await(t, testTimeout, "task CALL", 1)[0]
			wantChild(t, call, request.SpanContext())
			wantChild(t, s.Await(t, testTimeout, "inside TASK_TYPE_CALL", 1)[0], call.SpanContext())
			timer := s.Await(t, testTimeout, "task TIMEOUT", 1)[0]
			wantChild(t, timer, request.SpanContext())
			wantChild(t, s.Await(t, testTimeout, "inside TASK_TYPE_TIMEOUT", 1)[0], timer.SpanContext())
			if call.SpanKind() != trace.SpanKindClient {
				t.Errorf("the span of a push has kind %s", call.SpanKind())
			}
			start := s.Await(t, testTimeout, "progressor.v1.ProcessService/Start", 1)[0]
			if start.Parent().IsValid() || start.SpanContext().TraceID() == call.SpanContext().TraceID() {
				t.Error("a request without a trace did not begin its own")
			}
			wantChild(t, s.Await(t, testTimeout, "task INIT", 1)[0], start.SpanContext())
			if got := enginetest.Attribute(start, "progressor.process_id"); got != "p" {
				t.Errorf("the span of the request names the process %q", got)
			}
		})
	}
}

// The trace of a job continues in the worker that runs it, even if one engine leases the job and
// another one gets the answer.
func TestTraceOfAJob(t *testing.T) {
	t.Parallel()
	dsn, s := storagetest.DSN(t), enginetest.NewSpans(1)
	asker, _ := tracedTestEngine(t, dsn, s, nil)
	_, other := tracedTestEngine(t, dsn, s, nil)
	ctx, asking := s.Begin(t.Context(), "client")
	enqueue := func(id string) {
		t.Helper()
		if _, err := asker.client.Job.Enqueue(ctx,
			&progressorv1.EnqueueRequest{Namespace: "pull", JobId: id, Name: "mail",
				Args: structpb.NewStringValue("secret")}); err != nil {
			t.Fatal(err)
		}
	}
	enqueue("j1")
	lease, err := asker.client.Worker.Poll(t.Context(),
		&progressorv1.PollRequest{Namespaces: []string{"pull"}, WorkerId: "w0", MaxLeases: 1})
	if err != nil || len(lease.GetLeases()) != 1 {
		t.Fatalf("%v, %v", lease, err)
	}
	if err := other.CompleteLease(t.Context(), lease.GetLeases()[0].GetLeaseToken(),
		engine.LeaseAnswer{Response: &progressorv1.ProcessResponse{
			Outcome: &progressorv1.ProcessResponse_Result{Result: &progressorv1.Result{}},
		}}); err != nil {
		t.Fatal(err)
	}
	request := s.Await(t, testTimeout, "progressor.v1.JobService/Enqueue", 1)[0]
	wantChild(t, request, asking.SpanContext())
	first := s.Await(t, testTimeout, "job mail", 1)[0]
	wantChild(t, first, request.SpanContext())
	if parent := lease.GetLeases()[0].GetTraceparent(); parent != "00-"+first.SpanContext().TraceID().String()+"-"+
		first.SpanContext().SpanID().String()+"-01" {
		t.Errorf("the lease has the traceparent %q, but the span is %s", parent, first.SpanContext().SpanID())
	}
	if got := enginetest.Attribute(first, "progressor.worker_id"); got != "w0" {
		t.Errorf("the span names the worker %q", got)
	}
	w := asker.worker(asker.client, func(w *client.Worker) {
		client.Handle(w, "mail", func(ctx context.Context, _ string) (string, error) {
			_, span := s.Begin(ctx, "inside")
			span.End()
			return "", nil
		})
	})
	enqueue("j2")
	inside := s.Await(t, testTimeout, "inside", 1)[0]
	wantChild(t, inside, s.Await(t, testTimeout, "job mail", 2)[1].SpanContext())
	w.stop()
	for _, name := range []string{"progressor.v1.WorkerService/Poll", "progressor.v1.WorkerService/CompleteBatch"} {
		if s.Named(name) != nil {
			t.Errorf("%s began a trace", name)
		}
	}
}

// Reads do not begin a trace, but they continue one. Failures are recorded with their code. Errors
// of the client do not mark the span as failed.
func TestTraceOfRequests(t *testing.T) {
	t.Parallel()
	s := enginetest.NewSpans(1)
	h, _ := tracedTestEngine(t, storagetest.DSN(t), s, nil)
	read := &progressorv1.GetProcessRequest{Namespace: "ns", ProcessId: "absent"}
	if _, err := h.client.Process.GetProcess(t.Context(), read); err == nil {
		t.Fatal("the process exists")
	}
	ctx, asking := s.Begin(t.Context(), "client")
	if _, err := h.client.Process.GetProcess(ctx, read); err == nil {
		t.Fatal("the process exists")
	}
	reads := s.Named("progressor.v1.ProcessService/GetProcess")
	if len(reads) != 1 {
		t.Fatalf("%d spans of reads", len(reads))
	}
	wantChild(t, reads[0], asking.SpanContext())
	if got := enginetest.Attribute(reads[0], "rpc.connect_rpc.error_code"); got != "not_found" ||
		reads[0].Status().Description != "" {
		t.Errorf("%q, %v", got, reads[0].Status())
	}
}

// With a ratio of 0, a request without a trace is not recorded, and no trace is stored with its
// task.
func TestTraceRatio(t *testing.T) {
	t.Parallel()
	dsn, s := storagetest.DSN(t), enginetest.NewSpans(0)
	h, _ := tracedTestEngine(t, dsn, s, nil)
	if _, err := h.client.Start(t.Context(), &progressorv1.StartRequest{Namespace: "ns", ProcessId: "p"}); err != nil {
		t.Fatal(err)
	}
	if k := enginetest.Count(t, storagetest.Connect(t, dsn),
		"SELECT count(*) FROM tasks WHERE context IS NOT NULL"); k != 0 || s.Text() != "" {
		t.Errorf("%d tasks have a context; spans: %s", k, s.Text())
	}
}

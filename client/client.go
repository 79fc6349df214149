package client

import (
	"context"
	"net/http"
	"time"

	"connectrpc.com/connect"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/progressor-engine/progressor/processor/codec"
	progressorv1 "github.com/progressor-engine/progressor/proto/progressor/v1"
	"github.com/progressor-engine/progressor/proto/progressor/v1/progressorv1connect"
)

const (
	awaitStep = 30 * time.Second      // maximum time that one AwaitTask request waits on the server
	minAwait  = 10 * time.Millisecond // shorter waits are not worth a request
)

// Client sends requests to one engine, or to a load balancer in front of several. It is safe for
// concurrent use.
type Client struct {
	// Process and the fields below are the generated clients. Each method sends one request,
	// without retries.
	Process   progressorv1connect.ProcessServiceClient
	Namespace progressorv1connect.NamespaceServiceClient
	Insight   progressorv1connect.InsightServiceClient
	Bulk      progressorv1connect.BulkServiceClient
	Cron      progressorv1connect.CronServiceClient
	Job       progressorv1connect.JobServiceClient
	JobEvent  progressorv1connect.JobEventServiceClient
	Flow      progressorv1connect.FlowServiceClient
	Change    progressorv1connect.ChangeServiceClient
	Access    progressorv1connect.AccessServiceClient
	Worker    progressorv1connect.WorkerServiceClient // used by Worker

	retry    Retry
	autoKeys bool
	payloads *codec.Payloads // nil without WithCodec
}

// New returns a client of the engine at baseURL, such as "http://127.0.0.1:8080". It connects with
// the first request. If the context of a request has an OpenTelemetry span, the request carries it
// (traceparent), and an engine with tracing enabled continues that trace.
func New(baseURL string, opts ...Option) *Client {
	o := options{retry: DefaultRetry(), autoKeys: true}
	for _, opt := range opts {
		opt(&o)
	}
	httpClient := o.httpClient
	if httpClient == nil {
		httpClient = &http.Client{Transport: newTransport(o.protocol, o.tls)}
	}
	connectOptions := o.connectOptions
	connectOptions = append(connectOptions, connect.WithInterceptors(headers{userAgent(o.userAgent)}))
	if o.payloads != nil {
		connectOptions = append(connectOptions, connect.WithInterceptors(coder{o.payloads}))
	}
	if o.protocol == ProtocolGRPC {
		connectOptions = append(connectOptions, connect.WithGRPC())
	}
	return &Client{
		Process:   progressorv1connect.NewProcessServiceClient(httpClient, baseURL, connectOptions...),
		Namespace: progressorv1connect.NewNamespaceServiceClient(httpClient, baseURL, connectOptions...),
		Insight:   progressorv1connect.NewInsightServiceClient(httpClient, baseURL, connectOptions...),
		Bulk:      progressorv1connect.NewBulkServiceClient(httpClient, baseURL, connectOptions...),
		Cron:      progressorv1connect.NewCronServiceClient(httpClient, baseURL, connectOptions...),
		Job:       progressorv1connect.NewJobServiceClient(httpClient, baseURL, connectOptions...),
		JobEvent:  progressorv1connect.NewJobEventServiceClient(httpClient, baseURL, connectOptions...),
		Flow:      progressorv1connect.NewFlowServiceClient(httpClient, baseURL, connectOptions...),
		Change:    progressorv1connect.NewChangeServiceClient(httpClient, baseURL, connectOptions...),
		Access:    progressorv1connect.NewAccessServiceClient(httpClient, baseURL, connectOptions...),
		Worker:    progressorv1connect.NewWorkerServiceClient(httpClient, baseURL, connectOptions...),
		retry:     o.retry,
		autoKeys:  o.autoKeys,
		payloads:  o.payloads,
	}
}

// Start creates a process and runs its INIT task. If the request has no idempotency key, Start sets
// a random UUID, the same for all attempts, unless WithoutKeys is given. It does not modify req.
func (c *Client) Start(ctx context.Context, req *progressorv1.StartRequest) (*progressorv1.StartResponse, error) {
	if c.autoKeys && req.GetIdempotencyKey() == "" {
		req = proto.CloneOf(req)
		req.IdempotencyKey = newKey()
	}
	return repeat(ctx, c.retry, req.GetIdempotencyKey() != "", func() (*progressorv1.StartResponse, error) {
		return c.Process.Start(ctx, req)
	})
}

// Call runs a CALL task on a process. With WAIT_ACCEPTED, it adds a NOTIFY task and returns once
// the task is stored. It sets an idempotency key as Start does.
func (c *Client) Call(ctx context.Context, req *progressorv1.CallRequest) (*progressorv1.CallResponse, error) {
	if c.autoKeys && req.GetIdempotencyKey() == "" {
		req = proto.CloneOf(req)
		req.IdempotencyKey = newKey()
	}
	return repeat(ctx, c.retry, req.GetIdempotencyKey() != "", func() (*progressorv1.CallResponse, error) {
		return c.Process.Call(ctx, req)
	})
}

// Repair runs a repair on a process in ERROR. It sets an idempotency key as Start does.
func (c *Client) Repair(ctx context.Context, req *progressorv1.RepairRequest) (*progressorv1.RepairResponse, error) {
	if c.autoKeys && req.GetIdempotencyKey() == "" {
		req = proto.CloneOf(req)
		req.IdempotencyKey = newKey()
	}
	return repeat(ctx, c.retry, req.GetIdempotencyKey() != "", func() (*progressorv1.RepairResponse, error) {
		return c.Process.Repair(ctx, req)
	})
}

// Await waits until the task of req has ended and returns it. req identifies the task by its ID or
// its idempotency key. The timeout of req is ignored. If ctx ends first, Await returns the last
// known state of the task, or nil, and ctx's error.
func (c *Client) Await(ctx context.Context, req *progressorv1.AwaitTaskRequest) (*progressorv1.Task, error) {
	req = proto.CloneOf(req)
	var seen *progressorv1.Task
	for {
		wait := awaitTimeout(ctx)
		if wait < minAwait && seen != nil { // too short for another request
			<-ctx.Done()
			return seen, ctx.Err()
		}
		req.Timeout = durationpb.New(wait)
		resp, err := repeat(ctx, c.retry, true, func() (*progressorv1.AwaitTaskResponse, error) {
			return c.Process.AwaitTask(ctx, req)
		})
		switch {
		case err != nil && ctx.Err() != nil:
			return seen, ctx.Err()
		case err != nil:
			return seen, err
		}
		seen = resp.GetTask()
		if Ended(seen) {
			return seen, nil
		}
		if ctx.Err() != nil {
			return seen, ctx.Err()
		}
	}
}

// Ended reports whether a task has ended.
func Ended(task *progressorv1.Task) bool {
	switch task.GetStatus() {
	case progressorv1.TaskStatus_TASK_STATUS_FINISHED, progressorv1.TaskStatus_TASK_STATUS_ERROR,
		progressorv1.TaskStatus_TASK_STATUS_CANCELLED:
		return true
	default:
		return false
	}
}

// awaitTimeout returns how long the next AwaitTask waits on the server. It leaves time for the
// response to arrive before ctx ends.
func awaitTimeout(ctx context.Context) time.Duration {
	deadline, ok := ctx.Deadline()
	if !ok {
		return awaitStep
	}
	left := time.Until(deadline)
	return max(0, min(awaitStep, left-min(left/5, 500*time.Millisecond)))
}

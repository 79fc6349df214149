package client

import (
	"context"
	"net/http"
	"time"

	"connectrpc.com/connect"
	"github.com/google/uuid"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/durationpb"

	progressorv1 "github.com/progressor-engine/progressor/proto/progressor/v1"
	"github.com/progressor-engine/progressor/proto/progressor/v1/progressorv1connect"
)

const (
	awaitStep = 30 * time.Second      // how long one AwaitTask request of Await waits on the server
	minAwait  = 10 * time.Millisecond // a shorter wait is not worth a request
)

// Client speaks to one engine, or to a load balancer in front of several. It is safe for concurrent use.
type Client struct {
	// Process and those that follow are the generated clients: one method, one request, no retries.
	Process   progressorv1connect.ProcessServiceClient
	Namespace progressorv1connect.NamespaceServiceClient
	Insight   progressorv1connect.InsightServiceClient
	Bulk      progressorv1connect.BulkServiceClient
	Cron      progressorv1connect.CronServiceClient
	Job       progressorv1connect.JobServiceClient
	JobEvent  progressorv1connect.JobEventServiceClient
	Flow      progressorv1connect.FlowServiceClient
	Worker    progressorv1connect.WorkerServiceClient // what NewWorker speaks

	retry    Retry
	autoKeys bool
}

// New makes a client of the engine at baseURL, such as "http://127.0.0.1:8080". It connects with the first request. Where the context of a request has a
// span of OpenTelemetry, the request names it (traceparent), and an engine that traces goes on with that trace.
func New(baseURL string, opts ...Option) *Client {
	o := options{retry: DefaultRetry(), autoKeys: true}
	for _, opt := range opts {
		opt(&o)
	}
	httpClient := o.httpClient
	if httpClient == nil {
		httpClient = &http.Client{Transport: newTransport(o.protocol)}
	}
	connectOptions := o.connectOptions
	connectOptions = append(connectOptions, connect.WithInterceptors(tracer{}))
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
		Worker:    progressorv1connect.NewWorkerServiceClient(httpClient, baseURL, connectOptions...),
		retry:     o.retry,
		autoKeys:  o.autoKeys,
	}
}

// Start creates a process and runs its INIT task. A request without an idempotency key is given one (a random UUID) for
// all its tries, unless WithoutKeys was set; req itself is not changed.
func (c *Client) Start(ctx context.Context, req *progressorv1.StartRequest) (*progressorv1.StartResponse, error) {
	if c.autoKeys && req.GetIdempotencyKey() == "" {
		req = proto.CloneOf(req)
		req.IdempotencyKey = uuid.NewString()
	}
	return repeat(ctx, c.retry, req.GetIdempotencyKey() != "", func() (*progressorv1.StartResponse, error) {
		return c.Process.Start(ctx, req)
	})
}

// Call runs a CALL task on a process; with WAIT_ACCEPTED it leaves a NOTIFY task behind. Keys are as in Start.
func (c *Client) Call(ctx context.Context, req *progressorv1.CallRequest) (*progressorv1.CallResponse, error) {
	if c.autoKeys && req.GetIdempotencyKey() == "" {
		req = proto.CloneOf(req)
		req.IdempotencyKey = uuid.NewString()
	}
	return repeat(ctx, c.retry, req.GetIdempotencyKey() != "", func() (*progressorv1.CallResponse, error) {
		return c.Process.Call(ctx, req)
	})
}

// Repair takes a process out of ERROR. Keys are as in Start.
func (c *Client) Repair(ctx context.Context, req *progressorv1.RepairRequest) (*progressorv1.RepairResponse, error) {
	if c.autoKeys && req.GetIdempotencyKey() == "" {
		req = proto.CloneOf(req)
		req.IdempotencyKey = uuid.NewString()
	}
	return repeat(ctx, c.retry, req.GetIdempotencyKey() != "", func() (*progressorv1.RepairResponse, error) {
		return c.Process.Repair(ctx, req)
	})
}

// Await waits until the task of req is at its end, or ctx is. req names the task by its id or by its idempotency key;
// its timeout is not looked at. When ctx ends first, Await returns the task as it was seen last, if it was seen, and
// ctx's error.
func (c *Client) Await(ctx context.Context, req *progressorv1.AwaitTaskRequest) (*progressorv1.Task, error) {
	req = proto.CloneOf(req)
	var seen *progressorv1.Task
	for {
		wait := awaitTimeout(ctx)
		if wait < minAwait && seen != nil { // what is left would only be spun away
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

// Ended tells whether a task is at its end.
func Ended(task *progressorv1.Task) bool {
	switch task.GetStatus() {
	case progressorv1.TaskStatus_TASK_STATUS_FINISHED, progressorv1.TaskStatus_TASK_STATUS_ERROR,
		progressorv1.TaskStatus_TASK_STATUS_CANCELLED:
		return true
	default:
		return false
	}
}

// awaitTimeout is how long the next AwaitTask waits: less than what ctx leaves, so that the answer "not yet" still
// arrives within it.
func awaitTimeout(ctx context.Context) time.Duration {
	deadline, ok := ctx.Deadline()
	if !ok {
		return awaitStep
	}
	left := time.Until(deadline)
	return max(0, min(awaitStep, left-min(left/5, 500*time.Millisecond)))
}

package client

import (
	"context"
	"encoding/json"
	"fmt"
	"time"

	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/durationpb"

	progressorv1 "github.com/progressor-engine/progressor/proto/progressor/v1"
)

// EnqueueOption sets a field of a job that Enqueue stores.
type EnqueueOption func(*progressorv1.EnqueueRequest)

// WithJobID sets the ID of the job. By default, the engine chooses one.
func WithJobID(id string) EnqueueOption { return func(r *progressorv1.EnqueueRequest) { r.JobId = id } }

// WithDelay sets how long the job waits before it may run, at most 100 years.
func WithDelay(d time.Duration) EnqueueOption {
	return func(r *progressorv1.EnqueueRequest) { r.Delay = durationpb.New(d) }
}

// WithJobOptions sets the options of the job, such as its retries. Enqueue does not modify o.
func WithJobOptions(o *progressorv1.JobOptions) EnqueueOption {
	return func(r *progressorv1.EnqueueRequest) { r.Options = o }
}

// WithIdempotencyKey sets the idempotency key of the request. See Client.Enqueue.
func WithIdempotencyKey(key string) EnqueueOption {
	return func(r *progressorv1.EnqueueRequest) { r.IdempotencyKey = key }
}

// Enqueue encodes args as JSON and stores a job with them. Handle decodes them into the same type.
// An integer beyond 2^53 is an error, because it would lose precision. See Client.Enqueue for
// retries.
func Enqueue[Args any](
	ctx context.Context, c *Client, namespace, name string, args Args, opts ...EnqueueOption,
) (*progressorv1.EnqueueResponse, error) {
	text, err := json.Marshal(args)
	if err != nil {
		return nil, fmt.Errorf("encode the args of job %s as JSON: %w", name, err)
	}
	req := &progressorv1.EnqueueRequest{Namespace: namespace, Name: name}
	if req.Args, err = JobValue(text); err != nil {
		return nil, fmt.Errorf("encode the args of job %s as JSON: %w", name, err)
	}
	for _, opt := range opts {
		opt(req)
	}
	return c.Enqueue(ctx, req)
}

// Enqueue stores a job. If the request has neither a job ID nor an idempotency key, Enqueue sets a
// random key, the same for all attempts, unless WithoutKeys is given. A request with a key is
// retried as Retry describes. Enqueue does not modify req.
func (c *Client) Enqueue(ctx context.Context, req *progressorv1.EnqueueRequest) (*progressorv1.EnqueueResponse, error) {
	if c.autoKeys && req.GetIdempotencyKey() == "" && req.GetJobId() == "" {
		req = proto.CloneOf(req)
		req.IdempotencyKey = newKey()
	}
	return repeat(ctx, c.retry, req.GetIdempotencyKey() != "", func() (*progressorv1.EnqueueResponse, error) {
		return c.Job.Enqueue(ctx, req)
	})
}

package client

import (
	"context"
	"encoding/json"
	"math"
	"strings"

	"google.golang.org/protobuf/types/known/structpb"

	"github.com/progressor-engine/progressor/internal/digits"
	"github.com/progressor-engine/progressor/processor"
	progressorv1 "github.com/progressor-engine/progressor/proto/progressor/v1"
)

// Handle has a worker run the jobs of this name by a function. Args is read from the job's args as JSON; a field that it does not have, or a value
// that does not fit, fails the job without another try (bad_args). Result is kept as JSON where the job says so.
//
// ctx ends when the attempt does: its cause (context.Cause) is a *CancelError where the job was cancelled, ErrLeaseLost where another worker has it,
// ErrWorkerStopped, or context.DeadlineExceeded. A function that returns what ended it is answered for: the job is CANCELLED, is nothing of ours any
// more, goes to another worker, or has failed with the reason timeout. Any other error is a failure with the reason error, a panic one with the reason
// panic; processor.Fail names another reason, and processor.Reject says that no other try is of use.
func Handle[Args, Result any](w *Worker, name string, handle func(context.Context, Args) (Result, error)) {
	w.HandleJob(name, processor.Func(func(ctx context.Context, req *progressorv1.ProcessRequest) (*progressorv1.ProcessResponse, error) {
		args, err := jobArgs[Args](req)
		if err != nil {
			return nil, err
		}
		result, err := handle(ctx, args)
		if err != nil {
			return nil, err
		}
		var value *structpb.Value
		text, err := json.Marshal(result)
		if err == nil {
			value, err = JobValue(text)
		}
		if err != nil {
			return nil, processor.Fail(processor.ReasonError, "encode the result as JSON: %w", err).NonRetryable()
		}
		return JobDone(value), nil
	}))
}

// JobDone is the answer of a processor that has done a job.
func JobDone(result *structpb.Value) *progressorv1.ProcessResponse {
	return &progressorv1.ProcessResponse{Outcome: &progressorv1.ProcessResponse_Result{Result: &progressorv1.Result{
		JobResult: result, Action: &progressorv1.Result_Complete{Complete: &progressorv1.Complete{}},
	}}}
}

// JobValue reads the result of a job from JSON. An integer past 2^53 is an error: it would lose digits.
func JobValue(text []byte) (*structpb.Value, error) {
	value := &structpb.Value{}
	if err := value.UnmarshalJSON(text); err != nil {
		return nil, err
	}
	return value, digits.Check(text, "", value)
}

// jobArgs reads the args of a job; the zero value where it was enqueued without.
func jobArgs[Args any](req *progressorv1.ProcessRequest) (Args, error) {
	if text := string(req.GetArgs()); text == "" || text == "null" {
		var none Args
		return none, nil
	}
	return processor.ArgsOf[Args](req)
}

// Report tells how far the attempt is that ctx is of: percent is 0 to 100. It goes with the next heartbeat, which comes soon, at most one a second;
// of several reports the last one is told. Without a worker's ctx it does nothing.
func Report(ctx context.Context, percent float64, summary string) {
	h := heldOf(ctx)
	if h == nil {
		return
	}
	if math.IsNaN(percent) {
		percent = 0
	}
	h.report(&progressorv1.Progress{Percent: min(max(percent, 0), 100), Summary: plainSummary(summary)})
}

// maxSummaryBytes bounds what is told of a progress: it goes with every heartbeat that changes it.
const maxSummaryBytes = 4096

// plainSummary replaces what the engine would refuse: one bad character would cost the heartbeat of all leases.
func plainSummary(s string) string {
	if len(s) > maxSummaryBytes {
		s = s[:maxSummaryBytes]
	}
	return strings.ToValidUTF8(strings.ReplaceAll(s, "\x00", "\uFFFD"), "\uFFFD")
}

// LeaseOf is the lease of the attempt that ctx is of: the job with its options, its failures so far and its number. nil: ctx is not of a worker.
func LeaseOf(ctx context.Context) *progressorv1.Lease {
	if h := heldOf(ctx); h != nil {
		return h.lease
	}
	return nil
}

type heldKey struct{}

func heldOf(ctx context.Context) *held {
	h, _ := ctx.Value(heldKey{}).(*held)
	return h
}

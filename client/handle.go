package client

import (
	"context"
	"encoding/json"
	"fmt"
	"math"
	"strings"

	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/types/known/structpb"

	"github.com/progressor-engine/progressor/internal/digits"
	"github.com/progressor-engine/progressor/process"
	"github.com/progressor-engine/progressor/processor"
	progressorv1 "github.com/progressor-engine/progressor/proto/progressor/v1"
)

// Handle registers a function for the jobs with this name. The job's args are decoded as JSON into
// Args. An unknown field, or a value that does not fit, fails the job without a retry (reason
// bad_args). Result is encoded as JSON. The engine keeps it if the job's options request it.
//
// ctx ends with the attempt. Its cause (context.Cause) is the reason:
//
//   - *CancelError: the job was cancelled
//   - ErrLeaseLost: the lease was lost; another worker may have the job
//   - ErrWorkerStopped: the worker stops; the job goes to another worker
//   - context.DeadlineExceeded: the attempt timed out and fails with the reason timeout
//
// The function may return ctx's error in all these cases. Any other error is a failure with the
// reason error. A panic is a failure with the reason panic. To set another reason, return
// processor.Fail; its RetryAfter sets when the next attempt may begin. If a retry cannot succeed,
// return processor.Reject. An error from Release returns the job without counting an attempt.
func Handle[Args, Result any](w *Worker, name string, handle func(context.Context, Args) (Result, error)) {
	run := func(ctx context.Context, req *progressorv1.ProcessRequest) (*progressorv1.ProcessResponse, error) {
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
	}
	w.HandleJob(name, processor.Func(run))
}

// JobDone returns the response of a processor that completed a job. A nil result is allowed.
func JobDone(result *structpb.Value) *progressorv1.ProcessResponse {
	return &progressorv1.ProcessResponse{Outcome: &progressorv1.ProcessResponse_Result{Result: &progressorv1.Result{
		JobResult: result, Action: &progressorv1.Result_Complete{Complete: &progressorv1.Complete{}},
	}}}
}

// JobValue decodes the args or the result of a job from JSON. An integer beyond 2^53 is an error,
// because it would lose digits.
func JobValue(text []byte) (*structpb.Value, error) {
	value := &structpb.Value{}
	if err := value.UnmarshalJSON(text); err != nil {
		return nil, err
	}
	return value, digits.Check(text, "", value)
}

// jobArgs decodes the args of a job. It returns the zero value if the job has no args.
func jobArgs[Args any](req *progressorv1.ProcessRequest) (Args, error) {
	if text := string(req.GetArgs()); text == "" || text == "null" {
		var none Args
		return none, nil
	}
	return processor.ArgsOf[Args](req)
}

// Report sets the progress of the attempt that ctx belongs to; percent is 0 to 100. The next
// heartbeat carries it, at most once a second. A newer report replaces one that has not been sent.
// Report does nothing if ctx does not come from a worker.
func Report(ctx context.Context, percent float64, summary string) {
	h := heldLeaseOf(ctx)
	if h == nil {
		return
	}
	h.report(progressOf(percent, summary))
}

// progressOf returns progress that the engine accepts. If the progress of one lease were invalid,
// the engine would reject the heartbeat of all leases.
func progressOf(percent float64, summary string) *progressorv1.Progress {
	if math.IsNaN(percent) {
		percent = 0
	}
	return &progressorv1.Progress{Percent: min(max(percent, 0), 100), Summary: plainSummary(summary)}
}

// ReportDetails is like Report, with details from which a later attempt can continue: see
// LastProgress. details must encode as a JSON object. ReportDetails returns an error if details do
// not, or if the progress exceeds 64 KiB of JSON.
func ReportDetails(ctx context.Context, percent float64, summary string, details any) error {
	h := heldLeaseOf(ctx)
	if h == nil {
		return nil
	}
	text, err := json.Marshal(details)
	if err != nil {
		return fmt.Errorf("details of the progress: %w", err)
	}
	p := progressOf(percent, summary)
	p.Details = &structpb.Struct{}
	if err := p.GetDetails().UnmarshalJSON(text); err != nil {
		return fmt.Errorf("details of the progress: must be a JSON object: %w", err)
	}
	encoded, err := h.run.client.payloads.Encode(ctx, p)
	if err != nil {
		return fmt.Errorf("details of the progress: %w", err)
	}
	p = encoded.(*progressorv1.Progress)
	text, err = protojson.Marshal(p)
	if err != nil {
		return fmt.Errorf("progress: %w", err)
	}
	if len(text) > process.MaxProgressBytes {
		return fmt.Errorf("progress: must have at most %d bytes of JSON (got %d)", process.MaxProgressBytes, len(text))
	}
	h.report(p)
	return nil
}

// LastProgress returns the last progress that earlier attempts of the job reported, or nil if there
// is none. ctx is the context of a handler.
func LastProgress(ctx context.Context) *progressorv1.Progress {
	return LeaseOf(ctx).GetJob().GetProgress()
}

// maxSummaryBytes is the maximum size of a summary. Longer summaries are truncated.
const maxSummaryBytes = 4096

// plainSummary replaces the characters that the engine would reject, because one such character
// would fail the heartbeat of all leases.
func plainSummary(s string) string {
	if len(s) > maxSummaryBytes {
		s = s[:maxSummaryBytes]
	}
	return strings.ToValidUTF8(strings.ReplaceAll(s, "\x00", "\uFFFD"), "\uFFFD")
}

// LeaseOf returns the lease of the attempt that ctx belongs to, with the job, its options and its
// failures so far. It returns nil if ctx does not come from a worker.
func LeaseOf(ctx context.Context) *progressorv1.Lease {
	if h := heldLeaseOf(ctx); h != nil {
		return h.shown()
	}
	return nil
}

type heldKey struct{}

func heldLeaseOf(ctx context.Context) *heldLease {
	h, _ := ctx.Value(heldKey{}).(*heldLease)
	return h
}

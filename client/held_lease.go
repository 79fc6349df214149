package client

import (
	"context"
	"errors"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"go.opentelemetry.io/otel/trace"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/timestamppb"

	"github.com/progressor-engine/progressor/internal/checkpoints"
	"github.com/progressor-engine/progressor/internal/durations"
	"github.com/progressor-engine/progressor/internal/tracing"
	"github.com/progressor-engine/progressor/process"
	"github.com/progressor-engine/progressor/processor"
	"github.com/progressor-engine/progressor/processor/codec"
	progressorv1 "github.com/progressor-engine/progressor/proto/progressor/v1"
)

// heldLease is a lease that this worker holds. It begins with the response that contains the lease.
// It ends when the engine has accepted or rejected the answer, or when the attempt ends without an
// answer.
type heldLease struct {
	lease   *progressorv1.Lease                // as the engine returned it
	decoded atomic.Pointer[progressorv1.Lease] // with decoded payloads; nil until they are decoded
	run     *workerRun
	began   time.Time               // when the worker received the lease
	ctx     context.Context         // context of the handler
	cancel  context.CancelCauseFunc // cancels ctx
	made    *checkpoints.Attempt    // the checkpoints of the attempt

	mu           sync.Mutex
	expires      time.Time                 // by this worker's clock
	interval     time.Duration             // time between two heartbeats
	lastBeat     time.Time                 // last answered heartbeat; initially when the lease was received
	progress     *progressorv1.Progress    // not sent yet; nil if there is none
	progressSent time.Time                 // when progress was last sent
	lost         bool                      // the engine has ended the lease
	answer       *progressorv1.LeaseAnswer // nil while the handler runs
	replaced     bool                      // answer was replaced by replaceAnswer
}

func newHeldLease(r *workerRun, l *progressorv1.Lease, received time.Time) *heldLease {
	h := &heldLease{
		lease:    l,
		run:      r,
		began:    received,
		lastBeat: received,
		interval: max(l.GetHeartbeatInterval().AsDuration(), minBeat),
	}
	h.expires = h.localTime(l.GetExpiresTime())
	ctx, cancel := context.WithCancelCause(r.handling)
	if parent := l.GetTraceparent(); parent != "" {
		ctx = trace.ContextWithRemoteSpanContext(ctx, tracing.OfValues(parent, l.GetTracestate()))
	}
	h.ctx, h.cancel = context.WithValue(ctx, heldKey{}, h), cancel
	h.made = h.newCheckpoints()
	return h
}

// shown returns the lease as handlers see it, with decoded payloads.
func (h *heldLease) shown() *progressorv1.Lease {
	if decoded := h.decoded.Load(); decoded != nil {
		return decoded
	}
	return h.lease
}

// localTime converts an engine time to this worker's clock. The clocks may differ, so it measures
// from the time at which the lease was granted.
func (h *heldLease) localTime(t *timestamppb.Timestamp) time.Time {
	if h.lease.GetLeasedTime() == nil {
		return t.AsTime()
	}
	return h.began.Add(t.AsTime().Sub(h.lease.GetLeasedTime().AsTime()))
}

// logAttrs returns the attributes that identify the attempt in log messages.
func (h *heldLease) logAttrs() []any {
	p := h.lease.GetRequest().GetProcess()
	return []any{
		"namespace", h.lease.GetNamespace(), "process_id", p.GetProcessId(),
		"task_id", h.lease.GetRequest().GetTaskId(), "attempt", h.lease.GetRequest().GetAttempt(),
	}
}

// report sets the progress that the next heartbeat sends.
func (h *heldLease) report(p *progressorv1.Progress) {
	h.mu.Lock()
	h.progress = p
	h.mu.Unlock()
	signal(h.run.changed)
}

// execute runs the handler of a lease and queues its answer.
func (r *workerRun) execute(h *heldLease) {
	ctx, stop := context.WithDeadline(h.ctx, h.localTime(h.lease.GetRequest().GetDeadline()))
	resp, err := r.attempt(ctx, h)
	cause := context.Cause(ctx)
	stop()
	lastEventID, unknown := h.made.End()
	delay, released := releaseDelay(err)
	if unknown != nil {
		r.options.logger.Warn("checkpoint may be lost; releasing the task", append(h.logAttrs(), "error", unknown)...)
		released = true
	}
	if err != nil || resp.GetFailure() != nil {
		r.sendProgress(h)
	}
	h.mu.Lock()
	lost := h.lost
	if !lost && !released {
		if h.answer = answerOf(h.lease, resp, err, cause); h.answer != nil {
			h.answer.LastEventId = lastEventID
		}
	}
	answered := h.answer != nil
	h.mu.Unlock()
	switch {
	case lost:
		r.options.logger.Info("answer dropped: the lease was lost", h.logAttrs()...)
		r.remove(h, OutcomeLost)
		r.addRoom(1)
	case !answered:
		r.releaseAll([]*heldLease{h}, delay)
	default:
		r.answers <- h // never blocks: the channel has room for every lease
	}
}

// decodePause is the delay with which a task is released if the codec is unavailable.
const decodePause = time.Second

// decode decodes the payloads of a lease. If it fails, the attempt ends with the returned error.
func (r *workerRun) decode(ctx context.Context, h *heldLease) error {
	if r.client.payloads == nil {
		return nil
	}
	decoded := proto.CloneOf(h.lease)
	err := r.client.payloads.Decode(ctx, decoded)
	switch {
	case err == nil:
		h.decoded.Store(decoded)
		return nil
	case !codec.Unavailable(err):
		return processor.Undecodable(h.lease.GetRequest(), err)
	case errors.Is(ctx.Err(), context.Canceled): // the job was cancelled, or the worker stopped
		return ctx.Err()
	}
	r.options.logger.Warn("codec unavailable; releasing the task", append(h.logAttrs(), "error", err)...)
	return Release(decodePause)
}

// attempt calls the handler of a lease and encodes the response. A panic fails only this attempt.
func (r *workerRun) attempt(ctx context.Context, h *heldLease) (resp *progressorv1.ProcessResponse, err error) {
	l := h.lease
	if l.GetMayCheckpoint() {
		ctx = processor.WithCheckpointer(ctx, h.made)
	}
	defer func() {
		if v := recover(); v != nil { // http.ErrAbortHandler, which Guard passes on
			resp, err = nil, processor.Fail(process.ReasonPanic, "the handler panicked: %v", v)
		}
	}()
	var released *ReleaseError // Guard would turn it into a failure
	resp, err = processor.Guard(processor.Func(
		func(ctx context.Context, _ *progressorv1.ProcessRequest) (*progressorv1.ProcessResponse, error) {
			err := r.decode(ctx, h)
			var resp *progressorv1.ProcessResponse
			if err == nil {
				resp, err = r.process(ctx, h)
			}
			released, _ = errors.AsType[*ReleaseError](err)
			if r.client.payloads != nil {
				err = processor.WithoutContent(err)
			}
			return resp, err
		}), r.options.logger).Process(ctx, l.GetRequest())
	if released != nil {
		return nil, released
	}
	if err != nil {
		return nil, err
	}
	encoded, err := r.client.payloads.Encode(ctx, resp)
	if err != nil {
		return nil, processor.Fail(processor.ReasonError, "encode the response: %w", err)
	}
	return encoded.(*progressorv1.ProcessResponse), nil
}

// process calls the handler of a lease. It releases the lease if the request has no history because
// the process was in memory and no longer is.
func (r *workerRun) process(ctx context.Context, h *heldLease) (*progressorv1.ProcessResponse, error) {
	p, req := r.processorOf(h.lease), h.shown().GetRequest()
	if r.parking == nil {
		return p.Process(ctx, req)
	}
	resp, err := r.parking.Process(ctx, p, req)
	if errors.Is(err, processor.ErrHistoryNeeded) {
		return nil, Release(0) // the engine leases the task again, with the history
	}
	return resp, err
}

// answerOf returns the answer for a handler that has returned resp and err. cause is the cause of
// its context. It returns nil if the lease must be released.
func answerOf(
	l *progressorv1.Lease, resp *progressorv1.ProcessResponse, err error, cause error,
) *progressorv1.LeaseAnswer {
	a := &progressorv1.LeaseAnswer{LeaseToken: l.GetLeaseToken()}
	if err != nil && endedByContext(err) {
		if errors.Is(cause, ErrWorkerStopped) {
			return nil
		}
		if _, cancelled := errors.AsType[*CancelError](cause); cancelled {
			a.Answer = &progressorv1.LeaseAnswer_Cancelled{
				Cancelled: &progressorv1.Cancelled{Message: plainSummary(err.Error())},
			}
			return a
		}
	}
	if err == nil {
		// Check the response here, because the engine would reject the whole answer.
		err = processor.Check(l.GetRequest().GetType(), resp)
	}
	if err == nil && proto.Size(resp) > maxAnswerBytes {
		err = processor.Fail(
			process.ReasonBadResponse, "the answer must have at most %d bytes (got %d)",
			maxAnswerBytes, proto.Size(resp),
		)
	}
	if err != nil {
		f := processor.FailureOf(err)
		if f.GetReason() == process.ReasonTimeout && errors.Is(cause, context.DeadlineExceeded) {
			f.Message = strings.ReplaceAll(
				f.GetMessage(), context.DeadlineExceeded.Error(), "the attempt exceeded its timeout"+timeoutOf(l),
			)
		}
		resp = &progressorv1.ProcessResponse{Outcome: &progressorv1.ProcessResponse_Failure{Failure: f}}
	}
	a.Answer = &progressorv1.LeaseAnswer_Response{Response: resp}
	return a
}

// timeoutOf returns " of " and the timeout of the attempt. It returns "" if the engine is too old
// to send the time at which it granted the lease.
func timeoutOf(l *progressorv1.Lease) string {
	if l.GetLeasedTime() == nil {
		return ""
	}
	return " of " + durations.Exact(
		l.GetRequest().GetDeadline().AsTime().Sub(l.GetLeasedTime().AsTime()).Round(time.Millisecond),
	)
}

// maxAnswerBytes is the maximum size of an answer. It leaves room for the other fields of the
// message.
const maxAnswerBytes = process.MaxMessageBytes - 64<<10

func outcomeOf(a *progressorv1.LeaseAnswer) Outcome {
	switch {
	case a.GetCancelled() != nil:
		return OutcomeCancelled
	case a.GetResponse().GetFailure() != nil:
		return OutcomeFailed
	default:
		return OutcomeDone
	}
}

package client

import (
	"context"
	"errors"
	"strings"
	"sync"
	"time"

	"go.opentelemetry.io/otel/trace"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/timestamppb"

	"github.com/progressor-engine/progressor/internal/durations"
	"github.com/progressor-engine/progressor/internal/tracing"
	"github.com/progressor-engine/progressor/process"
	"github.com/progressor-engine/progressor/processor"
	progressorv1 "github.com/progressor-engine/progressor/proto/progressor/v1"
)

// held is a lease that this worker holds, from the poll that gave it to the end of its answer.
type held struct {
	lease  *progressorv1.Lease
	shift  *shift
	began  time.Time
	ctx    context.Context
	cancel context.CancelCauseFunc

	mu       sync.Mutex
	expires  time.Time // by this worker's clock
	interval time.Duration
	beaten   time.Time
	progress *progressorv1.Progress // not told yet; nil: there is none
	told     time.Time              // when progress was told last
	lost     bool
	answer   *progressorv1.LeaseAnswer // nil: its handler runs
	refused  bool                      // an answer broke a rule, and this one says so
}

func newHeld(s *shift, l *progressorv1.Lease, received time.Time) *held {
	h := &held{lease: l, shift: s, began: received, beaten: received, interval: max(l.GetHeartbeatInterval().AsDuration(), minBeat)}
	h.expires = h.local(l.GetExpiresTime())
	ctx, cancel := context.WithCancelCause(s.doing)
	if parent := l.GetTraceparent(); parent != "" {
		ctx = trace.ContextWithRemoteSpanContext(ctx, tracing.OfValues(parent, l.GetTracestate()))
	}
	h.ctx, h.cancel = context.WithValue(ctx, heldKey{}, h), cancel
	return h
}

// local is an instant of the engine's clock by this worker's, which may be wrong: reckoned from when the lease was handed out.
func (h *held) local(t *timestamppb.Timestamp) time.Time {
	if h.lease.GetLeasedTime() == nil {
		return t.AsTime()
	}
	return h.began.Add(t.AsTime().Sub(h.lease.GetLeasedTime().AsTime()))
}

func (h *held) names() []any {
	p := h.lease.GetRequest().GetProcess()
	return []any{"namespace", h.lease.GetNamespace(), "process_id", p.GetProcessId(), "task_id", h.lease.GetRequest().GetTaskId(), "attempt", h.lease.GetRequest().GetAttempt()}
}

func (h *held) report(p *progressorv1.Progress) {
	h.mu.Lock()
	h.progress = p
	h.mu.Unlock()
	signal(h.shift.changed)
}

// run makes the attempt of a lease.
func (s *shift) run(h *held) {
	ctx, stop := context.WithDeadline(h.ctx, h.local(h.lease.GetRequest().GetDeadline()))
	resp, err := s.attempt(ctx, h.lease)
	cause := context.Cause(ctx)
	stop()
	h.mu.Lock()
	lost := h.lost
	if !lost {
		h.answer = answerOf(h.lease, resp, err, cause)
	}
	answered := h.answer != nil
	h.mu.Unlock()
	switch {
	case lost:
		s.options.logger.Info("answer dropped: the lease was lost", h.names()...)
		s.over(h, OutcomeLost)
		s.give(1)
	case !answered:
		s.giveBack([]*held{h})
	default:
		s.answers <- h // there is a place for each
	}
}

// attempt has the handler of a lease run. Whatever it panics with ends this one attempt.
func (s *shift) attempt(ctx context.Context, l *progressorv1.Lease) (resp *progressorv1.ProcessResponse, err error) {
	defer func() {
		if v := recover(); v != nil { // what Guard leaves to net/http
			resp, err = nil, processor.Fail(process.ReasonPanic, "the handler panicked: %v", v)
		}
	}()
	return processor.Guard(s.processorOf(l), s.options.logger).Process(ctx, l.GetRequest())
}

// answerOf turns the end of a handler into the answer of its lease; nil: it is given back.
func answerOf(l *progressorv1.Lease, resp *progressorv1.ProcessResponse, err error, cause error) *progressorv1.LeaseAnswer {
	a := &progressorv1.LeaseAnswer{LeaseToken: l.GetLeaseToken()}
	if err != nil && stopped(err) {
		if errors.Is(cause, ErrWorkerStopped) {
			return nil
		}
		if _, told := errors.AsType[*CancelError](cause); told {
			a.Answer = &progressorv1.LeaseAnswer_Cancelled{Cancelled: &progressorv1.Cancelled{Message: plainSummary(err.Error())}}
			return a
		}
	}
	if err == nil {
		// Said here, by the task's own type: an answer that the engine refuses as a whole would be sent in vain.
		err = processor.Check(l.GetRequest().GetType(), resp)
	}
	if err == nil && proto.Size(resp) > maxAnswerBytes {
		err = processor.Fail(process.ReasonBadResponse, "the answer has %d bytes, at most %d", proto.Size(resp), maxAnswerBytes)
	}
	if err != nil {
		f := processor.FailureOf(err)
		if f.GetReason() == process.ReasonTimeout && errors.Is(cause, context.DeadlineExceeded) {
			f.Message = strings.ReplaceAll(f.GetMessage(), context.DeadlineExceeded.Error(), "it passed its timeout"+timeoutOf(l))
		}
		resp = &progressorv1.ProcessResponse{Outcome: &progressorv1.ProcessResponse_Failure{Failure: f}}
	}
	a.Answer = &progressorv1.LeaseAnswer_Response{Response: resp}
	return a
}

// timeoutOf says how long the attempt of a lease might take; "": an older engine does not tell when it handed it out.
func timeoutOf(l *progressorv1.Lease) string {
	if l.GetLeasedTime() == nil {
		return ""
	}
	return " of " + durations.Exact(l.GetRequest().GetDeadline().AsTime().Sub(l.GetLeasedTime().AsTime()).Round(time.Millisecond))
}

// maxAnswerBytes leaves room for what stands around an answer in its message.
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

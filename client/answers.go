package client

import (
	"context"
	"errors"
	"math/rand/v2"
	"time"

	"connectrpc.com/connect"
	"google.golang.org/protobuf/proto"

	"github.com/progressor-engine/progressor/process"
	"github.com/progressor-engine/progressor/processor"
	progressorv1 "github.com/progressor-engine/progressor/proto/progressor/v1"
)

const (
	maxBatch      = 1000    // answers per request
	maxBatchBytes = 4 << 20 // no more answers are added to a request of this size
)

// send sends answers until the run is over. Each request carries all the answers that are ready, up
// to maxBatch and maxBatchBytes.
func (r *workerRun) send() {
	for {
		select {
		case r.sending <- struct{}{}:
		case <-r.requests.Done():
			return
		}
		var batch []*heldLease
		select {
		case h := <-r.answers:
			batch = r.gather(h)
		case <-r.requests.Done():
			return
		}
		go func() {
			defer func() { <-r.sending }()
			r.complete(batch)
		}()
	}
}

// gather returns first and the other answers that are ready. It does not block.
func (r *workerRun) gather(first *heldLease) []*heldLease {
	batch, size := []*heldLease{first}, proto.Size(first.answer)
	for len(batch) < maxBatch && size < maxBatchBytes {
		select {
		case h := <-r.answers:
			batch, size = append(batch, h), size+proto.Size(h.answer)
		default:
			return batch
		}
	}
	return batch
}

// complete sends answers until the engine has accepted or refused each of them, or their leases
// have expired.
func (r *workerRun) complete(batch []*heldLease) {
	for attempt := 1; ; attempt++ {
		var err error
		if batch, err = r.completeOnce(batch); len(batch) == 0 {
			return
		}
		if attempt == 1 {
			r.options.logger.Warn(
				"sending answers failed; retrying until their leases expire", "worker_id", r.options.id,
				"answers", len(batch), "error", err,
			)
		}
		sleep(r.requests, answerRetry.interval(attempt, rand.Float64()))
		batch = r.unexpired(batch)
	}
}

// answerRetry sets the waits between attempts to send answers.
var answerRetry = Retry{Initial: 50 * time.Millisecond, Max: 2 * time.Second}

// unexpired drops the answers whose leases have expired and returns the rest.
func (r *workerRun) unexpired(batch []*heldLease) []*heldLease {
	var unexpired []*heldLease
	for _, h := range batch {
		h.mu.Lock()
		over := time.Now().After(h.expires)
		h.mu.Unlock()
		if !over && r.requests.Err() == nil {
			unexpired = append(unexpired, h)
			continue
		}
		r.options.logger.Warn("answer dropped: its lease expired before the engine could be reached", h.logAttrs()...)
		r.remove(h, OutcomeLost)
		r.addRoom(1)
	}
	return unexpired
}

// completeOnce sends answers once. If the last poll was full, it asks for as many new tasks in the
// same request. It returns the answers to send again, and the reason.
func (r *workerRun) completeOnce(batch []*heldLease) ([]*heldLease, error) {
	if len(batch) == 0 {
		return nil, nil
	}
	req := &progressorv1.CompleteBatchRequest{}
	for _, h := range batch {
		req.Answers = append(req.Answers, h.answer)
	}
	r.mu.Lock()
	if r.moreTasks && !r.quiet && r.polling.Err() == nil {
		req.Next = r.pollRequest(min(len(batch), maxAsked), 0)
	}
	r.mu.Unlock()
	ctx, cancel := context.WithTimeout(r.requests, requestTimeout)
	defer cancel()
	resp, err := r.client.Worker.CompleteBatch(ctx, req)
	if err == nil && len(resp.GetOutcomes()) != len(batch) {
		err = errors.New("the response must have one outcome per answer")
	}
	if err != nil {
		return r.batchFailed(batch, err)
	}
	var again []*heldLease
	freed := 0
	for n, h := range batch {
		if e := resp.GetOutcomes()[n].GetError(); r.handleVerdict(h, e) {
			freed++
		} else {
			again, err = append(again, h), errors.New(e.GetMessage())
		}
	}
	next := resp.GetNext()
	if len(next) > freed { // the other slots belong to answers that must be sent again
		tokens := make([]string, 0, len(next)-freed)
		for _, l := range next[freed:] {
			tokens = append(tokens, l.GetLeaseToken())
		}
		r.release(tokens, 0)
		next = next[:freed]
	}
	if req.GetNext() != nil {
		r.setMoreTasks(len(next) == int(req.GetNext().GetMaxLeases()))
	}
	r.start(next)
	r.addRoom(freed - len(next))
	return again, err
}

// batchFailed handles a request that failed as a whole. It returns the answers to send again, and
// the reason.
func (r *workerRun) batchFailed(batch []*heldLease, err error) ([]*heldLease, error) {
	isBad := func(*heldLease) bool { return isRefused(err) }
	if connect.CodeOf(err) == connect.CodePermissionDenied {
		isBad = hasCommands // the worker may lack the permission for their targets
	}
	bad, rest := partition(batch, isBad)
	switch {
	case len(bad) == 0:
		r.replaceUnencodable(batch)
		return batch, err
	case len(batch) == 1:
		r.replaceAnswer(batch[0], err.Error())
		return batch, err
	}
	again, _ := r.completeOnce(rest)
	for _, h := range bad { // one by one, because one of them may be the cause
		left, _ := r.completeOnce([]*heldLease{h})
		again = append(again, left...)
	}
	return again, err
}

// hasCommands reports whether an answer has messages to other processes. The engine denies a batch
// with an answer whose targets the worker may not reach.
func hasCommands(h *heldLease) bool {
	return len(h.answer.GetResponse().GetResult().GetCommands()) > 0
}

// partition returns the answers for which in returns true, and the others.
func partition(batch []*heldLease, in func(*heldLease) bool) (some, others []*heldLease) {
	for _, h := range batch {
		if in(h) {
			some = append(some, h)
		} else {
			others = append(others, h)
		}
	}
	return some, others
}

// isRefused reports whether the engine would refuse the same request again.
func isRefused(err error) bool {
	code := connect.CodeOf(err)
	return code == connect.CodeInvalidArgument ||
		code == connect.CodeResourceExhausted && Reason(err) != progressorv1.ErrorDetail_REASON_OVERLOADED
}

// replaceUnencodable replaces the answers that protobuf cannot encode, for example because a text
// is not UTF-8. A single such answer would prevent the complete batch from being sent.
func (r *workerRun) replaceUnencodable(batch []*heldLease) {
	for _, h := range batch {
		if _, err := proto.Marshal(h.answer); err != nil {
			r.replaceAnswer(h, err.Error())
		}
	}
}

// handleVerdict handles the engine's response to one answer, and reports whether it is final.
func (r *workerRun) handleVerdict(h *heldLease, e *progressorv1.AnswerError) bool {
	switch reason := e.GetDetail().GetReason(); {
	case e == nil:
		r.remove(h, outcomeOf(h.answer))
		return true
	case reason == progressorv1.ErrorDetail_REASON_LEASE_LOST:
		r.options.logger.Info("answer rejected: the lease was lost", h.logAttrs()...)
		r.remove(h, OutcomeLost)
		return true
	case reason == progressorv1.ErrorDetail_REASON_INVALID, reason == progressorv1.ErrorDetail_REASON_TOO_LARGE:
		if h.replaced {
			r.options.logger.Error(
				"answer dropped: the engine rejected it twice",
				append(h.logAttrs(), "error", e.GetMessage())...)
			r.remove(h, OutcomeLost)
			return true
		}
		r.replaceAnswer(h, e.GetMessage())
		return false
	default:
		return false
	}
}

// replaceAnswer replaces an answer that the engine cannot accept with a failure. Otherwise, the
// lease would expire, and the next worker would get the same error.
func (r *workerRun) replaceAnswer(h *heldLease, why string) {
	failure := processor.Fail(process.ReasonBadResponse, "the engine cannot accept the answer: %s", why).Failure
	h.mu.Lock()
	defer h.mu.Unlock()
	h.replaced = true
	h.answer = &progressorv1.LeaseAnswer{
		LeaseToken: h.lease.GetLeaseToken(),
		Answer: &progressorv1.LeaseAnswer_Response{
			Response: &progressorv1.ProcessResponse{Outcome: &progressorv1.ProcessResponse_Failure{Failure: failure}},
		},
	}
}

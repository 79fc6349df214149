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
	maxBatch      = 1000    // answers of one request
	maxBatchBytes = 4 << 20 // from here on no more are added
)

// send sends answers until the shift is over: all that are there in one request.
func (s *shift) send() {
	for {
		select {
		case s.sending <- struct{}{}:
		case <-s.speaking.Done():
			return
		}
		var batch []*held
		select {
		case h := <-s.answers:
			batch = s.gather(h)
		case <-s.speaking.Done():
			return
		}
		go func() {
			defer func() { <-s.sending }()
			s.complete(batch)
		}()
	}
}

// gather takes the answers that are there.
func (s *shift) gather(first *held) []*held {
	batch, size := []*held{first}, proto.Size(first.answer)
	for len(batch) < maxBatch && size < maxBatchBytes {
		select {
		case h := <-s.answers:
			batch, size = append(batch, h), size+proto.Size(h.answer)
		default:
			return batch
		}
	}
	return batch
}

// complete sends answers until the engine has said something of each, or their leases have run out.
func (s *shift) complete(batch []*held) {
	for attempt := 1; ; attempt++ {
		var err error
		if batch, err = s.completeOnce(batch); len(batch) == 0 {
			return
		}
		if attempt == 1 {
			s.options.logger.Warn("answers not taken; trying again while their leases last", "worker_id", s.options.id, "answers", len(batch), "error", err)
		}
		pause(s.speaking, answerRetry.interval(attempt, rand.Float64()))
		batch = s.lasting(batch)
	}
}

// answerRetry says how fast answers are sent again.
var answerRetry = Retry{Initial: 50 * time.Millisecond, Max: 2 * time.Second}

// lasting leaves out what can count no more.
func (s *shift) lasting(batch []*held) []*held {
	var lasting []*held
	for _, h := range batch {
		h.mu.Lock()
		over := time.Now().After(h.expires)
		h.mu.Unlock()
		if !over && s.speaking.Err() == nil {
			lasting = append(lasting, h)
			continue
		}
		s.options.logger.Warn("answer given up: its lease has run out and the engine was not reached", h.names()...)
		s.over(h, OutcomeLost)
		s.give(1)
	}
	return lasting
}

// completeOnce sends answers once, and asks for as many tasks, where there are more. It gives back what has to be sent again, and why.
func (s *shift) completeOnce(batch []*held) ([]*held, error) {
	if len(batch) == 0 {
		return nil, nil
	}
	req := &progressorv1.CompleteBatchRequest{}
	for _, h := range batch {
		req.Answers = append(req.Answers, h.answer)
	}
	s.mu.Lock()
	if s.hungry && !s.quiet && s.taking.Err() == nil {
		req.Next = s.pollRequest(min(len(batch), maxAsked), 0)
	}
	s.mu.Unlock()
	ctx, cancel := context.WithTimeout(s.speaking, requestTimeout)
	defer cancel()
	resp, err := s.client.Worker.CompleteBatch(ctx, req)
	if err == nil && len(resp.GetOutcomes()) != len(batch) {
		err = errors.New("the engine's answer does not fit the request")
	}
	if err != nil {
		return s.refused(batch, err)
	}
	var again []*held
	freed := 0
	for n, h := range batch {
		if e := resp.GetOutcomes()[n].GetError(); s.settled(h, e) {
			freed++
		} else {
			again, err = append(again, h), errors.New(e.GetMessage())
		}
	}
	next := resp.GetNext()
	if len(next) > freed { // their room is still taken by answers that are to be sent again
		tokens := make([]string, 0, len(next)-freed)
		for _, l := range next[freed:] {
			tokens = append(tokens, l.GetLeaseToken())
		}
		s.release(tokens)
		next = next[:freed]
	}
	if req.GetNext() != nil {
		s.setHungry(len(next) == int(req.GetNext().GetMaxLeases()))
	}
	s.begin(next)
	s.give(freed - len(next))
	return again, err
}

// refused tells what becomes of answers whose request failed as a whole.
func (s *shift) refused(batch []*held, err error) ([]*held, error) {
	switch code := connect.CodeOf(err); {
	case code == connect.CodeInvalidArgument, code == connect.CodeResourceExhausted && Reason(err) != progressorv1.ErrorDetail_REASON_OVERLOADED:
	default:
		return batch, err
	}
	var again []*held
	if len(batch) > 1 { // one of them is at fault, and must not cost the others
		for _, h := range batch {
			left, _ := s.completeOnce([]*held{h})
			again = append(again, left...)
		}
		return again, err
	}
	s.answerRefusal(batch[0], err.Error())
	return batch, err
}

// settled tells whether the engine has said the last word of an answer.
func (s *shift) settled(h *held, e *progressorv1.AnswerError) bool {
	switch reason := e.GetDetail().GetReason(); {
	case e == nil:
		s.over(h, outcomeOf(h.answer))
		return true
	case reason == progressorv1.ErrorDetail_REASON_LEASE_LOST:
		s.options.logger.Info("answer refused: the lease was lost", h.names()...)
		s.over(h, OutcomeLost)
		return true
	case reason == progressorv1.ErrorDetail_REASON_INVALID, reason == progressorv1.ErrorDetail_REASON_TOO_LARGE:
		if h.refused {
			s.options.logger.Error("answer given up", append(h.names(), "error", e.GetMessage())...)
			s.over(h, OutcomeLost)
			return true
		}
		s.answerRefusal(h, e.GetMessage())
		return false
	default:
		return false
	}
}

// answerRefusal has an attempt fail whose answer the engine cannot take: else its lease would run out, and others would meet the same.
func (s *shift) answerRefusal(h *held, why string) {
	failure := processor.Fail(process.ReasonBadResponse, "the engine refused the answer: %s", why).Failure
	h.mu.Lock()
	defer h.mu.Unlock()
	h.refused = true
	h.answer = &progressorv1.LeaseAnswer{LeaseToken: h.lease.GetLeaseToken(), Answer: &progressorv1.LeaseAnswer_Response{
		Response: &progressorv1.ProcessResponse{Outcome: &progressorv1.ProcessResponse_Failure{Failure: failure}},
	}}
}

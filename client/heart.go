package client

import (
	"context"
	"errors"
	"time"

	progressorv1 "github.com/progressor-engine/progressor/proto/progressor/v1"
)

const (
	minBeat       = 10 * time.Millisecond  // between two heartbeats, whatever the engine asks for
	progressEvery = time.Second            // between two tellings of the progress of one lease
	beatRetry     = 250 * time.Millisecond // after a heartbeat that was not taken

	// maxSummaries is how many bytes of summaries go with one heartbeat, what is left with the next: 10,000 leases with a summary of 4 KiB each
	// would pass the 16 MiB that the engine takes, and none would be extended.
	maxSummaries = 8 << 20
)

// beat sends heartbeats until the shift is over.
func (s *shift) beat() {
	timer := time.NewTimer(time.Hour)
	defer timer.Stop()
	var failed time.Time
	for {
		due := s.due()
		wait := time.Hour
		switch {
		case due.IsZero():
			failed = time.Time{}
		case !failed.IsZero():
			wait = time.Until(failed.Add(beatRetry))
		default:
			wait = time.Until(due)
		}
		if wait <= 0 {
			err := s.beatOnce()
			switch {
			case err == nil:
				failed = time.Time{}
				continue
			case failed.IsZero() && s.speaking.Err() == nil:
				s.options.logger.Warn("heartbeat not taken; trying again", "worker_id", s.options.id, "error", err)
			}
			failed = time.Now()
			s.expire(failed)
			continue
		}
		timer.Reset(wait)
		select {
		case <-s.speaking.Done():
			return
		case <-timer.C:
		case <-s.changed:
		}
	}
}

// due is when the next heartbeat is: the zero time where nothing is held.
func (s *shift) due() (due time.Time) {
	s.mu.Lock()
	defer s.mu.Unlock()
	earlier := func(t time.Time) {
		if due.IsZero() || t.Before(due) {
			due = t
		}
	}
	for _, h := range s.held {
		h.mu.Lock()
		if !h.lost {
			earlier(h.beaten.Add(h.interval))
		}
		if !h.lost && h.progress != nil {
			earlier(h.told.Add(progressEvery))
		}
		h.mu.Unlock()
	}
	return due
}

// beatOnce beats for all leases in one request.
func (s *shift) beatOnce() error {
	req, beating, timeout := s.heartbeat()
	ctx, cancel := context.WithTimeout(s.speaking, timeout)
	defer cancel()
	resp, err := s.client.Worker.Heartbeat(ctx, req)
	if err != nil {
		return err
	}
	now := time.Now()
	if len(resp.GetDirectives()) != len(beating) {
		return errors.New("the engine's answer does not fit the request")
	}
	for n, h := range beating {
		h.directed(resp.GetDirectives()[n], req.GetBeats()[n].GetProgress(), now)
	}
	s.told(resp.GetWorker())
	return nil
}

// heartbeat is a beat of all leases, in the order of beating, and how long its answer may take.
func (s *shift) heartbeat() (req *progressorv1.HeartbeatRequest, beating []*held, timeout time.Duration) {
	req, timeout = &progressorv1.HeartbeatRequest{WorkerId: s.options.id}, requestTimeout
	room := maxSummaries
	for _, h := range s.all() {
		h.mu.Lock()
		if h.lost {
			h.mu.Unlock()
			continue
		}
		b := &progressorv1.LeaseBeat{LeaseToken: h.lease.GetLeaseToken()}
		if time.Since(h.told) >= progressEvery && room >= len(h.progress.GetSummary()) {
			b.Progress = h.progress
			room -= len(h.progress.GetSummary())
		}
		timeout = min(timeout, max(h.interval, time.Second))
		h.mu.Unlock()
		req.Beats, beating = append(req.Beats, b), append(beating, h)
	}
	return req, beating, timeout
}

// expire stops what has run longer than its lease: somebody else may have it by now. Only who cannot reach the engine gets here.
func (s *shift) expire(now time.Time) {
	for _, h := range s.all() {
		h.mu.Lock()
		if h.answer == nil && !h.lost && now.After(h.expires) {
			h.lost = true
			h.cancel(ErrLeaseLost)
			s.options.logger.Warn("lease has run out: its heartbeats do not reach the engine", h.names()...)
		}
		h.mu.Unlock()
	}
}

// directed does what the engine says to one lease.
func (h *held) directed(d *progressorv1.LeaseDirective, told *progressorv1.Progress, now time.Time) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.beaten = now
	if told != nil {
		h.told = now
		if h.progress == told {
			h.progress = nil
		}
	}
	switch d.GetDirective() {
	case progressorv1.LeaseDirective_DIRECTIVE_LOST:
		// Of an answer that is on its way Complete says more: it may be stored already.
		if h.answer == nil && !h.lost {
			h.lost = true
			h.cancel(ErrLeaseLost)
		}
		return
	case progressorv1.LeaseDirective_DIRECTIVE_CANCEL:
		h.cancel(&CancelError{Reason: d.GetCancelReason()})
	default:
	}
	h.expires = h.local(d.GetExpiresTime())
	h.interval = max(d.GetHeartbeatInterval().AsDuration(), minBeat)
}

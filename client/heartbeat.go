package client

import (
	"context"
	"errors"
	"time"

	"google.golang.org/protobuf/proto"

	progressorv1 "github.com/progressor-engine/progressor/proto/progressor/v1"
)

const (
	minBeat       = 10 * time.Millisecond  // minimum heartbeat interval, even if the engine requests a shorter one
	progressEvery = time.Second            // minimum time between two progress reports of one lease
	beatRetry     = 250 * time.Millisecond // wait after a failed heartbeat

	progressTimeout = 5 * time.Second // timeout of the heartbeat with the last progress of a failed attempt

	// maxProgress is the maximum number of bytes of progress in one heartbeat. The next heartbeat
	// contains the rest. Without this limit, the progress of 10,000 leases with 4 KiB each would
	// exceed the 16 MiB that the engine accepts, and no lease would be extended.
	maxProgress = 8 << 20
)

// beat sends heartbeats until the requests of the worker are cancelled at the end of its run.
func (r *workerRun) beat() {
	timer := time.NewTimer(time.Hour)
	defer timer.Stop()
	var failed time.Time
	for {
		due := r.nextBeat()
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
			err := r.beatOnce()
			switch {
			case err == nil:
				failed = time.Time{}
				continue
			case failed.IsZero() && r.requests.Err() == nil:
				r.options.logger.Warn("heartbeat failed; retrying", "worker_id", r.options.id, "error", err)
			}
			failed = time.Now()
			r.cancelExpired(failed)
			continue
		}
		timer.Reset(wait)
		select {
		case <-r.requests.Done():
			return
		case <-timer.C:
		case <-r.changed:
		}
	}
}

// nextBeat returns the time of the next heartbeat. It returns the zero time if the worker has no
// lease that needs one.
func (r *workerRun) nextBeat() (due time.Time) {
	r.mu.Lock()
	defer r.mu.Unlock()
	earlier := func(t time.Time) {
		if due.IsZero() || t.Before(due) {
			due = t
		}
	}
	for _, h := range r.held {
		h.mu.Lock()
		if !h.lost {
			earlier(h.lastBeat.Add(h.interval))
		}
		if !h.lost && h.progress != nil {
			earlier(h.progressSent.Add(progressEvery))
		}
		h.mu.Unlock()
	}
	return due
}

// beatOnce sends one heartbeat for all leases and applies the engine's directives.
func (r *workerRun) beatOnce() error {
	req, beating, timeout := r.heartbeatRequest()
	ctx, cancel := context.WithTimeout(r.requests, timeout)
	defer cancel()
	resp, err := r.client.Worker.Heartbeat(ctx, req)
	if err != nil {
		if isRefused(err) { // the engine rejects the whole request if one progress report is invalid
			for n, h := range beating { // the worker does not know which report it was
				h.dropProgress(req.GetBeats()[n].GetProgress())
			}
		}
		return err
	}
	now := time.Now()
	if len(resp.GetDirectives()) != len(beating) {
		return errors.New("the response must have one directive per lease")
	}
	for n, h := range beating {
		h.applyDirective(resp.GetDirectives()[n], req.GetBeats()[n].GetProgress(), now)
	}
	r.applyWorkerDirective(resp.GetWorker())
	return nil
}

// dropProgress removes the progress that was sent, unless newer progress has been reported since.
func (h *heldLease) dropProgress(sent *progressorv1.Progress) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.progress == sent {
		h.progress = nil
	}
}

// heartbeatRequest returns a heartbeat for all leases that are not lost, these leases in the order
// of its beats, and the timeout of the request.
func (r *workerRun) heartbeatRequest() (
	req *progressorv1.HeartbeatRequest, beating []*heldLease, timeout time.Duration,
) {
	req, timeout = &progressorv1.HeartbeatRequest{WorkerId: r.options.id}, requestTimeout
	room := maxProgress
	for _, h := range r.leases() {
		h.mu.Lock()
		if h.lost {
			h.mu.Unlock()
			continue
		}
		b := &progressorv1.LeaseBeat{LeaseToken: h.lease.GetLeaseToken()}
		if size := proto.Size(h.progress); time.Since(h.progressSent) >= progressEvery && room >= size {
			b.Progress = h.progress
			room -= size
		}
		timeout = min(timeout, max(h.interval, time.Second))
		h.mu.Unlock()
		req.Beats, beating = append(req.Beats, b), append(beating, h)
	}
	return req, beating, timeout
}

// sendProgress sends the progress of an attempt that has failed or is released, so that the next
// attempt gets it.
func (r *workerRun) sendProgress(h *heldLease) {
	h.mu.Lock()
	p := h.progress
	h.progress = nil
	h.mu.Unlock()
	if p == nil {
		return
	}
	ctx, cancel := context.WithTimeout(r.requests, progressTimeout)
	defer cancel()
	_, err := r.client.Worker.Heartbeat(ctx, &progressorv1.HeartbeatRequest{
		WorkerId: r.options.id, Beats: []*progressorv1.LeaseBeat{{LeaseToken: h.lease.GetLeaseToken(), Progress: p}},
	})
	if err != nil {
		r.options.logger.Warn("sending the last progress failed", append(h.logAttrs(), "error", err)...)
	}
}

// cancelExpired cancels the handlers whose leases have expired, because another worker may have got
// their tasks. A lease expires only if the heartbeats do not reach the engine.
func (r *workerRun) cancelExpired(now time.Time) {
	for _, h := range r.leases() {
		h.mu.Lock()
		if h.answer == nil && !h.lost && now.After(h.expires) {
			h.lost = true
			h.cancel(ErrLeaseLost)
			r.options.logger.Warn("lease expired: the heartbeats did not reach the engine", h.logAttrs()...)
		}
		h.mu.Unlock()
	}
}

// applyDirective applies the engine's response to the beat of one lease. sent is the progress that
// the beat carried.
func (h *heldLease) applyDirective(d *progressorv1.LeaseDirective, sent *progressorv1.Progress, now time.Time) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.lastBeat = now
	if sent != nil {
		h.progressSent = now
		if h.progress == sent {
			h.progress = nil
		}
	}
	switch d.GetDirective() {
	case progressorv1.LeaseDirective_DIRECTIVE_LOST:
		// If the worker has sent its answer, the lease may be lost because the answer was stored.
		// The response to the answer will show that.
		if h.answer == nil && !h.lost {
			h.lost = true
			h.cancel(ErrLeaseLost)
		}
		return
	case progressorv1.LeaseDirective_DIRECTIVE_CANCEL:
		h.cancel(&CancelError{Reason: d.GetCancelReason()})
	default:
	}
	h.expires = h.localTime(d.GetExpiresTime())
	h.interval = max(d.GetHeartbeatInterval().AsDuration(), minBeat)
}

package sinks

import "time"

// ShortenTimes shortens the times of the runner. It must be called before the engine runs.
func (s *Sinks) ShortenTimes() {
	s.limits.lease, s.limits.renew, s.limits.margin = 2*time.Second, 300*time.Millisecond, 500*time.Millisecond
	s.limits.poll, s.limits.stop = 50*time.Millisecond, time.Second
	s.limits.retry.Initial, s.limits.retry.Max = 10*time.Millisecond, 100*time.Millisecond
	s.limits.storeRetry, s.limits.save = 50*time.Millisecond, 50*time.Millisecond
}

// ClaimOne lets a node claim one sink per pass.
func (s *Sinks) ClaimOne() { s.limits.claims = 1 }

// WaitForWake makes sinks read changes only after a commit or a notice.
func (s *Sinks) WaitForWake() { s.limits.pace.Min, s.limits.pace.Max = time.Hour, time.Hour }

// RetryLate allows up to an hour between attempts.
func (s *Sinks) RetryLate() { s.limits.retry.Max = time.Hour }

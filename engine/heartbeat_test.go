package engine

import (
	"context"
	"log/slog"
	"testing"
	"time"

	"github.com/progressor-engine/progressor/storage"
)

// cutOff returns an engine whose last heartbeat is an hour old, and its only attempt.
func cutOff() (e *Engine, attempt context.Context) {
	e = &Engine{cfg: Config{ZombieAfter: time.Second}, log: slog.New(slog.DiscardHandler), attempts: newAttempts(nil)}
	e.started = time.Now().Add(-time.Hour)
	e.metrics = newEngineMetrics(nil, e)
	attempt, cancel := context.WithCancelCause(context.Background())
	e.attempts.begin(&storage.Claim{FencingToken: 1}, cancel)
	return e, attempt
}

// A node fences itself while its heartbeat waits for the database.
func TestFenceDoesNotNeedTheHeartbeat(t *testing.T) {
	t.Parallel()
	e, attempt := cutOff()
	ctx, stop := context.WithCancel(t.Context())
	defer stop()
	go func() { _ = newHeartbeater(e).watch(ctx) }()
	select {
	case <-attempt.Done():
	case <-time.After(20 * time.Second):
		t.Fatal("the attempt was not cancelled")
	}
	if cause := context.Cause(attempt); cause != errNoHeartbeat { //nolint:errorlint // exactly this error
		t.Error(cause)
	}
}

// A heartbeat that succeeds after a gap cancels the earlier attempts. The age of a heartbeat counts
// from the time at which it was sent.
func TestGapBetweenHeartbeatsCancelsAttempts(t *testing.T) {
	t.Parallel()
	e, attempt := cutOff()
	e.calls, e.timers, e.workers = newCallPoller(e), newTimerPoller(e), noWorkers{}
	sent := e.age() - 200*time.Millisecond
	e.recordHeartbeat(sent)
	if attempt.Err() == nil {
		t.Error("the attempt was not cancelled")
	}
	if e.sinceBeat() < 200*time.Millisecond {
		t.Errorf("the heartbeat is %s old", e.sinceBeat())
	}
	if !e.expectsLostClaims() {
		t.Error("the collector does not search for lost claims")
	}
}

func TestClockWatch(t *testing.T) {
	t.Parallel()
	var c clockWatch
	start := time.Now()
	for n, x := range []struct {
		at, trip, database time.Duration // since start
		step               time.Duration
	}{
		{0, 10 * time.Millisecond, time.Hour, 0},
		{time.Second, 10 * time.Millisecond, time.Hour + time.Second, 0},
		// The response is slow.
		{2 * time.Second, 3 * time.Second, time.Hour + 4*time.Second, 0},
		// The clock is set forward. The exact step is unknown, so the smallest possible step is
		// expected.
		{10 * time.Second, 0, 2*time.Hour + 10*time.Second, time.Hour - time.Second - time.Second},
		{11 * time.Second, 0, 2*time.Hour + 11*time.Second, 0},                                           // once
		{12 * time.Second, 0, time.Hour + 12*time.Second, -time.Hour},                                    // backward
		{13 * time.Second, 100 * time.Millisecond, time.Hour + 13*time.Second + 200*time.Millisecond, 0}, // too small
	} {
		got := c.step(start.Round(0).Add(x.database), start.Add(x.at), start.Add(x.at+x.trip))
		if (got-x.step).Abs() > 2*time.Second || (got == 0) != (x.step == 0) {
			t.Errorf("look %d: %s, want %s", n, got, x.step)
		}
	}
}

// A node is dead if its heartbeat did not change for zombie_after. If the heartbeat is also older
// than zombie_after by the database clock, fenceAfter without a change is enough.
func TestNodeIsDead(t *testing.T) {
	t.Parallel()
	p := newPeers(&Engine{cfg: Config{ZombieAfter: 9 * time.Second}})
	for _, x := range []struct {
		unchanged, age time.Duration
		dead           bool
	}{
		{0, time.Hour, false},
		{5 * time.Second, time.Hour, false}, // the database clock was set forward
		{6 * time.Second, 9 * time.Second, true},
		{8 * time.Second, 8 * time.Second, false},
		{9 * time.Second, -time.Hour, true}, // and backward
	} {
		if got := p.dead(x.unchanged, x.age); got != x.dead {
			t.Errorf("unchanged for %s, %s old: %t", x.unchanged, x.age, got)
		}
	}
}

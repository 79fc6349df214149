package jobs_test

import (
	"context"
	"encoding/base64"
	"errors"
	"testing"
	"time"

	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/progressor-engine/progressor/engine/enginetest"
	"github.com/progressor-engine/progressor/process"
	progressorv1 "github.com/progressor-engine/progressor/proto/progressor/v1"
	"github.com/progressor-engine/progressor/storage/storagetest"
)

const lost = progressorv1.LeaseDirective_DIRECTIVE_LOST

// Only the exact token, with its random part, gives access to a lease. A guessed token cannot
// extend, complete or release it, and neither can the heartbeat of another worker.
func TestLeaseTokenIsNotGuessed(t *testing.T) {
	t.Parallel()
	n := start(t, storagetest.DSN(t), scripted())
	n.enqueue(t, "pull", "j", nil)
	l := n.leaseOne(t, "w1")
	raw, err := base64.RawURLEncoding.DecodeString(l.GetLeaseToken())
	if err != nil {
		t.Fatal(err)
	}
	raw[1+len("pull")+8] ^= 1 // the first byte of its random part
	guessed := &progressorv1.Lease{LeaseToken: base64.RawURLEncoding.EncodeToString(raw)}
	if d := n.beat(t, "w1", guessed); d.GetDirective() != lost {
		t.Errorf("a heartbeat with a guessed token: %v", d)
	}
	if d := n.beat(t, "w2", l); d.GetDirective() != lost {
		t.Errorf("a heartbeat of another worker: %v", d)
	}
	if k := n.Count(t, "SELECT count(*) FROM leases WHERE beat_time IS NOT NULL"); k != 0 {
		t.Error("the lease was extended")
	}
	if err := n.succeed(guessed, nil); err == nil {
		t.Error("a guessed token completed the lease")
	}
	if err := n.ReleaseLeases(t.Context(), []string{guessed.GetLeaseToken()}, 0); err != nil {
		t.Error(err)
	}
	n.job(t, "pull", "j", running)
	if err := n.succeed(l, nil); err != nil {
		t.Error(err)
	}
}

// A heartbeat that names a lease twice is rejected. Otherwise, the second occurrence would be
// reported as lost, and the worker would stop a task that it still holds.
func TestLeaseBeatsOnce(t *testing.T) {
	t.Parallel()
	n := start(t, storagetest.DSN(t), scripted())
	n.enqueue(t, "pull", "a", nil)
	n.enqueue(t, "pull", "b", nil)
	a, b := n.leaseOne(t, "w").GetLeaseToken(), n.leaseOne(t, "w").GetLeaseToken()
	for field, tokens := range map[string][]string{
		"": {a, b}, "beats[2].lease_token": {a, b, a}, "beats[0].lease_token": {"none", "none"},
	} {
		r := &progressorv1.HeartbeatRequest{WorkerId: "w"}
		for _, token := range tokens {
			r.Beats = append(r.Beats, &progressorv1.LeaseBeat{LeaseToken: token})
		}
		_, err := n.BeatLeases(t.Context(), r)
		invalid, _ := errors.AsType[*process.InvalidError](err)
		if (err != nil) != (field != "") || invalid != nil && invalid.Field != field {
			t.Errorf("%q: %v", field, err)
		}
	}
	if k := n.Count(t, "SELECT count(*) FROM leases WHERE beat_time IS NOT NULL"); k != 2 {
		t.Errorf("%d leases were extended", k)
	}
}

// An attempt that exceeds its timeout has failed, even if its worker sends heartbeats.
func TestTimeoutOfAWorkerThatBeats(t *testing.T) {
	t.Parallel()
	n := start(t, storagetest.DSN(t), scripted())
	n.enqueue(t, "pull", "j", &progressorv1.JobOptions{
		Timeout: durationpb.New(time.Second), LeaseDuration: durationpb.New(time.Hour),
	})
	l := n.leaseOne(t, "w1")
	enginetest.Eventually(t, testTimeout, "the worker has lost its lease", func() bool {
		return n.beat(t, "w1", l).GetDirective() == lost
	})
	job := n.job(t, "pull", "j", failed)
	if len(job.GetFailures()) != 1 || job.GetFailures()[0].GetReason() != process.ReasonTimeout {
		t.Errorf("%v", job.GetFailures())
	}
}

// A lease without any heartbeat may never have reached its worker. It expires after two intervals,
// and the attempt is not counted. The first heartbeat extends it to its full duration.
func TestLeaseThatNeverBeats(t *testing.T) {
	t.Parallel()
	n := start(t, storagetest.DSN(t), scripted())
	n.enqueue(t, "pull", "j", &progressorv1.JobOptions{
		Timeout: durationpb.New(time.Hour), LeaseDuration: durationpb.New(time.Hour),
		HeartbeatInterval: durationpb.New(50 * time.Millisecond),
	})
	n.leaseOne(t, "w1") // its response is lost
	l := n.leaseOne(t, "w2")
	if l.GetJob().GetAttempt() != 1 {
		t.Errorf("attempt %d, although the previous one was not counted", l.GetJob().GetAttempt())
	}
	if n.beat(t, "w2", l).GetDirective() == lost { // a busy machine took longer than two intervals
		l = n.leaseOne(t, "w2")
		n.exec(t, "UPDATE leases SET expires_time = now() + interval '1 minute'")
		n.beat(t, "w2", l)
	}
	k := n.Count(t, `SELECT count(*) FROM leases WHERE worker_id = 'w2' AND expires_time > now()
		+ interval '59 minutes'`)
	if k != 1 {
		t.Error("the first heartbeat did not extend the lease by an hour")
	}
	if err := n.succeed(l, nil); err != nil {
		t.Fatal(err)
	}
	if job, err := n.Get(context.Background(), key("pull", "j"), 0); err != nil || job.GetAttempt() != 1 {
		t.Errorf("%v, %v", job, err)
	}
}

// If the lease never reached the worker, the attempt is not counted, even if the timeout of the job
// is short.
func TestLeaseThatNeverBeatsByItsTimeout(t *testing.T) {
	t.Parallel()
	n := start(t, storagetest.DSN(t), scripted())
	n.enqueue(t, "pull", "j", &progressorv1.JobOptions{Timeout: durationpb.New(300 * time.Millisecond)})
	l := n.leaseOne(t, "w1") // its response is lost
	if got := l.GetHeartbeatInterval().AsDuration(); got > 150*time.Millisecond {
		t.Errorf("the interval is %s", got)
	}
	if again := n.leaseOne(t, "w2"); again.GetJob().GetAttempt() != 1 || len(again.GetJob().GetFailures()) != 0 {
		t.Errorf("attempt %d, %v", again.GetJob().GetAttempt(), again.GetJob().GetFailures())
	}
}

// A lost worker does not use up a retry, which is still available when an attempt fails.
func TestLostLeaseUsesUpNoRetry(t *testing.T) {
	t.Parallel()
	n := start(t, storagetest.DSN(t), scripted())
	n.enqueue(t, "pull", "j", &progressorv1.JobOptions{
		MaxRetry: 1, Backoff: &progressorv1.Backoff{Steps: []*durationpb.Duration{durationpb.New(0)}},
	})
	n.beat(t, "w1", n.leaseOne(t, "w1"))
	n.exec(t, "UPDATE leases SET expires_time = now(), heartbeat_interval = interval '1 millisecond'")
	for k, want := range []progressorv1.JobState{available, failed} {
		if err := n.fail(n.leaseOne(t, "w2"), "broken"); err != nil {
			t.Fatal(err)
		}
		job := n.job(t, "pull", "j", want)
		if len(job.GetFailures()) != k+2 || job.GetFailures()[0].GetReason() != process.ReasonLeaseLost {
			t.Errorf("%v", job.GetFailures())
		}
	}
}

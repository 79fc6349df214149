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

// A lease is of whoever has its token, random part and all: one that is guessed extends nothing, answers nothing and gives nothing back; nor does
// another worker's heartbeat.
func TestLeaseTokenIsNotGuessed(t *testing.T) {
	t.Parallel()
	n := start(t, storagetest.DSN(t), scripted())
	n.enqueue(t, "pull", "j", nil)
	l := n.one(t, "w1")
	raw, err := base64.RawURLEncoding.DecodeString(l.GetLeaseToken())
	if err != nil {
		t.Fatal(err)
	}
	raw[1+len("pull")+8] ^= 1 // the first byte of its random part
	guessed := &progressorv1.Lease{LeaseToken: base64.RawURLEncoding.EncodeToString(raw)}
	if d := n.beat(t, "w1", guessed); d.GetDirective() != lost {
		t.Errorf("a guessed token beats: %v", d)
	}
	if d := n.beat(t, "w2", l); d.GetDirective() != lost {
		t.Errorf("another worker beats: %v", d)
	}
	if k := n.count(t, "SELECT count(*) FROM leases WHERE beat_time IS NOT NULL"); k != 0 {
		t.Error("the lease was extended")
	}
	if err := n.succeed(guessed, nil); err == nil {
		t.Error("a guessed token answers")
	}
	if err := n.ReleaseLeases(t.Context(), []string{guessed.GetLeaseToken()}); err != nil {
		t.Error(err)
	}
	n.job(t, "pull", "j", running)
	if err := n.succeed(l, nil); err != nil {
		t.Error(err)
	}
}

// A heartbeat that names one lease twice is refused: it was told that the second one is lost, and stopped what lives.
func TestLeaseBeatsOnce(t *testing.T) {
	t.Parallel()
	n := start(t, storagetest.DSN(t), scripted())
	n.enqueue(t, "pull", "a", nil)
	n.enqueue(t, "pull", "b", nil)
	a, b := n.one(t, "w").GetLeaseToken(), n.one(t, "w").GetLeaseToken()
	for field, tokens := range map[string][]string{"": {a, b}, "beats[2].lease_token": {a, b, a}, "beats[0].lease_token": {"none", "none"}} {
		r := &progressorv1.HeartbeatRequest{WorkerId: "w"}
		for _, token := range tokens {
			r.Beats = append(r.Beats, &progressorv1.LeaseBeat{LeaseToken: token})
		}
		_, err := n.BeatLeases(t.Context(), r)
		if invalid, _ := errors.AsType[*process.InvalidError](err); (err != nil) != (field != "") || invalid != nil && invalid.Field != field {
			t.Errorf("%q: %v", field, err)
		}
	}
	if k := n.count(t, "SELECT count(*) FROM leases WHERE beat_time IS NOT NULL"); k != 2 {
		t.Errorf("%d leases were extended", k)
	}
}

// An attempt that passes its timeout has failed, however well its worker beats.
func TestTimeoutOfAWorkerThatBeats(t *testing.T) {
	t.Parallel()
	n := start(t, storagetest.DSN(t), scripted())
	n.enqueue(t, "pull", "j", &progressorv1.JobOptions{Timeout: durationpb.New(time.Second), LeaseDuration: durationpb.New(time.Hour)})
	l := n.one(t, "w1")
	enginetest.Eventually(t, patience, "the worker has lost it", func() bool { return n.beat(t, "w1", l).GetDirective() == lost })
	if job := n.job(t, "pull", "j", failed); len(job.GetFailures()) != 1 || job.GetFailures()[0].GetReason() != process.ReasonTimeout {
		t.Errorf("%v", job.GetFailures())
	}
}

// A lease that nobody beats for may never have reached its worker: it runs out after two intervals, and the attempt is not counted. With its first
// heartbeat it lasts as long as it says.
func TestLeaseThatNeverBeats(t *testing.T) {
	t.Parallel()
	n := start(t, storagetest.DSN(t), scripted())
	n.enqueue(t, "pull", "j", &progressorv1.JobOptions{
		Timeout: durationpb.New(time.Hour), LeaseDuration: durationpb.New(time.Hour), HeartbeatInterval: durationpb.New(50 * time.Millisecond),
	})
	n.one(t, "w1") // whose answer is lost
	l := n.one(t, "w2")
	if l.GetJob().GetAttempt() != 1 {
		t.Errorf("attempt %d, the one before was not made", l.GetJob().GetAttempt())
	}
	if n.beat(t, "w2", l).GetDirective() == lost { // a busy machine was slower than two intervals
		l = n.one(t, "w2")
		n.exec(t, "UPDATE leases SET expires_time = now() + interval '1 minute'")
		n.beat(t, "w2", l)
	}
	if k := n.count(t, "SELECT count(*) FROM leases WHERE worker_id = 'w2' AND expires_time > now() + interval '59 minutes'"); k != 1 {
		t.Error("its first heartbeat has not extended it by an hour")
	}
	if err := n.succeed(l, nil); err != nil {
		t.Fatal(err)
	}
	if job, err := n.Get(context.Background(), key("pull", "j"), 0); err != nil || job.GetAttempt() != 1 {
		t.Errorf("%v, %v", job, err)
	}
}

// Also of a job with a short timeout the attempt is not counted if its lease never reached the worker.
func TestLeaseThatNeverBeatsByItsTimeout(t *testing.T) {
	t.Parallel()
	n := start(t, storagetest.DSN(t), scripted())
	n.enqueue(t, "pull", "j", &progressorv1.JobOptions{Timeout: durationpb.New(300 * time.Millisecond)})
	l := n.one(t, "w1") // whose response is lost
	if got := l.GetHeartbeatInterval().AsDuration(); got > 150*time.Millisecond {
		t.Errorf("the interval is %s", got)
	}
	if again := n.one(t, "w2"); again.GetJob().GetAttempt() != 1 || len(again.GetJob().GetFailures()) != 0 {
		t.Errorf("attempt %d, %v", again.GetJob().GetAttempt(), again.GetJob().GetFailures())
	}
}

// A worker that is lost uses up no retry: the one that is left is there when an attempt fails.
func TestLostLeaseUsesUpNoRetry(t *testing.T) {
	t.Parallel()
	n := start(t, storagetest.DSN(t), scripted())
	n.enqueue(t, "pull", "j", &progressorv1.JobOptions{MaxRetry: 1, Backoff: &progressorv1.Backoff{Steps: []*durationpb.Duration{durationpb.New(0)}}})
	n.beat(t, "w1", n.one(t, "w1"))
	n.exec(t, "UPDATE leases SET expires_time = now(), heartbeat_interval = interval '1 millisecond'")
	for k, want := range []progressorv1.JobState{available, failed} {
		if err := n.fail(n.one(t, "w2"), "broken"); err != nil {
			t.Fatal(err)
		}
		if job := n.job(t, "pull", "j", want); len(job.GetFailures()) != k+2 || job.GetFailures()[0].GetReason() != process.ReasonLeaseLost {
			t.Errorf("%v", job.GetFailures())
		}
	}
}

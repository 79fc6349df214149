package crons_test

import (
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/progressor-engine/progressor/process"
	progressorv1 "github.com/progressor-engine/progressor/proto/progressor/v1"
	"github.com/progressor-engine/progressor/storage/storagetest"
)

func (n *node) rerun(t testing.TB, id string, f *progressorv1.Fire) (*progressorv1.Fire, error) {
	t.Helper()
	r := &progressorv1.RerunFireRequest{Namespace: "ns", CronId: id, FireTime: f.GetFireTime(), Reason: "disk is free"}
	return n.RerunFire(t.Context(), r, kim)
}

func (n *node) mustRerun(t testing.TB, id string, f *progressorv1.Fire) *progressorv1.Fire {
	t.Helper()
	again, err := n.rerun(t, id, f)
	if err != nil {
		t.Fatal(err)
	}
	if !again.GetFireTime().AsTime().Equal(f.GetFireTime().AsTime()) || !again.GetManual() {
		t.Fatalf("the rerun of %v is %v", f, again)
	}
	return again
}

// A fire whose run was cancelled can be run again for every kind of target, and the new run can
// also be cancelled.
func TestRerunFire(t *testing.T) {
	t.Parallel()
	n := startPull(t)
	defer close(n.gate)
	list := everyTarget(t, n)
	for _, c := range list {
		id := c.GetCronId()
		n.create(t, c)
		f := n.trigger(t, id)
		if _, err := n.rerun(t, id, f); !errors.As(err, new(*process.WrongStatusError)) {
			t.Errorf("%s: rerun of a fire that runs: %v", id, err)
		}
		if _, err := n.cancelFire(t, id, f); err != nil {
			t.Fatal(err)
		}
		n.awaits(t, id, "FIRED CANCELLED 1")
		again := n.mustRerun(t, id, f)
		if again.GetProcessId() != f.GetProcessId()+"/2" || again.GetAttempt() != 2 ||
			!strings.Contains(again.GetReason(), f.GetProcessId()) ||
			again.GetEndedTime() != nil || again.GetDetail() != "" {
			t.Errorf("%s: %v", id, again)
		}
		if got := n.get(t, id).GetRunningProcessIds(); !slices.Equal(got, []string{again.GetProcessId()}) {
			t.Errorf("%s: %v run", id, got)
		}
		if _, err := n.cancelFire(t, id, f); err != nil {
			t.Fatal(err)
		}
		n.awaits(t, id, "FIRED CANCELLED 2")
		if got := n.get(t, id).GetRunningProcessIds(); len(got) > 0 {
			t.Errorf("%s: %v still run", id, got)
		}
	}
	k := n.Count(t, `SELECT count(*) FROM audit WHERE method = 'RerunFire' AND actor = 'kim'
		AND details->>'note' = 'disk is free'`)
	if k != len(list) {
		t.Errorf("the audit log has %d of %d commands", k, len(list))
	}
}

// A rerun of a skipped fire runs in parallel with the other runs, and the policies ignore it.
func TestRerunOfASkippedFire(t *testing.T) {
	t.Parallel()
	n := start(t, storagetest.DSN(t))
	n.create(t, starts("c", never, "wait"))
	first, second := n.trigger(t, "c"), n.trigger(t, "c")
	n.awaits(t, "c", "FIRED RUNNING 1, SKIPPED_CONCURRENCY SKIPPED")
	again := n.mustRerun(t, "c", second)
	if !strings.Contains(again.GetReason(), "skipped_concurrency: 1 of 1") ||
		strings.HasSuffix(again.GetProcessId(), "/1") {
		t.Errorf("%v", again)
	}
	n.awaits(t, "c", "FIRED RUNNING 1, FIRED RUNNING 1")
	if got := n.get(t, "c").GetFiresByDecision(); got["fired"] != 2 || got["skipped_concurrency"] != 0 {
		t.Errorf("the decisions: %v", got)
	}
	n.call(t, first.GetProcessId(), "complete")
	n.awaits(t, "c", "FIRED SUCCESS 1, FIRED RUNNING 1")
	third := n.trigger(t, "c")
	n.awaits(t, "c", "FIRED SUCCESS 1, FIRED RUNNING 1, FIRED RUNNING 1")
	n.call(t, again.GetProcessId(), "complete")
	n.call(t, third.GetProcessId(), "complete")
	n.awaits(t, "c", "FIRED SUCCESS 1, FIRED SUCCESS 1, FIRED SUCCESS 1")
	if _, err := n.rerun(t, "c", second); !errors.As(err, new(*process.WrongStatusError)) {
		t.Errorf("rerun of a fire that succeeded: %v", err)
	}
	if _, err := n.rerun(t, "c", &progressorv1.Fire{FireTime: stamp(time.Unix(1, 0))}); !isInvalid(err, "fire_time") {
		t.Errorf("rerun of a fire that does not exist: %v", err)
	}
}

// A fire that was missed in a pause can be run again while the cron is paused. A row of several
// fire times cannot.
func TestRerunOfAMissedFire(t *testing.T) {
	t.Parallel()
	n := start(t, storagetest.DSN(t))
	c := starts("c", "* * * * * *", "complete")
	c.Paused = true
	n.create(t, c)
	eventually(t, "a fire time has passed", func() bool { return n.get(t, "c").GetWaitingFires() > 0 })
	ctx := t.Context()
	if _, err := n.Resume(ctx, &progressorv1.ResumeCronRequest{Namespace: "ns", CronId: "c"}, kim); err != nil {
		t.Fatal(err)
	}
	if _, err := n.Pause(ctx, &progressorv1.PauseCronRequest{Namespace: "ns", CronId: "c"}, kim); err != nil {
		t.Fatal(err)
	}
	missed := n.fires(t, "c")[0]
	if missed.GetDecision() != progressorv1.Decision_DECISION_MISSED {
		t.Fatalf("%v", missed)
	}
	n.mustRerun(t, "c", missed)
	eventually(t, "the rerun has succeeded", func() bool {
		f := n.fires(t, "c")[0]
		return f.GetStatus() == progressorv1.FireStatus_FIRE_STATUS_SUCCESS && f.GetAttempt() == 1 &&
			strings.Contains(f.GetReason(), "missed: paused")
	})
	if _, err := n.DB.Exec(ctx, `INSERT INTO cron_fires (namespace, cron_id, fire_time, decision, attempt, status,
		decided_time, ended_time, count)
		VALUES ('ns', 'c', '2020-01-01', 'MISSED', 0, 'SKIPPED', now(), now(), 7)`); err != nil {
		t.Fatal(err)
	}
	several := &progressorv1.Fire{FireTime: stamp(time.Date(2020, 1, 1, 0, 0, 0, 0, time.UTC))}
	if _, err := n.rerun(t, "c", several); !errors.As(err, new(*process.WrongStatusError)) {
		t.Errorf("rerun of a row with 7 fire times: %v", err)
	}
}

// A late end of an earlier run of the same fire does not end the rerun.
func TestLateEndBeforeARerun(t *testing.T) {
	t.Parallel()
	n := start(t, storagetest.DSN(t))
	c := starts("c", never, "hold")
	c.Policy.Timeout = durationpb.New(100 * time.Millisecond)
	n.create(t, c)
	f := n.trigger(t, "c")
	n.awaits(t, "c", "FIRED TIMEOUT 1")
	c.Policy.Timeout = nil
	if _, err := n.Update(t.Context(), &progressorv1.UpdateCronRequest{Cron: c}, kim); err != nil {
		t.Fatal(err)
	}
	again := n.mustRerun(t, "c", f)
	close(n.gate)
	eventually(t, "the cron was notified of the first end", func() bool {
		return n.Count(t, `SELECT count(*) FROM tasks WHERE process_id = '~cron/c' AND task_type = 'NOTIFY'
			AND finished_time IS NOT NULL`) == 1
	})
	n.awaits(t, "c", "FIRED RUNNING 2")
	n.call(t, again.GetProcessId(), "complete")
	n.awaits(t, "c", "FIRED SUCCESS 2")
}

// A rerun that is refused because of its scope is skipped. The next rerun is a new attempt.
func TestRerunThatIsRefused(t *testing.T) {
	t.Parallel()
	n := startPull(t)
	n.putTemplate(t, askFlow(
		`"concurrency_policy": "SCOPE_POLICY_REJECT_SAME_SCOPE", "cancel_policy": {"grace": "0s"},`))
	n.create(t, runs(t, "c", ""))
	first := n.trigger(t, "c")
	n.waits(t, runOf(t, first))
	if _, err := n.cancelFire(t, "c", first); err != nil {
		t.Fatal(err)
	}
	n.awaits(t, "c", "FIRED CANCELLED 1")
	second := n.trigger(t, "c")
	n.waits(t, runOf(t, second))
	n.mustRerun(t, "c", first)
	n.awaits(t, "c", "SKIPPED_CONCURRENCY SKIPPED 2, FIRED RUNNING 1")
	n.complete(t, runOf(t, second), "")
	n.awaits(t, "c", "SKIPPED_CONCURRENCY SKIPPED 2, FIRED SUCCESS 1")
	third := n.mustRerun(t, "c", first)
	n.waits(t, runOf(t, third))
	n.complete(t, runOf(t, third), "")
	n.awaits(t, "c", "FIRED SUCCESS 3, FIRED SUCCESS 1")
}

// A fire whose run failed can be run again. The new run has the target as it is now.
func TestRerunOfAFailedFire(t *testing.T) {
	t.Parallel()
	n := start(t, storagetest.DSN(t))
	c := starts("c", never, "fail")
	n.create(t, c)
	f := n.trigger(t, "c")
	n.awaits(t, "c", "FIRED FAILED 1")
	c.GetTarget().GetStartProcess().Args = []byte("complete")
	if _, err := n.Update(t.Context(), &progressorv1.UpdateCronRequest{Cron: c}, kim); err != nil {
		t.Fatal(err)
	}
	if again := n.mustRerun(t, "c", f); again.GetProcessId() != f.GetProcessId()+"/2" {
		t.Errorf("the rerun is %s", again.GetProcessId())
	}
	n.awaits(t, "c", "FIRED SUCCESS 2")
}

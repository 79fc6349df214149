package crons_test

import (
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"google.golang.org/protobuf/types/known/durationpb"
	"google.golang.org/protobuf/types/known/structpb"

	"github.com/progressor-engine/progressor/engine"
	"github.com/progressor-engine/progressor/process"
	progressorv1 "github.com/progressor-engine/progressor/proto/progressor/v1"
	"github.com/progressor-engine/progressor/storage/storagetest"
)

// A cron fires once at each of its times, starts a process, and is notified of the end of the
// process.
func TestFires(t *testing.T) {
	t.Parallel()
	n := start(t, storagetest.DSN(t))
	c := starts("c", "* * * * * *", "complete")
	c.Policy.ConcurrencyPolicy, c.Spec.MaxFires = progressorv1.ConcurrencyPolicy_CONCURRENCY_POLICY_QUEUE, 3
	made := n.create(t, c)
	// The cron may have fired before the response was read.
	fires := int(made.GetFiresByDecision()["fired"]) + len(made.GetNextFireTimes())
	if made.GetEtag() == "" || fires != 3 || made.GetCreatedTime() == nil {
		t.Errorf("created: %v", made)
	}
	ledger := n.awaits(t, "c", "FIRED SUCCESS 1, FIRED SUCCESS 1, FIRED SUCCESS 1")
	for i, f := range ledger {
		if f.GetFireTime().AsTime().Nanosecond() != 0 || f.GetManual() || f.GetCount() != 1 ||
			f.GetStartedTime() == nil || f.GetEndedTime() == nil {
			t.Errorf("row %d: %v", i, f)
		}
		if i > 0 && f.GetFireTime().AsTime().Sub(ledger[i-1].GetFireTime().AsTime()) != time.Second {
			t.Errorf("fire %s after %s", f.GetFireTime().AsTime(), ledger[i-1].GetFireTime().AsTime())
		}
		p, err := n.GetProcess(t.Context(), key(f.GetProcessId()), nil, 0)
		if err != nil {
			t.Fatal(err)
		}
		m := p.GetMetadata().AsMap()
		if m["progressor.cron_id"] != "c" ||
			m["progressor.fire_time"] != f.GetFireTime().AsTime().Format(time.RFC3339) ||
			m["progressor.attempt"] != 1.0 {
			t.Errorf("metadata of a run: %v", m)
		}
	}
	got := n.get(t, "c")
	if got.GetFiresByDecision()["fired"] != 3 ||
		!got.GetLastFireTime().AsTime().Equal(ledger[2].GetFireTime().AsTime()) || len(got.GetNextFireTimes()) != 0 {
		t.Errorf("at the end: %v", got)
	}
	k := n.Count(t, "SELECT count(*) FROM audit WHERE method = 'CreateCron' AND actor = 'kim' AND subject = '~cron/c'")
	if k != 1 {
		t.Errorf("the command was recorded %d times, want once", k)
	}
}

// A manual trigger follows the overlap action in its request. Without an action, the concurrency
// policy of the cron applies.
func TestTriggers(t *testing.T) {
	t.Parallel()
	n := start(t, storagetest.DSN(t))
	ctx := t.Context()
	n.create(t, starts("c", never, "wait"))
	trigger := func(action progressorv1.OverlapAction) *progressorv1.Fire {
		t.Helper()
		f, err := n.Trigger(ctx, &progressorv1.TriggerCronRequest{
			Namespace: "ns", CronId: "c", OverlapAction: action,
		}, kim)
		if err != nil {
			t.Fatal(err)
		}
		return f
	}
	first := trigger(0)
	if showFires([]*progressorv1.Fire{first}) != "FIRED RUNNING 1" || !first.GetManual() || first.GetProcessId() == "" {
		t.Errorf("first: %v", first)
	}
	if f := trigger(0); showFires([]*progressorv1.Fire{f}) != "SKIPPED_CONCURRENCY SKIPPED" ||
		f.GetEndedTime() == nil || f.GetReason() == "" {
		t.Errorf("second: %v", f)
	}
	got := n.get(t, "c")
	if len(got.GetRunningProcessIds()) != 1 || got.GetRunningProcessIds()[0] != first.GetProcessId() ||
		got.GetFiresByDecision()["skipped_concurrency"] != 1 {
		t.Errorf("while it runs: %v", got)
	}
	trigger(progressorv1.OverlapAction_OVERLAP_ACTION_PARALLEL)
	trigger(progressorv1.OverlapAction_OVERLAP_ACTION_SKIP)
	n.awaits(t, "c", "FIRED RUNNING 1, SKIPPED_CONCURRENCY SKIPPED, FIRED RUNNING 1, SKIPPED_OVERLAP SKIPPED")
	n.call(t, first.GetProcessId(), "complete")
	n.awaits(t, "c", "FIRED SUCCESS 1, SKIPPED_CONCURRENCY SKIPPED, FIRED RUNNING 1, SKIPPED_OVERLAP SKIPPED")
	trigger(progressorv1.OverlapAction_OVERLAP_ACTION_CANCEL_PREV)
	n.awaits(t, "c", "FIRED SUCCESS 1, SKIPPED_CONCURRENCY SKIPPED, FIRED CANCELLED 1, SKIPPED_OVERLAP SKIPPED, "+
		"FIRED RUNNING 1")
}

// An update with an etag is rejected unless the etag is the newest one. The new spec applies from
// then on.
func TestUpdate(t *testing.T) {
	t.Parallel()
	n := start(t, storagetest.DSN(t))
	made := n.create(t, starts("c", never, "complete"))
	change := starts("c", "* * * * * *", "complete")
	change.Etag, change.Spec.MaxFires, change.Policy.MaxConcurrency = made.GetEtag(), 2, 5
	updated, err := n.Update(t.Context(), &progressorv1.UpdateCronRequest{Cron: change}, kim)
	if err != nil || updated.GetEtag() == made.GetEtag() ||
		!updated.GetCreatedTime().AsTime().Equal(made.GetCreatedTime().AsTime()) {
		t.Fatalf("%v, %v", updated, err)
	}
	if _, err = n.Update(t.Context(), &progressorv1.UpdateCronRequest{Cron: change}, kim); !errors.Is(err,
		process.ErrStaleEtag) {
		t.Errorf("an old etag: %v", err)
	}
	n.awaits(t, "c", "FIRED SUCCESS 1, FIRED SUCCESS 1")
	missing := starts("d", never, "")
	if _, err = n.Update(t.Context(), &progressorv1.UpdateCronRequest{Cron: missing}, kim); !errors.Is(err,
		process.ErrCronNotFound) {
		t.Errorf("no such cron: %v", err)
	}
	if _, err = n.Create(t.Context(), &progressorv1.CreateCronRequest{Cron: change}, kim); !errors.Is(err,
		process.ErrCronExists) {
		t.Errorf("a cron that exists: %v", err)
	}
}

// A fire that is due when the kind of the target changes runs the new target, and its row names
// that run.
func TestUpdateOfTheTargetWithAFireDue(t *testing.T) {
	t.Parallel()
	server := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {}))
	defer server.Close()
	n := start(t, storagetest.DSN(t))
	c := starts("c", "* * * * * *", "complete")
	c.Spec.StartTime = stamp(time.Now().Add(2 * time.Second))
	c.Spec.EndTime = stamp(c.GetSpec().GetStartTime().AsTime().Add(time.Second))
	n.create(t, c)
	n.holdTimer(t)
	eventually(t, "the fire time passes", func() bool { return time.Now().After(c.GetSpec().GetEndTime().AsTime()) })
	c.Target = target("c", server.URL).GetTarget()
	if _, err := n.Update(t.Context(), &progressorv1.UpdateCronRequest{Cron: c}, kim); err != nil {
		t.Fatal(err)
	}
	n.awaits(t, "c", "FIRED SUCCESS 1")
	if lost := n.Count(t, `SELECT count(*) FROM cron_fires f WHERE f.process_id IS NOT NULL
		AND NOT EXISTS (SELECT FROM processes p WHERE p.namespace = f.namespace
		AND p.process_id = f.process_id)`); lost != 0 {
		t.Errorf("%d rows name a process that never existed", lost)
	}
}

// holdTimer moves the timer of the cron c into the future before the cron has fired.
func (n *node) holdTimer(t *testing.T) {
	t.Helper()
	moved, err := n.DB.Exec(t.Context(),
		"UPDATE schedule SET scheduled_time = now() + interval '1 hour' WHERE process_id = '~cron/c'")
	if err != nil || moved.RowsAffected() != 1 || len(n.fires(t, "c")) != 0 {
		t.Fatalf("the timer was not held: %s, %v, fires %v", moved, err, n.fires(t, "c"))
	}
}

// Fire times that were due before an update are decided by the old policy. The cron continues after
// the update.
func TestUpdateDecidesByTheOldPolicy(t *testing.T) {
	t.Parallel()
	n := start(t, storagetest.DSN(t))
	c := starts("c", "* * * * * *", "complete")
	begin := time.Now().Truncate(time.Second).Add(3 * time.Second)
	c.Policy.MaxConcurrency, c.Spec.StartTime = 100, stamp(begin)
	n.create(t, c)
	n.holdTimer(t)
	eventually(t, "three fire times pass", func() bool { return time.Since(begin) > 2100*time.Millisecond })
	c.Policy.MisfirePolicy = progressorv1.MisfirePolicy_MISFIRE_POLICY_SKIP
	if _, err := n.Update(t.Context(), &progressorv1.UpdateCronRequest{Cron: c}, kim); err != nil {
		t.Fatal(err)
	}
	fires := n.fires(t, "c")
	if len(fires) < 2 {
		t.Fatalf("%d fire times are decided", len(fires))
	}
	for _, f := range fires {
		if f.GetDecision() != progressorv1.Decision_DECISION_FIRED {
			t.Errorf("%v, want all of them FIRED, according to the old policy", f)
		}
	}
	eventually(t, "the cron continues", func() bool { return len(n.fires(t, "c")) > len(fires) })
}

// A paused cron fires only if it is triggered. When it is resumed, it makes up for the fires missed
// during the pause only if the request asks for it.
func TestPauseAndResume(t *testing.T) {
	t.Parallel()
	n := start(t, storagetest.DSN(t))
	for _, catchUp := range []bool{false, true} {
		id := fmt.Sprintf("catch-up-%t", catchUp)
		c := starts(id, "* * * * * *", "complete")
		c.Policy.MaxConcurrency, c.Paused, c.PauseNote = 100, true, "not yet"
		made := n.create(t, c)
		if !made.GetPaused() || made.GetPauseNote() != "not yet" || len(made.GetNextFireTimes()) != 10 {
			t.Errorf("created: %v", made)
		}
		if _, err := n.Trigger(t.Context(), &progressorv1.TriggerCronRequest{
			Namespace: "ns", CronId: id,
		}, kim); err != nil {
			t.Fatal(err)
		}
		n.awaits(t, id, "FIRED SUCCESS 1")
		passes := time.Now().Truncate(time.Second).Add(2100 * time.Millisecond)
		eventually(t, "two fire times pass", func() bool { return time.Now().After(passes) })
		if held, err := n.Get(t.Context(), "ns", id); err != nil || held.GetWaitingFires() < 2 ||
			held.GetWaitingFires() > 60 {
			t.Errorf("%d fire times wait, want 2 or a few more: %v", held.GetWaitingFires(), err)
		}
		r, err := n.Resume(t.Context(), &progressorv1.ResumeCronRequest{
			Namespace: "ns", CronId: id, CatchUp: catchUp,
		}, kim)
		if err != nil || r.GetPaused() || r.GetPauseNote() != "" || r.GetWaitingFires() != 0 {
			t.Fatalf("%v, %v", r, err)
		}
		p, err := n.Pause(t.Context(), &progressorv1.PauseCronRequest{Namespace: "ns", CronId: id, Note: "enough"}, kim)
		if err != nil || !p.GetPaused() || p.GetPauseNote() != "enough" {
			t.Fatalf("%v, %v", p, err)
		}
		missed, fired := 0, 0
		for _, f := range n.fires(t, id) {
			switch {
			case f.GetManual():
			case f.GetDecision() == progressorv1.Decision_DECISION_MISSED:
				missed++
			default:
				fired++
			}
		}
		if !catchUp && (missed < 2 || fired > 1) || catchUp && (missed > 0 || fired < 2) {
			t.Errorf("catch_up %t: %d missed, %d fired", catchUp, missed, fired)
		}
	}
}

// After a cron is deleted, only its runs remain, and its ID can be used again.
func TestDelete(t *testing.T) {
	t.Parallel()
	n := start(t, storagetest.DSN(t))
	c := starts("c", never, "wait")
	c.Policy.ConcurrencyPolicy = progressorv1.ConcurrencyPolicy_CONCURRENCY_POLICY_QUEUE
	n.create(t, c)
	for range 3 {
		if _, err := n.Trigger(t.Context(), &progressorv1.TriggerCronRequest{
			Namespace: "ns", CronId: "c",
		}, kim); err != nil {
			t.Fatal(err)
		}
	}
	run := n.fires(t, "c")[0].GetProcessId()
	if err := n.Delete(t.Context(), &progressorv1.DeleteCronRequest{Namespace: "ns", CronId: "c"}, kim); err != nil {
		t.Fatal(err)
	}
	if _, err := n.Get(t.Context(), "ns", "c"); !errors.Is(err, process.ErrCronNotFound) {
		t.Errorf("the deleted cron still exists: %v", err)
	}
	if k := n.Count(t, "SELECT count(*) FROM cron_fires"); k != 0 {
		t.Errorf("its ledger still has %d rows", k)
	}
	eventually(t, "its run continues", func() bool {
		return n.Count(t, "SELECT count(*) FROM processes WHERE process_id = $1 AND status = 'RUNNING'", run) == 1
	})
	n.call(t, run, "complete")
	if n.create(t, c); len(n.fires(t, "c")) != 0 {
		t.Error("the new cron has a ledger")
	}
	if k := n.Count(t, `SELECT count(*) FROM audit WHERE method IN ('CreateCron', 'TriggerCron', 'DeleteCron')
		AND source = '10.0.0.7:4711'`); k != 6 {
		t.Errorf("%d commands are recorded", k)
	}
}

// Lists are ordered by ID, are paged, and can be filtered.
func TestList(t *testing.T) {
	t.Parallel()
	n := start(t, storagetest.DSN(t))
	for _, id := range []string{"a-1", "a-2", "b-1"} {
		c := starts(id, never, "complete")
		c.Metadata, _ = structpb.NewStruct(map[string]any{"team": id[:1]})
		// The filter does not match the texts and args of a cron.
		c.PauseNote, c.Paused, c.Target.GetStartProcess().Args = `"paused":true`, id == "a-2", []byte(`{"paused":true}`)
		n.create(t, c)
	}
	if _, err := n.Start(t.Context(), engine.StartParams{Key: key("plain")}); err != nil {
		t.Fatal(err)
	}
	list := func(filter string, size int32) (ids []string) {
		t.Helper()
		for token := ""; ; {
			page, next, err := n.List(t.Context(), &progressorv1.ListCronsRequest{
				Namespace: "ns", Filter: filter, PageSize: size, PageToken: token,
			})
			if err != nil {
				t.Fatal(err)
			}
			for _, c := range page {
				ids = append(ids, c.GetCronId())
			}
			if token = next; token == "" {
				return ids
			}
		}
	}
	for filter, want := range map[string]string{
		"": "[a-1 a-2 b-1]", `cron_id = "a-*"`: "[a-1 a-2]", `metadata.team = "b"`: "[b-1]",
		"cron_id != a-1 status = RUNNING": "[a-2 b-1]", `cron_id > "a-1"`: "[a-2 b-1]",
		"paused = true": "[a-2]", "paused = false": "[a-1 b-1]", "paused != true cron_id = a-*": "[a-1]",
		"NOT paused = false": "[a-2]",
	} {
		if got := fmt.Sprint(list(filter, 2)); got != want {
			t.Errorf("%s: %s, want %s", filter, got, want)
		}
	}
	for filter, want := range map[string]string{
		"process_id = x": `there is no field "process_id": ` +
			`use cron_id, paused, failing, status, created_time or metadata.KEY`,
		"target = http":     `there is no field "target"`,
		"paused = yes":      `at character 10: paused must be true or false (got "yes")`,
		`paused = "true"`:   "at character 10: paused must be true or false",
		"paused > false":    "paused supports only = != (got >)",
		"paused:*":          "paused supports only = != (got :)",
		"paused.note = x":   "paused has no parts",
		"cron_id = a-1 OR ": "the filter ends where a comparison is expected",
		"paused":            "write = != < <= > >= or : after paused",
	} {
		var wrong *process.InvalidError
		if _, _, err := n.List(t.Context(), &progressorv1.ListCronsRequest{
			Namespace: "ns", Filter: filter,
		}); !errors.As(err, &wrong) || wrong.Field != "filter" || !strings.Contains(wrong.Message, want) {
			t.Errorf("%s: %v, want %s", filter, err, want)
		}
	}
}

// An invalid cron is rejected with the path of the invalid field, and nothing is stored.
func TestRefused(t *testing.T) {
	t.Parallel()
	n := start(t, storagetest.DSN(t))
	for field, change := range map[string]func(*progressorv1.Cron){
		"cron.spec.expressions[1]": func(c *progressorv1.Cron) {
			c.Spec.Expressions = append(c.Spec.Expressions, "61 * * * *")
		},
		"cron.spec.timezone": func(c *progressorv1.Cron) { c.Spec.Timezone = "Mars/Olympus" },
		"cron.spec.end_time": func(c *progressorv1.Cron) { c.Spec.EndTime = stamp(time.Now().Add(-time.Hour)) },
		"cron.policy.catchup_limit": func(c *progressorv1.Cron) {
			c.Policy.MisfirePolicy = progressorv1.MisfirePolicy_MISFIRE_POLICY_CATCH_UP_LIMITED
		},
		"cron.policy.queue_limit": func(c *progressorv1.Cron) { c.Policy.QueueLimit = 1_000_000 },
		"cron.cron_id":            func(c *progressorv1.Cron) { c.CronId = "~x" },
		"cron.target.start_run.type": func(c *progressorv1.Cron) {
			c.Target = &progressorv1.CronTarget{
				Target: &progressorv1.CronTarget_StartRun{StartRun: &progressorv1.StartRunTarget{}},
			}
		},
		"cron.target.enqueue_job.namespace": func(c *progressorv1.Cron) {
			c.Target = enqueues("", nil).Target
			c.Target.GetEnqueueJob().Namespace = "nowhere"
		},
		"cron.target.enqueue_job.options.run_time": func(c *progressorv1.Cron) {
			c.Target = enqueues("", &progressorv1.JobOptions{RunTime: stamp(time.Now())}).Target
		},
		"cron.target.enqueue_job.options.heartbeat_interval": func(c *progressorv1.Cron) {
			c.Target = enqueues("", &progressorv1.JobOptions{
				LeaseDuration: durationpb.New(time.Second), HeartbeatInterval: durationpb.New(time.Second),
			}).Target
		},
		"cron.target.enqueue_job.options.timeout": func(c *progressorv1.Cron) {
			c.Target = enqueues("", &progressorv1.JobOptions{Timeout: durationpb.New(366 * 24 * time.Hour)}).Target
		},
		"cron.target.start_process.namespace": func(c *progressorv1.Cron) {
			c.Target.GetStartProcess().Namespace = "nowhere"
		},
		"cron.target": func(c *progressorv1.Cron) { c.Target.GetStartProcess().Args = make([]byte, 300<<10) },
	} {
		c := starts("c", never, "")
		change(c)
		_, err := n.Create(t.Context(), &progressorv1.CreateCronRequest{Cron: c}, kim)
		var wrong *process.InvalidError
		if !errors.As(err, &wrong) || wrong.Field != field || wrong.Message == "" {
			t.Errorf("%s: %v", field, err)
		}
	}
	if k := n.Count(t, "SELECT count(*) FROM processes"); k != 0 {
		t.Errorf("%d processes are stored", k)
	}
}

// A preview does not need a cron.
func TestPreview(t *testing.T) {
	t.Parallel()
	n := start(t, storagetest.DSN(t))
	from := time.Date(2026, 3, 29, 0, 0, 0, 0, time.UTC)
	ask := func(r *progressorv1.PreviewCronRequest) string {
		t.Helper()
		list, _, err := n.Preview(t.Context(), r)
		if err != nil {
			t.Fatal(err)
		}
		var texts []string
		for _, at := range list {
			texts = append(texts, at.Format("02 15:04"))
		}
		return strings.Join(texts, ", ")
	}
	spec := &progressorv1.PreviewCronRequest_Spec{
		Spec: &progressorv1.CronSpec{Expressions: []string{"30 2 * * *"}, Timezone: "Europe/Berlin"},
	}
	if got := ask(&progressorv1.PreviewCronRequest{
		Of: spec, FromTime: stamp(from), Limit: 2,
	}); got != "29 01:00, 30 00:30" {
		t.Errorf("of a spec: %s", got)
	}
	if got := ask(&progressorv1.PreviewCronRequest{
		Of: spec, FromTime: stamp(from), ToTime: stamp(from.Add(24 * time.Hour)),
	}); got != "29 01:00" {
		t.Errorf("up to a time: %s", got)
	}
	c := n.create(t, starts("c", "@daily", ""))
	list, words, err := n.Preview(t.Context(), &progressorv1.PreviewCronRequest{
		Of: &progressorv1.PreviewCronRequest_Cron{Cron: &progressorv1.CronRef{Namespace: "ns", CronId: "c"}},
	})
	if err != nil || len(list) != 10 || !list[0].Equal(c.GetNextFireTimes()[0].AsTime()) {
		t.Errorf("of a cron: %v, %v", list, err)
	}
	if !strings.Contains(words, "00:00") {
		t.Errorf("in words: %s", words)
	}
	_, _, err = n.Preview(t.Context(), &progressorv1.PreviewCronRequest{
		Of: &progressorv1.PreviewCronRequest_Spec{Spec: &progressorv1.CronSpec{Expressions: []string{"x"}}},
	})
	var wrong *process.InvalidError
	if !errors.As(err, &wrong) || wrong.Field != "spec.expressions[0]" {
		t.Errorf("a wrong spec: %v", err)
	}
}

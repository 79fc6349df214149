package crons_test

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/types/known/durationpb"
	"google.golang.org/protobuf/types/known/structpb"

	"github.com/progressor-engine/progressor/process"
	progressorv1 "github.com/progressor-engine/progressor/proto/progressor/v1"
	"github.com/progressor-engine/progressor/storage/storagetest"
)

// putTemplate stores a template that is given as JSON.
func (n *node) putTemplate(t testing.TB, text string) {
	t.Helper()
	m := &progressorv1.Template{}
	if err := protojson.Unmarshal([]byte(text), m); err != nil {
		t.Fatal(err)
	}
	m.Namespace = "ns"
	if _, err := n.Flows.PutTemplate(context.Background(), &progressorv1.PutTemplateRequest{Template: m}); err != nil {
		t.Fatal(err)
	}
}

// askFlow returns a template of one step that waits for an answer.
func askFlow(more string) string {
	return `{"type": "ask", ` + more + ` "steps": [{"step_id": "a", "wait": {}}]}`
}

// runs returns a cron that starts runs of the template "ask" with a payload that is given as JSON.
func runs(t testing.TB, id, payload string) *progressorv1.Cron {
	t.Helper()
	target := &progressorv1.StartRunTarget{Type: "ask", Scope: "cron", ScopeId: id}
	if payload != "" {
		target.PayloadTemplate = &structpb.Value{}
		if err := protojson.Unmarshal([]byte(payload), target.PayloadTemplate); err != nil {
			t.Fatal(err)
		}
	}
	c := starts(id, never, "")
	c.Target = &progressorv1.CronTarget{Target: &progressorv1.CronTarget_StartRun{StartRun: target}}
	return c
}

// runOf returns the ID of the run that a fire started.
func runOf(t testing.TB, f *progressorv1.Fire) string {
	t.Helper()
	id, ok := strings.CutPrefix(f.GetProcessId(), "~flow/")
	if !ok {
		t.Fatalf("the run is %s", f.GetProcessId())
	}
	return id
}

// waits waits until a run waits for its answer, and returns the run.
func (n *node) waits(t testing.TB, runID string) (r *progressorv1.Run) {
	t.Helper()
	eventually(t, runID+" waits", func() bool {
		var err error
		r, err = n.Flows.Get(context.Background(), "ns", runID, 0)
		if err != nil && !errors.Is(err, process.ErrRunNotFound) {
			t.Fatal(err)
		}
		return r.GetStatus() == progressorv1.RunStatus_RUN_STATUS_WAITING_WORKER
	})
	return r
}

// complete answers the wait of a run, with a failure if reason is not empty.
func (n *node) complete(t testing.TB, runID, reason string) {
	t.Helper()
	r := &progressorv1.CompleteStepRequest{
		Namespace: "ns", RunId: runID, StepId: "a", Outcome: &progressorv1.CompleteStepRequest_Result{},
	}
	if err := n.DB.QueryRow(context.Background(), "SELECT token FROM flow_steps WHERE run_id = $1 AND step_id = 'a'",
		runID).Scan(&r.Token); err != nil {
		t.Fatal(err)
	}
	if reason != "" {
		r.Outcome = &progressorv1.CompleteStepRequest_Failure{
			Failure: &progressorv1.Failure{Reason: reason, Message: "as asked"},
		}
	}
	if _, err := n.Flows.Complete(context.Background(), r, kim); err != nil {
		t.Fatal(err)
	}
}

// sameTime reports whether v is the given time, regardless of the number of digits.
func sameTime(v any, at time.Time) bool {
	text, _ := v.(string)
	got, err := time.Parse(time.RFC3339Nano, text)
	return err == nil && got.Equal(at)
}

func (n *node) cancelRun(t testing.TB, runID string) {
	t.Helper()
	_, err := n.Flows.Cancel(context.Background(), &progressorv1.CancelRunRequest{
		Namespace: "ns", RunId: runID, Reason: "not needed",
	}, kim)
	if err != nil {
		t.Fatal(err)
	}
}

// A run of a flow has the time of its fire. When the run ends for the first time, the fire ends,
// regardless of what happens to the run later.
func TestEndsOfFlows(t *testing.T) {
	t.Parallel()
	n := start(t, storagetest.DSN(t))
	n.putTemplate(t, askFlow(
		`"cancel_policy": {"grace": "0s"}, "payload_schema": {"required": ["id", "at", "attempt"]},`))
	c := runs(t, "good", `{"id": "${cron_id}", "at": "${fire_time}", "attempt": "${attempt}", "kept": "as it is"}`)
	c.GetTarget().GetStartRun().Metadata, _ = structpb.NewStruct(map[string]any{"team": "mail"})
	n.create(t, c)
	f := n.trigger(t, "good")
	fire := f.GetFireTime().AsTime().Format(time.RFC3339Nano)
	if runOf(t, f) != "good/"+fire {
		t.Errorf("the run is %s", f.GetProcessId())
	}
	r := n.waits(t, runOf(t, f))
	if r.GetCronId() != "good" || !r.GetFireTime().AsTime().Equal(f.GetFireTime().AsTime()) || r.GetScope() != "cron" ||
		r.GetScopeId() != "good" || r.GetTemplateVersion() != 1 {
		t.Errorf("the run: %v", r)
	}
	p := r.GetPayload().GetStructValue().AsMap()
	if p["id"] != "good" || !sameTime(p["at"], f.GetFireTime().AsTime()) || p["attempt"] != 1.0 ||
		p["kept"] != "as it is" {
		t.Errorf("its payload: %v", p)
	}
	m := r.GetMetadata().AsMap()
	if m["team"] != "mail" || m["progressor.cron_id"] != "good" || m["progressor.fire_time"] != fire ||
		m["progressor.attempt"] != 1.0 {
		t.Errorf("its metadata: %v", m)
	}
	if got := n.get(t, "good").GetRunningProcessIds(); len(got) != 1 || got[0] != f.GetProcessId() {
		t.Errorf("running: %v", got)
	}
	n.complete(t, runOf(t, f), "")
	n.awaits(t, "good", "FIRED SUCCESS 1")

	payload := `{"id": "", "at": "", "attempt": "${attempt}"}`
	fails := runs(t, "fails", payload)
	fails.Policy.FailureAction = progressorv1.FailureAction_FAILURE_ACTION_RETRY
	n.create(t, fails)
	run := runOf(t, n.trigger(t, "fails"))
	n.waits(t, run)
	n.complete(t, run, "broken")
	if f := n.awaits(t, "fails", "FIRED FAILED 1")[0]; f.GetDetail() != "as asked" {
		t.Errorf("failed: %v", f)
	}
	_, err := n.Flows.Retry(t.Context(), &progressorv1.RetryRunRequest{Namespace: "ns", RunId: run}, kim)
	if err != nil {
		t.Fatal(err)
	}
	n.waits(t, run)
	n.complete(t, run, "")
	again := runOf(t, n.trigger(t, "fails"))
	if r := n.waits(t, again); r.GetPayload().GetStructValue().AsMap()["attempt"] != 2.0 {
		t.Errorf("the second attempt: %v", r)
	}
	n.complete(t, again, "")
	n.awaits(t, "fails", "FIRED FAILED 1, FIRED SUCCESS 2")

	n.create(t, runs(t, "cancelled", payload))
	run = runOf(t, n.trigger(t, "cancelled"))
	n.waits(t, run)
	n.cancelRun(t, run)
	if f := n.awaits(t, "cancelled", "FIRED CANCELLED 1")[0]; f.GetDetail() != "not needed" {
		t.Errorf("cancelled: %v", f)
	}
}

// If a run exceeds the timeout of its template or of its cron, the fire is TIMEOUT. In the second
// case, the run is cancelled.
func TestFlowsThatAreTooLate(t *testing.T) {
	t.Parallel()
	n := start(t, storagetest.DSN(t))
	n.putTemplate(t, askFlow(`"cancel_policy": {"grace": "0s"},`))
	n.putTemplate(t, `{"type": "short", "timeout": "0.1s", "steps": [{"step_id": "a", "wait": {}}]}`)
	c := runs(t, "template", "")
	c.GetTarget().GetStartRun().Type = "short"
	n.create(t, c)
	n.trigger(t, "template")
	if f := n.awaits(t, "template", "FIRED TIMEOUT 1")[0]; !strings.Contains(f.GetDetail(), "timeout") {
		t.Errorf("expired: %v", f)
	}
	c = runs(t, "policy", "")
	c.Policy.Timeout = durationpb.New(100 * time.Millisecond)
	n.create(t, c)
	run := runOf(t, n.trigger(t, "policy"))
	n.awaits(t, "policy", "FIRED TIMEOUT 1")
	r, err := n.Flows.Get(t.Context(), "ns", run, testTimeout)
	if err != nil || r.GetStatus() != progressorv1.RunStatus_RUN_STATUS_CANCELLED ||
		!strings.Contains(r.GetCancelReason(), "timeout of its cron") {
		t.Errorf("%v, %v", r, err)
	}
	n.awaits(t, "policy", "FIRED TIMEOUT 1")
	if k := n.Count(t, "SELECT count(*) FROM tasks WHERE task_type = 'CANCEL'"); k != 0 {
		t.Errorf("%d CANCEL tasks", k)
	}
}

// If a run is refused because of its scope, its fire is SKIPPED_CONCURRENCY, as if the run had not
// been started.
func TestFlowsOfTheSameScope(t *testing.T) {
	t.Parallel()
	n := start(t, storagetest.DSN(t))
	n.putTemplate(t, askFlow(`"concurrency_policy": "SCOPE_POLICY_REJECT_SAME_SCOPE", "repeatable": false,`))
	c := runs(t, "scoped", "")
	c.Policy.OverlapAction, c.Policy.FailureAction = progressorv1.OverlapAction_OVERLAP_ACTION_PARALLEL,
		progressorv1.FailureAction_FAILURE_ACTION_RETRY
	n.create(t, c)
	first := runOf(t, n.trigger(t, "scoped"))
	n.waits(t, first)
	n.trigger(t, "scoped")
	refused := n.awaits(t, "scoped", "FIRED RUNNING 1, SKIPPED_CONCURRENCY SKIPPED")[1]
	if !strings.Contains(refused.GetReason(), "run "+first+" of the same scope has not ended") ||
		refused.GetProcessId() != "" || refused.StartedTime != nil || refused.EndedTime == nil {
		t.Errorf("refused: %v", refused)
	}
	got := n.get(t, "scoped")
	d := got.GetFiresByDecision()
	if d["fired"] != 1 || d["skipped_concurrency"] != 1 || len(got.GetRunningProcessIds()) != 1 {
		t.Errorf("the cron: %v", got)
	}
	// The previous run is the first one, which fails, so the next one is attempt 2.
	n.complete(t, first, "broken")
	n.awaits(t, "scoped", "FIRED FAILED 1, SKIPPED_CONCURRENCY SKIPPED")
	second := runOf(t, n.trigger(t, "scoped"))
	n.waits(t, second)
	n.complete(t, second, "")
	n.awaits(t, "scoped", "FIRED FAILED 1, SKIPPED_CONCURRENCY SKIPPED, FIRED SUCCESS 2")
	// The run succeeded, and its template is not repeatable.
	n.trigger(t, "scoped")
	f := n.awaits(t, "scoped", "FIRED FAILED 1, SKIPPED_CONCURRENCY SKIPPED, FIRED SUCCESS 2, SKIPPED_CONCURRENCY "+
		"SKIPPED")[3]
	if !strings.Contains(f.GetReason(), "not repeatable") {
		t.Errorf("done: %v", f)
	}
	k := n.Count(t, "SELECT count(*) FROM processes WHERE process_id LIKE '~flow/%' AND removed_time IS NULL")
	if k != 2 {
		t.Errorf("%d runs", k)
	}
}

// With CANCEL_PREV, the previous run is cancelled. A run that waits for its scope begins after
// that. With SKIP, the new fire is skipped.
func TestOverlapOfFlows(t *testing.T) {
	t.Parallel()
	n := start(t, storagetest.DSN(t))
	n.putTemplate(t, askFlow(
		`"concurrency_policy": "SCOPE_POLICY_QUEUE_SAME_SCOPE", "cancel_policy": {"grace": "0s"},`))
	c := runs(t, "prev", "")
	c.Policy.OverlapAction = progressorv1.OverlapAction_OVERLAP_ACTION_CANCEL_PREV
	n.create(t, c)
	first := runOf(t, n.trigger(t, "prev"))
	n.waits(t, first)
	second := runOf(t, n.trigger(t, "prev"))
	n.awaits(t, "prev", "FIRED CANCELLED 1, FIRED RUNNING 1")
	r, err := n.Flows.Get(t.Context(), "ns", first, testTimeout)
	if err != nil || r.GetStatus() != progressorv1.RunStatus_RUN_STATUS_CANCELLED ||
		!strings.Contains(r.GetCancelReason(), "another run of its cron replaced it") {
		t.Errorf("%v, %v", r, err)
	}
	n.waits(t, second)
	n.complete(t, second, "")
	n.awaits(t, "prev", "FIRED CANCELLED 1, FIRED SUCCESS 1")

	c = runs(t, "skip", "")
	c.Policy.OverlapAction = progressorv1.OverlapAction_OVERLAP_ACTION_SKIP
	n.create(t, c)
	run := runOf(t, n.trigger(t, "skip"))
	n.waits(t, run)
	n.trigger(t, "skip")
	n.awaits(t, "skip", "FIRED RUNNING 1, SKIPPED_OVERLAP SKIPPED")
	n.complete(t, run, "")
	n.awaits(t, "skip", "FIRED SUCCESS 1, SKIPPED_OVERLAP SKIPPED")
}

// A queued fire whose run is refused is also SKIPPED_CONCURRENCY, and the next one moves up.
func TestQueuedFlowsOfTheSameScope(t *testing.T) {
	t.Parallel()
	n := start(t, storagetest.DSN(t))
	n.putTemplate(t, askFlow(`"concurrency_policy": "SCOPE_POLICY_RETURN_SAME_SCOPE",`))
	holder := runs(t, "holder", "")
	n.create(t, holder)
	held := runOf(t, n.trigger(t, "holder"))
	n.waits(t, held)
	c := runs(t, "queue", "")
	c.Policy.ConcurrencyPolicy = progressorv1.ConcurrencyPolicy_CONCURRENCY_POLICY_QUEUE
	n.create(t, c)
	first := runOf(t, n.trigger(t, "queue"))
	n.waits(t, first)
	n.trigger(t, "queue")
	n.trigger(t, "queue")
	n.awaits(t, "queue", "FIRED RUNNING 1, QUEUED SCHEDULED, QUEUED SCHEDULED")
	// From now on, the runs have the scope of the other cron.
	c.GetTarget().GetStartRun().ScopeId = "holder"
	if _, err := n.Update(t.Context(), &progressorv1.UpdateCronRequest{Cron: c}, kim); err != nil {
		t.Fatal(err)
	}
	n.complete(t, first, "")
	n.awaits(t, "queue", "FIRED SUCCESS 1, SKIPPED_CONCURRENCY SKIPPED, SKIPPED_CONCURRENCY SKIPPED")
	d := n.get(t, "queue").GetFiresByDecision()
	if d["fired"] != 1 || d["queued"] != 0 || d["skipped_concurrency"] != 2 {
		t.Errorf("decisions: %v", d)
	}
	n.complete(t, held, "")
	n.awaits(t, "holder", "FIRED SUCCESS 1")
}

// If a template does not allow a run to start, the fire is FAILED with the reason.
func TestFlowsThatDoNotStart(t *testing.T) {
	t.Parallel()
	n := start(t, storagetest.DSN(t))
	n.putTemplate(t, askFlow(""))
	n.create(t, runs(t, "c", `{"part": "${10 / (3 - attempt)}"}`))
	failed := "FIRED FAILED 1"
	ledger := failed
	expect := func(detail string) {
		t.Helper()
		n.trigger(t, "c")
		if f := n.awaits(t, "c", ledger); !strings.Contains(f[len(f)-1].GetDetail(), detail) {
			t.Errorf("want %q: %v", detail, f[len(f)-1])
		}
		ledger += ", " + failed
	}
	enable := func(on bool) {
		if _, err := n.Flows.EnableTemplate(t.Context(), "ns", "ask", on); err != nil {
			t.Fatal(err)
		}
	}
	enable(false)
	expect("template ask is disabled")
	enable(true)
	n.putTemplate(t, askFlow(`"schedulable": false,`))
	expect("crons cannot start template ask")
	n.putTemplate(t, askFlow(`"payload_schema": {"properties": {"part": {"type": "string"}}},`))
	expect("payload.part")
	if err := n.Flows.DeleteTemplate(t.Context(), "ns", "ask"); err != nil {
		t.Fatal(err)
	}
	expect("there is no template ask")

	// A payload that cannot be evaluated: attempt 3 divides by zero.
	n.putTemplate(t, askFlow(""))
	c := runs(t, "divides", `{"part": "${10 / (3 - attempt)}"}`)
	c.Policy.FailureAction = progressorv1.FailureAction_FAILURE_ACTION_RETRY
	n.create(t, c)
	for range 2 {
		run := runOf(t, n.trigger(t, "divides"))
		n.waits(t, run)
		n.complete(t, run, "broken")
		eventually(t, "the run has failed", func() bool { return len(n.get(t, "divides").GetRunningProcessIds()) == 0 })
	}
	n.trigger(t, "divides")
	if f := n.awaits(t, "divides",
		"FIRED FAILED 1, FIRED FAILED 2, FIRED FAILED 3")[2]; !strings.HasPrefix(f.GetDetail(),
		"payload_template.part: ") || !strings.Contains(f.GetDetail(), "by zero") {
		t.Errorf("divides: %v", f)
	}
	// A payload that is too large.
	c = runs(t, "grows", `{"text": "${attempt > 1 ? [1, 2, 3, 4, 5, 6].map(i, [1, 2, 3, 4, 5, 6, 7, 8, 9, 10].map(j, '`+
		strings.Repeat("x", 15_000)+`')) : []}", "more": "`+
		strings.Repeat("x", 150_000)+`"}`)
	c.Policy.FailureAction = progressorv1.FailureAction_FAILURE_ACTION_RETRY
	n.create(t, c)
	run := runOf(t, n.trigger(t, "grows"))
	n.waits(t, run)
	n.complete(t, run, "broken")
	n.awaits(t, "grows", "FIRED FAILED 1")
	n.trigger(t, "grows")
	if f := n.awaits(t, "grows", "FIRED FAILED 1, FIRED FAILED 2")[1]; !strings.Contains(f.GetDetail(), "1048576") {
		t.Errorf("grows: %v", f)
	}
}

// A cron whose runs could not start is rejected, with the path of the field.
func TestFlowsThatAreRefused(t *testing.T) {
	t.Parallel()
	n := start(t, storagetest.DSN(t))
	n.putTemplate(t, askFlow(`"payload_schema": {"type": "object", "required": ["day"],
		"properties": {"day": {"type": "string"}, "n": {"type": "number"}}},`))
	n.putTemplate(t, `{"type": "alone", "schedulable": false, "steps": [{"step_id": "a", "wait": {}}]}`)
	for _, tt := range []struct {
		change      func(*progressorv1.Cron, *progressorv1.StartRunTarget)
		field, want string
	}{
		{func(_ *progressorv1.Cron, r *progressorv1.StartRunTarget) { r.Type = "missing" },
			"cron.target.start_run.type", "there is no template missing in namespace ns"},
		{func(_ *progressorv1.Cron, r *progressorv1.StartRunTarget) { r.Version = 7 }, "cron.target.start_run.version",
			"there is no version 7 of template ask"},
		{func(_ *progressorv1.Cron, r *progressorv1.StartRunTarget) { r.Type = "alone" }, "cron.target.start_run.type",
			"crons cannot start template"},
		{func(_ *progressorv1.Cron, r *progressorv1.StartRunTarget) { r.PayloadTemplate = nil },
			"cron.target.start_run.payload_template", "object"},
		{func(_ *progressorv1.Cron, r *progressorv1.StartRunTarget) {
			r.PayloadTemplate.GetStructValue().Fields["n"] = structpb.NewStringValue("${fire_time}")
		}, "cron.target.start_run.payload_template.n", "number"},
		{func(_ *progressorv1.Cron, r *progressorv1.StartRunTarget) {
			r.PayloadTemplate.GetStructValue().Fields["n"] = structpb.NewStringValue("${fire_tim}")
		}, "cron.target.start_run.payload_template.n", "fire_tim"},
		{func(_ *progressorv1.Cron, r *progressorv1.StartRunTarget) {
			r.PayloadTemplate.GetStructValue().Fields["n"] = structpb.NewStringValue("${1 / (attempt - 1)}")
		}, "cron.target.start_run.payload_template.n", "by zero"},
		{func(c *progressorv1.Cron, _ *progressorv1.StartRunTarget) { c.CronId = strings.Repeat("c", 133) },
			"cron.cron_id", "at most 132"},
		{func(_ *progressorv1.Cron, r *progressorv1.StartRunTarget) {
			r.Metadata, _ = structpb.NewStruct(map[string]any{"x": strings.Repeat("x", process.MaxMetadataBytes-1000)})
		}, "cron.target.start_run.metadata", "at most"},
	} {
		c := runs(t, "refused", `{"day": "${string(fire_time)}"}`)
		tt.change(c, c.GetTarget().GetStartRun())
		_, err := n.Create(t.Context(), &progressorv1.CreateCronRequest{Cron: c}, kim)
		var wrong *process.InvalidError
		if !errors.As(err, &wrong) || wrong.Field != tt.field || !strings.Contains(wrong.Message, tt.want) {
			t.Errorf("%s: %v", tt.field, err)
		}
	}
	// The longest ID of a cron yields the longest ID of a run.
	n.putTemplate(t, askFlow(""))
	long := strings.Repeat("c", 132)
	n.create(t, runs(t, long, ""))
	run := runOf(t, n.trigger(t, long))
	n.waits(t, run)
	n.complete(t, run, "")
	n.awaits(t, long, "FIRED SUCCESS 1")
}

// Two nodes fire crons of one scope every second. Two runs of the scope never run at the same time,
// and each fire either succeeds or is skipped.
func TestFlowsOnTwoNodes(t *testing.T) {
	t.Parallel()
	dsn := storagetest.DSN(t)
	n := start(t, dsn)
	two := start(t, dsn)
	n.putTemplate(t, `{"type": "quick", "concurrency_policy": "SCOPE_POLICY_REJECT_SAME_SCOPE",
		"steps": [{"step_id": "a", "delay": {"duration": "0.3s"}}]}`)
	for _, id := range []string{"one", "other"} {
		c := runs(t, id, "")
		c.Spec.Expressions, c.Spec.MaxFires = []string{"* * * * * *"}, 3
		c.GetTarget().GetStartRun().Type, c.GetTarget().GetStartRun().ScopeId = "quick", "same"
		n.create(t, c)
	}
	eventually(t, "each cron has started three runs, and all have ended", func() bool {
		return n.Count(t, "SELECT count(*) FROM cron_fires WHERE decision = 'FIRED' AND status = 'SUCCESS'") == 6
	})
	if k := n.Count(t, `SELECT count(*) FROM flow_runs a JOIN flow_runs b ON a.run_id < b.run_id
		AND a.created_time < b.finished_time AND b.created_time < a.finished_time`); k != 0 {
		t.Errorf("%d pairs of runs overlapped", k)
	}
	if k := n.Count(t, `SELECT count(*) FROM cron_fires WHERE NOT (decision = 'FIRED' AND status = 'SUCCESS'
		OR decision = 'SKIPPED_CONCURRENCY' AND status = 'SKIPPED')`); k != 0 {
		t.Errorf("%d other rows", k)
	}
	two.Stop()
}

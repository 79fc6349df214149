package main

import (
	"encoding/base64"
	"fmt"
	"strconv"
	"strings"
	"testing"
	"time"

	"connectrpc.com/connect"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/durationpb"
	"google.golang.org/protobuf/types/known/timestamppb"

	"github.com/progressor-engine/progressor/cmd/progressor/internal/cli/clitest"
	progressorv1 "github.com/progressor-engine/progressor/proto/progressor/v1"
)

// longestZone is the time zone with the longest name. No name reaches the limit of 128 bytes.
const longestZone = "America/Argentina/ComodRivadavia"

// commandRequests returns requests with commands for crons and runs, and the requests of lists.
func (l *limits) commandRequests() []request {
	const reason, filter = 4096, 16 << 10
	unique := func(n int) string { return xs(l.id(), n) }
	id := func(field string) func(n int) string {
		return func(n int) string { return field + ` = "` + xs("", n-len(field)-5) + `"` }
	}
	return []request{
		{"CreateCron of a process", sends(l.api.Cron.CreateCron), func() proto.Message {
			return &progressorv1.CreateCronRequest{Cron: l.cron()}
		}, []bound{
			{field: "cron.spec.timezone", most: 128, text: zone},
			{field: "cron.spec.exclude_expressions", most: 100, fill: fillExclusions},
			{field: "cron.spec.exclude_expressions[0]", most: 256, text: laterMinutes},
		}},
		{"CreateCron of a job", sends(l.api.Cron.CreateCron), func() proto.Message {
			c := l.cron()
			c.Target.Target = &progressorv1.CronTarget_EnqueueJob{EnqueueJob: &progressorv1.EnqueueJobTarget{}}
			return &progressorv1.CreateCronRequest{Cron: c}
		}, []bound{{field: "cron.target.enqueue_job.name", most: 256}}},
		{"CreateCron of a notification", sends(l.api.Cron.CreateCron), func() proto.Message {
			c := l.cron()
			c.Target.Target = &progressorv1.CronTarget_NotifyProcess{NotifyProcess: &progressorv1.NotifyProcessTarget{}}
			return &progressorv1.CreateCronRequest{Cron: c}
		}, []bound{{field: "cron.target.notify_process.process_id", most: 256}}},
		{"CreateCron of a run", sends(l.api.Cron.CreateCron), func() proto.Message {
			c := l.cron()
			c.Target.Target = &progressorv1.CronTarget_StartRun{StartRun: &progressorv1.StartRunTarget{Type: "wait"}}
			return &progressorv1.CreateCronRequest{Cron: c}
		}, []bound{
			{field: "cron.target.start_run.scope", most: 256}, {field: "cron.target.start_run.scope_id", most: 256},
		}},
		{"PauseCron", sends(l.api.Cron.PauseCron), func() proto.Message {
			return &progressorv1.PauseCronRequest{Namespace: limitsNamespace, CronId: l.storedCron()}
		}, []bound{{field: "note", most: reason}}},
		{"ResumeCron", sends(l.api.Cron.ResumeCron), func() proto.Message {
			return &progressorv1.ResumeCronRequest{Namespace: limitsNamespace, CronId: l.storedCron()}
		}, []bound{{field: "note", most: reason}}},
		{"StopBackfills", sends(l.api.Cron.StopBackfills), func() proto.Message {
			return &progressorv1.StopBackfillsRequest{Namespace: limitsNamespace, CronId: l.storedCron()}
		}, []bound{{field: "reason", most: reason}}},
		{"CancelFire", sends(l.api.Cron.CancelFire), func() proto.Message {
			cron, at := l.runningFire()
			return &progressorv1.CancelFireRequest{Namespace: limitsNamespace, CronId: cron, FireTime: at}
		}, []bound{{field: "reason", most: reason}}},
		{"RerunFire", sends(l.api.Cron.RerunFire), func() proto.Message {
			cron, at := l.cancelledFire()
			return &progressorv1.RerunFireRequest{Namespace: limitsNamespace, CronId: cron, FireTime: at}
		}, []bound{{field: "reason", most: reason}}},
		{"ListCrons", sends(l.api.Cron.ListCrons), func() proto.Message {
			return &progressorv1.ListCronsRequest{Namespace: limitsNamespace, PageSize: 1}
		}, []bound{{field: "filter", most: filter, text: id("cron_id")}}},
		{"RepeatRun", sends(l.api.Flow.RepeatRun), func() proto.Message {
			run := l.waitingRun()
			cancel := &progressorv1.CancelRunRequest{Namespace: limitsNamespace, RunId: run}
			if _, err := l.api.Flow.CancelRun(l.ctx, cancel); err != nil {
				l.t.Fatal(err)
			}
			return &progressorv1.RepeatRunRequest{Namespace: limitsNamespace, RunId: run}
		}, []bound{{field: "idempotency_key", most: 256, text: unique}}},
		{"ListRuns", sends(l.api.Flow.ListRuns), func() proto.Message {
			return &progressorv1.ListRunsRequest{Namespace: limitsNamespace, PageSize: 1}
		}, []bound{{field: "filter", most: filter, text: id("run_id")}}},
		{"ListOpenWaits", sends(l.api.Flow.ListOpenWaits), func() proto.Message {
			return &progressorv1.ListOpenWaitsRequest{Namespace: limitsNamespace, PageSize: 1}
		}, []bound{{field: "filter", most: filter, text: id("run_id")}}},
		{"ListJobs", sends(l.api.Job.ListJobs), func() proto.Message {
			return &progressorv1.ListJobsRequest{Namespace: limitsNamespace, PageSize: 1}
		}, []bound{{field: "filter", most: filter, text: id("name")}}},
		{"ListJobEvents", sends(l.api.JobEvent.ListJobEvents), func() proto.Message {
			return &progressorv1.ListJobEventsRequest{Namespace: limitsNamespace, PageSize: 1}
		}, []bound{{field: "filter", most: filter, text: id("job_id")}}},
		{"ListAudit", sends(l.api.Insight.ListAudit), func() proto.Message {
			return &progressorv1.ListAuditRequest{PageSize: 1}
		}, []bound{{field: "filter", most: filter, text: id("actor")}}},
		{"PutTemplate of a graph", sends(l.api.Flow.PutTemplate), func() proto.Message {
			return &progressorv1.PutTemplateRequest{Template: &progressorv1.Template{
				Namespace: limitsNamespace, Type: l.id(), StepOrder: progressorv1.StepOrder_STEP_ORDER_GRAPH,
				Steps: []*progressorv1.StepTemplate{waitStep()},
			}}
		}, []bound{{field: "template.steps[999].depends_on", most: 1000, fill: fillDependencies}}},
	}
}

// cron returns a paused cron that starts processes.
func (l *limits) cron() *progressorv1.Cron {
	return &progressorv1.Cron{
		Namespace: limitsNamespace, CronId: l.id(), Paused: true,
		Spec: &progressorv1.CronSpec{Expressions: []string{"@yearly"}},
		Target: &progressorv1.CronTarget{
			Target: &progressorv1.CronTarget_StartProcess{StartProcess: &progressorv1.StartProcessTarget{}},
		},
	}
}

// storedCron stores the cron that cron returns, and returns its ID.
func (l *limits) storedCron() string {
	l.t.Helper()
	r, err := l.api.Cron.CreateCron(l.ctx, &progressorv1.CreateCronRequest{Cron: l.cron()})
	if err != nil {
		l.t.Fatal(err)
	}
	return r.GetCron().GetCronId()
}

// runningFire triggers a new cron, and returns the ID of the cron and the time of the fire. The
// process of the fire waits for a worker.
func (l *limits) runningFire() (string, *timestamppb.Timestamp) {
	l.t.Helper()
	id := l.storedCron()
	r, err := l.api.Cron.TriggerCron(l.ctx, &progressorv1.TriggerCronRequest{Namespace: limitsNamespace, CronId: id})
	if err != nil {
		l.t.Fatal(err)
	}
	return id, r.GetFire().GetFireTime()
}

// cancelledFire triggers a new cron and cancels the process of the fire, which waits for a worker.
// The process ends because the cancel has no grace period.
func (l *limits) cancelledFire() (string, *timestamppb.Timestamp) {
	l.t.Helper()
	id := l.storedCron()
	r, err := l.api.Cron.TriggerCron(l.ctx, &progressorv1.TriggerCronRequest{Namespace: limitsNamespace, CronId: id})
	if err != nil {
		l.t.Fatal(err)
	}
	cancel := &progressorv1.CancelProcessRequest{Namespace: limitsNamespace,
		ProcessId: r.GetFire().GetProcessId(), Grace: durationpb.New(0)}
	clitest.Eventually(l.t, "the started process is cancelled", func() error {
		_, err := l.api.Process.CancelProcess(l.ctx, cancel)
		return err
	})
	clitest.Eventually(l.t, "the fire is cancelled", func() error {
		r, err := l.api.Cron.ListFires(l.ctx, &progressorv1.ListFiresRequest{Namespace: limitsNamespace, CronId: id})
		if err != nil {
			return err
		}
		const cancelled = progressorv1.FireStatus_FIRE_STATUS_CANCELLED
		if len(r.GetFires()) != 1 || r.GetFires()[0].GetStatus() != cancelled {
			return fmt.Errorf("fires %v", r.GetFires())
		}
		return nil
	})
	return id, r.GetFire().GetFireTime()
}

// quoted returns a CEL text of n bytes.
func quoted(n int) string { return `"` + xs("", n-2) + `"` }

// zone returns the longest time zone, or a text that is too long for one.
func zone(n int) string {
	if n <= 128 {
		return longestZone
	}
	return xs("", n)
}

// laterMinutes returns a cron expression of n bytes that lists minutes other than 0.
func laterMinutes(n int) string { return strings.ReplaceAll(minutes(n), "0", "5") }

func fillExclusions(m proto.Message, n int) {
	spec := m.(*progressorv1.CreateCronRequest).GetCron().GetSpec()
	for i := range n {
		later := fmt.Sprintf("%d %d * * *", i%60, 5+i/60) // not midnight
		spec.ExcludeExpressions = append(spec.ExcludeExpressions, later)
	}
}

// fillDependencies makes a template of 1,000 steps. A step cannot depend on itself, so the last
// step has at most 999 dependencies. If n is more than 1,000, repeated ones fill the list up to n.
func fillDependencies(m proto.Message, n int) {
	t := m.(*progressorv1.PutTemplateRequest).GetTemplate()
	fillSteps(m, 1000)
	last := t.GetSteps()[999]
	for i := range min(n, 999) {
		last.DependsOn = append(last.DependsOn, t.GetSteps()[i].GetStepId())
	}
	for len(last.GetDependsOn()) < n && n > 1000 {
		last.DependsOn = append(last.DependsOn, "ask")
	}
}

// TestCommandTextsHaveLimits passes the largest texts to commands, and texts with one more byte.
func TestCommandTextsHaveLimits(t *testing.T) {
	t.Parallel()
	l := newLimits(t)
	l.putTemplate(&progressorv1.Template{Type: "wait", Steps: []*progressorv1.StepTemplate{waitStep()}})
	fire := func(at *timestamppb.Timestamp) string { return at.AsTime().Format(time.RFC3339Nano) }
	for _, c := range []struct {
		name string
		most int
		args func(text string) []string
	}{
		{"cron pause", 4096, func(text string) []string {
			return []string{"cron", "pause", limitsNamespace, l.storedCron(), "--reason", text}
		}},
		{"cron resume", 4096, func(text string) []string {
			return []string{"cron", "resume", limitsNamespace, l.storedCron(), "--reason", text}
		}},
		{"cron cancel", 4096, func(text string) []string {
			id, at := l.runningFire()
			return []string{"cron", "cancel", limitsNamespace, id, fire(at), "--reason", text}
		}},
		{"cron rerun", 4096, func(text string) []string {
			id, at := l.cancelledFire()
			return []string{"cron", "rerun", limitsNamespace, id, fire(at), "--reason", text}
		}},
		{"run repeat", 256, func(text string) []string {
			return []string{"run", "repeat", limitsNamespace, l.waitingRun(), "-k", text}
		}},
		{"job cancel", 4096, func(text string) []string {
			return []string{"job", "cancel", limitsNamespace, l.lease().GetJob().GetJobId(), "--reason", text}
		}},
		{"namespace put", 16 << 10, func(text string) []string {
			return []string{"namespace", "put", l.id(), "--pull", "--fairness-key", quoted(len(text))}
		}},
	} {
		t.Run(c.name, func(t *testing.T) {
			l.cli.OK(t, c.args(xs(l.id(), c.most))...)
			r := l.cli.Run(t, c.args(xs(l.id(), c.most+1))...)
			if r.Code == 0 || !strings.Contains(r.Stderr, strconv.Itoa(c.most)) {
				t.Errorf("%d bytes: exit code %d, %s", c.most+1, r.Code, r.Stderr)
			}
		})
	}
}

// TestInventedTokensAreRejected sends invented tokens with a process ID that PostgreSQL cannot
// store.
func TestInventedTokensAreRejected(t *testing.T) {
	t.Parallel()
	l := newLimits(t)
	for _, id := range []string{"\x00", "\xff"} {
		text := append([]byte{1, 'n'}, make([]byte, 8+16)...)
		lost := base64.RawURLEncoding.EncodeToString(append(text, id...))
		beats := []*progressorv1.LeaseBeat{{LeaseToken: lost}}
		_, err := l.api.Worker.Heartbeat(t.Context(), &progressorv1.HeartbeatRequest{WorkerId: "w", Beats: beats})
		const want = "beats[0].lease_token: must be the lease_token of a lease"
		if connect.CodeOf(err) != connect.CodeInvalidArgument || !strings.Contains(err.Error(), want) {
			t.Errorf("a token of process %q: %v", id, err)
		}
	}
}

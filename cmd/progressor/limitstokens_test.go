package main

import (
	"context"
	"encoding/base64"
	"encoding/binary"
	"fmt"
	"strings"
	"testing"

	"connectrpc.com/connect"
	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/structpb"

	"github.com/progressor-engine/progressor/cmd/progressor/internal/cli"
	"github.com/progressor-engine/progressor/cmd/progressor/internal/cli/clitest"
	progressorv1 "github.com/progressor-engine/progressor/proto/progressor/v1"
)

// Size limits: a cron with its target, a token, and the reason in PauseJobs.
const (
	cronBytes   = 256 << 10
	tokenBytes  = 1024
	reasonBytes = 1024
)

// sizeRequests returns the requests that contain a cron or a token, and those that pause and resume
// jobs.
func (l *limits) sizeRequests() []request {
	result := func() *progressorv1.JobResult { return &progressorv1.JobResult{} }
	pause := func() proto.Message {
		return &progressorv1.PauseJobsRequest{Namespace: limitsNamespace, Name: "paused"}
	}
	report := func() proto.Message {
		return &progressorv1.ReportStepRequest{Namespace: limitsNamespace, RunId: l.waitingRun(), StepId: "ask"}
	}
	complete := func() proto.Message {
		return &progressorv1.CompleteStepRequest{
			Namespace: limitsNamespace, RunId: l.waitingRun(), StepId: "ask",
			Outcome: &progressorv1.CompleteStepRequest_Result{Result: structpb.NewNullValue()},
		}
	}
	return []request{
		{"CreateCron with the largest target", sends(l.api.Cron.CreateCron), func() proto.Message {
			return &progressorv1.CreateCronRequest{Cron: l.jobCron()}
		}, []bound{{field: "cron.target", most: cronBytes, want: wholeCron, fill: func(m proto.Message, n int) {
			fillCron(m.(*progressorv1.CreateCronRequest).GetCron(), n)
		}}}},
		{"UpdateCron to the largest target", sends(l.api.Cron.UpdateCron), func() proto.Message {
			c := l.jobCron()
			c.CronId = l.storedCron()
			return &progressorv1.UpdateCronRequest{Cron: c}
		}, []bound{{field: "cron.target", most: cronBytes, want: wholeCron, fill: func(m proto.Message, n int) {
			fillCron(m.(*progressorv1.UpdateCronRequest).GetCron(), n)
		}}}},
		{"PauseJobs", sends(l.api.Job.PauseJobs), pause, []bound{
			{field: "reason", most: reasonBytes}, {field: "name", most: 256},
		}},
		{"ResumeJobs", sends(l.api.Job.ResumeJobs), func() proto.Message {
			return &progressorv1.ResumeJobsRequest{Namespace: limitsNamespace, Name: "paused"}
		}, []bound{{field: "name", most: 256}}},
		{"Heartbeat with a token", sends(l.api.Worker.Heartbeat), func() proto.Message {
			return &progressorv1.HeartbeatRequest{WorkerId: "w"}
		}, []bound{{field: "beats[0].lease_token", most: tokenBytes, text: longToken}}},
		{"Release with a token", sends(l.api.Worker.Release), func() proto.Message {
			return &progressorv1.ReleaseRequest{WorkerId: "w"}
		}, []bound{{field: "lease_tokens[0]", most: tokenBytes, text: longToken}}},
		{"Checkpoint with a token", ignoreUnknownToken(sends(l.api.Worker.Checkpoint)), func() proto.Message {
			return &progressorv1.CheckpointRequest{Events: []*progressorv1.NewEvent{{}}}
		}, []bound{{field: "lease_token", most: tokenBytes, text: longToken}}},
		{"Complete with a token", ignoreUnknownToken(sends(l.api.Worker.Complete)), func() proto.Message {
			return &progressorv1.CompleteRequest{Answer: &progressorv1.CompleteRequest_JobResult{JobResult: result()}}
		}, []bound{{field: "lease_token", most: tokenBytes, text: longToken}}},
		{"CompleteBatch with a token", ignoreUnknownToken(l.completeBatch), func() proto.Message {
			answer := &progressorv1.LeaseAnswer{Answer: &progressorv1.LeaseAnswer_JobResult{JobResult: result()}}
			return &progressorv1.CompleteBatchRequest{Answers: []*progressorv1.LeaseAnswer{answer}}
		}, []bound{{field: "answers[0].lease_token", most: tokenBytes, text: longToken}}},
		{"CompleteStep with a token", ignoreUnknownToken(sends(l.api.Flow.CompleteStep)), complete,
			[]bound{{field: "token", most: tokenBytes}}},
		{"ReportStep with a token", ignoreUnknownToken(sends(l.api.Flow.ReportStep)), report,
			[]bound{{field: "token", most: tokenBytes}}},
	}
}

// wholeCron is part of the error about a cron that is too large.
var wholeCron = fmt.Sprintf("target: the cron must have at most %d bytes", cronBytes)

// ignoreUnknownToken wraps a request whose token has a valid size, but belongs to no lease and no
// wait. It ignores the error that the token is unknown.
func ignoreUnknownToken(send func(context.Context, proto.Message) error) func(context.Context, proto.Message) error {
	return func(ctx context.Context, m proto.Message) error {
		err := send(ctx, m)
		if connect.CodeOf(err) == connect.CodeFailedPrecondition {
			return nil
		}
		return err
	}
}

// completeBatch sends answers, and returns the error of the first one.
func (l *limits) completeBatch(ctx context.Context, m proto.Message) error {
	r, err := l.api.Worker.CompleteBatch(ctx, m.(*progressorv1.CompleteBatchRequest))
	if err != nil || r.GetOutcomes()[0].GetError() == nil {
		return err
	}
	failure := r.GetOutcomes()[0].GetError()
	if failure.GetDetail().GetReason() == progressorv1.ErrorDetail_REASON_LEASE_LOST {
		return nil
	}
	return connect.NewError(connect.CodeInvalidArgument, fmt.Errorf("%s", failure.GetMessage()))
}

// longToken returns a token of n bytes for a lease that does not exist. If no token has this
// length, it returns a text of n bytes.
func longToken(n int) string {
	if base64.RawURLEncoding.EncodedLen(base64.RawURLEncoding.DecodedLen(n)) != n {
		return xs("", n)
	}
	token := binary.BigEndian.AppendUint64([]byte{1, 'n'}, 7) // the namespace, the fencing token
	token = append(token, make([]byte, 16)...)                // the salt
	id := xs("", base64.RawURLEncoding.DecodedLen(n)-len(token))
	return base64.RawURLEncoding.EncodeToString(append(token, id...))
}

// jobCron returns a paused cron that enqueues jobs.
func (l *limits) jobCron() *progressorv1.Cron {
	c := l.cron()
	target := &progressorv1.EnqueueJobTarget{Name: c.GetCronId()}
	c.Target.Target = &progressorv1.CronTarget_EnqueueJob{EnqueueJob: target}
	return c
}

// fillCron sets the args of a cron so that its definition has n bytes.
func fillCron(c *progressorv1.Cron, n int) {
	target := c.GetTarget().GetEnqueueJob()
	definition := &progressorv1.Cron{
		Namespace: c.GetNamespace(), CronId: c.GetCronId(), Spec: c.GetSpec(), Policy: c.GetPolicy(),
		Target: c.GetTarget(),
	}
	size := n
	for range 2 { // the first text has n bytes, so the definition is larger than n
		target.Args = structpb.NewStringValue(xs("", size))
		size -= proto.Size(definition) - n
	}
	target.Args = structpb.NewStringValue(xs("", size))
	if proto.Size(definition) != n {
		panic(fmt.Sprintf("the cron has %d bytes, want %d", proto.Size(definition), n))
	}
}

// TestSizesHaveLimits sends the largest crons, tokens and reasons of pauses, and values with one
// more byte.
func TestSizesHaveLimits(t *testing.T) {
	t.Parallel()
	l := newLimits(t)
	l.putTemplate(&progressorv1.Template{Type: "wait", Steps: []*progressorv1.StepTemplate{waitStep()}})
	l.send(t, l.sizeRequests())
	l.api = l.console
	l.send(t, l.sizeRequests())
}

// TestSizesOfCommandsHaveLimits passes the same values to commands.
func TestSizesOfCommandsHaveLimits(t *testing.T) {
	t.Parallel()
	l := newLimits(t)
	l.putTemplate(&progressorv1.Template{Type: "wait", Steps: []*progressorv1.StepTemplate{waitStep()}})
	cron := func(id string, n int) string {
		c := l.jobCron()
		c.CronId = id
		fillCron(c, n)
		text, err := protojson.Marshal(&progressorv1.Cron{Spec: c.GetSpec(), Target: c.GetTarget()})
		if err != nil {
			t.Fatal(err)
		}
		return string(text)
	}
	for _, c := range []struct {
		name, want string
		most       int
		run        func(n int) clitest.Result
	}{
		{"cron create", wholeCron, cronBytes, func(n int) clitest.Result {
			p, id := l.cli, l.id()
			p.Stdin = cron(id, n)
			return p.Run(t, "cron", "create", limitsNamespace, id, "--paused", "-f", "-")
		}},
		{"cron update", wholeCron, cronBytes, func(n int) clitest.Result {
			p, id := l.cli, l.storedCron()
			p.Stdin = cron(id, n)
			return p.Run(t, "cron", "update", limitsNamespace, id, "-f", "-")
		}},
		{"job pause", "reason: must be at most 1024 bytes", reasonBytes, func(n int) clitest.Result {
			return l.cli.Run(t, "job", "pause", limitsNamespace, "mail", "--reason", xs("", n))
		}},
	} {
		t.Run(c.name, func(t *testing.T) {
			if r := c.run(c.most); r.Code != cli.ExitOK {
				t.Errorf("%d bytes: exit code %d, %.500s", c.most, r.Code, r.Stderr)
			}
			if r := c.run(c.most + 1); r.Code != cli.ExitUsage || !strings.Contains(r.Stderr, c.want) {
				t.Errorf("%d bytes: exit code %d, %.500s", c.most+1, r.Code, r.Stderr)
			}
		})
	}
	t.Run("run complete", func(t *testing.T) {
		complete := func(n int) clitest.Result {
			return l.cli.Run(t, "run", "complete", limitsNamespace, l.waitingRun(), "ask",
				"--result", "null", "--wait-token", xs("", n))
		}
		const found = "the token belongs to an earlier attempt or to another wait"
		if r := complete(tokenBytes); !strings.Contains(r.Stderr, found) {
			t.Errorf("%d bytes: exit code %d, %.500s", tokenBytes, r.Code, r.Stderr)
		}
		if r := complete(tokenBytes + 1); r.Code != cli.ExitUsage ||
			!strings.Contains(r.Stderr, "token: must be at most 1024 bytes") {
			t.Errorf("%d bytes: exit code %d, %.500s", tokenBytes+1, r.Code, r.Stderr)
		}
	})
}

// TestExactlyLargestCron reads the largest cron and the longest reason of a pause through the API,
// the console, the CLI and SQL. It also leases the job that the cron enqueues.
func TestExactlyLargestCron(t *testing.T) {
	t.Parallel()
	l := newLimits(t)
	cron := l.jobCron()
	fillCron(cron, cronBytes)
	args, id := cron.GetTarget().GetEnqueueJob().GetArgs().GetStringValue(), cron.GetCronId()
	if _, err := l.api.Cron.CreateCron(t.Context(), &progressorv1.CreateCronRequest{Cron: cron}); err != nil {
		t.Fatal(err)
	}
	get := &progressorv1.GetCronRequest{Namespace: limitsNamespace, CronId: id}
	list := &progressorv1.ListCronsRequest{Namespace: limitsNamespace}
	l.show("the cron", []string{args},
		reads(l, l.api.Cron.GetCron, get), reads(l, l.console.Cron.GetCron, get),
		l.prints(&progressorv1.GetCronResponse{}, "cron", "get", limitsNamespace, id),
		reads(l, l.api.Cron.ListCrons, list), reads(l, l.console.Cron.ListCrons, list),
		l.prints(&progressorv1.ListCronsResponse{}, "cron", "list", limitsNamespace))
	var target string
	if err := l.db.QueryRow(t.Context(), "SELECT target_name FROM progressor.cron_list WHERE cron_id = $1", id).
		Scan(&target); err != nil || target != id {
		t.Errorf("in SQL, the target of the cron is %q, %v", target, err)
	}
	trigger := &progressorv1.TriggerCronRequest{Namespace: limitsNamespace, CronId: id}
	if _, err := l.api.Cron.TriggerCron(t.Context(), trigger); err != nil {
		t.Fatal(err)
	}
	l.show("the lease of its job", []string{args}, func() (proto.Message, error) { return l.poll(id), nil })
	reason := xs("reason", reasonBytes)
	pause := &progressorv1.PauseJobsRequest{Namespace: limitsNamespace, Name: id, Reason: reason}
	if _, err := l.api.Job.PauseJobs(t.Context(), pause); err != nil {
		t.Fatal(err)
	}
	paused := &progressorv1.ListPausedJobsRequest{Namespace: limitsNamespace}
	l.show("the pause", []string{reason},
		reads(l, l.api.Job.ListPausedJobs, paused), reads(l, l.console.Job.ListPausedJobs, paused),
		l.prints(&progressorv1.ListPausedJobsResponse{}, "job", "paused", limitsNamespace))
	if err := l.db.QueryRow(t.Context(), "SELECT reason FROM progressor.job_pauses WHERE name = $1", id).
		Scan(&target); err != nil || target != reason {
		t.Errorf("in SQL, the reason of the pause has %d bytes, %v", len(target), err)
	}
}

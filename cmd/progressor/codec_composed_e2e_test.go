package main

import (
	"context"

	"google.golang.org/protobuf/types/known/structpb"

	"github.com/progressor-engine/progressor/client"
	"github.com/progressor-engine/progressor/processor"
	"github.com/progressor-engine/progressor/processor/codec"
	progressorv1 "github.com/progressor-engine/progressor/proto/progressor/v1"
)

// undone contains the args of a compensation.
type undone struct{ Input, Result note }

// composed runs jobs whose args or results the engine creates, or builds from several encoded
// values: jobs that several workers run, jobs without args, and compensations.
func (e *coded) composed(k codec.Codec) {
	e.Helper()
	compensated := make(chan undone, 1)
	register := func(w *client.Worker) {
		client.Handle(w, "send", func(_ context.Context, m note) (note, error) {
			if m.Text == "" { // the job has no args
				m.Text = inClear + "none"
			}
			return note{m.Text + "!"}, nil
		})
		client.Handle(w, "fail", func(context.Context, note) (note, error) {
			return note{}, processor.Fail("broken", "failed by the test").NonRetryable()
		})
		client.Handle(w, "undo", func(_ context.Context, args undone) (note, error) {
			compensated <- args
			return args.Result, nil
		})
	}
	defer e.worker(k, register)()
	defer e.worker(k, register)()
	e.severalWorkers()
	e.withoutArgs()
	e.unexpectedArgs()
	e.compensation(compensated)
	_, err := e.c.Job.ListJobs(e.Context(), &progressorv1.ListJobsRequest{Namespace: "work"})
	e.ok(err)
}

// severalWorkers runs a job on two workers. Its result contains the result of each worker.
func (e *coded) severalWorkers() {
	e.Helper()
	resp, err := client.Enqueue(e.Context(), e.c, "work", "send", note{inClear + "both"}, client.WithJobOptions(
		&progressorv1.JobOptions{KeepResult: true, Workers: &progressorv1.WorkerGroup{Count: 2}}))
	e.ok(err)
	id := resp.GetJob().GetJobId()
	job, err := e.c.AwaitJob(e.Context(), &progressorv1.GetJobRequest{Namespace: "work", JobId: id},
		func(*progressorv1.Job) error { return nil })
	e.ok(err)
	fetched, err := e.c.Job.FetchResult(e.Context(), &progressorv1.FetchResultRequest{Namespace: "work", JobId: id})
	e.ok(err)
	for _, result := range []*structpb.Value{job.GetResult(), fetched.GetResult()} {
		members := result.GetStructValue().GetFields()
		if len(members) != 2 {
			e.Errorf("the result of two workers is %v", result)
		}
		for worker, part := range members {
			e.want("the result of "+worker, part.GetStructValue().GetFields()["text"].GetStringValue(), "hunter2-both!")
		}
	}
}

// withoutArgs runs a job without args.
func (e *coded) withoutArgs() {
	e.Helper()
	resp, err := client.Enqueue[any](e.Context(), e.c, "work", "send", nil,
		client.WithJobOptions(&progressorv1.JobOptions{KeepResult: true}))
	e.ok(err)
	job, err := e.c.AwaitJob(e.Context(),
		&progressorv1.GetJobRequest{Namespace: "work", JobId: resp.GetJob().GetJobId()},
		func(*progressorv1.Job) error { return nil })
	e.ok(err)
	e.want("the result without args", job.GetResult().GetStructValue().GetFields()["text"].GetStringValue(),
		"hunter2-none!")
}

// unexpectedArgs runs a job with args that its handler cannot decode. The stored failure contains
// no part of the args.
func (e *coded) unexpectedArgs() {
	e.Helper()
	resp, err := client.Enqueue(e.Context(), e.c, "work", "send", map[string]int{inClear + "member": 1})
	e.ok(err)
	job, err := e.c.AwaitJob(e.Context(),
		&progressorv1.GetJobRequest{Namespace: "work", JobId: resp.GetJob().GetJobId()},
		func(*progressorv1.Job) error { return nil })
	e.ok(err)
	if f := job.GetFailures(); len(f) != 1 || f[0].GetReason() != processor.ReasonBadArgs {
		e.Errorf("unexpected args: %v", job)
	}
}

// compensation runs a flow whose second step fails, so that the first step is compensated.
func (e *coded) compensation(compensated <-chan undone) {
	e.Helper()
	step := func(id, job string) *progressorv1.StepTemplate {
		return &progressorv1.StepTemplate{StepId: id,
			Action: &progressorv1.StepTemplate_Job{Job: &progressorv1.JobAction{Name: job}}}
	}
	first, second := step("a", "send"), step("b", "fail")
	first.Compensation = &progressorv1.JobAction{Name: "undo"}
	second.Input = structpb.NewStringValue("${steps.a.result}")
	_, err := e.c.Flow.PutTemplate(e.Context(), &progressorv1.PutTemplateRequest{Template: &progressorv1.Template{
		Namespace: "work", Type: "saga", Steps: []*progressorv1.StepTemplate{first, second}}})
	e.ok(err)
	started, err := e.c.Flow.StartRun(e.Context(), &progressorv1.StartRunRequest{
		Namespace: "work", Type: "saga", Payload: valueOfNote("order")})
	e.ok(err)
	run, err := e.c.AwaitRun(e.Context(),
		&progressorv1.GetRunRequest{Namespace: "work", RunId: started.GetRun().GetRunId()},
		func(*progressorv1.Run) error { return nil })
	e.ok(err)
	if got := run.GetSteps()[0].GetCompensationStatus(); got != progressorv1.StepStatus_STEP_STATUS_SUCCEEDED {
		e.Fatalf("the compensation is %v: %v", got, run)
	}
	args := <-compensated
	e.want("the input of the compensation", args.Input.Text, "hunter2-order")
	e.want("the result in the compensation", args.Result.Text, "hunter2-order!")
}

package durable_test

import (
	"fmt"
	"strings"
	"testing"

	"google.golang.org/protobuf/types/known/structpb"

	"github.com/progressor-engine/progressor/process"
	"github.com/progressor-engine/progressor/processor"
	"github.com/progressor-engine/progressor/processor/durable"
	"github.com/progressor-engine/progressor/processor/durable/durabletest"
	"github.com/progressor-engine/progressor/processor/processortest"
	progressorv1 "github.com/progressor-engine/progressor/proto/progressor/v1"
)

// employer returns the result of its job.
func employer(ctx durable.Ctx, _ struct{}) (any, error) {
	return durable.Job[any](ctx, "c", map[string]int{"n": 7}, durable.In("kids"), durable.JobName("work"),
		durable.JobOptions(&progressorv1.JobOptions{Priority: 3})).Get()
}

// A function enqueues a job with its options, and gets its result or its error.
func TestJob(t *testing.T) {
	like := `{"k":"fail","n":"g","e":{"reason":"full","message":"no seats","rejected":true}}`
	failed := func(reason, message string) string {
		return `{"k":"fail","n":"f","e":{"reason":"` + reason + `","message":"job c: ` + message + `"}}`
	}
	for name, test := range map[string]struct {
		status                 progressorv1.ProcessStatus
		response, detail, want string
	}{
		"a result": {completed, `{"a":1}`, "", `{"k":"end","n":"f","v":{"a":1}}`},
		"null":     {completed, "null", "", `{"k":"end","n":"f","v":null}`},
		"none":     {completed, "", "", `{"k":"end","n":"f","v":null}`},
		"a result like a rejection": {completed, like, "", `{"k":"end","n":"f","v":` +
			`{"e":{"message":"no seats","reason":"full","rejected":true},"k":"fail","n":"g"}}`},
		"no attempts left": {broken, "", "odd", failed("child_failed", "odd")},
		"cancelled":        {cancelled, "", "", failed("child_cancelled", "the process was cancelled")},
	} {
		t.Run(name, func(t *testing.T) {
			p := start(t, durable.Func("f", employer))
			check(t, "commands", fmt.Sprint(p.Commands()), fmt.Sprint([]*progressorv1.Command{{
				Command: &progressorv1.Command_Enqueue{Enqueue: &progressorv1.EnqueueCommand{
					Namespace: "kids", JobId: "process/c~1", Name: "work", NotifyParentArgs: []byte(`"c"`),
					Args: structpb.NewStructValue(&structpb.Struct{Fields: map[string]*structpb.Value{
						"n": structpb.NewNumberValue(7)}}),
					Options: &progressorv1.JobOptions{Priority: 3, KeepResult: true},
				}},
			}}))
			endOf(t, p, "process/c~1", &progressorv1.ChildEnd{
				Status: test.status, Response: []byte(test.response), Detail: test.detail,
			})
			check(t, "last event", lastEvent(p.Snapshot()), test.want)
		})
	}
}

// Jobs and children with the same name are numbered together, and can be sources of First. A
// function that returns an error cancels the jobs that still run.
func TestJobsAndChildren(t *testing.T) {
	p := start(t, function(func(ctx durable.Ctx) (string, error) {
		child := durable.Child[int](ctx, "c", 1)
		job := durable.Job[int](ctx, "c", 2)
		if durable.First(ctx, "which", child, job) == job {
			n, _ := job.Get()
			return "", processor.Reject("job", "%d %s", n, job.Process())
		}
		return "child", nil
	}))
	if err := durabletest.EndChild("c#2", 5)(t.Context(), p); err != nil {
		t.Fatal(err)
	}
	check(t, "journal", journal(p), "start:f child:c child:c#2 ended:c#2 first:which fail:f cancel:c")
	if p.Status() != process.StatusCompleted || !strings.Contains(string(p.Events()[5].GetPayload()),
		`"message":"5 test/process/c#2~1"`) {
		t.Error(p.Status(), string(p.Events()[5].GetPayload()))
	}
	if last := p.Commands(); len(last) != 3 || last[1].GetEnqueue().GetName() != "c" ||
		last[2].GetCancel().GetProcessId() != "process/c~1" {
		t.Error(last)
	}
}

// A job that cannot be enqueued is misuse.
func TestJobMisuse(t *testing.T) {
	for want, f := range map[string]func(ctx durable.Ctx){
		"job c: result.commands[0].namespace": func(ctx durable.Ctx) {
			durable.Job[int](ctx, "c", 7, durable.In("a b"))
		},
		"job c: result.commands[0].options.unique": func(ctx durable.Ctx) {
			durable.Job[int](ctx, "c", 7, durable.JobOptions(&progressorv1.JobOptions{Unique: &progressorv1.Unique{}}))
		},
		"the args of job c: the value cannot be encoded": func(ctx durable.Ctx) {
			durable.Job[int](ctx, "c", func() {})
		},
	} {
		p := processortest.New(function(func(ctx durable.Ctx) (string, error) {
			f(ctx)
			return "", nil
		}))
		if _, err := p.Start(t.Context(), []byte(`{}`)); err != nil {
			t.Fatal(err)
		}
		if detail := p.Detail(); !strings.Contains(detail, "job_test.go") || !strings.Contains(detail, want) {
			t.Errorf("%q, want %s", detail, want)
		}
	}
}

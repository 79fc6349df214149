package client_test

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"connectrpc.com/connect"
	"google.golang.org/protobuf/types/known/structpb"

	"github.com/progressor-engine/progressor/client"
	"github.com/progressor-engine/progressor/engine/enginetest"
	"github.com/progressor-engine/progressor/processor"
	progressorv1 "github.com/progressor-engine/progressor/proto/progressor/v1"
)

// A worker passes jobs and all tasks of processes to a processor in its own program, as an engine
// passes them to a processor with a URL.
func TestProcessorInWorker(t *testing.T) {
	h := newTestEngine(t)
	h.worker(h.client, func(w *client.Worker) {
		w.HandleProcesses(&processor.JSON[int]{
			OnInit: func(_ context.Context, task *processor.Task[int]) error {
				if task.Request.GetJobName() == "" {
					task.SetTimerAfter(time.Millisecond)
				}
				return nil
			},
			OnCall: func(_ context.Context, task *processor.Task[int]) error {
				n, err := processor.ArgsOf[int](task.Request)
				if err != nil {
					return err
				}
				task.State += n
				task.JSONResponse(task.State)
				return nil
			},
			OnTimeout: func(_ context.Context, task *processor.Task[int]) error {
				task.JSONEvent("fired")
				return nil
			},
		})
	})
	if _, err := h.client.Start(t.Context(),
		&progressorv1.StartRequest{Namespace: "pull", ProcessId: "p"}); err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{"2", "4"} {
		resp, err := h.client.Call(t.Context(),
			&progressorv1.CallRequest{Namespace: "pull", ProcessId: "p", Args: []byte("2")})
		if err != nil || string(resp.GetResponse()) != want {
			t.Fatalf("call: %v, %v, want %s", resp, err, want)
		}
	}
	_, err := h.client.Call(t.Context(),
		&progressorv1.CallRequest{Namespace: "pull", ProcessId: "p", Args: []byte("x")})
	if client.Reason(err) != progressorv1.ErrorDetail_REASON_TASK_REJECTED {
		t.Errorf("bad args: %v", err)
	}
	enginetest.Eventually(t, testTimeout, "the timer fires", func() bool {
		resp, err := h.client.Process.GetProcess(t.Context(),
			&progressorv1.GetProcessRequest{Namespace: "pull", ProcessId: "p"})
		if err != nil {
			t.Fatal(err)
		}
		return len(resp.GetProcess().GetHistory()) == 1
	})
	h.enqueue("j", "any", nil, nil)
	h.job("j", succeeded)
}

// A worker follows the commands of operators: after QUIET it takes no new tasks, after CONTINUE it
// takes tasks again, and after STOP its Run returns.
func TestOperatorCommands(t *testing.T) {
	h := newTestEngine(t)
	work := func(w *client.Worker) {
		client.Handle(w, "work", func(context.Context, any) (any, error) { return nil, nil })
	}
	one := h.worker(h.client, work)
	command := func(d progressorv1.WorkerDirective) {
		t.Helper()
		enginetest.Eventually(t, testTimeout, "the worker is known", func() bool {
			_, err := h.client.Worker.StopWorker(t.Context(),
				&progressorv1.StopWorkerRequest{Namespace: "pull", WorkerId: one.ID(), Directive: d})
			if err != nil && connect.CodeOf(err) != connect.CodeNotFound {
				t.Fatal(err)
			}
			return err == nil
		})
	}
	command(progressorv1.WorkerDirective_WORKER_DIRECTIVE_QUIET)
	h.enqueue("quiet", "work", nil, nil)
	two := h.worker(h.client, work)
	if job := h.job("quiet", succeeded); job.GetWorkerId() != two.ID() {
		t.Errorf("%v", job)
	}
	two.stop()
	h.enqueue("on", "work", nil, nil)
	command(progressorv1.WorkerDirective_WORKER_DIRECTIVE_CONTINUE)
	if job := h.job("on", succeeded); job.GetWorkerId() != one.ID() {
		t.Errorf("%v", job)
	}
	command(progressorv1.WorkerDirective_WORKER_DIRECTIVE_STOP)
	select {
	case <-one.over:
	case <-time.After(testTimeout):
		t.Error("the worker did not stop")
	}
}

// Run does not retry polls that can never succeed. It returns an error if the namespace does not
// exist, if it is not a pull namespace, or if the worker has no handlers.
func TestMisconfiguredWorker(t *testing.T) {
	h := newTestEngine(t)
	for namespace, code := range map[string]connect.Code{"nowhere": connect.CodeNotFound,
		"ns": connect.CodeInvalidArgument} {
		w := client.NewWorker(h.client, []string{namespace})
		client.Handle(w, "x", func(context.Context, any) (any, error) { return nil, nil })
		if err := w.Run(t.Context()); connect.CodeOf(err) != code {
			t.Errorf("%s: %v", namespace, err)
		}
	}
	if err := client.NewWorker(h.client, []string{"pull"}).Run(t.Context()); err == nil {
		t.Error("Run of a worker without handlers returned no error")
	}
}

// A worker with only job handlers takes jobs of any name, and leaves the processes of its namespace
// to other workers.
func TestWorkerOfJobsOnly(t *testing.T) {
	h := newTestEngine(t)
	start := &progressorv1.StartRequest{Namespace: "pull", ProcessId: "plain", Wait: progressorv1.Wait_WAIT_ACCEPTED}
	started, err := h.client.Process.Start(t.Context(), start)
	if err != nil {
		t.Fatal(err)
	}
	job := processor.Func(func(_ context.Context,
		r *progressorv1.ProcessRequest) (*progressorv1.ProcessResponse, error) {
		return client.JobDone(structpb.NewStringValue("by " + r.GetJobName())), nil
	})
	w := h.worker(h.client, func(w *client.Worker) {
		client.Handle(w, "known", func(context.Context, any) (string, error) { return "by its handler", nil })
		w.HandleJobs(job)
	})
	// The process was started first, so a worker for processes would take it first.
	for _, name := range []string{"known", "other"} {
		h.enqueue(name, name, nil, &progressorv1.JobOptions{KeepResult: true})
	}
	for name, want := range map[string]string{"known": "by its handler", "other": "by other"} {
		if got := h.job(name, succeeded).GetResult().GetStringValue(); got != want {
			t.Errorf("%s: %q", name, got)
		}
	}
	got, err := h.client.Process.GetProcess(t.Context(),
		&progressorv1.GetProcessRequest{Namespace: "pull", ProcessId: "plain"})
	if err != nil || got.GetProcess().GetStatus() != progressorv1.ProcessStatus_PROCESS_STATUS_INIT ||
		len(w.ended) != 2 {
		t.Errorf("%v, %v, %d attempts", got.GetProcess(), err, len(w.ended))
	}
	h.worker(h.client, func(w *client.Worker) { w.HandleProcesses(processor.Echo()) })
	ended, err := h.client.Process.AwaitTask(t.Context(),
		&progressorv1.AwaitTaskRequest{Namespace: "pull", ProcessId: "plain",
			Key: &progressorv1.AwaitTaskRequest_TaskId{TaskId: started.GetTaskId()}})
	if err != nil {
		t.Errorf("no worker has run the INIT task: %v, %v", ended, err)
	}
}

// The errors of polls and of enqueue requests name their namespaces and jobs.
func TestErrorsNameJobsAndNamespaces(t *testing.T) {
	h := newTestEngine(t)
	_, err := h.client.Worker.Poll(t.Context(),
		&progressorv1.PollRequest{Namespaces: []string{"pull", "nope"}, WorkerId: "w"})
	if e, ok := errors.AsType[*connect.Error](err); !ok || e.Message() != "namespaces[1]: namespace not found: nope" ||
		client.Detail(err).GetField() != "namespaces[1]" {
		t.Errorf("poll: %v", err)
	}
	h.enqueue("j", "x", nil, nil)
	job := &progressorv1.EnqueueRequest{Namespace: "pull", JobId: "j", Name: "y"}
	_, err = h.client.Job.Enqueue(t.Context(), job)
	if e, ok := errors.AsType[*connect.Error](err); !ok || e.Message() != "job already exists: pull/j" {
		t.Errorf("enqueue: %v", err)
	}
	_, err = h.client.Job.EnqueueBatch(t.Context(),
		&progressorv1.EnqueueBatchRequest{Jobs: []*progressorv1.EnqueueRequest{job}})
	if e, ok := errors.AsType[*connect.Error](err); !ok || e.Message() != "jobs[0]: job already exists: pull/j" {
		t.Errorf("batch: %v", err)
	}
	if _, err := h.client.Job.CancelJob(t.Context(),
		&progressorv1.CancelJobRequest{Namespace: "pull", JobId: "j"}); err != nil {
		t.Fatal(err)
	}
	_, err = h.client.Job.CancelJob(t.Context(), &progressorv1.CancelJobRequest{Namespace: "pull", JobId: "j"})
	if e, ok := errors.AsType[*connect.Error](err); !ok || !strings.HasPrefix(e.Message(), "job pull/j is CANCELLED") {
		t.Errorf("cancel: %v", err)
	}
}

// GetWorker shows the address and the User-Agent header of a worker. A header that is too long is
// shortened, and bytes that are not valid UTF-8 are removed.
func TestSenderOfWorker(t *testing.T) {
	h := newTestEngine(t)
	for _, test := range []struct{ program, want string }{
		{"billing/1.4", "billing/1.4 progressor-go"},
		{"\xffcafé", "café progressor-go"},
		{strings.Repeat("x", 255) + "é", strings.Repeat("x", 255)},
	} {
		w := h.worker(client.New(h.url, client.WithUserAgent(test.program)), func(w *client.Worker) {
			client.Handle(w, "work", func(context.Context, any) (any, error) { return nil, nil })
		})
		var got *progressorv1.Worker
		enginetest.Eventually(t, testTimeout, "the worker is known", func() bool {
			resp, err := h.client.Worker.GetWorker(t.Context(),
				&progressorv1.GetWorkerRequest{Namespace: "pull", WorkerId: w.ID()})
			if err != nil && connect.CodeOf(err) != connect.CodeNotFound {
				t.Fatal(err)
			}
			got = resp.GetWorker()
			return err == nil
		})
		if got.GetAddress() != "127.0.0.1" || got.GetUserAgent() != test.want {
			t.Errorf("worker with the program %q: %v, want the user_agent %q", test.program, got, test.want)
		}
	}
}

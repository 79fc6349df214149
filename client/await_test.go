package client_test

import (
	"context"
	"errors"
	"net/http"
	"net/http/httptest"
	"testing"
	"time"

	"google.golang.org/protobuf/types/known/durationpb"
	"google.golang.org/protobuf/types/known/timestamppb"

	"github.com/progressor-engine/progressor/client"
	progressorv1 "github.com/progressor-engine/progressor/proto/progressor/v1"
	"github.com/progressor-engine/progressor/proto/progressor/v1/progressorv1connect"
)

// scriptedReads serves GetJob and GetRun. Each request takes the next entry of the script.
type scriptedReads struct {
	progressorv1connect.UnimplementedJobServiceHandler
	progressorv1connect.UnimplementedFlowServiceHandler

	script []error         // nil means a response; in the last one, the job or run has ended
	waits  []time.Duration // await_end of each request
}

func (e *scriptedReads) next(wait *durationpb.Duration) (ended bool, err error) {
	e.waits = append(e.waits, wait.AsDuration())
	err, e.script = e.script[0], e.script[1:]
	return len(e.script) == 0, err
}

func (e *scriptedReads) GetJob(_ context.Context, r *progressorv1.GetJobRequest) (*progressorv1.GetJobResponse, error) {
	ended, err := e.next(r.GetAwaitEnd())
	state := map[bool]progressorv1.JobState{false: progressorv1.JobState_JOB_STATE_RUNNING,
		true: progressorv1.JobState_JOB_STATE_FAILED}[ended]
	return &progressorv1.GetJobResponse{Job: &progressorv1.Job{JobId: r.GetJobId(), State: state}}, err
}

func (e *scriptedReads) GetRun(_ context.Context, r *progressorv1.GetRunRequest) (*progressorv1.GetRunResponse, error) {
	ended, err := e.next(r.GetAwaitEnd())
	run := &progressorv1.Run{RunId: r.GetRunId()}
	if ended {
		run.FinishedTime = timestamppb.Now()
	}
	return &progressorv1.GetRunResponse{Run: run}, err
}

// AwaitJob and AwaitRun send requests until the job or run has ended, even if engines stop and
// start. They retry each request up to Retry.MaxAttempts times, and call the given function with
// each response. Only the first request does not wait for the end.
func TestAwaitEnd(t *testing.T) {
	t.Parallel()
	e := &scriptedReads{}
	mux := http.NewServeMux()
	mux.Handle(progressorv1connect.NewJobServiceHandler(e))
	mux.Handle(progressorv1connect.NewFlowServiceHandler(e))
	server := httptest.NewServer(mux)
	t.Cleanup(server.Close)
	c := client.New(server.URL,
		client.WithRetry(client.Retry{MaxAttempts: 3, Initial: time.Millisecond, Max: time.Millisecond}))
	down, enough := []error{unavailable(), unavailable()}, errors.New("enough")
	for what, await := range map[string]func(seen func() error) (id string, err error){
		"job": func(seen func() error) (string, error) {
			req := &progressorv1.GetJobRequest{Namespace: "n", JobId: "x", AwaitEnd: durationpb.New(time.Second)}
			job, err := c.AwaitJob(t.Context(), req, func(*progressorv1.Job) error { return seen() })
			return job.GetJobId(), err
		},
		"run": func(seen func() error) (string, error) {
			req := &progressorv1.GetRunRequest{Namespace: "n", RunId: "x", AwaitEnd: durationpb.New(time.Second)}
			run, err := c.AwaitRun(t.Context(), req, func(*progressorv1.Run) error { return seen() })
			return run.GetRunId(), err
		},
	} {
		e.script, e.waits = append(append([]error{nil}, down...), append(append([]error{nil}, down...), nil)...), nil
		answers := 0
		id, err := await(func() error { answers++; return nil })
		if err != nil || id != "x" || answers != 3 || len(e.waits) != 7 || e.waits[0] != 0 ||
			e.waits[6] != time.Second {
			t.Errorf("%s: %q, %v after %d answers, waits %v", what, id, err, answers, e.waits)
		}
		e.script = append(down, unavailable(), nil)
		if _, err := await(func() error { return nil }); err == nil {
			t.Errorf("%s: no error, although no engine responds", what)
		}
		e.script = []error{nil, nil}
		if _, err := await(func() error { return enough }); !errors.Is(err, enough) {
			t.Errorf("%s: %v after seen returned an error", what, err)
		}
	}
}

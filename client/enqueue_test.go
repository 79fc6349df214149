package client_test

import (
	"context"
	"strings"
	"testing"
	"time"

	"google.golang.org/protobuf/types/known/timestamppb"

	"github.com/progressor-engine/progressor/client"
	"github.com/progressor-engine/progressor/engine/enginetest"
	"github.com/progressor-engine/progressor/processor"
	progressorv1 "github.com/progressor-engine/progressor/proto/progressor/v1"
	"github.com/progressor-engine/progressor/storage/storagetest"
)

// mail contains the args of the jobs in these tests.
type mail struct {
	To   string   `json:"to"`
	Tags []string `json:"tags"`
}

// The handler of a job gets the args that Enqueue has sent, decoded to the same type. The options
// of Enqueue take effect: job options, job ID, delay and idempotency key.
func TestEnqueueTyped(t *testing.T) {
	h := newTestEngine(t)
	got := make(chan mail, 1)
	h.worker(h.client, func(w *client.Worker) {
		client.Handle(w, "send", func(_ context.Context, m mail) (int, error) {
			got <- m
			return len(m.Tags), nil
		})
	})
	sent := mail{To: "ann", Tags: []string{"a", "b"}}
	resp, err := client.Enqueue(t.Context(), h.client, "pull", "send", sent,
		client.WithJobID("j"), client.WithJobOptions(&progressorv1.JobOptions{KeepResult: true}))
	if err != nil || !resp.GetEnqueued() || resp.GetJob().GetJobId() != "j" {
		t.Fatalf("%v, %v", resp, err)
	}
	if m := <-got; m.To != "ann" || len(m.Tags) != 2 {
		t.Errorf("%v", m)
	}
	if job := h.job("j", progressorv1.JobState_JOB_STATE_SUCCEEDED); job.GetResult().GetNumberValue() != 2 {
		t.Errorf("%v", job)
	}
	for n, want := range []bool{true, false} {
		resp, err := client.Enqueue(t.Context(), h.client, "pull", "send", sent,
			client.WithIdempotencyKey("k"), client.WithDelay(time.Hour))
		if err != nil || resp.GetEnqueued() != want ||
			resp.GetJob().GetState() != progressorv1.JobState_JOB_STATE_SCHEDULED {
			t.Errorf("%d: %v, %v", n, resp, err)
		}
		if in := time.Until(resp.GetJob().GetRunTime().AsTime()); in < 50*time.Minute || in > 70*time.Minute {
			t.Errorf("%d: runs in %s", n, in)
		}
	}
}

// Enqueue returns an error that names the problem if args cannot be encoded exactly, or that names
// the field if the request is invalid.
func TestEnqueueInvalid(t *testing.T) {
	h := newTestEngine(t)
	for want, enqueue := range map[string]func() (*progressorv1.EnqueueResponse, error){
		"unsupported type": func() (*progressorv1.EnqueueResponse, error) {
			return client.Enqueue(t.Context(), h.client, "pull", "send", func() {})
		},
		"beyond 2^53": func() (*progressorv1.EnqueueResponse, error) {
			return client.Enqueue(t.Context(), h.client, "pull", "send", int64(1)<<60+1)
		},
		"delay: must not be set together with options.run_time": func() (*progressorv1.EnqueueResponse, error) {
			return client.Enqueue(t.Context(), h.client, "pull", "send", 1, client.WithDelay(time.Second),
				client.WithJobOptions(&progressorv1.JobOptions{RunTime: timestamppb.Now()}))
		},
		"delay": func() (*progressorv1.EnqueueResponse, error) {
			return client.Enqueue(t.Context(), h.client, "pull", "send", 1, client.WithDelay(-time.Second))
		},
	} {
		if resp, err := enqueue(); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v, %v, want %s", resp, err, want)
		}
	}
}

// The engine chooses the IDs of jobs from their idempotency keys. With the keys that the client
// adds, these IDs are in the order of the requests.
func TestEnqueuedIDsGrow(t *testing.T) {
	t.Parallel()
	n := enginetest.Start(t, storagetest.DSN(t), processor.Echo(), enginetest.Kinds)
	h := newServer(t, n, nil)
	const jobs = 10
	last := ""
	for range jobs {
		resp, err := h.client.Enqueue(t.Context(), &progressorv1.EnqueueRequest{Namespace: "pull", Name: "send"})
		if err != nil {
			t.Fatal(err)
		}
		id := resp.GetJob().GetJobId()
		if id <= last {
			t.Errorf("job %s was enqueued after %s", id, last)
		}
		last = id
	}
	var keys int
	if err := n.DB.QueryRow(t.Context(), "SELECT count(*) FROM requests").Scan(&keys); err != nil || keys != jobs {
		t.Errorf("%d of %d requests had a key, %v", keys, jobs, err)
	}
}

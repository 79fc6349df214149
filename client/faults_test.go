package client_test

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"math"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/durationpb"
	"google.golang.org/protobuf/types/known/structpb"

	"github.com/progressor-engine/progressor/client"
	"github.com/progressor-engine/progressor/engine/enginetest"
	"github.com/progressor-engine/progressor/processor"
	progressorv1 "github.com/progressor-engine/progressor/proto/progressor/v1"
)

// Progress that the engine rejects does not end the heartbeats of the worker.
func TestRefusedProgress(t *testing.T) {
	deep := map[string]any{}
	for range 200 {
		deep = map[string]any{"x": deep}
	}
	for name, report := range map[string]func(context.Context) error{
		"not a number": func(ctx context.Context) error {
			return client.ReportDetails(ctx, math.NaN(), "", map[string]any{"a": 1})
		},
		"nested too deeply": func(ctx context.Context) error {
			return client.ReportDetails(ctx, 1, "", deep)
		},
	} {
		t.Run(name, func(t *testing.T) {
			h := newTestEngine(t)
			w := h.worker(h.client, func(w *client.Worker) {
				client.Handle(w, "work", func(ctx context.Context, _ any) (any, error) {
					if err := report(ctx); err != nil {
						t.Error(err)
					}
					h.awaitExtension(ctx, "j")
					return nil, ctx.Err()
				})
			})
			h.enqueue("j", "work", nil, &progressorv1.JobOptions{
				LeaseDuration:     durationpb.New(testTimeout),
				HeartbeatInterval: durationpb.New(50 * time.Millisecond),
			})
			if job := h.job("j", succeeded); job.GetAttempt() != 1 {
				t.Errorf("%v", job)
			}
			if a := w.outcome(t); a.Outcome != client.OutcomeDone {
				t.Errorf("%v", a)
			}
		})
	}
}

// awaitExtension waits until the lease of ctx has been extended by a second, or until ctx ends.
func (h *testEngine) awaitExtension(ctx context.Context, id string) {
	want := client.LeaseOf(ctx).GetExpiresTime().AsTime().Add(time.Second)
	enginetest.Eventually(h.t, testTimeout, "the lease is extended", func() bool {
		resp, err := h.client.Job.GetJob(h.t.Context(), &progressorv1.GetJobRequest{Namespace: "pull", JobId: id})
		return ctx.Err() != nil || err == nil && resp.GetJob().GetLeaseExpiresTime().AsTime().After(want)
	})
}

// An answer that protobuf cannot encode fails its job with the reason bad_response.
func TestUnencodableAnswer(t *testing.T) {
	h := newTestEngine(t)
	h.worker(h.client, func(w *client.Worker) {
		w.HandleJob("odd", processor.Func(
			func(context.Context, *progressorv1.ProcessRequest) (*progressorv1.ProcessResponse, error) {
				return &progressorv1.ProcessResponse{Outcome: &progressorv1.ProcessResponse_Result{
					Result: &progressorv1.Result{JobResult: structpb.NewStringValue("\xff")},
				}}, nil
			}))
	})
	h.enqueue("j", "odd", nil, nil)
	if f := h.job("j", failed).GetFailures(); len(f) != 1 || f[0].GetReason() != "bad_response" {
		t.Errorf("%v", f)
	}
}

// denyingTransport is the connection of a worker that may not send commands.
type denyingTransport struct{ denied atomic.Int32 }

func (d *denyingTransport) RoundTrip(req *http.Request) (*http.Response, error) {
	if !strings.HasSuffix(req.URL.Path, "/CompleteBatch") {
		return http.DefaultTransport.RoundTrip(req)
	}
	body, err := io.ReadAll(req.Body)
	if err != nil {
		return nil, err
	}
	var batch progressorv1.CompleteBatchRequest
	if err := proto.Unmarshal(body, &batch); err != nil {
		return nil, err
	}
	for _, a := range batch.GetAnswers() {
		if len(a.GetResponse().GetResult().GetCommands()) > 0 {
			d.denied.Add(1)
			return &http.Response{
				StatusCode: http.StatusForbidden, Request: req,
				Header: http.Header{"Content-Type": {"application/json"}},
				Body: io.NopCloser(strings.NewReader(
					`{"code":"permission_denied","message":"it may not call other"}`)),
			}, nil
		}
	}
	req.Body = io.NopCloser(bytes.NewReader(body))
	return http.DefaultTransport.RoundTrip(req)
}

// An answer with a command that the worker may not send fails only its own job.
func TestDeniedCommand(t *testing.T) {
	h := newTestEngine(t)
	transport := &denyingTransport{}
	release := make(chan struct{})
	h.worker(client.New(h.url, client.WithHTTPClient(&http.Client{Transport: transport})), func(w *client.Worker) {
		client.Handle(w, "work", func(context.Context, any) (any, error) {
			<-release
			return nil, nil
		})
		w.HandleJob("call", processor.Func(
			func(context.Context, *progressorv1.ProcessRequest) (*progressorv1.ProcessResponse, error) {
				<-release
				return processor.Result().Command(&progressorv1.Command{Command: &progressorv1.Command_Notify{
					Notify: &progressorv1.NotifyCommand{Namespace: "other", ProcessId: "p"},
				}}).Done()
			}))
	}, client.WithConcurrency(20))
	for n := range 10 {
		h.enqueue(fmt.Sprint("j", n), "work", nil, nil)
	}
	h.enqueue("denied", "call", nil, nil)
	close(release)
	for n := range 10 {
		h.job(fmt.Sprint("j", n), succeeded)
	}
	if f := h.job("denied", failed).GetFailures(); len(f) != 1 || f[0].GetReason() != "bad_response" ||
		!strings.Contains(f[0].GetMessage(), "it may not call other") {
		t.Errorf("%v", f)
	}
	if n := transport.denied.Load(); n > 3 {
		t.Errorf("%d requests were denied", n)
	}
}

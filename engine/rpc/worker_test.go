package rpc

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"

	"connectrpc.com/connect"
	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/progressor-engine/progressor/engine/enginetest"
	"github.com/progressor-engine/progressor/processor"
	progressorv1 "github.com/progressor-engine/progressor/proto/progressor/v1"
	"github.com/progressor-engine/progressor/proto/progressor/v1/progressorv1connect"
	"github.com/progressor-engine/progressor/storage/storagetest"
)

// Each answer of a batch has its own outcome: stored, lost, or invalid.
func TestCompleteBatch(t *testing.T) {
	t.Parallel()
	w := newServedEngine(t)
	ctx := t.Context()
	_, err := progressorv1connect.NewNamespaceServiceClient(http.DefaultClient, w.url).PutNamespace(ctx,
		&progressorv1.PutNamespaceRequest{
			Namespace: &progressorv1.Namespace{Namespace: "pull", Processor: &progressorv1.ProcessorConfig{
				Transport: &progressorv1.ProcessorConfig_Pull{Pull: &progressorv1.PullProcessor{}},
			}},
		})
	if err != nil {
		t.Fatal(err)
	}
	processes := protocols(w.url)["connect"]
	for n := range 7 {
		if _, err := processes.Start(ctx,
			&progressorv1.StartRequest{Namespace: "pull", ProcessId: fmt.Sprint(n),
				Wait: progressorv1.Wait_WAIT_ACCEPTED}); err != nil {
			t.Fatal(err)
		}
	}
	workers := progressorv1connect.NewWorkerServiceClient(http.DefaultClient, w.url)
	poll := &progressorv1.PollRequest{Namespaces: []string{"pull"}, WorkerId: "w", MaxLeases: 6,
		Wait: durationpb.New(60e9)}
	polled, err := workers.Poll(ctx, poll)
	if err != nil || len(polled.GetLeases()) != 6 {
		t.Fatalf("%v, %v", polled, err)
	}
	answers := make([]*progressorv1.LeaseAnswer, 6)
	for n, l := range polled.GetLeases() {
		if !l.GetLeasedTime().AsTime().Before(l.GetExpiresTime().AsTime()) {
			t.Errorf("leased at %v, expires at %v", l.GetLeasedTime(), l.GetExpiresTime())
		}
		answers[n] = &progressorv1.LeaseAnswer{LeaseToken: l.GetLeaseToken(),
			Answer: &progressorv1.LeaseAnswer_Response{Response: &progressorv1.ProcessResponse{
				Outcome: &progressorv1.ProcessResponse_Result{Result: &progressorv1.Result{Response: []byte("done")}},
			}}}
	}
	answers[1].Answer = nil
	answers[2].LeaseToken = "no token"
	answers[4].Answer = &progressorv1.LeaseAnswer_Response{
		Response: &progressorv1.ProcessResponse{Outcome: &progressorv1.ProcessResponse_Failure{
			Failure: &progressorv1.Failure{Reason: "a\x00b"},
		}}}
	if _, err := workers.Release(ctx,
		&progressorv1.ReleaseRequest{WorkerId: "w", LeaseTokens: []string{answers[3].GetLeaseToken()}}); err != nil {
		t.Fatal(err)
	}
	none := progressorv1.ErrorDetail_REASON_UNSPECIFIED
	invalid, lost := progressorv1.ErrorDetail_REASON_INVALID, progressorv1.ErrorDetail_REASON_LEASE_LOST
	want := []struct {
		reason progressorv1.ErrorDetail_Reason
		field  string
	}{{none, ""}, {invalid, "answers[1].answer"}, {invalid, "answers[2].lease_token"}, {lost, ""},
		{invalid, "answers[4].response.failure.reason"}, {none, ""}}
	for round := range 2 { // repeated answers have the same outcomes
		resp, err := workers.CompleteBatch(ctx, &progressorv1.CompleteBatchRequest{Answers: answers, Next: poll})
		if err != nil || len(resp.GetOutcomes()) != len(answers) {
			t.Fatalf("round %d: %v, %v", round, resp, err)
		}
		for n, o := range resp.GetOutcomes() {
			d := o.GetError().GetDetail()
			if (o.GetError() == nil) != (want[n].reason == none) || d.GetReason() != want[n].reason ||
				d.GetField() != want[n].field {
				t.Errorf("round %d, answer %d: %v", round, n, o)
			}
		}
		if round == 0 && len(resp.GetNext()) == 0 {
			t.Error("no next lease")
		}
		poll.Wait = nil
	}
	// A lease must not have two answers in a batch, because the result would depend on their
	// order. The lease of answers[1], whose answer was invalid, is still held.
	twice := &progressorv1.LeaseAnswer{LeaseToken: answers[1].GetLeaseToken(), Answer: answers[0].GetAnswer()}
	_, err = workers.CompleteBatch(ctx,
		&progressorv1.CompleteBatchRequest{Answers: []*progressorv1.LeaseAnswer{twice, answers[2], answers[2], twice}})
	requireCode(t, err, connect.CodeInvalidArgument)
	if d := detailOf(err); d.GetField() != "answers[3].lease_token" {
		t.Errorf("%v", d)
	}
	beat, err := workers.Heartbeat(ctx,
		&progressorv1.HeartbeatRequest{WorkerId: "w",
			Beats: []*progressorv1.LeaseBeat{{LeaseToken: twice.GetLeaseToken()}}})
	if err != nil || beat.GetDirectives()[0].GetDirective() != progressorv1.LeaseDirective_DIRECTIVE_CONTINUE {
		t.Errorf("the lease was answered nevertheless: %v, %v", beat, err)
	}
	// The client learns that its answer is stored, even if the next poll is invalid.
	pushed := &progressorv1.PollRequest{Namespaces: []string{"n"}, WorkerId: "w"}
	one, err := workers.Complete(ctx, &progressorv1.CompleteRequest{
		LeaseToken: answers[0].GetLeaseToken(),
		Answer:     &progressorv1.CompleteRequest_Response{Response: answers[0].GetResponse()}, Next: pushed,
	})
	if err != nil || len(one.GetNext()) != 0 {
		t.Errorf("%v, %v", one, err)
	}
	batch, err := workers.CompleteBatch(ctx, &progressorv1.CompleteBatchRequest{Answers: answers[:1], Next: pushed})
	if err != nil || len(batch.GetNext()) != 0 || batch.GetOutcomes()[0].GetError() != nil {
		t.Errorf("%v, %v", batch, err)
	}
	_, err = workers.CompleteBatch(ctx,
		&progressorv1.CompleteBatchRequest{Answers: answers, Next: &progressorv1.PollRequest{WorkerId: "w"}})
	requireCode(t, err, connect.CodeInvalidArgument)
}

// Tasks become available immediately if the response with their leases does not reach the worker.
func TestUndeliveredLeasesAreReleased(t *testing.T) {
	t.Parallel()
	n := enginetest.Start(t, storagetest.DSN(t), processor.Echo())
	n.Put(t, enginetest.Pull("pull"))
	h := NewHandler(Config{Engine: n.Engine, Insight: n.Insight, Workers: n.Server})
	gone := listen(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		ctx, disconnect := context.WithCancel(r.Context())
		defer disconnect()
		h.ServeHTTP(disconnecting{w, disconnect}, r.WithContext(ctx))
	}))
	url := listen(t, h)
	there := progressorv1connect.NewWorkerServiceClient(http.DefaultClient, url)
	away := progressorv1connect.NewWorkerServiceClient(http.DefaultClient, gone)
	poll := &progressorv1.PollRequest{Namespaces: []string{"pull"}, WorkerId: "w", Wait: durationpb.New(60e9)}
	// The poll does not wait, because a lease without a heartbeat expires after 20 s.
	now := &progressorv1.PollRequest{Namespaces: []string{"pull"}, WorkerId: "w"}
	// leased checks that leases are one lease of a process, and that a poll gets it again.
	leased := func(id string, leases []*progressorv1.Lease, err error) *progressorv1.Lease {
		t.Helper()
		var again *progressorv1.PollResponse
		if err == nil {
			again, err = there.Poll(t.Context(), now)
		}
		for _, got := range [][]*progressorv1.Lease{leases, again.GetLeases()} {
			if err != nil || len(got) != 1 || got[0].GetRequest().GetProcess().GetProcessId() != id {
				t.Fatalf("%v, %v", got, err)
			}
		}
		return again.GetLeases()[0]
	}
	start := func(id string) {
		t.Helper()
		if _, err := protocols(url)["connect"].Start(t.Context(), &progressorv1.StartRequest{
			Namespace: "pull", ProcessId: id, Wait: progressorv1.Wait_WAIT_ACCEPTED,
		}); err != nil {
			t.Fatal(err)
		}
	}
	start("polled")
	polled, err := away.Poll(t.Context(), poll)
	held := leased("polled", polled.GetLeases(), err)
	start("next")
	answered, err := away.Complete(t.Context(), &progressorv1.CompleteRequest{
		LeaseToken: held.GetLeaseToken(), Next: poll,
		Answer: &progressorv1.CompleteRequest_Response{Response: &progressorv1.ProcessResponse{
			Outcome: &progressorv1.ProcessResponse_Result{Result: &progressorv1.Result{}},
		}},
	})
	leased("next", answered.GetNext(), err)
}

// disconnecting is a response whose client disconnects while the response is written.
type disconnecting struct {
	http.ResponseWriter
	disconnect func()
}

// Unwrap supports http.ResponseController.
func (w disconnecting) Unwrap() http.ResponseWriter { return w.ResponseWriter }

// Write disconnects the client before it sends data.
func (w disconnecting) Write(data []byte) (int, error) {
	w.disconnect()
	return w.ResponseWriter.Write(data)
}

// Leases are not compressed, because compressing a batch would cost more than all other work of the
// engine for the batch.
func TestLeasesAreNotCompressed(t *testing.T) {
	t.Parallel()
	w := newServedEngine(t)
	_, err := progressorv1connect.NewNamespaceServiceClient(http.DefaultClient, w.url).PutNamespace(t.Context(),
		&progressorv1.PutNamespaceRequest{
			Namespace: &progressorv1.Namespace{Namespace: "pull", Processor: &progressorv1.ProcessorConfig{
				Transport: &progressorv1.ProcessorConfig_Pull{Pull: &progressorv1.PullProcessor{}},
			}},
		})
	if err != nil {
		t.Fatal(err)
	}
	large := &progressorv1.StartRequest{Namespace: "pull", ProcessId: "p", Args: make([]byte, 4*compressMinBytes),
		Wait: progressorv1.Wait_WAIT_ACCEPTED}
	if _, err := protocols(w.url)["connect"].Start(t.Context(), large); err != nil {
		t.Fatal(err)
	}
	r, err := http.NewRequestWithContext(t.Context(), http.MethodPost,
		w.url+progressorv1connect.WorkerServicePollProcedure,
		strings.NewReader(`{"namespaces": ["pull"], "workerId": "w", "wait": "60s"}`))
	if err != nil {
		t.Fatal(err)
	}
	r.Header.Set("Content-Type", "application/json")
	r.Header.Set("Accept-Encoding", "gzip")
	answer, err := http.DefaultTransport.RoundTrip(r)
	if err != nil {
		t.Fatal(err)
	}
	defer answer.Body.Close()
	body, err := io.ReadAll(answer.Body)
	if err != nil || answer.Header.Get("Content-Encoding") != "" || len(body) < 4*compressMinBytes {
		t.Errorf("%s, %d bytes, %q, %v", answer.Status, len(body), answer.Header.Get("Content-Encoding"), err)
	}
}

package rpc

import (
	"net/http"
	"strings"
	"testing"
	"time"

	"connectrpc.com/connect"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/durationpb"
	"google.golang.org/protobuf/types/known/structpb"

	"github.com/progressor-engine/progressor/process"
	progressorv1 "github.com/progressor-engine/progressor/proto/progressor/v1"
	"github.com/progressor-engine/progressor/proto/progressor/v1/progressorv1connect"
	"github.com/progressor-engine/progressor/storage/storagetest"
)

// puller is a worker of the namespace "pull", which sends single requests.
type puller struct {
	t   *testing.T
	dsn string
	progressorv1connect.WorkerServiceClient
	processes progressorv1connect.ProcessServiceClient
}

func newPuller(t *testing.T) *puller {
	t.Helper()
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
	return &puller{t, w.dsn, progressorv1connect.NewWorkerServiceClient(http.DefaultClient, w.url),
		progressorv1connect.NewProcessServiceClient(http.DefaultClient, w.url)}
}

// leased returns the lease of the next task.
func (p *puller) leased() *progressorv1.Lease {
	p.t.Helper()
	polled, err := p.Poll(p.t.Context(), &progressorv1.PollRequest{
		Namespaces: []string{"pull"}, WorkerId: "w", MaxLeases: 1, Wait: durationpb.New(time.Minute)})
	if err != nil || len(polled.GetLeases()) != 1 {
		p.t.Fatalf("%v, %v", polled, err)
	}
	return polled.GetLeases()[0]
}

func (p *puller) complete(l *progressorv1.Lease, lastEventID int64, r *progressorv1.Result) error {
	_, err := p.Complete(p.t.Context(), &progressorv1.CompleteRequest{
		LeaseToken: l.GetLeaseToken(), LastEventId: lastEventID,
		Answer: &progressorv1.CompleteRequest_Response{Response: &progressorv1.ProcessResponse{
			Outcome: &progressorv1.ProcessResponse_Result{Result: r}}},
	})
	return err
}

// started starts a process and returns its INIT lease.
func (p *puller) started(id string) *progressorv1.Lease {
	p.t.Helper()
	_, err := p.processes.Start(p.t.Context(), &progressorv1.StartRequest{
		Namespace: "pull", ProcessId: id, Wait: progressorv1.Wait_WAIT_ACCEPTED})
	if err != nil {
		p.t.Fatal(err)
	}
	return p.leased()
}

// fired starts a process and returns its INIT lease, and then the lease of its timer.
func (p *puller) fired(id string) (initial, timer *progressorv1.Lease) {
	p.t.Helper()
	initial = p.started(id)
	if err := p.complete(initial, 0, &progressorv1.Result{Action: timerNow()}); err != nil {
		p.t.Fatal(err)
	}
	return initial, p.leased()
}

func timerNow() *progressorv1.Result_SetTimer {
	return &progressorv1.Result_SetTimer{SetTimer: &progressorv1.SetTimer{
		When: &progressorv1.SetTimer_After{After: durationpb.New(0)}}}
}

func newEvents(texts ...string) []*progressorv1.NewEvent {
	list := make([]*progressorv1.NewEvent, len(texts))
	for n, text := range texts {
		list[n] = &progressorv1.NewEvent{Payload: []byte(text), Metadata: labels("of", text)}
	}
	return list
}

func labels(name, value string) *structpb.Struct {
	return &structpb.Struct{Fields: map[string]*structpb.Value{name: structpb.NewStringValue(value)}}
}

func (p *puller) process(id string) (row *progressorv1.Process, history string) {
	p.t.Helper()
	resp, err := p.processes.GetProcess(p.t.Context(),
		&progressorv1.GetProcessRequest{Namespace: "pull", ProcessId: id})
	if err != nil {
		p.t.Fatal(err)
	}
	var texts []string
	for _, e := range resp.GetProcess().GetHistory() {
		texts = append(texts, string(e.GetPayload()))
	}
	return resp.GetProcess(), strings.Join(texts, " ")
}

// A checkpoint is stored while its lease is held. If it is sent again, it is stored only once. The
// result follows the checkpoint, even if the worker does not report the checkpoint to this node.
func TestCheckpoint(t *testing.T) {
	t.Parallel()
	p := newPuller(t)
	initial, l := p.fired("p")
	if initial.GetMayCheckpoint() || !l.GetMayCheckpoint() {
		t.Errorf("may_checkpoint: %v, %v", initial.GetMayCheckpoint(), l.GetMayCheckpoint())
	}
	first := &progressorv1.CheckpointRequest{
		LeaseToken: l.GetLeaseToken(), Events: newEvents("a", "b"), AuxState: []byte("state"),
		Metadata: labels("x", "y"),
	}
	for range 2 {
		made, err := p.Checkpoint(t.Context(), first)
		if err != nil || made.GetLastEventId() != 2 || made.GetYield() {
			t.Fatalf("%v, %v", made, err)
		}
	}
	row, history := p.process("p")
	if history != "a b" || string(row.GetAuxState()) != "state" || row.GetMetadata().AsMap()["x"] != "y" {
		t.Errorf("%s, %v", history, row)
	}
	if _, err := p.processes.Call(t.Context(), &progressorv1.CallRequest{
		Namespace: "pull", ProcessId: "p", Wait: progressorv1.Wait_WAIT_ACCEPTED}); err != nil {
		t.Fatal(err)
	}
	second := &progressorv1.CheckpointRequest{LeaseToken: l.GetLeaseToken(), LastEventId: 2, Events: newEvents("c")}
	made, err := p.Checkpoint(t.Context(), second)
	if err != nil || made.GetLastEventId() != 3 || !made.GetYield() {
		t.Errorf("%v, %v", made, err)
	}
	if err := p.complete(l, 0, &progressorv1.Result{Events: newEvents("d")}); err != nil {
		t.Error(err)
	}
	if row, history = p.process("p"); history != "a b c d" || row.GetLastEventId() != 4 {
		t.Errorf("%s, %v", history, row)
	}
	for _, late := range []*progressorv1.CheckpointRequest{
		second, {LeaseToken: l.GetLeaseToken(), LastEventId: 4, Events: newEvents("e")},
	} {
		_, err = p.Checkpoint(t.Context(), late)
		requireCode(t, err, connect.CodeFailedPrecondition)
		if d := detailOf(err); d.GetReason() != progressorv1.ErrorDetail_REASON_LEASE_LOST {
			t.Errorf("a late checkpoint: %v", err)
		}
	}
	if _, history = p.process("p"); history != "a b c d" {
		t.Error(history)
	}
}

// A worker stores a checkpoint in its own transaction. The engine learns of it from the last event
// that the worker sends with a checkpoint or with the result. The next attempt gets these events.
func TestCheckpointFromSQL(t *testing.T) {
	t.Parallel()
	p := newPuller(t)
	_, l := p.fired("p")
	db := storagetest.Connect(t, p.dsn)
	store := func(after int64, event string) (last int64, err error) {
		err = db.QueryRow(t.Context(), "SELECT progressor.checkpoint($1, $2, $3)", l.GetLeaseToken(), after,
			[][]byte{[]byte(event)}).Scan(&last)
		return last, err
	}
	if last, err := store(0, "a"); err != nil || last != 1 {
		t.Fatalf("%d, %v", last, err)
	}
	made, err := p.Checkpoint(t.Context(), &progressorv1.CheckpointRequest{
		LeaseToken: l.GetLeaseToken(), LastEventId: 1, Events: newEvents("b")})
	if err != nil || made.GetLastEventId() != 2 {
		t.Fatalf("%v, %v", made, err)
	}
	if last, err := store(2, "c"); err != nil || last != 3 {
		t.Fatalf("%d, %v", last, err)
	}
	if _, err := p.Release(t.Context(), &progressorv1.ReleaseRequest{
		WorkerId: "w", LeaseTokens: []string{l.GetLeaseToken()}}); err != nil {
		t.Fatal(err)
	}
	if last, err := store(3, "late"); err == nil {
		t.Fatalf("a released attempt stores a checkpoint: %d", last)
	}
	l = p.leased()
	if n := len(l.GetRequest().GetProcess().GetHistory()); n != 3 {
		t.Errorf("the next attempt gets %d events", n)
	}
	if last, err := store(3, "d"); err != nil || last != 4 {
		t.Fatalf("%d, %v", last, err)
	}
	if err := p.complete(l, 4, &progressorv1.Result{Events: newEvents("e")}); err != nil {
		t.Error(err)
	}
	if row, history := p.process("p"); history != "a b c d e" || row.GetLastEventId() != 5 {
		t.Errorf("%s, %v", history, row)
	}
}

// A checkpoint is rejected if it does not follow the last event, if it differs from the one that is
// stored in its place, or if it exceeds a limit of a result. The lease stays valid.
func TestCheckpointsThatAreRejected(t *testing.T) {
	t.Parallel()
	p := newPuller(t)
	initial, l := p.fired("p")
	made := &progressorv1.CheckpointRequest{LeaseToken: l.GetLeaseToken(), Events: newEvents("a", "b")}
	if _, err := p.Checkpoint(t.Context(), made); err != nil {
		t.Fatal(err)
	}
	large := make([]byte, process.MaxPayloadBytes+1)
	for name, c := range map[string]struct {
		change func(*progressorv1.CheckpointRequest)
		want   string
	}{
		"another event": {func(r *progressorv1.CheckpointRequest) { r.Events = newEvents("a", "c") },
			"last_event_id: event 2 is already stored, with other content"},
		"other metadata": {func(r *progressorv1.CheckpointRequest) { r.Events[0].Metadata = labels("of", "x") },
			"last_event_id: event 1 is already stored, with other content"},
		"fewer events": {func(r *progressorv1.CheckpointRequest) { r.Events = newEvents("a") },
			"last_event_id: must be 2, the last event of the process (got 0)"},
		"later events": {func(r *progressorv1.CheckpointRequest) { r.LastEventId = 7 },
			"last_event_id: must be 2, the last event of the process (got 7)"},
		"no events":     {func(r *progressorv1.CheckpointRequest) { r.Events = nil }, "events: must contain"},
		"a large state": {func(r *progressorv1.CheckpointRequest) { r.AuxState = large }, "aux_state: must be at most"},
		"a large event": {func(r *progressorv1.CheckpointRequest) { r.Events[1].Payload = large },
			"events[1].payload: must be at most"},
		"large metadata": {func(r *progressorv1.CheckpointRequest) {
			r.Metadata = labels("x", strings.Repeat("y", process.MaxMetadataBytes))
		}, "metadata: must have at most"},
		"large metadata of an event": {func(r *progressorv1.CheckpointRequest) {
			r.Events[1].Metadata = labels("x", strings.Repeat("y", process.MaxMetadataBytes))
		}, "events[1].metadata: must have at most"},
		"no lease": {func(r *progressorv1.CheckpointRequest) { r.LeaseToken = "x" },
			"lease_token: must be the lease_token"},
		"an INIT": {func(r *progressorv1.CheckpointRequest) { r.LeaseToken = p.started("q").GetLeaseToken() },
			"lease_token: only TIMEOUT and CANCEL tasks"},
	} {
		r := proto.CloneOf(made)
		c.change(r)
		_, err := p.Checkpoint(t.Context(), r)
		if connect.CodeOf(err) != connect.CodeInvalidArgument || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: %v", name, err)
		}
	}
	_, err := p.Checkpoint(t.Context(),
		&progressorv1.CheckpointRequest{LeaseToken: initial.GetLeaseToken(), Events: newEvents("a")})
	requireCode(t, err, connect.CodeFailedPrecondition)
	err = p.complete(l, 1, &progressorv1.Result{Events: newEvents("c")})
	if d := detailOf(err); d.GetReason() != progressorv1.ErrorDetail_REASON_INVALID || d.GetField() != "last_event_id" {
		t.Errorf("a result after event 1: %v", err)
	}
	_, err = p.Complete(t.Context(), &progressorv1.CompleteRequest{
		LeaseToken: l.GetLeaseToken(),
		Answer: &progressorv1.CompleteRequest_Response{Response: &progressorv1.ProcessResponse{
			LastEventId: 2, Outcome: &progressorv1.ProcessResponse_Result{Result: &progressorv1.Result{}}}},
	})
	if d := detailOf(err); d.GetField() != "response.last_event_id" {
		t.Errorf("a number in the response: %v", err)
	}
	if err := p.complete(l, 2, &progressorv1.Result{Events: newEvents("c")}); err != nil {
		t.Error(err)
	}
	if _, history := p.process("p"); history != "a b c" {
		t.Error(history)
	}
}

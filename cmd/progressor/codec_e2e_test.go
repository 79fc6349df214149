package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"connectrpc.com/connect"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/durationpb"
	"google.golang.org/protobuf/types/known/structpb"
	"google.golang.org/protobuf/types/known/timestamppb"

	"github.com/progressor-engine/progressor/client"
	"github.com/progressor-engine/progressor/processor"
	"github.com/progressor-engine/progressor/processor/codec"
	progressorv1 "github.com/progressor-engine/progressor/proto/progressor/v1"
	"github.com/progressor-engine/progressor/storage/storagetest"
)

// keys is a codec whose keys a test can replace.
type keys struct{ current atomic.Pointer[codec.AESGCM] }

// newKeys returns a codec with keys. Each key is the last byte of its ID, repeated. The first key
// encrypts.
func newKeys(t *testing.T, ids ...string) *keys {
	t.Helper()
	k := &keys{}
	k.set(t, ids...)
	return k
}

func (k *keys) set(t *testing.T, ids ...string) {
	t.Helper()
	all := map[string][]byte{}
	for _, id := range ids {
		name, secret, found := strings.Cut(id, "=")
		if !found {
			secret = name
		}
		all[name] = bytes.Repeat([]byte{secret[len(secret)-1]}, codec.KeyBytes)
	}
	active, _, _ := strings.Cut(ids[0], "=")
	c, err := codec.NewAESGCM(active, all)
	if err != nil {
		t.Fatal(err)
	}
	k.current.Store(c)
}

func (k *keys) Encode(ctx context.Context, p codec.Payload) ([]byte, error) {
	return k.current.Load().Encode(ctx, p)
}
func (k *keys) Decode(ctx context.Context, p codec.Payload) ([]byte, error) {
	return k.current.Load().Decode(ctx, p)
}

// All payloads of these tests begin with hunter2-, as noSecrets expects.
const inClear = "hunter2-"

// decodedProcessor is a processor that fails if it gets a payload that is not decoded.
func decodedProcessor(_ context.Context, r *progressorv1.ProcessRequest) (*progressorv1.ProcessResponse, error) {
	payloads := [][]byte{r.GetArgs(), r.GetContext(), r.GetProcess().GetAuxState(), r.GetChild().GetResponse()}
	for _, e := range r.GetProcess().GetHistory() {
		payloads = append(payloads, e.GetPayload())
	}
	for _, p := range payloads {
		if len(p) > 0 && !strings.HasPrefix(string(p), inClear) {
			return nil, processor.Fail("not_decoded", "got %q", p)
		}
	}
	args := strings.TrimPrefix(string(r.GetArgs()), inClear)
	result := processor.Result().Event([]byte(inClear + "event")).AuxState([]byte(inClear + "state of " + args)).
		Response([]byte(inClear + "did " + args))
	switch {
	case r.GetChild() != nil:
		result.AuxState([]byte(inClear + "state after " + string(r.GetChild().GetResponse())))
	case args == "reject":
		return nil, processor.Reject("no", "rejected by the test").WithDetails([]byte(inClear + "details"))
	case args == "fail":
		return nil, processor.Fail("broken", "failed by the test").WithDetails(inClear + "details")
	case args == "parent":
		result.StartChild("", "child", []byte(inClear+"child"), []byte(inClear+"notify"))
	case args == "child":
		result.Complete()
	case args == "timer":
		result.SetTimerAfter(0)
	}
	return result.Done()
}

// coded is an engine whose clients and processors have a codec.
type coded struct {
	*testing.T
	dsn string
	url string
	c   *client.Client
	log func() string
}

// newCoded runs an engine with two namespaces: orders, whose processor has the codec p, and work
// for workers. The client has the codec c.
func newCoded(t *testing.T, p, c codec.Codec) *coded {
	t.Helper()
	t.Parallel()
	dsn := storagetest.DSN(t)
	d := background(t, nil, "serve", "--listen", "127.0.0.1:0", "--log.level", "debug", "--db.dsn", dsn)
	served := httptest.NewServer(processor.Handler(processor.Func(decodedProcessor), processor.WithCodec(p),
		processor.WithLogger(slog.New(slog.DiscardHandler))))
	t.Cleanup(served.Close)
	d.Client.OK(t, "namespace", "put", "orders", "--connect-url", served.URL, "--changes", "event,lifecycle",
		"--change-payloads")
	d.Client.OK(t, "namespace", "put", "work", "--pull")
	return &coded{t, dsn, d.URL, client.New(d.URL, client.WithCodec(c)), d.Log.String}
}

func (e *coded) ok(err error) {
	e.Helper()
	if err != nil {
		e.Fatal(err)
	}
}

func (e *coded) want(what, got, want string) {
	e.Helper()
	if got != want {
		e.Errorf("%s is %q, want %q", what, got, want)
	}
}

// call calls order-1 with an idempotency key.
func (e *coded) call(c *client.Client, args, key string) (string, error) {
	resp, err := c.Call(e.Context(), &progressorv1.CallRequest{
		Namespace: "orders", ProcessId: "order-1", Args: []byte(inClear + args), IdempotencyKey: key,
		Context: []byte(inClear + "context"), Range: &progressorv1.HistoryRange{},
	})
	return string(resp.GetResponse()), err
}

// work runs a worker of the namespace work, with the codec c, until stop is called.
func (e *coded) work(c codec.Codec, handle func(context.Context, note) (note, error)) (stop func()) {
	e.Helper()
	return e.worker(c, func(w *client.Worker) { client.Handle(w, "send", handle) })
}

// worker is like work, but runs all handlers that register adds.
func (e *coded) worker(c codec.Codec, register func(*client.Worker)) (stop func()) {
	e.Helper()
	w := client.NewWorker(client.New(e.url, client.WithCodec(c)), []string{"work"},
		client.WithWorkerLogger(slog.New(slog.DiscardHandler)))
	register(w)
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- w.Run(ctx) }()
	stop = func() {
		cancel()
		if err := <-ended; err != nil {
			e.Errorf("Run: %v", err)
		}
	}
	return stop
}

// note is the args and the result of a job.
type note struct {
	Text string `json:"text"`
}

func valueOfNote(text string) *structpb.Value {
	return structpb.NewStructValue(&structpb.Struct{Fields: map[string]*structpb.Value{
		"text": structpb.NewStringValue(inClear + text)}})
}

// TestPayloadsAreEncrypted searches all tables and the log for payloads in the clear, after a
// client, a processor and a worker with a codec have stored payloads.
func TestPayloadsAreEncrypted(t *testing.T) {
	k := newKeys(t, "k1")
	e := newCoded(t, k, k)
	e.processes()
	e.rejections()
	e.watches()
	e.jobs(k)
	e.flows(k)
	e.composed(k)
	owner := storagetest.Connect(t, e.dsn)
	noSecretsStored(t, owner)
	noSecrets(t, "the log", e.log())
	encoded := 0
	for _, table := range []string{"events", "tasks", "jobs", "flow_runs", "changes"} {
		if one(t, owner, `SELECT count(*)::text FROM `+table+` x
			WHERE x::text LIKE '%encoded%' OR x::text LIKE '%ff504752%'`) != "0" {
			encoded++
		}
	}
	if encoded < 4 {
		t.Errorf("only %d tables have encoded payloads", encoded)
	}
}

func (e *coded) processes() {
	e.Helper()
	started, err := e.c.Start(e.Context(), &progressorv1.StartRequest{
		Namespace: "orders", ProcessId: "order-1", Args: []byte(inClear + "args"), Context: []byte(inClear + "context"),
	})
	e.ok(err)
	e.want("the response of Start", string(started.GetResponse()), "hunter2-did args")
	for range 2 { // the second one is a repetition
		response, err := e.call(e.c, "tea", "key-1")
		e.ok(err)
		e.want("the response of Call", response, "hunter2-did tea")
	}
	if _, err := e.call(e.c, "coffee", "key-1"); client.Reason(err) !=
		progressorv1.ErrorDetail_REASON_IDEMPOTENCY_MISMATCH {
		e.Errorf("other args with the same key: %v", err)
	}
	_, err = e.call(e.c, "parent", "")
	e.ok(err)
	e.eventually("state after hunter2-did child")
	_, err = e.call(e.c, "timer", "")
	e.ok(err)
	e.eventually("state of ")
	trace, err := e.c.Process.TraceProcess(e.Context(),
		&progressorv1.TraceProcessRequest{Namespace: "orders", ProcessId: "order-1"})
	e.ok(err)
	if text := fmt.Sprint(trace); !strings.Contains(text, "hunter2-tea") || strings.Contains(text, codec.EncodedKey) {
		e.Errorf("the trace is %s", text)
	}
	_, err = e.c.Process.PutProcess(e.Context(), &progressorv1.PutProcessRequest{
		Namespace: "orders", ProcessId: "put", Status: progressorv1.ProcessStatus_PROCESS_STATUS_RUNNING,
		AuxState: []byte(inClear + "state"), Context: []byte(inClear + "context"),
		History: []*progressorv1.Event{{EventId: 1, Payload: []byte(inClear + "event"), Timestamp: timestamppb.Now()}},
	})
	e.ok(err)
}

// eventually waits until the state of order-1 is "hunter2-" followed by want.
func (e *coded) eventually(want string) {
	e.Helper()
	state := ""
	deadline := time.Now().Add(time.Minute)
	for state != inClear+want {
		if time.Now().After(deadline) {
			e.Fatalf("the state is %q, want %s", state, want)
		}
		got, err := e.c.Process.GetProcess(e.Context(),
			&progressorv1.GetProcessRequest{Namespace: "orders", ProcessId: "order-1"})
		e.ok(err)
		state = string(got.GetProcess().GetAuxState())
	}
}

// rejections checks details of rejections and failures, and a repair with args.
func (e *coded) rejections() {
	e.Helper()
	_, err := e.call(e.c, "reject", "")
	e.want("the rejection", string(client.Detail(err).GetRejection().GetDetails()), "hunter2-details")
	if connect.CodeOf(err) != connect.CodeFailedPrecondition {
		e.Errorf("a rejection: %v", err)
	}
	_, err = e.call(e.c, "fail", "")
	e.want("the failure", client.Detail(err).GetFailure().GetDetails().GetStringValue(), "hunter2-details")
	repaired, err := e.c.Repair(e.Context(), &progressorv1.RepairRequest{
		Namespace: "orders", ProcessId: "order-1", How: &progressorv1.RepairRequest_Processor{
			Processor: &progressorv1.RepairRequest_ProcessorRepair{Args: []byte(inClear + "repair")}},
	})
	e.ok(err)
	e.want("the response of Repair", string(repaired.GetResponse()), "hunter2-did repair")
}

var errEnough = errors.New("enough")

// watches reads events from streams.
func (e *coded) watches() {
	e.Helper()
	err := e.c.Watch(e.Context(), &progressorv1.WatchProcessRequest{Namespace: "orders", ProcessId: "order-1"},
		func(u *progressorv1.WatchProcessResponse) error {
			if u.GetEvent() == nil {
				return nil
			}
			e.want("the event", string(u.GetEvent().GetPayload()), "hunter2-event")
			return errEnough
		})
	if !errors.Is(err, errEnough) {
		e.Errorf("Watch: %v", err)
	}
	events := 0
	e.ok(e.c.WatchChanges(e.Context(), &progressorv1.WatchChangesRequest{
		Namespace: "orders", FromTime: &timestamppb.Timestamp{}, Stop: true, ProcessId: "order-1",
	}, func(u *progressorv1.WatchChangesResponse) error {
		for _, c := range u.GetChanges() {
			if c.GetKind() == progressorv1.ChangeKind_CHANGE_KIND_EVENT {
				e.want("the change", string(c.GetPayload()), "hunter2-event")
				events++
			}
		}
		return nil
	}))
	if events < 5 {
		e.Errorf("WatchChanges returned %d events", events)
	}
}

// jobs runs two jobs: a unique one whose first attempt fails, and one that a cron enqueues.
func (e *coded) jobs(k codec.Codec) {
	e.Helper()
	ofCron := make(chan string, 100)
	stop := e.work(k, func(ctx context.Context, m note) (note, error) {
		job := client.LeaseOf(ctx).GetJob()
		switch {
		case m.Text == "hunter2-cron":
			ofCron <- m.Text
		case m.Text == "hunter2-first" && job.GetAttempt() == 1:
			if err := client.ReportDetails(ctx, 50, "half", note{inClear + "progress"}); err != nil {
				return m, err
			}
			return m, processor.Fail("broken", "failed by the test").WithDetails(inClear + "details")
		case m.Text == "hunter2-first":
			e.want("the progress", client.LastProgress(ctx).GetDetails().GetFields()["text"].GetStringValue(),
				"hunter2-progress")
			e.want("the failure", job.GetFailures()[0].GetDetails().GetStringValue(), "hunter2-details")
		}
		return note{m.Text + "!"}, nil
	})
	defer stop()
	options := &progressorv1.JobOptions{MaxRetry: 1, KeepResult: true, Unique: &progressorv1.Unique{},
		Backoff: &progressorv1.Backoff{Steps: []*durationpb.Duration{durationpb.New(time.Millisecond)}}}
	enqueued := map[bool]string{}
	for range 2 {
		resp, err := client.Enqueue(e.Context(), e.c, "work", "send", note{inClear + "first"},
			client.WithJobOptions(options))
		e.ok(err)
		enqueued[resp.GetEnqueued()] = resp.GetJob().GetJobId()
	}
	if enqueued[true] == "" || enqueued[false] != enqueued[true] {
		e.Errorf("a unique job was enqueued as %v", enqueued)
	}
	job, err := e.c.AwaitJob(e.Context(), &progressorv1.GetJobRequest{Namespace: "work", JobId: enqueued[true]},
		func(*progressorv1.Job) error { return nil })
	e.ok(err)
	e.want("the args", job.GetArgs().GetStructValue().GetFields()["text"].GetStringValue(), "hunter2-first")
	fetched, err := e.c.Job.FetchResult(e.Context(),
		&progressorv1.FetchResultRequest{Namespace: "work", JobId: enqueued[true]})
	e.ok(err)
	e.want("the result", fetched.GetResult().GetStructValue().GetFields()["text"].GetStringValue(), "hunter2-first!")
	_, err = e.c.Cron.CreateCron(e.Context(), &progressorv1.CreateCronRequest{Cron: &progressorv1.Cron{
		Namespace: "work", CronId: "mail", Spec: &progressorv1.CronSpec{Expressions: []string{"@yearly"}},
		Target: &progressorv1.CronTarget{Target: &progressorv1.CronTarget_EnqueueJob{
			EnqueueJob: &progressorv1.EnqueueJobTarget{Name: "send", Args: valueOfNote("cron")}}},
	}})
	e.ok(err)
	_, err = e.c.Cron.TriggerCron(e.Context(), &progressorv1.TriggerCronRequest{Namespace: "work", CronId: "mail"})
	e.ok(err)
	select {
	case <-ofCron:
	case <-time.After(time.Minute):
		e.Error("the cron has enqueued no job that can be decoded")
	}
}

// flows runs steps that pass payloads on, and completes a wait.
func (e *coded) flows(k codec.Codec) {
	e.Helper()
	defer e.work(k, func(_ context.Context, m note) (note, error) { return note{m.Text + "+"}, nil })()
	step := func(id, input string, action *progressorv1.StepTemplate) *progressorv1.StepTemplate {
		action.StepId = id
		if input != "" {
			action.Input = structpb.NewStringValue(input)
		}
		return action
	}
	job := func() *progressorv1.StepTemplate {
		return &progressorv1.StepTemplate{
			Action: &progressorv1.StepTemplate_Job{Job: &progressorv1.JobAction{Name: "send"}}}
	}
	_, err := e.c.Flow.PutTemplate(e.Context(), &progressorv1.PutTemplateRequest{Template: &progressorv1.Template{
		Namespace: "work", Type: "mail", Steps: []*progressorv1.StepTemplate{
			step("a", "", job()),
			step("b", "${steps.a.result}", job()),
			step("c", "${steps.b.result}", &progressorv1.StepTemplate{Action: &progressorv1.StepTemplate_Wait{
				Wait: &progressorv1.WaitAction{Kind: progressorv1.WaitAction_KIND_HUMAN}}}),
		}, Result: valueOf(map[string]string{
			"mail": "${steps.b.result}", "answer": "${steps.c.result}", "type": "mail"}),
	}})
	e.ok(err)
	started, err := e.c.Flow.StartRun(e.Context(), &progressorv1.StartRunRequest{
		Namespace: "work", Type: "mail", Payload: valueOfNote("payload"), IdempotencyKey: "run-1"})
	e.ok(err)
	id := started.GetRun().GetRunId()
	stop := errors.New("the wait is open")
	_, err = e.c.AwaitRun(e.Context(), &progressorv1.GetRunRequest{Namespace: "work", RunId: id,
		AwaitEnd: durationpb.New(100 * time.Millisecond)}, func(r *progressorv1.Run) error {
		if r.GetStatus() == progressorv1.RunStatus_RUN_STATUS_WAITING_WORKER {
			return stop
		}
		return nil
	})
	if !errors.Is(err, stop) {
		e.Fatalf("the run did not reach the wait: %v", err)
	}
	complete := &progressorv1.CompleteStepRequest{Namespace: "work", RunId: id, StepId: "c",
		Outcome: &progressorv1.CompleteStepRequest_Result{Result: structpb.NewStringValue(inClear + "yes")}}
	for range 2 { // the second one is a repetition
		_, err = e.c.Flow.CompleteStep(e.Context(), complete)
		e.ok(err)
	}
	run, err := e.c.AwaitRun(e.Context(), &progressorv1.GetRunRequest{Namespace: "work", RunId: id},
		func(*progressorv1.Run) error { return nil })
	e.ok(err)
	want := valueOf(map[string]string{"answer": inClear + "yes", "type": "mail"})
	want.GetStructValue().Fields["mail"] = valueOfNote("payload++")
	if !proto.Equal(run.GetResult(), want) || !proto.Equal(run.GetSteps()[2].GetInput(), valueOfNote("payload++")) {
		e.Errorf("the run is %v", run)
	}
}

func valueOf(fields map[string]string) *structpb.Value {
	object := &structpb.Struct{Fields: map[string]*structpb.Value{}}
	for name, text := range fields {
		object.Fields[name] = structpb.NewStringValue(text)
	}
	return structpb.NewStructValue(object)
}

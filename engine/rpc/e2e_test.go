package rpc

import (
	"context"
	"encoding/base64"
	"net/http"
	"strings"
	"testing"
	"time"

	"connectrpc.com/connect"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/durationpb"
	"google.golang.org/protobuf/types/known/structpb"
	"google.golang.org/protobuf/types/known/timestamppb"

	"github.com/progressor-engine/progressor/engine"
	"github.com/progressor-engine/progressor/engine/bulk"
	"github.com/progressor-engine/progressor/engine/enginetest"
	"github.com/progressor-engine/progressor/engine/sinks"
	"github.com/progressor-engine/progressor/engine/sinks/targets"
	"github.com/progressor-engine/progressor/engine/streams"
	"github.com/progressor-engine/progressor/processor"
	"github.com/progressor-engine/progressor/processor/remote"
	progressorv1 "github.com/progressor-engine/progressor/proto/progressor/v1"
	"github.com/progressor-engine/progressor/proto/progressor/v1/progressorv1connect"
	"github.com/progressor-engine/progressor/storage/storagetest"
)

func TestMain(m *testing.M) { storagetest.Main(m) }

// servedEngine is an engine with its own database, behind the real handler on a real port.
type servedEngine struct {
	url     string
	dsn     string
	release chan struct{} // releases the tasks with the args "hold"
}

func newServedEngine(t *testing.T) *servedEngine {
	t.Helper()
	return newServedNode(t, storagetest.DSN(t), func(*engine.Config) {})
}

// newServedNode is like newServedEngine, with an existing database and a changed configuration.
func newServedNode(t *testing.T, dsn string, change func(*engine.Config)) *servedEngine {
	t.Helper()
	w := &servedEngine{dsn: dsn, release: make(chan struct{})}
	var bulks *bulk.Bulks
	n := enginetest.Start(t, w.dsn, processor.Func(w.process), enginetest.Kinds,
		enginetest.Add(func(n *enginetest.Node) []engine.Kind {
			bulks = bulk.New(n.Engine)
			return []engine.Kind{bulks.Kind()}
		}),
		enginetest.Config(func(c *engine.Config) {
			c.Builtins["obedient"] = processor.Func(w.process)
			c.Dial, c.Address, c.Version = remote.Dial, "127.0.0.1", "test"
			change(c)
		}))
	w.url = listen(t, NewHandler(Config{
		Engine: n.Engine, Insight: n.Insight, Workers: n.Server, Bulks: bulks, Streams: streams.New(n.Engine, n.Store),
		Sinks: sinks.New(n.Engine, n.Store, sinks.Config{Open: targets.Open(&remote.Egress{})}),
		Crons: n.Crons, Jobs: n.Jobs, Flows: n.Flows,
		Registerer: n.Registry, Gatherer: n.Registry, Version: "test",
	}))
	namespaces := progressorv1connect.NewNamespaceServiceClient(http.DefaultClient, w.url)
	_, err := namespaces.PutNamespace(t.Context(), &progressorv1.PutNamespaceRequest{Namespace: &progressorv1.Namespace{
		Namespace: "n",
		Processor: &progressorv1.ProcessorConfig{Transport: &progressorv1.ProcessorConfig_Builtin{
			Builtin: &progressorv1.BuiltinProcessor{Name: "obedient"},
		}},
	}})
	if err != nil {
		t.Fatal(err)
	}
	return w
}

// process follows the args and stores one event with them.
func (w *servedEngine) process(
	ctx context.Context, r *progressorv1.ProcessRequest,
) (*progressorv1.ProcessResponse, error) {
	switch string(r.GetArgs()) {
	case "fail":
		return &progressorv1.ProcessResponse{Outcome: &progressorv1.ProcessResponse_Failure{
			Failure: &progressorv1.Failure{
				Reason: "broken", Message: "as asked", Details: structpb.NewStringValue("d"),
			},
		}}, nil
	case "reject":
		return &progressorv1.ProcessResponse{Outcome: &progressorv1.ProcessResponse_Rejection{
			Rejection: &progressorv1.Rejection{Reason: "no", Message: "as asked", Details: []byte("d")},
		}}, nil
	case "hold":
		select {
		case <-w.release:
		case <-ctx.Done():
			return nil, ctx.Err()
		}
	}
	return &progressorv1.ProcessResponse{Outcome: &progressorv1.ProcessResponse_Result{Result: &progressorv1.Result{
		Response: append([]byte("did "), r.GetArgs()...),
		AuxState: []byte("state"),
		Events:   []*progressorv1.NewEvent{{Payload: r.GetArgs()}},
	}}}, nil
}

// The API works with the fast path off.
func TestWithoutFastPath(t *testing.T) {
	t.Parallel()
	storagetest.RunWithoutFastPath(t, map[string]func(*testing.T){
		"life": TestALifeOverEveryProtocol, "wait": TestAWaitThatEndsBeforeItsTask,
	})
}

// Lists and reads succeed even if metadata cannot be represented in a message. SQL functions stored
// such metadata before they checked JSON.
func TestListsSurviveEveryRow(t *testing.T) {
	t.Parallel()
	w := newServedEngine(t)
	all := protocols(w.url)
	for _, id := range []string{"poisoned", "sound"} {
		if _, err := all["connect"].Start(t.Context(),
			&progressorv1.StartRequest{Namespace: "n", ProcessId: id}); err != nil {
			t.Fatal(err)
		}
	}
	_, err := storagetest.Connect(t, w.dsn).Exec(t.Context(), `UPDATE processes SET metadata =
		jsonb_build_object('a', 1e400, 'b', (repeat('[', 9990) || repeat(']', 9990))::jsonb)
		  WHERE process_id = 'poisoned'`)
	if err != nil {
		t.Fatal(err)
	}
	for name, client := range all {
		got, err := client.GetProcess(t.Context(),
			&progressorv1.GetProcessRequest{Namespace: "n", ProcessId: "poisoned"})
		if err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		if a := got.GetProcess().GetMetadata().GetFields()["a"].GetStringValue(); a != "1"+strings.Repeat("0", 400) {
			t.Errorf("%s: a is %q", name, a)
		}
		list, err := client.ListProcesses(t.Context(), &progressorv1.ListProcessesRequest{Namespace: "n"})
		if err != nil || len(list.GetProcesses()) != 2 {
			t.Errorf("%s: %d processes, %v", name, len(list.GetProcesses()), err)
		}
	}
}

func TestALifeOverEveryProtocol(t *testing.T) {
	t.Parallel()
	w := newServedEngine(t)
	for name, client := range protocols(w.url) {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			life(t, client, strings.ReplaceAll(name, " ", "-"))
		})
	}
}

// life uses most methods of the service on one process.
func life(t *testing.T, client progressorv1connect.ProcessServiceClient, id string) {
	ctx := t.Context()
	metadata, err := structpb.NewStruct(map[string]any{"tenant": "acme", "n": 7})
	if err != nil {
		t.Fatal(err)
	}
	start := &progressorv1.StartRequest{Namespace: "n", ProcessId: id, Args: []byte("a"), Metadata: metadata,
		IdempotencyKey: "key-" + id}
	for range 2 { // the second one gets the same response
		a, err := client.Start(ctx, start)
		if err != nil || a.GetProcessId() != id || string(a.GetResponse()) != "did a" || a.GetTaskId() == 0 {
			t.Fatalf("start: got %v, %v", a, err)
		}
	}
	other := proto.Clone(start).(*progressorv1.StartRequest)
	other.Args = []byte("b")
	_, err = client.Start(ctx, other)
	requireReason(t, err, connect.CodeAlreadyExists, progressorv1.ErrorDetail_REASON_IDEMPOTENCY_MISMATCH, id)
	other.IdempotencyKey = ""
	_, err = client.Start(ctx, other)
	requireReason(t, err, connect.CodeAlreadyExists, progressorv1.ErrorDetail_REASON_PROCESS_EXISTS, id)

	callRequest := func(args string) *progressorv1.CallRequest {
		return &progressorv1.CallRequest{Namespace: "n", ProcessId: id, Args: []byte(args)}
	}
	if a, err := client.Call(ctx, callRequest("b")); err != nil || string(a.GetResponse()) != "did b" {
		t.Fatalf("call: got %v, %v", a, err)
	}
	_, err = client.Call(ctx, callRequest("reject"))
	d := requireReason(t, err, connect.CodeFailedPrecondition, progressorv1.ErrorDetail_REASON_TASK_REJECTED, id)
	if d.GetRejection().GetReason() != "no" || string(d.GetRejection().GetDetails()) != "d" {
		t.Errorf("rejection: got %s", text(d))
	}
	_, err = client.Call(ctx, callRequest("fail"))
	d = requireReason(t, err, connect.CodeAborted, progressorv1.ErrorDetail_REASON_TASK_FAILED, id)
	if d.GetFailure().GetReason() != "broken" || d.GetTaskId() == 0 {
		t.Errorf("failure: got %s", text(d))
	}
	_, err = client.Call(ctx, callRequest("c"))
	d = requireReason(t, err, connect.CodeFailedPrecondition, progressorv1.ErrorDetail_REASON_PROCESS_STATUS, id)
	if d.GetProcessStatus() != progressorv1.ProcessStatus_PROCESS_STATUS_ERROR {
		t.Errorf("status: got %s", text(d))
	}
	listed(t, client, id)
	repaired(t, client, id)
	readEverywhere(t, client, id)
	removed(t, client, id)
}

// listed checks that a list finds a process in ERROR by its status.
func listed(t *testing.T, client progressorv1connect.ProcessServiceClient, id string) {
	t.Helper()
	token := ""
	for {
		page, err := client.ListProcesses(t.Context(),
			&progressorv1.ListProcessesRequest{Namespace: "n", Filter: "status = ERROR", PageSize: 2, PageToken: token})
		if err != nil {
			t.Fatal(err)
		}
		for _, p := range page.GetProcesses() {
			if p.GetStatus() != progressorv1.ProcessStatus_PROCESS_STATUS_ERROR {
				t.Errorf("list: got %v", p)
			}
			if p.GetProcessId() == id {
				return
			}
		}
		if token = page.GetNextPageToken(); token == "" {
			t.Fatalf("%s is not among the broken processes", id)
		}
	}
}

// repaired repairs a process in ERROR in both ways.
func repaired(t *testing.T, client progressorv1connect.ProcessServiceClient, id string) {
	t.Helper()
	ctx := t.Context()
	simple := &progressorv1.RepairRequest{Namespace: "n", ProcessId: id,
		How: &progressorv1.RepairRequest_Simple{Simple: &progressorv1.RepairRequest_SimpleRepair{}}}
	if _, err := client.Repair(ctx, simple); err != nil {
		t.Fatalf("simple repair: %v", err)
	}
	_, err := client.Repair(ctx, simple)
	requireReason(t, err, connect.CodeFailedPrecondition, progressorv1.ErrorDetail_REASON_PROCESS_STATUS, id)
	_, err = client.Call(ctx, &progressorv1.CallRequest{Namespace: "n", ProcessId: id, Args: []byte("fail")})
	requireCode(t, err, connect.CodeAborted)
	full := &progressorv1.RepairRequest{Namespace: "n", ProcessId: id, How: &progressorv1.RepairRequest_Processor{
		Processor: &progressorv1.RepairRequest_ProcessorRepair{Args: []byte("r")},
	}}
	if a, err := client.Repair(ctx, full); err != nil || string(a.GetResponse()) != "did r" || a.GetTaskId() == 0 {
		t.Fatalf("repair: got %v, %v", a, err)
	}
}

// readEverywhere reads a process with GetProcess, TraceProcess and AwaitTask.
func readEverywhere(t *testing.T, client progressorv1connect.ProcessServiceClient, id string) {
	t.Helper()
	ctx := t.Context()
	got, err := client.GetProcess(ctx,
		&progressorv1.GetProcessRequest{Namespace: "n", ProcessId: id, Range: &progressorv1.HistoryRange{
			Direction: progressorv1.HistoryRange_DIRECTION_BACKWARD, Limit: proto.Int32(2),
		}})
	if err != nil {
		t.Fatal(err)
	}
	p := got.GetProcess()
	if p.GetStatus() != progressorv1.ProcessStatus_PROCESS_STATUS_RUNNING || string(p.GetAuxState()) != "state" ||
		p.GetMetadata().GetFields()["tenant"].GetStringValue() != "acme" || p.GetLastEventId() != 3 {
		t.Errorf("get: got %v", p)
	}
	if h := p.GetHistory(); len(h) != 2 || h[0].GetEventId() != 3 || string(h[0].GetPayload()) != "r" ||
		h[1].GetEventId() != 2 {
		t.Errorf("history: got %v", h)
	}
	trace, err := client.TraceProcess(ctx, &progressorv1.TraceProcessRequest{Namespace: "n", ProcessId: id})
	if err != nil || len(trace.GetTasks()) != 7 {
		t.Fatalf("trace: got %d tasks, %v", len(trace.GetTasks()), err)
	}
	first := trace.GetTasks()[0]
	if first.GetType() != progressorv1.TaskType_TASK_TYPE_INIT || len(first.GetEvents()) != 1 ||
		string(first.GetResponse()) != "did a" {
		t.Errorf("trace: got %v", first)
	}
	for _, request := range []*progressorv1.AwaitTaskRequest{
		{Namespace: "n", ProcessId: id, Key: &progressorv1.AwaitTaskRequest_TaskId{TaskId: first.GetTaskId()}},
		{Namespace: "n", ProcessId: id,
			Key: &progressorv1.AwaitTaskRequest_IdempotencyKey{IdempotencyKey: "key-" + id}},
	} {
		task, err := client.AwaitTask(ctx, request)
		if err != nil || task.GetTask().GetTaskId() != first.GetTaskId() ||
			task.GetTask().GetStatus() != progressorv1.TaskStatus_TASK_STATUS_FINISHED {
			t.Errorf("await: got %v, %v", task, err)
		}
	}
	_, err = client.AwaitTask(ctx,
		&progressorv1.AwaitTaskRequest{Namespace: "n", ProcessId: id,
			Key: &progressorv1.AwaitTaskRequest_TaskId{TaskId: 1 << 40}})
	requireReason(t, err, connect.CodeNotFound, progressorv1.ErrorDetail_REASON_TASK_NOT_FOUND, id)
}

// removed removes a process and imports another one with its ID.
func removed(t *testing.T, client progressorv1connect.ProcessServiceClient, id string) {
	t.Helper()
	ctx := t.Context()
	if _, err := client.RemoveProcess(ctx,
		&progressorv1.RemoveProcessRequest{Namespace: "n", ProcessId: id}); err != nil {
		t.Fatal(err)
	}
	_, err := client.GetProcess(ctx, &progressorv1.GetProcessRequest{Namespace: "n", ProcessId: id})
	requireReason(t, err, connect.CodeNotFound, progressorv1.ErrorDetail_REASON_PROCESS_NOT_FOUND, id)
	_, err = client.Call(ctx, &progressorv1.CallRequest{Namespace: "n", ProcessId: id})
	requireReason(t, err, connect.CodeNotFound, progressorv1.ErrorDetail_REASON_PROCESS_NOT_FOUND, id)

	due := time.Now().Add(time.Hour).UTC().Truncate(time.Millisecond)
	put := &progressorv1.PutProcessRequest{
		Namespace: "n", ProcessId: id, Status: progressorv1.ProcessStatus_PROCESS_STATUS_RUNNING,
		History: []*progressorv1.Event{{EventId: 1, Payload: []byte("x")}, {EventId: 2, Payload: []byte("y")}},
		Timers:  []*progressorv1.Timer{{FireTime: timestamppb.New(due)}},
	}
	if _, err := client.PutProcess(ctx, put); err != nil {
		t.Fatalf("put: %v", err)
	}
	_, err = client.PutProcess(ctx, put)
	requireReason(t, err, connect.CodeAlreadyExists, progressorv1.ErrorDetail_REASON_PROCESS_EXISTS, id)
	got, err := client.GetProcess(ctx, &progressorv1.GetProcessRequest{Namespace: "n", ProcessId: id})
	if err != nil {
		t.Fatal(err)
	}
	p := got.GetProcess()
	if len(p.GetHistory()) != 2 || len(p.GetTimers()) != 1 || !p.GetTimers()[0].GetFireTime().AsTime().Equal(due) {
		t.Errorf("put: got %v", p)
	}
	if _, err := client.RemoveProcess(ctx,
		&progressorv1.RemoveProcessRequest{Namespace: "n", ProcessId: id}); err != nil {
		t.Fatal(err)
	}
}

func TestAWaitThatEndsBeforeItsTask(t *testing.T) {
	t.Parallel()
	w := newServedEngine(t)
	client := protocols(w.url)["grpc"]
	a, err := client.Start(t.Context(), &progressorv1.StartRequest{Namespace: "n"})
	if err != nil || a.GetProcessId() == "" {
		t.Fatalf("start without an id: got %v, %v", a, err)
	}
	id := a.GetProcessId()
	_, err = client.Call(t.Context(), &progressorv1.CallRequest{
		Namespace: "n", ProcessId: id, Args: []byte("hold"), Timeout: durationpb.New(20 * time.Millisecond),
	})
	d := requireReason(t, err, connect.CodeDeadlineExceeded, progressorv1.ErrorDetail_REASON_WAIT_TIMEOUT, id)
	if d.GetTaskId() == 0 {
		t.Fatalf("got %s, want a task_id", text(d))
	}
	await := &progressorv1.AwaitTaskRequest{Namespace: "n", ProcessId: id,
		Key: &progressorv1.AwaitTaskRequest_TaskId{TaskId: d.GetTaskId()}}
	task, err := client.AwaitTask(t.Context(), await)
	if err != nil || task.GetTask().GetStatus() != progressorv1.TaskStatus_TASK_STATUS_RUNNING {
		t.Fatalf("await without waiting: got %v, %v", task, err)
	}
	close(w.release)
	await.Timeout = durationpb.New(30 * time.Second)
	task, err = client.AwaitTask(t.Context(), await)
	if err != nil || string(task.GetTask().GetResponse()) != "did hold" {
		t.Fatalf("await: got %v, %v", task, err)
	}
	accepted, err := client.Call(t.Context(),
		&progressorv1.CallRequest{Namespace: "n", ProcessId: id, Args: []byte("later"),
			Wait: progressorv1.Wait_WAIT_ACCEPTED})
	if err != nil || accepted.GetTaskId() == 0 || len(accepted.GetResponse()) != 0 {
		t.Fatalf("accepted: got %v, %v", accepted, err)
	}
	await.Key = &progressorv1.AwaitTaskRequest_TaskId{TaskId: accepted.GetTaskId()}
	task, err = client.AwaitTask(t.Context(), await)
	if err != nil || task.GetTask().GetType() != progressorv1.TaskType_TASK_TYPE_NOTIFY {
		t.Fatalf("await: got %v, %v", task, err)
	}
}

func TestNamespacesAndTheirErrors(t *testing.T) {
	t.Parallel()
	w := newServedEngine(t)
	client := progressorv1connect.NewNamespaceServiceClient(http.DefaultClient, w.url)
	ctx := t.Context()
	got, err := client.PauseNamespace(ctx, &progressorv1.PauseNamespaceRequest{Namespace: "n"})
	if err != nil || !got.GetNamespace().GetPaused() {
		t.Errorf("pause: got %v, %v", got, err)
	}
	if got, err := client.ResumeNamespace(ctx, &progressorv1.ResumeNamespaceRequest{Namespace: "n"}); err != nil ||
		got.GetNamespace().GetPaused() {
		t.Errorf("resume: got %v, %v", got, err)
	}
	if list, err := client.ListNamespaces(ctx, &progressorv1.ListNamespacesRequest{}); err != nil ||
		len(list.GetNamespaces()) != 2 { // n, and ns of enginetest
		t.Errorf("list: got %v, %v", list, err)
	}
	if got, err := client.GetNamespace(ctx, &progressorv1.GetNamespaceRequest{Namespace: "n"}); err != nil ||
		got.GetNamespace().GetNamespace() != "n" {
		t.Errorf("get: got %v, %v", got, err)
	}
	_, err = client.GetNamespace(ctx, &progressorv1.GetNamespaceRequest{Namespace: "nowhere"})
	requireCode(t, err, connect.CodeNotFound)
	if d := detailOf(err); d.GetReason() != progressorv1.ErrorDetail_REASON_NAMESPACE_NOT_FOUND ||
		d.GetNamespace() != "nowhere" {
		t.Errorf("get: got %s", text(d))
	}
	_, err = protocols(w.url)["connect"].Start(ctx, &progressorv1.StartRequest{Namespace: "nowhere", ProcessId: "p"})
	requireReason(t, err, connect.CodeNotFound, progressorv1.ErrorDetail_REASON_NAMESPACE_NOT_FOUND, "p")
}

func TestCurlAndPages(t *testing.T) {
	t.Parallel()
	w := newServedEngine(t)
	path := w.url + "/progressor.v1.ProcessService/"
	status, body := post(t, path+"Start", "application/json",
		`{"namespace":"n","process_id":"p","args":"`+base64.StdEncoding.EncodeToString([]byte("hi"))+`"}`)
	if want := base64.StdEncoding.EncodeToString([]byte("did hi")); status != http.StatusOK ||
		!strings.Contains(body, want) {
		t.Errorf("start: got %d %s", status, body)
	}
	status, body = post(t, path+"ListProcesses", "application/json",
		`{"namespace":"n","filter":"status = ERROR AND detial = x"}`)
	if status != http.StatusBadRequest || !strings.Contains(body, `"field":"filter"`) ||
		!strings.Contains(body, "at character 20: there is no field") {
		t.Errorf("list: got %d %s", status, body)
	}
	status, body = post(t, path+"ListProcesses", "application/json", `{"namespace":"n","pageToken":"nonsense"}`)
	if status != http.StatusBadRequest || !strings.Contains(body, `"field":"page_token"`) {
		t.Errorf("page token: got %d %s", status, body)
	}
	status, body = post(t, path+"ListProcesses", "application/json", `{"namespace":"n","orderBy":"nonsense"}`)
	if status != http.StatusBadRequest || !strings.Contains(body, `"field":"order_by"`) {
		t.Errorf("order: got %d %s", status, body)
	}
	status, body = post(t, w.url+"/progressor.v1.InsightService/CountProcesses", "application/json",
		`{"namespace":"n"}`)
	if status != http.StatusOK || !strings.Contains(body, `"running":"1"`) {
		t.Errorf("count: got %d %s", status, body)
	}
	for _, page := range []string{"/livez", "/readyz", "/metrics"} {
		if status, body := get(t, w.url+page, ""); status != http.StatusOK {
			t.Errorf("%s: got %d %s", page, status, body)
		}
	}
}

// requireReason checks the code of an error, and the reason and the process in its detail.
func requireReason(
	t *testing.T, err error, code connect.Code, reason progressorv1.ErrorDetail_Reason, id string,
) *progressorv1.ErrorDetail {
	t.Helper()
	requireCode(t, err, code)
	d := detailOf(err)
	if d.GetReason() != reason || d.GetNamespace() == "" || d.GetProcessId() != id {
		t.Fatalf("got %s (%v), want %s of %s", text(d), err, reason, id)
	}
	return d
}

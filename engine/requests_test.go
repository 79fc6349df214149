package engine_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/progressor-engine/progressor/engine"
	"github.com/progressor-engine/progressor/process"
	"github.com/progressor-engine/progressor/processor"
	progressorv1 "github.com/progressor-engine/progressor/proto/progressor/v1"
	"github.com/progressor-engine/progressor/storage/storagetest"
)

func TestStartWithoutID(t *testing.T) {
	t.Parallel()
	n := start(t, storagetest.DSN(t), processor.Echo())
	ids := map[string]bool{}
	for range 3 {
		ans, err := n.Start(t.Context(), engine.StartParams{Key: key(""), Args: []byte("a")})
		if err != nil || len(ans.ProcessID) != 21 {
			t.Fatalf("%+v, %v", ans, err)
		}
		ids[ans.ProcessID] = true
	}
	if len(ids) != 3 {
		t.Errorf("ids %v", ids)
	}
	if _, err := n.Start(t.Context(), engine.StartParams{Key: key("p")}); err != nil {
		t.Fatal(err)
	}
	if _, err := n.Start(t.Context(), engine.StartParams{Key: key("p")}); !errors.Is(err, process.ErrProcessExists) {
		t.Errorf("the second start of a process: %v", err)
	}
}

// Rejections and failures of a processor are returned to the caller.
func TestAnswersThatAreErrors(t *testing.T) {
	t.Parallel()
	dsn := storagetest.DSN(t)
	n := start(t, dsn, byTask{
		initTask: func(_ context.Context, r *progressorv1.ProcessRequest) (*progressorv1.ProcessResponse, error) {
			if string(r.GetArgs()) == "no" {
				return nil, processor.Reject("not_today", "come %s", "later").WithDetails([]byte{1, 2})
			}
			return processor.Echo().Process(t.Context(), r)
		},
		callTask: func(_ context.Context, r *progressorv1.ProcessRequest) (*progressorv1.ProcessResponse, error) {
			if string(r.GetArgs()) == "no" {
				return nil, processor.Reject("not_this", "never")
			}
			return nil, processor.Fail("broken", "all is lost").WithDetails(map[string]any{"a": 1})
		},
	})
	_, err := n.Start(t.Context(), engine.StartParams{Key: key("gone"), Args: []byte("no"), IdempotencyKey: "k"})
	if te := taskError(t, err); te.Rejection.GetReason() != "not_today" || te.Rejection.GetMessage() != "come later" ||
		string(te.Rejection.GetDetails()) != "\x01\x02" {
		t.Errorf("%v", te)
	}
	if n.status(t, "gone") != "" {
		t.Error("a process exists although its INIT was rejected")
	}
	// The key of the rejected start was removed too, so the next request with this key is a new
	// one.
	if ans, err := n.Start(t.Context(), engine.StartParams{
		Key: key("gone"), Args: []byte("yes"), IdempotencyKey: "k",
	}); err != nil || string(ans.Response) != "yes" {
		t.Errorf("%+v, %v", ans, err)
	}

	n.started(t, "p")
	if res := <-n.calling("p", "no"); taskError(t, res.err).Rejection.GetReason() != "not_this" || res.ans.TaskID == 0 {
		t.Errorf("%+v", res)
	}
	if n.status(t, "p") != "RUNNING" {
		t.Error("a rejection has changed the process")
	}
	res := <-n.calling("p", "break")
	te := taskError(t, res.err)
	if te.Failure.GetReason() != "broken" ||
		te.Failure.GetDetails().GetStructValue().GetFields()["a"].GetNumberValue() != 1 ||
		te.ProcessStatus != process.StatusError {
		t.Errorf("%+v", te)
	}
	p, err := n.GetProcess(t.Context(), key("p"), nil, 0)
	if err != nil || p.GetDetail() != "all is lost" || p.GetCorruptedBy() != res.ans.TaskID || p.GetLastEventId() != 1 {
		t.Errorf("%v, %v", p, err)
	}
	var wrong *process.WrongStatusError
	if res := <-n.calling("p", "again"); !errors.As(res.err, &wrong) || wrong.Status != process.StatusError {
		t.Errorf("a call to a broken process: %v", res.err)
	}
	if res := <-n.calling("nobody", "x"); !errors.Is(res.err, process.ErrProcessNotFound) {
		t.Errorf("%v", res.err)
	}
}

// With Accepted, a request returns when the task is durable, before it has run.
func TestAccepted(t *testing.T) {
	t.Parallel()
	dsn := storagetest.DSN(t)
	g := newGate()
	defer g.release()
	n := start(t, dsn, byTask{initTask: g.held(true), notifyTask: g.held(true)})
	ans, err := n.Start(t.Context(), engine.StartParams{Key: key("p"), Args: []byte("a"), Accepted: true})
	if err != nil || ans.TaskID == 0 || ans.Response != nil {
		t.Fatalf("%+v, %v", ans, err)
	}
	d := openDB(t, dsn)
	if d.count(t, "SELECT count(*) FROM running WHERE task_type = 'INIT'") != 1 {
		t.Error("the task is not durable")
	}
	noted, err := n.Call(t.Context(), engine.CallParams{Key: key("p"), Args: []byte("n"), Accepted: true})
	if err != nil || noted.TaskID == 0 {
		t.Fatalf("%+v, %v", noted, err)
	}
	got := d.texts(t, "SELECT task_type || ' ' || waits_for FROM schedule")
	if len(got) != 1 || got[0] != "NOTIFY process" {
		t.Errorf("waiting: %v", got)
	}
	g.release()
	eventually(t, "the notification has run", func() bool {
		return d.count(t, "SELECT count(*) FROM tasks WHERE task_type = 'NOTIFY' AND status = 'FINISHED'") == 1
	})
	// AwaitTask returns the result even if no client waited for it.
	task, err := n.AwaitTask(t.Context(), engine.AwaitParams{Key: key("p"), TaskID: noted.TaskID, Timeout: time.Minute})
	if err != nil || string(task.GetResponse()) != "n" {
		t.Errorf("%v, %v", task, err)
	}
}

func TestStartTime(t *testing.T) {
	t.Parallel()
	dsn := storagetest.DSN(t)
	n := start(t, dsn, processor.Echo())
	began := time.Now()
	const until = 2 * time.Second // a busy machine may look late
	at := began.Add(until)
	early := make(chan result, 1)
	go func() {
		ans, err := n.Start(t.Context(), engine.StartParams{Key: key("p"), Args: []byte("a"), StartTime: at})
		early <- result{ans, err}
	}()
	d := openDB(t, dsn)
	eventually(t, "the start waits for its time", func() bool {
		return d.count(t, "SELECT count(*) FROM schedule WHERE waits_for = 'time'") == 1
	})
	if n.status(t, "p") != "INIT" {
		t.Error("the process does not exist yet")
	}
	call := n.calling("p", "x") // waits behind INIT
	res := receive(t, "start", early)
	if took := time.Since(began); res.err != nil || took < until || took > until+2*time.Second {
		t.Errorf("after %s: %+v", took, res)
	}
	if res := receive(t, "call", call); string(res.ans.Response) != "x" {
		t.Errorf("%+v", res)
	}
	if ans, err := n.Start(t.Context(), engine.StartParams{
		Key: key("past"), Args: []byte("a"), StartTime: time.Unix(1, 0),
	}); err != nil || string(ans.Response) != "a" {
		t.Errorf("a start time in the past: %+v, %v", ans, err)
	}
}

// A wait ends at its timeout, at the deadline of the request, or when the client disconnects. The
// task continues.
func TestWaitEnds(t *testing.T) {
	t.Parallel()
	dsn := storagetest.DSN(t)
	g := newGate()
	defer g.release()
	n := start(t, dsn, byTask{callTask: g.held(true)})
	n.started(t, "p")
	short, err := n.Call(t.Context(), engine.CallParams{
		Key: key("p"), Args: []byte("1"), Timeout: 20 * time.Millisecond,
	})
	if te := taskError(t, err); !te.WaitTimeout || te.TaskID != short.TaskID || short.TaskID == 0 {
		t.Fatalf("%+v, %v", short, te)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Millisecond)
	defer cancel()
	deadline, err := n.Call(ctx, engine.CallParams{Key: key("p"), Args: []byte("2")})
	if te := taskError(t, err); !te.WaitTimeout {
		t.Fatalf("%v", te)
	}
	gone, leave := context.WithCancel(t.Context())
	left := make(chan result, 1)
	go func() {
		ans, err := n.Call(gone, engine.CallParams{Key: key("p"), Args: []byte("3")})
		left <- result{ans, err}
	}()
	d := openDB(t, dsn)
	eventually(t, "three calls are stored", func() bool {
		return d.count(t, "SELECT (SELECT count(*) FROM schedule) + (SELECT count(*) FROM running)") == 3
	})
	leave()
	third := receive(t, "the client is gone", left)
	if te := taskError(t, third.err); !te.WaitTimeout {
		t.Fatalf("%v", te)
	}
	// The task has not ended, so it is returned as it is.
	if task, err := n.AwaitTask(t.Context(), engine.AwaitParams{Key: key("p"), TaskID: deadline.TaskID}); err != nil ||
		task.GetStatus() != progressorv1.TaskStatus_TASK_STATUS_WAITING {
		t.Errorf("%v, %v", task, err)
	}
	if task, err := n.AwaitTask(t.Context(), engine.AwaitParams{
		Key: key("p"), TaskID: short.TaskID, Timeout: 10 * time.Millisecond,
	}); err != nil || task.GetStatus() != progressorv1.TaskStatus_TASK_STATUS_RUNNING {
		t.Errorf("%v, %v", task, err)
	}
	awaited := make(chan *progressorv1.Task, 1)
	go func() {
		task, err := n.AwaitTask(t.Context(), engine.AwaitParams{
			Key: key("p"), TaskID: third.ans.TaskID, Timeout: time.Minute,
		})
		if err != nil {
			t.Error(err)
		}
		awaited <- task
	}()
	g.release()
	if task := receive(t, "the third call", awaited); string(task.GetResponse()) != "3" ||
		task.GetStatus() != progressorv1.TaskStatus_TASK_STATUS_FINISHED {
		t.Errorf("%v", task)
	}
	if _, err := n.AwaitTask(t.Context(), engine.AwaitParams{Key: key("p"), TaskID: 1 << 40}); !errors.Is(err,
		process.ErrTaskNotFound) {
		t.Errorf("an unknown task: %v", err)
	}
	if _, err := n.AwaitTask(t.Context(), engine.AwaitParams{Key: key("p"), IdempotencyKey: "none"}); !errors.Is(err,
		process.ErrTaskNotFound) {
		t.Errorf("an unknown key: %v", err)
	}
}

func TestMaxWaiting(t *testing.T) {
	t.Parallel()
	dsn := storagetest.DSN(t)
	g := newGate()
	defer g.release()
	reg := newRegistry()
	n := start(t, dsn, byTask{callTask: g.held(true)}, reg.use)
	n.put(t, &progressorv1.Namespace{Namespace: "ns", MaxWaiting: 2})
	n.started(t, "p")
	calls := []<-chan result{n.calling("p", "0")}
	receive(t, "the first call runs", g.entered)
	calls = append(calls, n.calling("p", "1"), n.calling("p", "2"))
	d := openDB(t, dsn)
	eventually(t, "two calls wait", func() bool { return d.count(t, "SELECT count(*) FROM schedule") == 2 })
	if res := <-n.calling("p", "3"); !errors.Is(res.err, process.ErrOverloaded) ||
		!strings.Contains(res.err.Error(), "max_waiting") {
		t.Errorf("one too many: %v", res.err)
	}
	if reg.value(t, "progressor_requests_refused_total", "bound=waiting") != 1 {
		t.Error("the rejection was not counted")
	}
	n.put(t, &progressorv1.Namespace{Namespace: "ns", MaxWaiting: 0}) // 0 means the default, not none
	calls = append(calls, n.calling("p", "4"))
	eventually(t, "one more waits", func() bool { return d.count(t, "SELECT count(*) FROM schedule") == 3 })
	g.release()
	for _, c := range calls {
		if res := receive(t, "call", c); res.err != nil {
			t.Error(res.err)
		}
	}
	if d.count(t, "SELECT count(*) FROM tasks WHERE task_type = 'CALL'") != 4 {
		t.Error("the rejected call was stored")
	}
}

// While fewer than max_backlog tasks wait, a request that gets no slot is stored, and its client
// waits for the response. Further requests are rejected and not stored.
func TestBacklog(t *testing.T) {
	t.Parallel()
	dsn := storagetest.DSN(t)
	g := newGate()
	defer g.release()
	reg := newRegistry()
	n := start(t, dsn, byTask{initTask: g.held(true)}, reg.use)
	n.put(t, &progressorv1.Namespace{Namespace: "ns", MaxRunning: 1, MaxBacklog: 2})
	d := openDB(t, dsn)
	backlog := func(want int) {
		t.Helper()
		eventually(t, "the stored tasks wait for a slot", func() bool {
			return d.count(t, "SELECT count(*) FROM schedule WHERE waits_for = 'place'") == want
		})
	}
	ended := make(chan error, 3)
	starting := func(id string) {
		go func() {
			_, err := n.Start(context.Background(), engine.StartParams{Key: key(id), IdempotencyKey: id})
			ended <- err
		}()
	}
	starting("runs")
	receive(t, "the slot is taken", g.entered)
	for i := range 2 {
		starting(fmt.Sprint("waits ", i))
		backlog(i + 1)
	}
	for range 2 {
		_, err := n.Start(t.Context(), engine.StartParams{Key: key("refused"), IdempotencyKey: "refused"})
		var overload *process.OverloadError
		if !errors.As(err, &overload) || !strings.Contains(overload.Bound, `namespace "ns"`) ||
			!strings.Contains(overload.Bound, "reached its max_backlog, 2") {
			t.Fatalf("one too many: %v", err)
		}
	}
	if got := reg.value(t, "progressor_requests_refused_total", "bound=backlog"); got != 2 {
		t.Errorf("%v rejections were counted", got)
	}
	// An accepted request is stored in any case.
	if _, err := n.Start(t.Context(), engine.StartParams{Key: key("accepted"), Accepted: true}); err != nil {
		t.Error(err)
	}
	backlog(3)
	// The default of max_backlog is 10 times max_running.
	n.put(t, &progressorv1.Namespace{Namespace: "ns", MaxRunning: 1})
	more := make(chan error, 1)
	go func() {
		_, err := n.Start(context.Background(), engine.StartParams{Key: key("one more")})
		more <- err
	}()
	backlog(4)
	if got := d.count(t, "SELECT count(*) FROM processes"); got != 5 {
		t.Errorf("%d processes were stored", got)
	}
	g.release()
	for range 3 {
		if err := receive(t, "start", ended); err != nil {
			t.Error(err)
		}
	}
	if err := receive(t, "start", more); err != nil {
		t.Error(err)
	}
	eventually(t, "the accepted one has run", func() bool { return n.status(t, "accepted") == "RUNNING" })
	if _, err := n.Start(t.Context(), engine.StartParams{Key: key("refused"), IdempotencyKey: "refused"}); err != nil {
		t.Errorf("after the overload: %v", err)
	}
}

func TestInFlight(t *testing.T) {
	t.Parallel()
	dsn := storagetest.DSN(t)
	g := newGate()
	defer g.release()
	reg := newRegistry()
	n := start(t, dsn, byTask{callTask: g.held(true)}, reg.use, func(c *engine.Config) { c.MaxInFlight = 2 })
	n.put(t, &progressorv1.Namespace{Namespace: "other"})
	n.started(t, "p")
	q := process.Key{Namespace: "other", ProcessID: "q"}
	if _, err := n.Start(t.Context(), engine.StartParams{Key: q}); err != nil {
		t.Fatal(err)
	}
	first, second := n.calling("p", "1"), n.calling("q", "2", func(p *engine.CallParams) { p.Key = q })
	eventually(t, "two are in flight", func() bool { return reg.value(t, "progressor_requests_in_flight") == 2 })
	if res := <-n.calling("p", "3"); !errors.Is(res.err, process.ErrOverloaded) {
		t.Errorf("%v", res.err)
	}
	if reg.value(t, "progressor_requests_refused_total", "bound=in_flight") != 1 {
		t.Error("the rejection was not counted")
	}
	g.release()
	for _, c := range []<-chan result{first, second} {
		if res := receive(t, "call", c); res.err != nil {
			t.Error(res.err)
		}
	}
	n.called(t, "p", "4")
}

// Stored tasks and new requests take turns at a single slot, each in the order in which they have
// waited.
func TestStoredAndFreshTakeTurns(t *testing.T) {
	t.Parallel()
	dsn := storagetest.DSN(t)
	g := newGate()
	defer g.release()
	n := start(t, dsn, byTask{initTask: g.held(true)}, func(c *engine.Config) { c.ScanInterval = time.Hour })
	n.put(t, &progressorv1.Namespace{Namespace: "ns", MaxRunning: 1})
	for k, id := range []string{"first", "a", "b", "c"} {
		if k == 1 {
			receive(t, "the slot is taken", g.entered)
		}
		if _, err := n.Start(t.Context(), engine.StartParams{Key: key(id), Accepted: true}); err != nil {
			t.Fatal(err)
		}
	}
	fresh := make(chan error, 1)
	began := time.Now()
	go func() {
		_, err := n.Start(t.Context(), engine.StartParams{Key: key("fresh")})
		fresh <- err
	}()
	eventually(t, "a fresh request and stored tasks wait for the slot", func() bool {
		waiting, others := n.Demand("ns")
		return waiting == 1 && others
	})
	g.release()
	if err := receive(t, "fresh", fresh); err != nil && !errors.Is(err, process.ErrOverloaded) {
		t.Error(err)
	}
	late := time.Since(began) >= 100*time.Millisecond // a request waits this long for a slot
	eventually(t, "all have run", func() bool {
		return n.status(t, "a") == "RUNNING" && n.status(t, "b") == "RUNNING" && n.status(t, "c") == "RUNNING"
	})
	order := openDB(t, dsn).texts(t, "SELECT process_id FROM tasks ORDER BY running_time")
	switch got := strings.Join(order, " "); {
	case got == "first a fresh b c", got == "first a b c": // or the new request was rejected
	case late && got == "first a b c fresh": // it was stored, because it waited for too long
	default:
		t.Errorf("they ran in the order %s", got)
	}
}

// The wait of a call without a timeout lasts as long as the step timeout.
func TestDefaultWait(t *testing.T) {
	t.Parallel()
	g := newGate()
	defer g.release()
	n := start(t, storagetest.DSN(t), byTask{callTask: g.held(false)})
	n.put(t, &progressorv1.Namespace{Namespace: "ns", StepTimeout: durationpb.New(50 * time.Millisecond)})
	n.started(t, "p")
	began := time.Now()
	res := receive(t, "the wait is over", n.calling("p", "x"))
	if te := taskError(t, res.err); !te.WaitTimeout || time.Since(began) < 50*time.Millisecond {
		t.Errorf("after %s: %v", time.Since(began), te)
	}
}

// A request that runs no task, because it is rejected or was repeated, releases its slot.
func TestRefusedRequestReturnsItsSlot(t *testing.T) {
	t.Parallel()
	n := start(t, storagetest.DSN(t), byTask{initTask: words, callTask: words})
	n.put(t, &progressorv1.Namespace{Namespace: "ns", MaxRunning: 2})
	n.started(t, "p")
	for range 5 {
		if _, err := n.Call(t.Context(), engine.CallParams{Key: key("missing")}); !errors.Is(err,
			process.ErrProcessNotFound) {
			t.Fatalf("a call of a process that does not exist: %v", err)
		}
		if _, err := n.Start(t.Context(), engine.StartParams{Key: key("p")}); !errors.Is(err,
			process.ErrProcessExists) {
			t.Fatalf("a start of a process that exists: %v", err)
		}
		if _, err := n.Call(t.Context(), engine.CallParams{Key: key("p"), IdempotencyKey: "k"}); err != nil {
			t.Fatalf("an earlier call: %v", err)
		}
	}
}

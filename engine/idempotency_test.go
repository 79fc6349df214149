package engine_test

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"testing"
	"time"

	"google.golang.org/protobuf/proto"

	"github.com/progressor-engine/progressor/engine"
	"github.com/progressor-engine/progressor/process"
	"github.com/progressor-engine/progressor/processor"
	progressorv1 "github.com/progressor-engine/progressor/proto/progressor/v1"
	"github.com/progressor-engine/progressor/storage/storagetest"
)

func keyed(k string) func(*engine.CallParams) {
	return func(p *engine.CallParams) { p.IdempotencyKey = k }
}

// decider counts its calls and responds according to their args.
type decider struct {
	calls atomic.Int64
	gate  *gate
}

func (d *decider) processor() byTask {
	answer := func(ctx context.Context, r *progressorv1.ProcessRequest) (*progressorv1.ProcessResponse, error) {
		n := d.calls.Add(1)
		if err := d.gate.pass(ctx, r, true); err != nil {
			return nil, err
		}
		switch string(r.GetArgs()) {
		case "reject":
			return nil, processor.Reject("no", "call %d", n).WithDetails([]byte{0xff})
		case "fail":
			return nil, processor.Fail("broken", "call %d\x00", n).WithDetails([]any{n, nil, "x"})
		}
		return processor.Result().Response(fmt.Appendf(nil, "%s %d", r.GetArgs(), n)).Done()
	}
	return byTask{callTask: answer, notifyTask: answer}
}

func sameResult(t *testing.T, a, b result) {
	t.Helper()
	if a.ans.TaskID != b.ans.TaskID || string(a.ans.Response) != string(b.ans.Response) ||
		a.ans.ProcessID != b.ans.ProcessID {
		t.Errorf("answers %+v and %+v", a.ans, b.ans)
	}
	if (a.err == nil) != (b.err == nil) {
		t.Fatalf("errors %v and %v", a.err, b.err)
	}
	if a.err == nil {
		return
	}
	x, y := taskError(t, a.err), taskError(t, b.err)
	if !proto.Equal(x.Failure, y.Failure) || !proto.Equal(x.Rejection, y.Rejection) || x.Cancelled != y.Cancelled ||
		x.ProcessStatus != y.ProcessStatus {
		t.Errorf("errors\n%+v and\n%+v", x, y)
	}
}

// A repeated request with the same key gets the first answer, of any kind: while the task runs,
// afterwards, on another node, and after a restart.
func TestSameKeySameAnswer(t *testing.T) {
	t.Parallel()
	for _, args := range []string{"answer", "reject", "fail"} {
		t.Run(args, func(t *testing.T) {
			t.Parallel()
			dsn := storagetest.DSN(t)
			d := &decider{gate: newGate()}
			defer d.gate.release()
			a, b := start(t, dsn, d.processor()), start(t, dsn, d.processor())
			a.started(t, "p")
			first := a.calling("p", args, keyed("k"))
			receive(t, "the call runs", d.gate.entered)
			repeats := []<-chan result{
				a.calling("p", args, keyed("k")), a.calling("p", args, keyed("k")), b.calling("p", args, keyed("k")),
			}
			if res := <-a.calling("p", args+" other", keyed("k")); !errors.Is(res.err, process.ErrIdempotencyMismatch) {
				t.Errorf("another request under the same key: %v", res.err)
			}
			d.gate.release()
			want := receive(t, "the first answer", first)
			for _, c := range repeats {
				sameResult(t, want, receive(t, "the answer of a repeated request", c))
			}
			sameResult(t, want, <-a.calling("p", args, keyed("k")))
			sameResult(t, want, <-b.calling("p", args, keyed("k")))
			a.stop()
			again := start(t, dsn, d.processor())
			sameResult(t, want, <-again.calling("p", args, keyed("k")))
			if res := <-again.calling("p", args+" other", keyed("k")); !errors.Is(res.err,
				process.ErrIdempotencyMismatch) {
				t.Errorf("another request under the same key: %v", res.err)
			}
			task, err := again.AwaitTask(t.Context(), engine.AwaitParams{Key: key("p"), IdempotencyKey: "k"})
			if err != nil || task.GetTaskId() != want.ans.TaskID || task.GetIdempotencyKey() != "k" {
				t.Errorf("%v, %v", task, err)
			}
			if n := d.calls.Load(); n != 1 {
				t.Errorf("the processor was called %d times", n)
			}
		})
	}
}

// Keys belong to a process, so another process has separate keys. A notification and a call with
// the same args are the same request.
func TestKeyScope(t *testing.T) {
	t.Parallel()
	d := &decider{gate: newGate()}
	d.gate.release()
	n := start(t, storagetest.DSN(t), d.processor())
	n.started(t, "p")
	n.started(t, "q")
	p, q := <-n.calling("p", "a", keyed("k")), <-n.calling("q", "a", keyed("k"))
	if p.err != nil || q.err != nil || p.ans.TaskID == q.ans.TaskID {
		t.Errorf("%+v and %+v", p, q)
	}
	noted := <-n.calling("p", "n", keyed("note"), func(c *engine.CallParams) { c.Accepted = true })
	if noted.err != nil || noted.ans.Response != nil {
		t.Fatalf("%+v", noted)
	}
	if res := <-n.calling("p", "n", keyed("note")); res.err != nil || res.ans.TaskID != noted.ans.TaskID ||
		string(res.ans.Response) != "n 3" {
		t.Errorf("%+v", res)
	}
	if res := <-n.calling("p", "n", keyed("note"), func(c *engine.CallParams) {
		c.Accepted = true
	}); res.err != nil || res.ans.TaskID != noted.ans.TaskID {
		t.Errorf("%+v", res)
	}
}

// A Start with a key and without a process ID gets the same process each time, on any node, even if
// requests are concurrent.
func TestKeyedStartWithoutID(t *testing.T) {
	t.Parallel()
	dsn := storagetest.DSN(t)
	a, b := start(t, dsn, processor.Echo()), start(t, dsn, processor.Echo())
	b.put(t, &progressorv1.Namespace{Namespace: "ns"})
	for round := range 20 {
		results := make(chan result, 8)
		for n := range 8 {
			go func() {
				ans, err := []*node{a, b}[n%2].Start(context.Background(), engine.StartParams{
					Key: key(""), Args: []byte("a"), IdempotencyKey: fmt.Sprint("k", round),
					Metadata: []byte(`{"a":1}`),
				})
				results <- result{ans, err}
			}()
		}
		first := receive(t, "start", results)
		if first.err != nil || first.ans.ProcessID == "" || string(first.ans.Response) != "a" {
			t.Fatalf("%+v", first)
		}
		for range 7 {
			sameResult(t, first, receive(t, "start", results))
		}
	}
	if n := openDB(t, dsn).count(t, "SELECT count(*) FROM processes"); n != 20 {
		t.Errorf("%d processes", n)
	}
	if _, err := a.Start(t.Context(), engine.StartParams{
		Key: key(""), Args: []byte("other"), IdempotencyKey: "k0",
	}); !errors.Is(err, process.ErrIdempotencyMismatch) {
		t.Errorf("%v", err)
	}
	// With a process ID, the scope of a key is the process.
	if ans, err := a.Start(t.Context(), engine.StartParams{
		Key: key("named"), Args: []byte("a"), IdempotencyKey: "k0",
	}); err != nil || ans.ProcessID != "named" {
		t.Errorf("%+v, %v", ans, err)
	}
	if _, err := a.Start(t.Context(), engine.StartParams{
		Key: key("named"), Args: []byte("a"), IdempotencyKey: "another",
	}); !errors.Is(err, process.ErrProcessExists) {
		t.Errorf("%v", err)
	}
}

// Answers outlive their process.
func TestKeyAfterRemoval(t *testing.T) {
	t.Parallel()
	dsn := storagetest.DSN(t)
	d := &decider{gate: newGate()}
	defer d.gate.release()
	n := start(t, dsn, d.processor())
	n.started(t, "p")
	running := n.calling("p", "a", keyed("running"))
	receive(t, "the call runs", d.gate.entered)
	waiting := n.calling("p", "b", keyed("waiting"))
	rows := openDB(t, dsn)
	eventually(t, "a call waits", func() bool { return rows.count(t, "SELECT count(*) FROM schedule") == 1 })
	if err := n.RemoveProcess(t.Context(), key("p"), process.Actor{}); err != nil {
		t.Fatal(err)
	}
	for _, c := range []<-chan result{running, waiting} {
		if res := receive(t, "the answer to the removal", c); !taskError(t, res.err).Cancelled {
			t.Errorf("%+v", res)
		}
	}
	if res := <-n.calling("p", "b", keyed("waiting")); !taskError(t, res.err).Cancelled {
		t.Errorf("%+v", res)
	}
	d.gate.release()
	n.started(t, "p") // the ID can be used again
	n.called(t, "p", "c")
	if res := <-n.calling("p", "a", keyed("running")); !taskError(t, res.err).Cancelled {
		t.Errorf("the old key: %+v", res)
	}
	if err := n.RemoveProcess(t.Context(), key("none"), process.Actor{}); !errors.Is(err, process.ErrProcessNotFound) {
		t.Error(err)
	}
}

// repeated sends a call with a key again while it gets UNAVAILABLE, for example because the other
// node holds the lock of the process for a long time.
func (n *node) repeated(id, args string, option func(*engine.CallParams)) <-chan result {
	c := make(chan result, 1)
	go func() {
		res := <-n.calling(id, args, option)
		for errors.Is(res.err, process.ErrUnavailable) {
			res = <-n.calling(id, args, option)
		}
		c <- res
	}()
	return c
}

// Of many concurrent requests with the same key on two nodes, only one runs.
func TestSameKeyStorm(t *testing.T) {
	t.Parallel()
	dsn := storagetest.DSN(t)
	d := &decider{gate: newGate()}
	d.gate.release()
	nodes := []*node{start(t, dsn, d.processor()), start(t, dsn, d.processor())}
	nodes[0].started(t, "p")
	var calls []<-chan result
	for n := range 200 {
		calls = append(calls, nodes[n%2].repeated("p", "a", keyed(fmt.Sprint("k", n/20))))
	}
	for n, c := range calls {
		res := receive(t, "call", c)
		if res.err != nil {
			t.Fatal(res.err)
		}
		if n%20 > 0 {
			continue
		}
		for _, other := range calls[n+1 : n+20] {
			got := receive(t, "call", other)
			sameResult(t, res, got)
		}
		break
	}
	eventually(t, "all are answered", func() bool { return nodes[0].Attempts()+nodes[1].Attempts() == 0 })
	deadline := time.After(longWait)
	for n, c := range calls {
		if n < 20 {
			continue
		}
		select {
		case res := <-c:
			if res.err != nil {
				t.Error(res.err)
			}
		case <-deadline:
			t.Fatal("a concurrent request with the same key got no response")
		}
	}
	if n := d.calls.Load(); n != 10 {
		t.Errorf("10 requests ran %d times", n)
	}
}

// A repeated request stores nothing, so max_waiting does not reject it. It gets the outcome of the
// first one even if the queue of the process is full.
func TestRepeatedRequestsPassAFullQueue(t *testing.T) {
	t.Parallel()
	dsn := storagetest.DSN(t)
	d := &decider{gate: newGate()}
	defer d.gate.release()
	n := start(t, dsn, byTask{callTask: d.gate.held(true)})
	n.put(t, &progressorv1.Namespace{Namespace: "ns", MaxWaiting: 2})
	n.started(t, "p")
	accepted := func(p *engine.CallParams) { p.Accepted = true }
	ended := <-n.calling("p", "ended", keyed("ended"), accepted)
	rows := openDB(t, dsn)
	eventually(t, "the first notification has ended", func() bool {
		return rows.count(t, "SELECT count(*) FROM tasks WHERE status = 'FINISHED' AND task_type = 'NOTIFY'") == 1
	})
	running := n.calling("p", "runs", keyed("runs"))
	receive(t, "a call runs", d.gate.entered)
	waiting := <-n.calling("p", "waits", keyed("waits"), accepted)
	call := n.calling("p", "call", keyed("call"))
	eventually(t, "the queue is full", func() bool { return rows.count(t, "SELECT count(*) FROM schedule") == 2 })
	for range 3 {
		if res := <-n.calling("p", "new", keyed("new"), accepted); !errors.Is(res.err, process.ErrOverloaded) {
			t.Errorf("a new notification: %v", res.err)
		}
		sameResult(t, ended, <-n.calling("p", "ended", keyed("ended"), accepted))
		sameResult(t, waiting, <-n.calling("p", "waits", keyed("waits"), accepted))
		if res := <-n.calling("p", "other", keyed("waits"), accepted); !errors.Is(res.err,
			process.ErrIdempotencyMismatch) {
			t.Errorf("another notification under the same key: %v", res.err)
		}
	}
	again := []<-chan result{n.calling("p", "runs", keyed("runs")), n.calling("p", "call", keyed("call"))}
	d.gate.release()
	for i, first := range []<-chan result{running, call} {
		sameResult(t, receive(t, "call", first), receive(t, "its repetition", again[i]))
	}
}

// A retry of a notification is not a new request. It runs even if the queue of its process is full.
func TestRetriesPassAFullQueue(t *testing.T) {
	t.Parallel()
	dsn := storagetest.DSN(t)
	g, first := newGate(), newGate()
	defer g.release()
	defer first.release()
	attempts := make(chan int32, 10)
	n := start(t, dsn, byTask{callTask: g.held(true),
		notifyTask: func(ctx context.Context, r *progressorv1.ProcessRequest) (*progressorv1.ProcessResponse, error) {
			attempts <- r.GetAttempt()
			if err := first.pass(ctx, r, true); err != nil || r.GetAttempt() < 3 {
				return nil, processor.Fail("busy", "not yet")
			}
			return processor.Result().Done()
		}})
	ns := quick()
	ns.MaxWaiting = 1
	n.put(t, ns)
	n.started(t, "p")
	accepted := func(p *engine.CallParams) { p.Accepted = true }
	if res := <-n.calling("p", "note", accepted); res.err != nil {
		t.Fatal(res.err)
	}
	receive(t, "the first attempt", attempts)
	d := openDB(t, dsn)
	waits := func(n int) func() bool {
		return func() bool { return d.count(t, "SELECT count(*) FROM schedule WHERE waits_for = 'process'") == n }
	}
	calls := []<-chan result{n.calling("p", "1")}
	eventually(t, "a call waits", waits(1))
	first.release()
	receive(t, "the call runs", g.entered)
	calls = append(calls, n.calling("p", "2"))
	eventually(t, "the queue is full", waits(1))
	if res := <-n.calling("p", "new", accepted); !errors.Is(res.err, process.ErrOverloaded) {
		t.Errorf("a new notification: %v", res.err)
	}
	eventually(t, "the next attempt is due", func() bool {
		return d.count(t, `SELECT count(*) FROM schedule WHERE task_type = 'NOTIFY' AND waits_for = 'time'
			AND scheduled_time < now()`) == 1
	})
	g.release()
	for want := int32(2); want <= 3; want++ {
		if got := receive(t, "an attempt", attempts); got != want {
			t.Errorf("attempt %d, want %d", got, want)
		}
	}
	for _, c := range calls {
		if res := receive(t, "call", c); res.err != nil {
			t.Error(res.err)
		}
	}
	eventually(t, "the notification has ended", func() bool {
		return d.count(t, "SELECT count(*) FROM tasks WHERE task_type = 'NOTIFY' AND status = 'FINISHED'") == 1
	})
}

package engine_test

import (
	"context"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/progressor-engine/progressor/engine"
	"github.com/progressor-engine/progressor/process"
	"github.com/progressor-engine/progressor/processor"
	progressorv1 "github.com/progressor-engine/progressor/proto/progressor/v1"
	"github.com/progressor-engine/progressor/storage/storagetest"
)

// replier defers the response to a call with the args "defer …". "reply ID …", "reject ID …" and
// "complete ID …" end the call with that ID. The ID 0 means the call itself.
func replier(_ context.Context, r *progressorv1.ProcessRequest) (*progressorv1.ProcessResponse, error) {
	words := strings.Fields(string(r.GetArgs()) + " . .")
	id, _ := strconv.ParseInt(words[1], 10, 64)
	if id == 0 {
		id = r.GetTaskId()
	}
	result := processor.Result().Event(r.GetArgs())
	switch words[0] {
	case "defer":
		result.DeferResponse()
	case "reply":
		result.DeferResponse().Reply(id, []byte(words[2]))
	case "reject":
		result.RejectTask(id, processor.Reject(words[2], "as %s says", r.GetArgs()))
	case "complete":
		result.Reply(id, []byte(words[2])).Complete()
	case "child":
		result.DeferResponse().Start("", "child", nil)
	case "restart":
		result.RestartHistory()
	case "fail":
		return nil, processor.Fail("broken", "as asked")
	}
	return result.Done()
}

// long makes a call wait for a long time.
func long(p *engine.CallParams) { p.Timeout = time.Hour }

// open makes a call and waits until its response is deferred.
func (n *node) open(t testing.TB, rows db, args string, change ...func(*engine.CallParams)) (<-chan result, int64) {
	t.Helper()
	c := n.calling("p", args, append(change, long)...)
	find := `SELECT coalesce(max(task_id), 0) FROM schedule
		WHERE process_id = 'p' AND waits_for = 'reply' AND convert_from(args, 'UTF8') = $1`
	eventually(t, args+" is open", func() bool { return rows.count(t, find, args) > 0 })
	return c, int64(rows.count(t, find, args))
}

// got checks the response of a call.
func (r result) got(t testing.TB, want string) {
	t.Helper()
	if r.err != nil || string(r.ans.Response) != want {
		t.Errorf("got %q, %v, want %q", r.ans.Response, r.err, want)
	}
}

// Two calls are open at the same time. Later tasks on other nodes answer them, the newer one first.
// Another caller who repeats a request gets the same response.
func TestReplies(t *testing.T) {
	t.Parallel()
	dsn := storagetest.DSN(t)
	a, b := start(t, dsn, byTask{callTask: replier}), start(t, dsn, byTask{callTask: replier})
	rows := openDB(t, dsn)
	a.started(t, "p")
	keyed := func(p *engine.CallParams) { p.IdempotencyKey = "k" }
	first, one := a.open(t, rows, "defer 1", keyed)
	second, two := a.open(t, rows, "defer 2")
	again := b.calling("p", "defer 1", keyed, long)

	a.explains(t, "p", progressorv1.WaitsFor_WAITS_FOR_REPLY, fmt.Sprintf("Task %d (CALL) has waited", one),
		"and 1 more since then")
	task, err := b.AwaitTask(t.Context(), engine.AwaitParams{Key: key("p"), TaskID: one, Timeout: time.Millisecond})
	if err != nil || task.GetStatus() != progressorv1.TaskStatus_TASK_STATUS_WAITING {
		t.Errorf("%v, %v", task, err)
	}
	page, err := b.TraceProcess(t.Context(), key("p"), 0, "")
	if got := page.GetTasks()[1]; err != nil || got.GetStatus() != progressorv1.TaskStatus_TASK_STATUS_WAITING ||
		got.GetAttempt() != 1 || got.GetRunningTime() == nil || len(got.GetEvents()) != 1 {
		t.Errorf("the open call is %v, %v", got, err)
	}
	storagetest.Invariants(t, dsn)

	third, three := b.open(t, rows, fmt.Sprintf("reply %d second", two))
	receive(t, "the second call", second).got(t, "second")
	b.called(t, "p", fmt.Sprintf("reject %d no", one))
	for _, c := range []<-chan result{first, again} {
		res := receive(t, "the first call", c)
		if te := taskError(t, res.err); te.Rejection.GetReason() != "no" || te.TaskID != one {
			t.Errorf("%v", res.err)
		}
	}
	a.called(t, "p", fmt.Sprintf("reject %d late", two)) // has no effect, because the call has ended
	a.called(t, "p", fmt.Sprintf("complete %d end", three))
	receive(t, "the third call", third).got(t, "end")
	if p := a.status(t, "p"); p != "COMPLETED" {
		t.Error(p)
	}
	e, err := a.ExplainProcess(t.Context(), key("p"))
	if err != nil {
		t.Fatal(err)
	}
	var waited []int64
	for _, span := range e.GetSpans() {
		if span.GetWhat() == "reply" {
			waited = append(waited, span.GetTaskId())
		}
	}
	if want := []int64{one, two, three}; !slices.Equal(waited, want) {
		t.Errorf("%v waited for replies, want %v", waited, want)
	}
}

// A task can answer itself: with a response, or with a rejection that stores its events.
func TestReplyToItself(t *testing.T) {
	t.Parallel()
	dsn := storagetest.DSN(t)
	n := start(t, dsn, byTask{callTask: replier, timeoutTask: replier})
	rows := openDB(t, dsn)
	n.started(t, "p")
	receive(t, "the reply", n.calling("p", "reply 0 at-once")).got(t, "at-once")
	res := receive(t, "the rejection", n.calling("p", "reject 0 no"))
	if te := taskError(t, res.err); te.Rejection.GetReason() != "no" {
		t.Error(res.err)
	}
	if got := rows.count(t, "SELECT last_event_id FROM processes"); got != 3 {
		t.Errorf("%d events", got)
	}
	receive(t, "the last reply", n.calling("p", "complete 0 end")).got(t, "end")
}

// A result with a deferred response also stores its messages, and the open call survives a crash of
// the node that deferred the response. A caller whose wait is over finds the response later.
func TestReplyAfterCrash(t *testing.T) {
	t.Parallel()
	dsn := storagetest.DSN(t)
	a := start(t, dsn, byTask{callTask: replier})
	rows := openDB(t, dsn)
	a.started(t, "p")
	res := receive(t, "the call with a short wait", a.calling("p", "child", func(p *engine.CallParams) {
		p.Timeout, p.IdempotencyKey = time.Millisecond, "k"
	}))
	te := taskError(t, res.err)
	if !te.WaitTimeout {
		t.Fatal(res.err)
	}
	eventually(t, "the child runs", func() bool { return a.status(t, "child") == "RUNNING" })
	a.crash()
	b := start(t, dsn, byTask{callTask: replier})
	again := b.calling("p", "child", func(p *engine.CallParams) { p.IdempotencyKey = "k" }, long)
	b.called(t, "p", fmt.Sprintf("reject %d no", te.TaskID))
	if res := receive(t, "the repeated call", again); taskError(t, res.err).Rejection.GetReason() != "no" {
		t.Error(res.err)
	}
	task, err := b.AwaitTask(t.Context(), engine.AwaitParams{Key: key("p"), TaskID: te.TaskID, Timeout: longWait})
	if err != nil || task.GetRejection().GetReason() != "no" {
		t.Errorf("%v, %v", task, err)
	}
	if got := rows.count(t, "SELECT count(*) FROM tasks WHERE task_id = $1", te.TaskID); got != 1 {
		t.Errorf("%d rows of the task", got)
	}
}

// If the process ends in any way, or fails, the callers of its open calls get an error.
func TestOpenCallsAreCancelled(t *testing.T) {
	t.Parallel()
	dsn := storagetest.DSN(t)
	n := start(t, dsn, byTask{callTask: replier, cancelTask: answers(processor.Result())})
	rows := openDB(t, dsn)
	for name, end := range map[string]func(*testing.T){
		"fails":     func(*testing.T) { receive(t, "the failure", n.calling("p", "fail")) },
		"completes": func(t *testing.T) { n.called(t, "p", "complete 0 x") },
		"is cancelled": func(t *testing.T) {
			if _, err := n.CancelProcess(t.Context(), engine.CancelParams{Key: key("p")}); err != nil {
				t.Error(err)
			}
		},
		"is removed": func(t *testing.T) {
			if err := n.RemoveProcess(t.Context(), key("p"), process.Actor{}); err != nil {
				t.Error(err)
			}
		},
	} {
		n.started(t, "p")
		call, id := n.open(t, rows, "defer 1")
		end(t)
		if res := receive(t, "the call of a process that "+name, call); !taskError(t, res.err).Cancelled {
			t.Errorf("%s: %v", name, res.err)
		}
		task, err := n.AwaitTask(t.Context(), engine.AwaitParams{Key: key("p"), TaskID: id})
		if err != nil || task.GetStatus() != progressorv1.TaskStatus_TASK_STATUS_CANCELLED ||
			(task.GetRunningTime() == nil) != (name == "is removed") {
			t.Errorf("%s: %v, %v", name, task, err)
		}
		storagetest.Invariants(t, dsn)
		if name == "fails" { // after a repair, a reply to the call does nothing
			if _, err := n.Repair(t.Context(), engine.RepairParams{Key: key("p"), Simple: true}); err != nil {
				t.Fatal(err)
			}
			n.called(t, "p", fmt.Sprintf("reject %d late", id))
		}
		if name == "completes" {
			r := &progressorv1.EraseProcessRequest{Namespace: "ns", ProcessId: "p"}
			if _, err := n.EraseProcess(t.Context(), r, ada); err != nil {
				t.Error(err)
			}
		} else {
			_ = n.RemoveProcess(t.Context(), key("p"), process.Actor{})
		}
		eventually(t, "the process is removed", func() bool {
			return rows.count(t, "SELECT count(*) FROM processes") == 0
		})
	}
}

// While its process is suspended, an open call waits for the operator. It does not run again.
func TestOpenCallIsSuspended(t *testing.T) {
	t.Parallel()
	dsn := storagetest.DSN(t)
	n := start(t, dsn, byTask{callTask: replier})
	rows := openDB(t, dsn)
	n.started(t, "p")
	call, id := n.open(t, rows, "defer 1")
	n.suspended(t, "p")
	if got := rows.texts(t, "SELECT waits_for FROM schedule"); fmt.Sprint(got) != "[operator]" {
		t.Errorf("the call waits for %v", got)
	}
	storagetest.Invariants(t, dsn)
	if _, err := n.ResumeProcess(t.Context(), key("p"), process.Actor{}); err != nil {
		t.Fatal(err)
	}
	if got := rows.texts(t, "SELECT waits_for FROM schedule"); fmt.Sprint(got) != "[reply]" {
		t.Errorf("the call waits for %v", got)
	}
	n.called(t, "p", fmt.Sprintf("reject %d no", id))
	if res := receive(t, "the call", call); taskError(t, res.err).Rejection.GetReason() != "no" {
		t.Error(res.err)
	}
	if got := rows.count(t, "SELECT max(attempt) FROM tasks"); got != 1 {
		t.Errorf("attempt %d", got)
	}
}

// The calls of a process stay open if its history is restarted. After that, a reply to a call whose
// task was removed has no effect, and is not an error.
func TestOpenCallsSurviveARestart(t *testing.T) {
	t.Parallel()
	dsn := storagetest.DSN(t)
	n := start(t, dsn, byTask{callTask: replier})
	rows := openDB(t, dsn)
	n.started(t, "p")
	old := n.called(t, "p", "x")
	call, id := n.open(t, rows, "defer 1")
	n.called(t, "p", "restart")
	eventually(t, "the old tasks are removed", func() bool { return rows.count(t, "SELECT count(*) FROM tasks") == 1 })
	rows.exec(t, "DELETE FROM answers")
	n.called(t, "p", fmt.Sprintf("reject %d late", old.TaskID))
	n.called(t, "p", fmt.Sprintf("reject %d no", id))
	if res := receive(t, "the call", call); taskError(t, res.err).Rejection.GetReason() != "no" {
		t.Error(res.err)
	}
}

// A reply to a task that is not open, and too many open calls, fail the task with a clear error.
func TestWrongReplies(t *testing.T) {
	t.Parallel()
	dsn := storagetest.DSN(t)
	g := newGate()
	defer g.release()
	var target atomic.Int64
	n := start(t, dsn, byTask{callTask: g.heldBefore(
		func(ctx context.Context, r *progressorv1.ProcessRequest) (*progressorv1.ProcessResponse, error) {
			if string(r.GetArgs()) == "hold" {
				return processor.Result().Reply(target.Load(), nil).Done()
			}
			return replier(ctx, r)
		})})
	rows := openDB(t, dsn)
	fails := func(args, want string) {
		t.Helper()
		res := receive(t, args, n.calling("p", args, long))
		if te := taskError(t, res.err); !strings.Contains(te.Failure.GetMessage(), want) {
			t.Errorf("%s: %v", args, res.err)
		}
		if err := n.RemoveProcess(t.Context(), key("p"), process.Actor{}); err != nil {
			t.Fatal(err)
		}
		eventually(t, "the process is removed", func() bool {
			return rows.count(t, "SELECT count(*) FROM processes") == 0
		})
	}
	n.started(t, "p")
	fails("reject 987654 x", "result.replies: 987654 is not a task that waits for a reply")
	n.started(t, "p")
	other, id := n.open(t, rows, "defer 1")
	fails(fmt.Sprintf("reject %d x", id+1_000_000), "is not a task that waits for a reply")
	receive(t, "the open call", other)
	n.started(t, "p")
	for k := range process.MaxOpenTasks {
		n.calling("p", fmt.Sprint("defer ", k), long)
	}
	eventually(t, "all are open", func() bool {
		return rows.count(t, "SELECT count(*) FROM schedule WHERE waits_for = 'reply'") == process.MaxOpenTasks
	})
	fails("defer one-more", "result.defer_response: at most 100 calls may wait for a reply (got 101)")
	n.started(t, "p") // its call "hold" replies to a call that waits behind it
	held := n.calling("p", "hold", long)
	receive(t, "the attempt", g.entered)
	waits := n.calling("p", "x", long)
	eventually(t, "the call waits", func() bool { return rows.count(t, "SELECT count(*) FROM schedule") == 1 })
	target.Store(int64(rows.count(t, "SELECT task_id FROM schedule")))
	g.release()
	res := receive(t, "the reply to a call that waits", held)
	if te := taskError(t, res.err); !strings.Contains(te.Failure.GetMessage(), "is not a task that waits for a reply") {
		t.Error(res.err)
	}
	receive(t, "the call that waits", waits)
}

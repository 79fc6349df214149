package engine_test

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"testing"

	"github.com/progressor-engine/progressor/engine"
	"github.com/progressor-engine/progressor/process"
	"github.com/progressor-engine/progressor/processor"
	progressorv1 "github.com/progressor-engine/progressor/proto/progressor/v1"
	"github.com/progressor-engine/progressor/storage/storagetest"
)

var ada = process.Actor{Name: "ada"}

func (n *node) suspended(t testing.TB, id string) {
	t.Helper()
	if _, err := n.SuspendProcess(t.Context(), key(id), "looking into it", process.Actor{}); err != nil {
		t.Fatalf("suspend %s: %v", id, err)
	}
}

// refusedIn reports whether an error rejects a request because its process has the wrong status.
func refusedIn(err error, status process.Status) bool {
	var wrong *process.WrongStatusError
	return errors.As(err, &wrong) && wrong.Status == status
}

// A run is erased with everything that its steps have started, even if each request erases only a
// few rows and the client loses its page token several times.
func TestEraseInSmallRequests(t *testing.T) {
	t.Parallel()
	dsn := storagetest.DSN(t)
	n := start(t, dsn, processor.Echo())
	rows := openDB(t, dsn)
	ids := []string{"~flow/person", "~flow/person-sub", "~flow/other"}
	for k := range 25 {
		ids = append(ids, fmt.Sprintf("person-%02d", k))
	}
	ids = append(ids, "person-of-sub")
	for k, id := range ids {
		rows.exec(t, `INSERT INTO processes
			(namespace, process_id, status, attention, status_changed_time, attention_time)
			VALUES ('ns', $1, 'COMPLETED', 'COMPLETED', now(), now())`, id)
		run := "person"
		switch id {
		case "person-of-sub":
			run = "person-sub"
		case "~flow/person", "~flow/other":
			continue
		}
		for _, run := range []string{run, "other"} { // the steps of the other run keep their rows
			rows.exec(t, `INSERT INTO flow_steps (namespace, run_id, step_id, index, ord, status, process_id)
				VALUES ('ns', $1, $2, -1, 0, 'succeeded', $3)`, run, fmt.Sprint("step", k), id)
		}
	}
	storagetest.Recount(t, rows.Pool)
	rows.exec(t, "UPDATE processes SET status = 'RUNNING' WHERE process_id = '~flow/person'")
	r := &progressorv1.EraseProcessRequest{Namespace: "ns", ProcessId: "~flow/person", Children: true}
	if _, err := n.EraseProcess(t.Context(), r, ada); !refusedIn(err, process.StatusRunning) ||
		rows.count(t, "SELECT count(*) FROM processes") != len(ids) {
		t.Errorf("the run has not ended: %v", err)
	}
	rows.exec(t, "UPDATE processes SET status = 'COMPLETED'")
	for _, requests := range []int{9, 30, 42, 500} { // after this many requests, the client loses its page token
		r.PageToken = ""
		for k := range requests {
			resp, err := n.EraseBatch(t.Context(), r, ada, 8)
			if err != nil {
				t.Fatal(err)
			}
			if r.PageToken = resp.GetNextPageToken(); r.PageToken == "" {
				if k < 50 {
					t.Errorf("everything was erased in %d requests", k+1)
				}
				break
			}
		}
	}
	if left := rows.texts(t, "SELECT process_id FROM processes"); fmt.Sprint(left) != "[~flow/other]" {
		t.Errorf("the processes %v are left", left)
	}
	left := rows.texts(t, "SELECT process_id FROM flow_steps WHERE process_id !~ '^erased:[0-9a-f]{64}$'")
	if len(left) > 0 {
		t.Errorf("steps still have %v", left)
	}
	if got := rows.count(t, "SELECT count(*) FROM flow_steps"); got != 27 {
		t.Errorf("the other run has %d steps", got)
	}
	if got := rows.count(t, "SELECT count(DISTINCT subject) FROM audit WHERE method = 'EraseProcess'"); got != 28 {
		t.Errorf("the audit has %d processes", got)
	}
}

// A request with a page token is checked like any other: a process that was started again is not
// erased while it runs, and the audit records each erasure.
func TestEraseTrustsNoToken(t *testing.T) {
	t.Parallel()
	dsn := storagetest.DSN(t)
	n := start(t, dsn, processor.Echo())
	rows := openDB(t, dsn)
	begin := func() {
		t.Helper()
		if _, err := n.Start(t.Context(), engine.StartParams{
			Key: key("p"), Args: []byte("start"), IdempotencyKey: "k",
		}); err != nil {
			t.Fatal(err)
		}
	}
	r := &progressorv1.EraseProcessRequest{Namespace: "ns", ProcessId: "p"}
	erase := func() {
		t.Helper()
		for done := false; !done; done = r.GetPageToken() == "" {
			resp, err := n.EraseProcess(t.Context(), r, ada)
			if err != nil {
				t.Fatal(err)
			}
			r.PageToken = resp.GetNextPageToken()
		}
	}
	recorded := func() int {
		t.Helper()
		return rows.count(t, "SELECT count(*) FROM audit WHERE method = 'EraseProcess'")
	}
	begin()
	n.suspended(t, "p")
	resp, err := n.EraseBatch(t.Context(), r, ada, 1)
	if err != nil || resp.GetNextPageToken() == "" || resp.GetRows()["processes"] != 1 {
		t.Fatal(resp, err)
	}
	rows.exec(t, "DELETE FROM requests")
	begin() // again
	token := resp.GetNextPageToken()
	r.PageToken = token
	if _, err := n.EraseProcess(t.Context(), r, ada); !refusedIn(err, process.StatusRunning) {
		t.Errorf("a process that was started again: %v", err)
	}
	if rows.count(t, "SELECT count(*) FROM requests") != 1 || n.status(t, "p") != "RUNNING" {
		t.Error("a rejected request has erased something")
	}
	n.suspended(t, "p")
	r.PageToken = token
	erase()
	if got := n.status(t, "p") + fmt.Sprint(rows.count(t, "SELECT count(*) FROM requests"), recorded()); got != "0 1" {
		t.Errorf("status, requests and entries: %s", got)
	}
	rows.exec(t, "UPDATE audit SET time = time - interval '61 minutes'")
	begin()
	r.PageToken = token
	if _, err := n.EraseProcess(t.Context(), r, ada); !refusedIn(err, process.StatusRunning) || recorded() != 1 {
		t.Errorf("a rejected request with a token: %v, %d entries", err, recorded())
	}
	n.suspended(t, "p")
	erase()
	if got := n.status(t, "p") + fmt.Sprint(recorded()); got != "2" {
		t.Errorf("status and entries of a later erasure: %s", got)
	}
	erase()
	if got := recorded(); got != 3 {
		t.Errorf("%d entries, one of them for an erasure without a token", got)
	}
	for _, token := range []string{"eyJiIjp0cnVlfQ", "e30"} { // {"b":true} and {}
		r.PageToken = token
		var invalid *process.InvalidError
		if _, err := n.EraseProcess(t.Context(), r, ada); !errors.As(err, &invalid) || invalid.Field != "page_token" {
			t.Errorf("token %s: %v", token, err)
		}
	}
}

// The removal of an ended process neither removes a process that is running nor stops its task.
func TestRemovalLeavesARunningTask(t *testing.T) {
	t.Parallel()
	g := newGate()
	defer g.release()
	var stopped atomic.Bool
	n := start(t, storagetest.DSN(t), byTask{
		callTask: func(ctx context.Context, r *progressorv1.ProcessRequest) (*progressorv1.ProcessResponse, error) {
			_ = g.pass(ctx, r, false) // returns no error
			stopped.Store(ctx.Err() != nil)
			return processor.Echo().Process(ctx, r)
		}})
	n.started(t, "p")
	call := n.calling("p", "hold")
	receive(t, "the call runs", g.entered)
	if err := n.RemoveStopped(t.Context(), "ns", []process.Key{key("p")}); err != nil {
		t.Error(err)
	}
	if removed, err := n.RemoveEnded(t.Context(), key("p"), "RemoveJob", ada); removed || err != nil {
		t.Error(removed, err)
	}
	g.release()
	if res := receive(t, "the call", call); res.err != nil || string(res.ans.Response) != "hold" {
		t.Errorf("the task of a process that was not removed: %+v", res)
	}
	if stopped.Load() {
		t.Error("the task was stopped")
	}
	if got := n.status(t, "p"); got != "RUNNING" {
		t.Errorf("the process is %s", got)
	}
	n.suspended(t, "p")
	if err := n.RemoveStopped(t.Context(), "ns", []process.Key{key("p")}); err != nil || n.status(t, "p") != "" {
		t.Errorf("a suspended process: %v, its status is %s", err, n.status(t, "p"))
	}
}

package engine_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/progressor-engine/progressor/engine"
	"github.com/progressor-engine/progressor/process"
	"github.com/progressor-engine/progressor/processor"
	progressorv1 "github.com/progressor-engine/progressor/proto/progressor/v1"
	"github.com/progressor-engine/progressor/storage/storagetest"
)

func requestsOnly(c *engine.Config) { c.RequestsOnly = true }

// rarely makes polls so rare that progress can only come from notices of other nodes. In portable
// databases there are no notices, so rarely changes nothing.
func rarely(c *engine.Config) {
	if !storagetest.AllPortable() {
		c.ScanInterval, c.AnswerPoll = time.Hour, time.Hour
	}
}

// fails returns a processor that fails the test if it is called.
func fails(t testing.TB) processor.Processor {
	return processor.Func(func(context.Context, *progressorv1.ProcessRequest) (*progressorv1.ProcessResponse, error) {
		t.Error("the node for requests ran a task")
		return processor.Result().Done()
	})
}

// One node only accepts requests, and another node runs the tasks. The nodes notify each other of
// new tasks and of responses: in this test, they poll only once an hour.
func TestRequestsOnly(t *testing.T) {
	t.Parallel()
	dsn := storagetest.DSN(t)
	reg := newRegistry()
	front := start(t, dsn, fails(t), brief, requestsOnly, rarely, reg.use)
	start(t, dsn, byTask{callTask: func(
		_ context.Context, r *progressorv1.ProcessRequest,
	) (*progressorv1.ProcessResponse, error) {
		return processor.Result().Response(r.GetArgs()).SetTimerAfter(0).Done()
	}}, brief, rarely)
	done := make(chan struct{})
	go func() {
		defer close(done)
		front.started(t, "p")
		if ans := front.called(t, "p", "hello"); string(ans.Response) != "hello" {
			t.Errorf("the response is %q", ans.Response)
		}
	}()
	receive(t, "the responses", done)
	rows := openDB(t, dsn)
	eventually(t, "the timer fires", func() bool {
		return rows.count(t, `SELECT count(*) FROM tasks WHERE process_id = 'p' AND task_type = 'TIMEOUT'
			AND finished_time IS NOT NULL`) > 0
	})
	nodes, err := front.ListNodes(t.Context())
	if err != nil || len(nodes) != 2 || !nodes[0].GetRequestsOnly() || nodes[1].GetRequestsOnly() {
		t.Errorf("the nodes: %v, %v", nodes, err)
	}
	if err := front.Ready(); err != nil {
		t.Errorf("the node for requests is not ready: %v", err)
	}
	if v := reg.value(t, "progressor_node_requests_only"); v != 1 {
		t.Errorf("progressor_node_requests_only is %v", v)
	}
}

// A node that takes only requests runs no tasks, even if no other node does. max_backlog limits the
// number of tasks for which clients wait. Another node runs these tasks when it starts.
func TestRequestsOnlyAlone(t *testing.T) {
	t.Parallel()
	dsn := storagetest.DSN(t)
	front := start(t, dsn, fails(t), brief, requestsOnly)
	ns := quick()
	ns.MaxBacklog = 1
	front.put(t, ns)
	short := engine.StartParams{Key: key("p"), Timeout: 50 * time.Millisecond}
	if _, err := front.Start(t.Context(), short); !taskError(t, err).WaitTimeout {
		t.Errorf("a start without nodes that run tasks: %v", err)
	}
	short.Key = key("q")
	if _, err := front.Start(t.Context(), short); !errors.Is(err, process.ErrOverloaded) {
		t.Errorf("a start beyond max_backlog: %v", err)
	}
	short.Accepted = true
	if _, err := front.Start(t.Context(), short); err != nil {
		t.Errorf("a start whose client does not wait: %v", err)
	}
	front.ScanNow()
	rows := openDB(t, dsn)
	if n := rows.count(t, "SELECT count(*) FROM running"); n != 0 {
		t.Errorf("%d tasks run", n)
	}
	start(t, dsn, processor.Echo(), brief)
	eventually(t, "the other node runs the waiting tasks", func() bool {
		return front.status(t, "p") == "RUNNING" && front.status(t, "q") == "RUNNING"
	})
}

// Other nodes do not leave chores to a node that accepts only requests.
func TestRequestsOnlyDoesNoChores(t *testing.T) {
	t.Parallel()
	dsn := storagetest.DSN(t)
	for range 8 { // if these nodes did chores, they would be responsible for most of them
		start(t, dsn, fails(t), brief, requestsOnly)
	}
	back := start(t, dsn, processor.Echo(), brief)
	eventually(t, "the node knows the others", func() bool { return back.KnowsRequestsOnly() })
	for _, chore := range []string{"zombies", "purge", "forget", "kinds", "times", "expire", "trim", "orphans"} {
		if !back.Owns(chore) {
			t.Errorf("chore %q is left to a node for requests", chore)
		}
	}
}

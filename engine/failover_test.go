package engine_test

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/progressor-engine/progressor/engine"
	"github.com/progressor-engine/progressor/process"
	"github.com/progressor-engine/progressor/processor"
	progressorv1 "github.com/progressor-engine/progressor/proto/progressor/v1"
	"github.com/progressor-engine/progressor/storage/storagetest"
)

// heldCall makes a call whose attempt the gate holds. It returns the channel for the result of the
// call, and the request that the processor got.
func (n *node) heldCall(t testing.TB, g *gate, id string) (<-chan result, *progressorv1.ProcessRequest) {
	t.Helper()
	c := n.calling(id, "hold", func(p *engine.CallParams) { p.Timeout = time.Hour })
	return c, receive(t, "the attempt of "+id, g.entered)
}

// After a failover to a standby without the last commits, no client gets the response of another
// process, and clients of lost tasks get an error. No number is issued twice, and the node keeps
// running.
func TestFailoverThatLosesTheTail(t *testing.T) {
	t.Parallel()
	const processes, more = 20, 60
	r := storagetest.NewReplicated(t)
	g := newGate()
	defer g.release()
	n := start(t, r.DSN, byTask{callTask: g.heldBefore(processor.Echo().Process)})
	for k := range processes {
		n.started(t, fmt.Sprint("p", k))
		n.started(t, fmt.Sprint("q", k))
	}
	r.CatchUp()
	r.Detach()
	var waiting []<-chan result
	var task, token int64
	for k := range processes {
		c, request := n.heldCall(t, g, fmt.Sprint("p", k))
		waiting = append(waiting, c)
		task, token = max(task, request.GetTaskId()), max(token, request.GetFencingToken())
	}
	lost := n.started(t, "lost")
	r.FailOver()

	var group sync.WaitGroup
	for k := range more { // without new numbers, they would get those of the lost calls
		group.Go(func() {
			p := engine.CallParams{
				Key: key(fmt.Sprint("q", k%processes)), Args: fmt.Append(nil, "op ", k),
				IdempotencyKey: fmt.Sprint("op ", k),
			}
			for end := time.Now().Add(longWait); ; {
				ans, err := n.Call(context.Background(), p)
				if errors.Is(err, process.ErrUnavailable) && time.Now().Before(end) {
					continue
				}
				if err != nil || string(ans.Response) != string(p.Args) || ans.TaskID <= task {
					t.Errorf("%s: %q of task %d (%d were issued before), %v", p.Args, ans.Response, ans.TaskID, task,
						err)
				}
				return
			}
		})
	}
	for k, c := range waiting {
		res := receive(t, fmt.Sprint("the end of the lost call of p", k), c)
		if te := taskError(t, res.err); !te.LostByFailover || te.Key != key(fmt.Sprint("p", k)) {
			t.Errorf("a client whose call was lost: %q, %v", res.ans.Response, res.err)
		}
	}
	group.Wait()
	_, err := n.AwaitTask(context.Background(), engine.AwaitParams{
		Key: key("lost"), TaskID: lost.TaskID, Timeout: time.Hour,
	})
	if !errors.Is(err, process.ErrTaskNotFound) {
		t.Errorf("a task of a process that was lost: %v", err)
	}
	eventually(t, "attempts that were lost have ended", func() bool { return n.Attempts() == 0 })
	c, request := n.heldCall(t, g, "p0")
	if request.GetFencingToken() <= token {
		t.Errorf("token %d after %d was issued", request.GetFencingToken(), token)
	}
	g.release()
	if res := receive(t, "a call after the failover", c); res.err != nil || string(res.ans.Response) != "hold" {
		t.Errorf("%q, %v", res.ans.Response, res.err)
	}
	n.stop()
	storagetest.Invariants(t, r.DSN)
}

// The failover loses the row of the node. The node registers again, and runs new tasks.
func TestFailoverThatLosesTheNode(t *testing.T) {
	t.Parallel()
	r := storagetest.NewReplicated(t)
	r.Detach()
	n := start(t, r.DSN, processor.Echo())
	before := n.Store.NodeID()
	r.FailOver()
	eventually(t, "a new node row", func() bool { return n.Store.NodeID() != before })
	if n.Store.NodeID() < before {
		t.Errorf("node %d after %d", n.Store.NodeID(), before)
	}
	n.put(t, &progressorv1.Namespace{Namespace: "ns"}) // it was lost as well
	n.started(t, "p")
	if ans := n.called(t, "p", "x"); string(ans.Response) != "x" {
		t.Errorf("response %q", ans.Response)
	}
}

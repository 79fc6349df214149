package storage_test

import (
	"errors"
	"testing"
	"time"

	"github.com/progressor-engine/progressor/process"
	"github.com/progressor-engine/progressor/storage"
)

// cutBench is a bench with a store behind a proxy.
type cutBench struct {
	*bench
	proxy *proxy
	front *storage.Store
	taken chan storage.Claim // adopted claims
}

func newCutBench(t *testing.T) *cutBench {
	b := newBench(t)
	p := newProxy(t, b.dsn)
	c := &cutBench{
		bench: b, proxy: p, front: open(t, p.DSN, storage.Config{Lanes: 1}), taken: make(chan storage.Claim, 100),
	}
	c.front.OnAdopt(func(claims []storage.Claim) {
		for _, claim := range claims {
			c.taken <- claim
		}
	})
	return c
}

// adopted waits for an adopted claim.
func (c *cutBench) adopted() storage.Claim {
	c.t.Helper()
	select {
	case claim := <-c.taken:
		return claim
	case <-time.After(waitLimit):
		c.t.Fatalf("nothing was adopted within %s", waitLimit)
	}
	return storage.Claim{}
}

func (c *cutBench) saveThroughProxy(completion *storage.Completion) storage.Saved {
	c.t.Helper()
	saved, err := c.front.SaveResult(completion)
	return must(c.t, saved, err)
}

// claimThroughProxy creates a process through the proxy, and returns the claim of a call to the
// process.
func (c *cutBench) claimThroughProxy(id string, change ...func(*storage.Call)) *storage.Claim {
	c.t.Helper()
	in, err := c.front.PrepareInit(newInit(id))
	c.saveThroughProxy(end(must(c.t, in, err).Claim, storage.Finished))
	p, err := c.front.PrepareCall(call(id, change...))
	return must(c.t, p, err).Claim
}

// If the connection breaks before the statements reach the server, nothing is stored. Results and
// requests with keys are repeated.
func TestConnectionBreaksBeforeTheCommit(t *testing.T) {
	t.Parallel()
	c := newCutBench(t)
	claim := c.claimThroughProxy("p")
	made := c.proxy.next(beforeCommit)
	saved := c.saveThroughProxy(end(claim, storage.Finished, events("a")))
	<-made
	equal(t, "lost", saved.ResponseLost, false)
	c.is("p", "RUNNING e1: INIT FINISHED, CALL FINISHED")

	c.proxy.next(beforeCommit)
	if _, err := c.front.PrepareCall(call("p")); !errors.Is(err, process.ErrUnavailable) {
		t.Errorf("a call without a key: %v", err)
	}
	c.is("p", "RUNNING e1: INIT FINISHED, CALL FINISHED")
	c.proxy.next(beforeCommit)
	p, err := c.front.PrepareCall(call("p", keyed("k", "x")))
	equal(t, "a call with a key", must(t, p, err).Outcome, storage.Captured)
	c.is("p", "RUNNING e1: INIT FINISHED, CALL FINISHED, CALL runs#1")
	equal(t, "adopted", len(c.taken), 0)
}

// If the connection breaks before or after the commit of an operator's command, the command is
// repeated and finds its own result.
func TestCommandsWhoseResponsesAreLost(t *testing.T) {
	t.Parallel()
	c := newCutBench(t)
	c.claimThroughProxy("p")
	lost := func(what string, give func() error) {
		t.Helper()
		for _, moment := range []cut{beforeCommit, afterCommit} {
			made := c.proxy.next(moment)
			if err := give(); err != nil {
				t.Errorf("%s: %v", what, err)
			}
			<-made
		}
	}
	lost("suspend", func() error { return c.front.SuspendProcess(key("p"), "") })
	c.is("p", "SUSPENDED e0: INIT FINISHED, CALL runs#1")
	lost("resume", func() error { return c.front.ResumeProcess(key("p")) })
	c.is("p", "RUNNING e0: INIT FINISHED, CALL runs#1")
	cancel := func() error {
		_, err := c.front.CancelProcess(storage.Cancel{Key: key("p")})
		return err
	}
	lost("cancel", cancel)
	c.is("p", "RUNNING e0: INIT FINISHED, CALL runs#1, CANCEL waits for process#0")
	c.proxy.next(afterCommit)
	ended, err := c.front.EndOverdueCancel(key("p"))
	equal(t, "the end of an overdue cancel", must(t, ended, err), true)
	c.is("p", "CANCELLED e0: INIT FINISHED, CALL CANCELLED, CANCEL ERROR")

	// The first try has ended the process, or changed it to a status that rejects the second try.
	c.breakProcess("q")
	c.proxy.next(afterCommit)
	state, err := c.front.CancelProcess(storage.Cancel{Key: key("q")})
	equal(t, "a cancel in ERROR", must(t, state, err).Ended, true)
	c.start("r")
	c.suspend("r")
	c.proxy.next(afterCommit)
	must(t, 0, c.front.ResumeProcess(key("r")))
	c.is("r", "INIT e0: INIT runs#1")
}

// A committed flush whose response was lost is not repeated. A result is reported as applied, and
// the task that it promoted is adopted. A request with a key finds its first try. The task of a
// request without a key is adopted, although its client gets an error.
func TestConnectionBreaksAfterTheCommit(t *testing.T) {
	t.Parallel()
	c := newCutBench(t)
	claim := c.claimThroughProxy("p")
	waiting, err := c.front.PrepareCall(call("p"))
	must(t, waiting, err)
	made := c.proxy.next(afterCommit)
	saved := c.saveThroughProxy(end(claim, storage.Finished, events("a")))
	<-made
	equal(t, "lost", []any{saved.ResponseLost, saved.Next == nil, saved.Deferred, saved.TimerDelay},
		"[true true true -1ns]")
	adopted := c.adopted()
	equal(t, "adopted", []any{adopted.TaskID, adopted.LastEventID, adopted.Status, string(adopted.Args)}, []any{
		waiting.TaskID, 1, "RUNNING", "args",
	})
	c.saveThroughProxy(end(&adopted, storage.Finished, events("b")))
	c.is("p", "RUNNING e2: INIT FINISHED, CALL FINISHED, CALL FINISHED")

	c.proxy.next(afterCommit)
	if _, err := c.front.PrepareCall(call("p")); !errors.Is(err, process.ErrUnavailable) {
		t.Errorf("a call without a key: %v", err)
	}
	adopted = c.adopted()
	c.is("p", "RUNNING e2: INIT FINISHED, CALL FINISHED, CALL FINISHED, CALL runs#1")
	c.saveThroughProxy(end(&adopted, storage.Finished))

	c.proxy.next(afterCommit)
	p, err := c.front.PrepareCall(call("p", keyed("k", "x")))
	adopted = c.adopted()
	equal(t, "a call with a key", []any{must(t, p, err).Outcome, p.TaskID}, []any{storage.Replayed, adopted.TaskID})
	c.proxy.next(afterCommit)
	saved = c.saveThroughProxy(end(&adopted, storage.Failed, broken("x")))
	equal(t, "a failure", saved.ResponseLost, true)
	c.is("p", "ERROR e2: INIT FINISHED, CALL FINISHED, CALL FINISHED, CALL FINISHED, CALL ERROR")

	c.proxy.next(afterCommit)
	r, err := c.front.PrepareRepair(call("p", keyed("r", "x")))
	adopted = c.adopted()
	equal(t, "a repair", []any{must(t, r, err).Outcome, adopted.TaskType, adopted.Detail}, "[replayed REPAIR x]")
	c.proxy.next(afterCommit)
	saved = c.saveThroughProxy(end(&adopted, storage.Retry, withoutPromote))
	equal(t, "its end, which waits for another attempt", saved.ResponseLost, true)
	c.proxy.next(afterCommit)
	in, err := c.front.PrepareInit(newInit("q", keyedInit("k", "x")))
	adopted = c.adopted()
	equal(t, "a start", []any{must(t, in, err).Outcome, adopted.TaskID}, []any{storage.Replayed, in.TaskID})
	c.proxy.next(afterCommit)
	c.saveThroughProxy(end(&adopted, storage.Rejected, func(c *storage.Completion) { c.Rejection = []byte("{}") }))
	c.is("q", "none")
	c.proxy.next(afterCommit)
	if err := c.front.RemoveProcess(t.Context(), key("p")); err != nil {
		t.Errorf("a removal: %v", err)
	}
	c.is("p", "none")
	equal(t, "nothing more was adopted", len(c.taken), 0)
}

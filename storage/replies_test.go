package storage_test

import (
	"errors"
	"testing"
	"time"

	"github.com/progressor-engine/progressor/process"
	"github.com/progressor-engine/progressor/storage"
)

func deferring(c *storage.Completion) { c.DeferResponse = true }

func replying(taskID int64, response string) func(*storage.Completion) {
	return func(c *storage.Completion) {
		c.Replies = append(c.Replies, storage.Reply{TaskID: taskID, Response: []byte(response)})
	}
}

// If the response to the commit of a deferred call or of its reply is lost, each result is stored
// once.
func TestConnectionBreaksAfterReplies(t *testing.T) {
	t.Parallel()
	c := newCutBench(t)
	claim := c.claimThroughProxy("p")
	c.proxy.next(afterCommit)
	saved := c.saveThroughProxy(end(claim, storage.Finished, deferring, events("a")))
	equal(t, "lost", saved.ResponseLost, true)
	c.is("p", "RUNNING e1: INIT FINISHED, CALL waits for reply#1")
	next := c.claim("p")
	c.proxy.next(afterCommit)
	saved = c.saveThroughProxy(end(next, storage.Finished, replying(claim.TaskID, "late")))
	equal(t, "lost again", saved.ResponseLost, true)
	c.is("p", "RUNNING e1: INIT FINISHED, CALL FINISHED, CALL FINISHED")
	if _, err := c.front.SaveResult(end(claim, storage.Finished, deferring)); !errors.Is(err, process.ErrFenced) {
		t.Errorf("a late duplicate: %v", err)
	}
	c.is("p", "RUNNING e1: INIT FINISHED, CALL FINISHED, CALL FINISHED")
}

// A call is cancelled if its process ends in the transaction that defers its response.
func TestProcessEndsAsACallIsDeferred(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	b.process("p")
	claim := b.claim("p")
	b.cancelFor("p", 0)
	must(t, 0, b.SaveAndCancel(end(claim, storage.Finished, deferring, withoutPromote), true))
	b.is("p", "CANCELLED e0: INIT FINISHED, CALL CANCELLED, CANCEL ERROR")
}

// The replies of a fenced attempt do nothing.
func TestFencedReplies(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	b.process("p")
	open := b.claim("p")
	b.save(end(open, storage.Finished, deferring))
	late := b.claim("p")
	b.save(end(late, storage.Retry, withoutPromote))
	_, err := b.SaveResult(end(late, storage.Completed, replying(open.TaskID, "x")))
	if !errors.Is(err, process.ErrFenced) {
		t.Errorf("a fenced reply: %v", err)
	}
	b.is("p", "RUNNING e0: INIT FINISHED, CALL waits for reply#1, CALL waits for place#1")
}

// A failed attempt neither defers its response nor replies to another call.
func TestFailedReplies(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	b.process("p")
	open := b.claim("p")
	b.save(end(open, storage.Finished, deferring))
	b.save(end(b.claim("p"), storage.Failed, broken("x"), deferring, replying(open.TaskID, "x")))
	b.is("p", "ERROR e0: INIT FINISHED, CALL CANCELLED!, CALL ERROR")
}

// A call whose response was deferred keeps the time of its attempt and its worker, however it ends.
func TestOpenCallsKeepTheirAttempt(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	byWorker := func(c *storage.Completion) { c.AnsweredBy = "w1" }
	for id, ends := range map[string]func(open *storage.Claim){
		"replied": func(open *storage.Claim) {
			b.save(end(b.claim("replied"), storage.Finished, replying(open.TaskID, "x")))
		},
		"failed": func(*storage.Claim) { b.save(end(b.claim("failed"), storage.Failed, broken("x"))) },
		"cancelled": func(*storage.Claim) {
			b.suspend("cancelled")
			b.cancelFor("cancelled", 0)
		},
	} {
		b.process(id)
		open := b.claim(id)
		b.save(end(open, storage.Finished, deferring, byWorker))
		const attempt = " WHERE task_id = $1 AND running_time IS NOT NULL AND worker_id = 'w1'"
		began := ask[time.Time](b, "SELECT running_time FROM schedule"+attempt, open.TaskID)
		ends(open)
		equal(t, id, ask[int](b, "SELECT count(*) FROM tasks"+attempt+" AND running_time = $2", open.TaskID, began), 1)
	}
}

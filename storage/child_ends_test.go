package storage_test

import (
	"encoding/json"
	"fmt"
	"testing"
	"time"

	"github.com/progressor-engine/progressor/process"
	"github.com/progressor-engine/progressor/storage"
)

// child lets the process "parent" start a child that notifies the parent when it ends. It returns
// the claim of the child's INIT task.
func (b *bench) child(id string) *storage.Claim {
	b.t.Helper()
	b.namespace(ns)
	if _, err := b.GetProcess(b.t.Context(), key("parent")); err != nil {
		b.process("parent")
	}
	b.save(end(b.claim("parent"), storage.Finished, withMessages(startOf(id, notifySender("end of "+id)))))
	equal(b.t, "the start of "+id, b.deliver(id), "start delivered")
	claims := b.searchCalls(1)
	return &claims[0]
}

// ended runs all NOTIFY tasks of the parent, and returns the ends of children that they contain.
func (b *bench) ended() (list []string) {
	b.t.Helper()
	b.deliver("parent")
	for _, c := range b.searchCalls(100) {
		for next := &c; next != nil; next = b.save(end(next, storage.Finished)).Next {
			equal(b.t, "type", next.TaskType, process.TaskNotify)
			var child struct {
				Namespace, ProcessID, Status, Detail string
				Response                             []byte
			}
			if err := json.Unmarshal(next.Child, &child); err != nil {
				b.t.Fatalf("child %q: %v", next.Child, err)
			}
			list = append(list, fmt.Sprintf("%s: %s/%s %s %q %q", next.Args, child.Namespace, child.ProcessID,
				child.Status, child.Response, child.Detail))
		}
	}
	return list
}

func answer(response string) func(*storage.Completion) {
	return func(c *storage.Completion) { c.Response = []byte(response) }
}

// The parent is notified when a child ends for the first time, regardless of how it ends. It is not
// notified of a second end.
func TestParentIsNotifiedOfTheEnd(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	for id, test := range map[string]struct {
		finish func(init *storage.Claim)
		want   string
	}{
		"completed": {func(c *storage.Claim) { b.save(end(c, storage.Completed, answer("done \x00\xff"))) },
			`COMPLETED "done \x00\xff" ""`},
		"later": {func(c *storage.Claim) {
			b.save(end(c, storage.Finished, answer("not yet")))
			equal(t, "ends of a running child", len(b.ended()), 0)
			b.save(end(b.claim("later"), storage.Completed))
		}, `COMPLETED "" ""`},
		"failed": {func(c *storage.Claim) {
			b.save(end(c, storage.Failed, broken("out of stock")))
		}, `ERROR "" "out of stock"`},
		"rejected": {func(c *storage.Claim) {
			b.save(end(c, storage.Rejected, func(c *storage.Completion) {
				c.Rejection = []byte(`{"reason":"bad_args","message":"no order"}`)
			}))
		}, `UNSPECIFIED "" "rejected: bad_args: no order"`},
		"removed": {func(c *storage.Claim) { b.save(end(c, storage.Removed, answer("bye"))) }, `UNSPECIFIED "bye" ""`},
		"cancelled": {func(c *storage.Claim) {
			must(t, 0, second(b.CancelProcess(storage.Cancel{Key: key("cancelled"), Grace: time.Minute})))
			cancel := b.save(end(c, storage.Finished)).Next
			b.save(end(cancel, storage.Cancelled, answer("last word")))
		}, `CANCELLED "last word" ""`},
		"overdue": {func(*storage.Claim) {
			must(t, 0, second(b.CancelProcess(storage.Cancel{Key: key("overdue")})))
			must(t, 0, second(b.EndOverdueCancel(key("overdue"))))
		}, `CANCELLED "" ""`},
		"suspended": {func(*storage.Claim) {
			must(t, 0, b.SuspendProcess(key("suspended"), "later"))
			must(t, 0, second(b.CancelProcess(storage.Cancel{Key: key("suspended")})))
		}, `CANCELLED "" ""`},
		"removed by an operator": {func(*storage.Claim) {
			must(t, 0, b.RemoveProcess(t.Context(), key("removed by an operator")))
		}, `UNSPECIFIED "" ""`},
	} {
		init := b.child(id)
		targets := b.targets(func() { test.finish(init) })
		equal(t, "notifications after "+id, targets, "[parent]")
		equal(t, id, b.ended(), fmt.Sprintf("[end of %s: shop/%s PROCESS_STATUS_%s]", id, id, test.want))
	}
	// Neither a repair nor a second end notifies the parent.
	b.save(end(b.repair("failed").Claim, storage.Failed, broken("worse")))
	b.save(end(b.repair("failed").Claim, storage.Completed))
	must(t, 0, b.RemoveProcess(t.Context(), key("completed")))
	equal(t, "notifications of a second end", len(b.ended()), 0)
	equal(t, "parents", ask[int](b, "SELECT count(*) FROM parents"), 0)
}

// The end of a child is delivered like other messages. It waits while the parent is in ERROR, and
// becomes a dead letter if the parent has ended or was removed. If the NOTIFY task of the parent is
// retried, it still contains the end.
func TestEndsAreMessages(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	first, second, third := b.child("a"), b.child("b"), b.child("c")
	b.save(end(b.claim("parent"), storage.Failed, broken("x")))
	b.save(end(first, storage.Completed))
	equal(t, "delivery to a parent in ERROR", b.deliver("parent"), "child_end held")
	b.simpleRepair("parent")
	equal(t, "delivery after the repair", b.deliver("parent"), "child_end delivered")
	targets := b.searchCalls(1)
	tried := b.save(end(&targets[0], storage.Retry)).Next
	equal(t, "the second attempt", []any{tried.Attempt, string(tried.Child)}, []any{2, string(targets[0].Child)})
	b.save(end(tried, storage.Retry, withoutPromote))
	tried = &b.searchCalls(1)[0]
	equal(t, "the third attempt", []any{tried.Attempt, string(tried.Child)}, []any{3, string(targets[0].Child)})
	stray, err := b.ListRunning(t.Context(), nil, 0)
	equal(t, "the end of the child of the last task that ListRunning returns",
		string(must(t, stray, err)[len(stray)-1].Child), string(targets[0].Child))
	b.save(end(tried, storage.Completed))
	b.save(end(second, storage.Completed))
	equal(t, "delivery to a parent that has ended", b.deliver("parent"), "child_end ended")
	must(t, 0, b.RemoveProcess(t.Context(), key("parent")))
	b.save(end(third, storage.Completed))
	equal(t, "delivery to a parent that was removed", b.deliver("parent"), "child_end not_found")
	equal(t, "dead letters", b.deadLetters(), "child_end parent ended, child_end parent not_found")
}

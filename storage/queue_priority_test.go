package storage_test

import (
	"testing"

	"github.com/progressor-engine/progressor/storage"
)

// withPriority sets the priority of a call.
func withPriority(n int32) func(*storage.Call) { return func(c *storage.Call) { c.Priority = n } }

// waitsWith returns the priority with which a process waits for a slot, and the priority of the
// task that waits.
func (b *bench) waitsWith(id string) string {
	b.t.Helper()
	return ask[string](b, `SELECT priority || ' for ' || coalesce(own_priority, priority) FROM schedule
		WHERE process_id = $1 AND waits_for = 'place'`, id)
}

// An urgent call behind a less urgent one moves its process to the front. The first call keeps its
// own priority.
func TestUrgentCallBehindAnother(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	for _, id := range []string{"a", "b"} {
		b.process(id)
	}
	b.call("a", withoutSlot, withPriority(0))
	b.call("b", withoutSlot, withPriority(5))
	b.call("b", withoutSlot, withPriority(-1))
	b.call("b", withoutSlot, withPriority(3))
	equal(t, "priority of b", b.waitsWith("b"), "-1 for 5")
	claims := b.searchCalls(1)
	equal(t, "first claim", []any{ids(claims), claims[0].Priority}, "[[b] 5]")

	saved := b.save(end(&claims[0], storage.Finished, events("a")))
	equal(t, "priority of the next task", saved.Next.Priority, -1)
	equal(t, "stored priorities", ask[[]int32](b,
		"SELECT array_agg(priority ORDER BY task_id) FROM tasks WHERE process_id = 'b'"), "[0 5]")
}

// When a task ends and the next one must wait for a slot, the process waits with the smallest
// priority of the rest.
func TestPriorityAfterAResult(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	b.process("p")
	c := b.claim("p")
	b.call("p", withPriority(7))
	b.call("p", withPriority(-2))
	b.call("p", withPriority(4))
	notPromoted := func(c *storage.Completion) { c.Promote = false }
	b.save(end(c, storage.Finished, notPromoted))
	equal(t, "after the first", b.waitsWith("p"), "-2 for 7")
	for n, want := range []string{"-2 for -2", "4 for 4"} {
		claims := b.searchCalls(1)
		b.save(end(&claims[0], storage.Finished, notPromoted))
		equal(t, "after "+string(rune('1'+n))+" more", b.waitsWith("p"), want)
	}
}

// A resumed process waits with the smallest priority of its waiting tasks.
func TestPriorityAfterResume(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	b.process("p")
	b.call("p", withoutSlot, withPriority(7))
	b.call("p", withPriority(-2))
	b.suspend("p")
	b.resume("p")
	equal(t, "resumed", b.waitsWith("p"), "-2 for 7")
	equal(t, "claimed", b.searchCalls(1)[0].Priority, 7)
}

// The task of a cancel waits with the smallest priority of the tasks behind it.
func TestPriorityOfACancel(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	for _, id := range []string{"urgent", "idle"} {
		b.process(id)
		b.call(id, withoutSlot, withPriority(map[string]int32{"urgent": -3, "idle": 8}[id]))
		b.cancel(id)
	}
	equal(t, "urgent", b.waitsWith("urgent"), "-3 for 0")
	equal(t, "idle", b.waitsWith("idle"), "0 for 0")
	b.start("new", func(in *storage.Init) { in.Priority = 6 })
	b.exec(`DELETE FROM running WHERE process_id = 'new'`)
	b.exec(`INSERT INTO schedule (namespace, process_id, task_id, task_type, waits_for, priority, scheduled_time)
		SELECT 'shop', 'new', nextval('task_ids'), 'INIT', 'place', 6, now()`)
	b.cancel("new")
	equal(t, "new", b.waitsWith("new"), "0 for 6")
}

// If a process waits with a lower priority than that of a message, it gets the priority of the
// message.
func TestPriorityOfAMessage(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	b.namespace(ns)
	b.process("p")
	b.call("p", withoutSlot, withPriority(9))
	b.exec(`SELECT progressor.notify('shop', 'p', 'news')`)
	equal(t, "delivered", b.deliver("p"), "notify delivered")
	equal(t, "priority", b.waitsWith("p"), "0 for 9")
}

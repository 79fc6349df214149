package storage_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/progressor-engine/progressor/process"
	"github.com/progressor-engine/progressor/storage"
)

// withMessages adds messages to a completion.
func withMessages(messages ...storage.Message) func(*storage.Completion) {
	return func(c *storage.Completion) { c.Messages = append(c.Messages, messages...) }
}

func notifyOf(id, args string) storage.Message {
	return storage.Message{Kind: storage.MessageNotify, Target: key(id), Args: []byte(args)}
}

func startOf(id string, change ...func(*storage.Message)) storage.Message {
	m := storage.Message{Kind: storage.MessageStart, Target: key(id), Args: []byte("child")}
	for _, f := range change {
		f(&m)
	}
	return m
}

// notifySender requests a notification of the sender when the started process ends.
func notifySender(args string) func(*storage.Message) {
	return func(m *storage.Message) { m.NotifyParentArgs = []byte(args) }
}

func (b *bench) namespace(name string) {
	b.t.Helper()
	must(b.t, 0, second(b.PutNamespace(b.t.Context(), name, []byte("{}"))))
}

// deliver delivers the messages of a process, and returns their outcomes.
func (b *bench) deliver(id string) string {
	b.t.Helper()
	var list []string
	for more := true; more; {
		deliveries, left, err := b.DeliverMessages(key(id))
		more = left
		for _, d := range must(b.t, deliveries, err) {
			word := string(d.Kind) + " " + d.Outcome
			if d.Later {
				word += " later"
			}
			list = append(list, word)
		}
	}
	return strings.Join(list, ", ")
}

// send sends messages from a separate process, which is not removed.
func (b *bench) send(messages ...storage.Message) {
	b.t.Helper()
	if _, err := b.GetProcess(b.t.Context(), key("sender")); err != nil {
		b.process("sender")
	}
	b.save(end(b.claim("sender"), storage.Finished, withMessages(messages...)))
}

// waiting returns the args of the waiting tasks of a process, in order.
func (b *bench) waiting(id string) string {
	b.t.Helper()
	return ask[string](b, `SELECT coalesce(string_agg(convert_from(args, 'UTF8'), ' ' ORDER BY task_id), '')
		FROM schedule WHERE process_id = $1`, id)
}

func (b *bench) deadLetters() string {
	b.t.Helper()
	return ask[string](b, `SELECT coalesce(string_agg(kind || ' ' || process_id || ' ' || outcome, ', '
		ORDER BY message_id), '') FROM dead_letters`)
}

func (b *bench) undelivered() int {
	b.t.Helper()
	return ask[int](b, "SELECT count(*) FROM messages")
}

// The messages of an attempt that is fenced, fails, is retried or is rejected are not stored.
func TestOnlyResultsSendMessages(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	b.process("p")
	c := b.claim("p")
	again := b.save(end(c, storage.Retry, withMessages(notifyOf("q", "no")))).Next
	if _, err := b.SaveResult(end(c, storage.Finished, withMessages(notifyOf("q", "no")))); err == nil {
		t.Error("a late result was stored")
	}
	b.save(end(again, storage.Rejected, withMessages(notifyOf("q", "no"))))
	if _, err := b.SaveResult(end(again, storage.Removed, withMessages(notifyOf("q", "no")))); err == nil {
		t.Error("a late removal was stored")
	}
	b.save(end(b.claim("p"), storage.Failed, broken("x"), withMessages(notifyOf("q", "no"))))
	equal(t, "messages", b.undelivered(), 0)
	b.process("r")
	b.save(end(b.claim("r"), storage.Completed, withMessages(notifyOf("q", "yes"))))
	b.process("s")
	b.save(end(b.claim("s"), storage.Removed, withMessages(notifyOf("q", "yes"))))
	equal(t, "messages", b.undelivered(), 2)
	equal(t, "delivered", b.deliver("q"), "notify not_found, notify not_found")
}

// Messages are delivered in the order in which they were sent. A start among them creates the
// process.
func TestMessagesAreDeliveredInOrder(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	b.namespace(ns)
	messages := []storage.Message{notifyOf("q", "early"), startOf("q"), startOf("q")}
	for n := range 40 {
		messages = append(messages, notifyOf("q", fmt.Sprint(n)))
	}
	b.send(append(messages, startOf("q"), notifyOf("q", "late"))...)
	want := "notify not_found, start delivered, start exists" + strings.Repeat(", notify delivered", 40) +
		", start exists, notify delivered"
	equal(t, "delivered", b.deliver("q"), want)
	equal(t, "waiting args", b.waiting("q"),
		"child 0 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16 17 18 19 20 21 22 23 24 25 26 27 28 29 30 31 32 33 34 35 36 "+
			"37 38 39 late")
	equal(t, "the next task", ids(b.searchCalls(9)), "[q]")
	equal(t, "left", b.undelivered(), 0)
	equal(t, "dropped", b.deadLetters(), "notify q not_found")
	b.send(startOf("far", func(m *storage.Message) { m.StartTime = time.Now().Add(time.Hour) }),
		storage.Message{Kind: storage.MessageStart, Target: process.Key{Namespace: "none", ProcessID: "x"}})
	equal(t, "a start at its time", b.deliver("far"), "start delivered later")
	b.is("far", "INIT e0: INIT waits for time#0")
	deliveries, _, err := b.DeliverMessages(process.Key{Namespace: "none", ProcessID: "x"})
	equal(t, "a start in a missing namespace", must(t, deliveries, err), "[{start not_found false false}]")
}

// A start in a namespace that is being deleted becomes a dead letter.
func TestStartInDeletedNamespace(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	b.namespace(ns)
	b.send(startOf("q"))
	if _, err := b.RequestDeletion(t.Context(), ns, storage.DeletesData); err != nil {
		t.Fatal(err)
	}
	found, err := b.DropStarts(t.Context(), ns)
	equal(t, "found", must(t, found, err), true)
	equal(t, "dropped", b.deadLetters(), "start q not_found")
	found, err = b.DropStarts(t.Context(), ns)
	equal(t, "found", must(t, found, err), false)
}

// A NOTIFY task waits behind the other tasks of a process. If the process is idle, the task waits
// only for a slot. max_waiting does not limit NOTIFY tasks. A message to an ended process becomes a
// dead letter for a day.
func TestNotifyTakesItsTurn(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	b.process("idle")
	b.process("busy")
	c := b.claim("busy")
	b.call("busy", func(c *storage.Call) { c.MaxWaiting = 1 })
	b.send(notifyOf("idle", "a"), notifyOf("busy", "b"))
	equal(t, "to an idle process", b.deliver("idle"), "notify delivered")
	equal(t, "to a busy process", b.deliver("busy"), "notify delivered")
	b.is("idle", "RUNNING e0: INIT FINISHED, NOTIFY waits for place#0")
	b.is("busy", "RUNNING e0: INIT FINISHED, CALL runs#1, CALL waits for process#0, NOTIFY waits for process#0")
	next := b.save(end(c, storage.Finished)).Next
	next = b.save(end(next, storage.Finished)).Next
	equal(t, "the last", next.TaskType, process.TaskNotify)
	b.process("ended")
	b.save(end(b.claim("ended"), storage.Completed))
	b.send(notifyOf("ended", "c"))
	equal(t, "to an ended process", b.deliver("ended"), "notify ended")
	equal(t, "dropped", b.deadLetters(), "notify ended ended")
	b.exec("UPDATE dead_letters SET dropped_time = dropped_time - interval '25 hours'")
	must(t, 0, second(b.Forget(t.Context(), time.Hour)))
	equal(t, "a day later", b.deadLetters(), "")
}

// Messages to a process in ERROR wait until the process is repaired, with or without the processor,
// or until it ends or is removed.
func TestMessagesWaitForRepair(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	repairs := map[string]func(id string) string{
		"repaired": func(id string) string {
			b.save(end(b.repair(id).Claim, storage.Finished))
			return "notify delivered, notify delivered"
		},
		"simple": func(id string) string {
			p, err := b.SimpleRepair(call(id))
			equal(b.t, "outcome", must(b.t, p, err).Outcome, storage.Repaired)
			return "notify delivered, notify delivered"
		},
		"completed": func(id string) string {
			b.save(end(b.repair(id).Claim, storage.Completed))
			return "notify ended, notify ended"
		},
		"removed": func(id string) string {
			must(b.t, 0, b.RemoveProcess(b.t.Context(), key(id)))
			return "notify not_found, notify not_found"
		},
		"broken": func(id string) string {
			b.save(end(b.repair(id).Claim, storage.Failed, broken("again")))
			return ""
		},
	}
	for id, repair := range repairs {
		b.breakProcess(id)
		b.send(notifyOf(id, "a"), notifyOf(id, "b"))
		equal(t, id, b.deliver(id), "notify held, notify held")
		equal(t, "found of "+id, slices.Contains(b.found(0), id), false)
		targets := b.targets(func() { repair(id) })
		want := map[bool]string{true: "[]", false: "[" + id + "]"}[id == "broken"]
		equal(t, "targets after "+id, targets, want)
	}
	for id, want := range map[string]string{
		"repaired": "notify delivered, notify delivered", "simple": "notify delivered, notify delivered",
		"completed": "notify ended, notify ended",
		"removed":   "notify not_found, notify not_found", "broken": "",
	} {
		equal(t, "after the end, "+id, b.deliver(id), want)
	}
}

// Messages to a suspended process wait until the process is resumed or has ended. They also wait if
// the process goes to ERROR.
func TestMessagesWaitForResume(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	for id, want := range map[string]string{
		"resumed": "notify delivered, cancel delivered", "cancelled": "notify ended, cancel ended", "fails": "",
		"ends": "notify ended, cancel ended",
	} {
		b.process(id)
		c := b.claim(id)
		must(t, 0, b.SuspendProcess(key(id), "later"))
		b.send(notifyOf(id, "a"), cancelOf(id))
		equal(t, id, b.deliver(id), "notify held, cancel held")
		targets := b.targets(func() {
			switch id {
			case "resumed":
				must(t, 0, b.ResumeProcess(key(id)))
			case "cancelled":
				must(t, 0, second(b.CancelProcess(storage.Cancel{Key: key(id)})))
			case "fails":
				b.save(end(c, storage.Failed, broken("x")))
			case "ends":
				b.save(end(c, storage.Completed))
			}
		})
		equal(t, "targets", len(targets) == 1, want != "")
		equal(t, id+", at last", b.deliver(id), want)
	}
	b.is("resumed", "RUNNING e0: INIT FINISHED, CALL runs#1, NOTIFY waits for process#0, CANCEL waits for process#0")
}

func cancelOf(id string) storage.Message {
	return storage.Message{Kind: storage.MessageCancel, Target: key(id), Reason: "no more"}
}

// A message of kind cancel has the same effect as CancelProcess. It is delivered in order with the
// other messages. A second cancel changes nothing.
func TestCancelByMessage(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	b.namespace(ns)
	b.process("idle")
	b.process("placed")
	b.call("placed", withoutSlot)
	b.process("ended")
	b.save(end(b.claim("ended"), storage.Completed))
	b.send(startOf("new"), cancelOf("new"), notifyOf("new", "a"), notifyOf("idle", "a"), cancelOf("idle"),
		cancelOf("idle"), notifyOf("idle", "b"), cancelOf("placed"),
		cancelOf("ended"), cancelOf("absent"))
	equal(t, "to a new process", b.deliver("new"), "start delivered, cancel delivered, notify delivered")
	equal(t, "to an idle process", b.deliver("idle"),
		"notify delivered, cancel delivered, cancel delivered, notify delivered")
	equal(t, "to a process that waits for a slot", b.deliver("placed"), "cancel delivered")
	equal(t, "to an ended process", b.deliver("ended"), "cancel ended")
	equal(t, "to a missing process", b.deliver("absent"), "cancel not_found")
	b.is("new", "INIT e0: INIT waits for place#0, CANCEL waits for process#0, NOTIFY waits for process#0")
	b.is("idle", "RUNNING e0: INIT FINISHED, NOTIFY waits for process#0, CANCEL waits for place#0, NOTIFY waits for "+
		"process#0")
	b.is("placed", "RUNNING e0: INIT FINISHED, CALL waits for process#0, CANCEL waits for place#0")
	equal(t, "why, and for how long",
		ask[string](b, `SELECT cancel_reason || ' ' || (cancel_deadline - cancel_requested_time) FROM processes
			WHERE process_id = 'idle'`), "no more 00:00:30")
	var next []process.TaskType
	for _, c := range b.searchCalls(9) {
		next = append(next, c.TaskType)
		if c.TaskType == process.TaskCancel {
			b.save(end(&c, storage.Cancelled))
		}
	}
	equal(t, "the next tasks", next, "[INIT CANCEL CANCEL]")
	equal(t, "dropped", b.deadLetters(), "cancel ended ended, cancel absent not_found")
}

// found returns the targets that a scan finds.
func (b *bench) found(age time.Duration) (list []string) {
	b.t.Helper()
	keys, _, err := b.SearchMessages(b.t.Context(), age, 100, map[string]string{})
	for _, k := range must(b.t, keys, err) {
		list = append(list, k.ProcessID)
	}
	return sorted(list)
}

// targets returns the targets that the store reports while f runs.
func (b *bench) targets(f func()) []string {
	list := make(chan string, 1000)
	b.OnMessages(func(keys []process.Key, _ bool) {
		for _, k := range keys {
			list <- k.ProcessID
		}
	})
	f()
	b.OnMessages(func([]process.Key, bool) {})
	var targets []string
	for range len(list) {
		targets = append(targets, <-list)
	}
	return targets
}

// The scan finds messages from SQL at once, and messages of processes after their node had time to
// deliver them.
func TestSearchMessages(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	b.process("p")
	equal(t, "targets", b.targets(func() { b.send(notifyOf("p", "a"), notifyOf("q", "a"), notifyOf("p", "b")) }),
		"[p q]")
	b.exec("INSERT INTO messages (namespace, process_id, kind) VALUES ('shop', 's', 'notify')")
	equal(t, "at first", b.found(time.Hour), "[s]")
	equal(t, "later", b.found(0), "[p q s]")
	release := b.foreign("DELETE FROM messages WHERE process_id = $1", "q")
	equal(t, "while another delivers", b.found(0), "[p s]")
	release()
	for _, id := range []string{"p", "q", "s"} {
		b.deliver(id)
	}
	equal(t, "at last", b.found(0), "[]")
}

// The scan reads each target once, regardless of the number of waiting messages, and continues
// after the targets that it has found.
func TestSearchMessagesTakesTurns(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	b.exec(`INSERT INTO messages (namespace, process_id, kind) SELECT 'a', 'busy', 'notify'
		FROM generate_series(1, 5000)`)
	b.exec(`INSERT INTO messages (namespace, process_id, kind) SELECT 'a', 't' || n, 'notify'
		FROM generate_series(1, 4) n`)
	b.exec(`INSERT INTO messages (namespace, process_id, kind) VALUES ('b', 'other', 'notify')`)
	after := map[string]string{}
	for _, want := range []string{
		"[a/busy a/t1 b/other] true", "[a/t2 a/t3 b/other] true", "[a/t4 b/other] false", "[a/busy a/t1 b/other] true",
	} {
		keys, more, err := b.SearchMessages(t.Context(), time.Hour, 2, after)
		must(t, 0, err)
		slices.SortFunc(keys, process.Key.Compare)
		equal(t, "found", fmt.Sprint(keys, " ", more), want)
	}
}

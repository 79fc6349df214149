package storage_test

import (
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/progressor-engine/progressor/process"
	"github.com/progressor-engine/progressor/storage"
)

// The connection breaks before or after the commit of the sender's result, and then of each
// delivery. Each message is delivered once.
func TestMessagesOverABrokenConnection(t *testing.T) {
	t.Parallel()
	for when, at := range map[string]cut{"before the commit": beforeCommit, "after the commit": afterCommit} {
		t.Run(when, func(t *testing.T) {
			t.Parallel()
			c := newCutBench(t)
			c.namespace(ns)
			c.process("target")
			claim := c.claimThroughProxy("sender")
			notified := make(chan []process.Key, 10)
			c.front.OnMessages(func(targets []process.Key, _ bool) { notified <- targets })
			made := c.proxy.next(at)
			c.saveThroughProxy(end(claim, storage.Finished,
				withMessages(notifyOf("target", "a"), startOf("new"), notifyOf("new", "b"))))
			<-made
			equal(t, "sent", c.undelivered(), 3)
			equal(t, "targets", <-notified, "[shop/new shop/target]")
			for _, id := range []string{"target", "new"} {
				made = c.proxy.next(at)
				if _, _, err := c.front.DeliverMessages(key(id)); err != nil {
					t.Errorf("delivery to %s: %v", id, err)
				}
				<-made
				equal(t, "again to "+id, c.deliver(id), "")
			}
			c.is("target", "RUNNING e0: INIT FINISHED, NOTIFY waits for place#0")
			c.is("new", "INIT e0: INIT waits for place#0, NOTIFY waits for process#0")
			equal(t, "left", c.undelivered(), 0)
		})
	}
}

// Nodes that deliver the same messages concurrently deliver each of them once, in order, even if
// the first message creates the process.
func TestNodesRaceToDeliver(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	b.namespace(ns)
	stores := []*storage.Store{b.Store, open(t, b.dsn, storage.Config{}), open(t, b.dsn, storage.Config{})}
	for round := range 20 {
		id := fmt.Sprint("p", round)
		messages := []storage.Message{startOf(id)}
		want := "child"
		for n := range 40 {
			messages = append(messages, notifyOf(id, fmt.Sprint(n)))
			want += fmt.Sprint(" ", n)
		}
		b.send(messages...)
		all(3, func(i int) {
			for more := true; more; {
				var err error
				if _, more, err = stores[i].DeliverMessages(key(id)); err != nil {
					// Another node takes longer to create the process than a lane waits.
					if !errors.Is(err, process.ErrUnavailable) {
						t.Error(err)
					}
					return
				}
			}
		})
		b.deliver(id) // the messages that a node has failed to deliver
		equal(t, "waiting tasks of "+id, b.waiting(id), want)
	}
	equal(t, "left", b.undelivered(), 0)
}

// Another start of the process is in progress on another node, so the start message does nothing.
// The messages after it are delivered to the process of the other start.
func TestStartMeetsAStart(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	b.namespace(ns)
	b.send(startOf("p"), notifyOf("p", "a"))
	tx, err := b.db.Begin(t.Context())
	must(t, tx, err)
	for _, sql := range []string{
		`INSERT INTO processes (namespace, process_id) VALUES ('shop', 'p')`,
		`INSERT INTO schedule (namespace, process_id, task_id, task_type, waits_for, scheduled_time)
			VALUES ('shop', 'p', nextval('task_ids'), 'INIT', 'place', now())`,
	} {
		_, err = tx.Exec(t.Context(), sql)
		must(t, tx, err)
	}
	type outcome struct {
		deliveries []storage.Delivery
		err        error
	}
	delivered := later(func() (outcome, error) {
		d, _, err := b.DeliverMessages(key("p"))
		return outcome{d, err}, nil
	})
	b.blocked(1)
	if err := tx.Commit(t.Context()); err != nil {
		t.Fatal(err)
	}
	o, _ := delivered()
	if o.err == nil {
		equal(t, "delivered", o.deliveries, "[{start exists false false} {notify delivered false false}]")
	}
	b.deliver("p") // delivers the rest if the lane stopped waiting for the lock
	b.is("p", "INIT e0: INIT waits for place#0, NOTIFY waits for process#0")
	b.recount()
}

// The start of a process that is being removed waits for the removal.
func TestStartWaitsForRemoval(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	b.namespace(ns)
	b.process("p")
	b.exec(`INSERT INTO events (namespace, process_id, event_id, task_id, timestamp, payload)
		SELECT 'shop', 'p', n, 0, now(), '' FROM generate_series(1, 2500) n`)
	b.exec("UPDATE processes SET last_event_id = 2500 WHERE process_id = 'p'")
	b.save(end(b.claim("p"), storage.Removed))
	b.send(startOf("p"))
	equal(t, "delivered too early", b.deliver("p"), "")
	for ask[int](b, "SELECT count(*) FROM processes WHERE process_id = 'p'") > 0 {
		must(t, 0, second(b.PurgeRemoved(t.Context())))
	}
	equal(t, "found", b.found(0), "[p]")
	equal(t, "delivered", b.deliver("p"), "start delivered")
}

// While another session has locked the target, a delivery fails with ErrUnavailable. Afterwards,
// the message is delivered.
func TestTargetHeldByForeignSession(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	b.process("p")
	b.send(notifyOf("p", "a"))
	release := b.foreign("SELECT FROM processes WHERE process_id = $1 FOR UPDATE", "p")
	if _, _, err := b.DeliverMessages(key("p")); !errors.Is(err, process.ErrUnavailable) {
		t.Errorf("a delivery to a locked process: %v", err)
	}
	release()
	equal(t, "delivered", b.deliver("p"), "notify delivered")
}

// Another node inserts the target of a message after a delivery has taken its locks. This delivery
// skips the message, and the next one delivers it. The message is neither dropped, as for a missing
// process, nor delivered to a process that is not locked.
func TestTargetInsertedBehindTheLocks(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	b.namespace(ns)
	s := open(t, b.dsn, storage.Config{Lanes: 1}).WaitForLocks()
	b.process("first")
	hold := func(id string) (release func()) {
		return b.foreign("SELECT FROM processes WHERE process_id = $1 FOR UPDATE -- "+id, id)
	}
	for try := range 50 {
		old, next, last := fmt.Sprint("a", try), fmt.Sprint("b", try), fmt.Sprint("c", try)
		dropped := ask[int](b, "SELECT count(*) FROM dead_letters") // dropped by tries that took too long
		b.process(old)
		b.send(notifyOf(old, "x"), notifyOf(next, "x"), notifyOf(last, "x"))
		release := hold("first")
		first := later(func() (storage.Prepared, error) { return s.PrepareCall(call("first", withoutSlot)) })
		waits := b.waits(1)
		held := hold(old)
		var deliveries []func() ([]storage.Delivery, error) // one flush, because the lane is busy
		for _, id := range []string{old, next, last} {
			deliveries = append(deliveries, later(func() ([]storage.Delivery, error) {
				list, _, err := s.DeliverMessages(key(id))
				return list, err
			}))
		}
		for s.Pending() < 4 && waits {
			waits = b.waits(1)
		}
		released := time.Now()
		release()
		_, err := first()
		waits = waits && err == nil && b.waits(1) // the first locks of that flush are being taken
		b.start(next)
		second := hold(next)
		held()
		waits = waits && time.Since(released) < storage.LockWait
		released = time.Now()
		waits = waits && b.waitsBehind(next) // for the second locks, which find the new process
		b.start(last)
		second()
		waits = waits && time.Since(released) < storage.LockWait // the flush was not repeated
		got := ""
		for _, delivered := range deliveries {
			list, err2 := delivered()
			err = errors.Join(err, err2)
			got += fmt.Sprint(len(list), " ")
		}
		if !waits || err != nil {
			continue // this took longer than the lock timeout, so nothing was tested
		}
		equal(t, "delivered", got, "1 1 0 ")
		equal(t, "the next delivery", b.deliver(last), "notify delivered")
		equal(t, "dropped", ask[int](b, "SELECT count(*) FROM dead_letters"), dropped)
		return
	}
	t.Fatal("no try stayed within the lock timeout")
}

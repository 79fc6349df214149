package storage_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/progressor-engine/progressor/process"
	"github.com/progressor-engine/progressor/storage"
)

// waitLimit is how long a test waits for events that take milliseconds, before it fails.
const waitLimit = 10 * time.Second

// blocked waits until n lanes wait for a lock.
func (b *bench) blocked(n int) {
	b.t.Helper()
	for deadline := time.Now().Add(waitLimit); ; {
		waiting := ask[int](b, `SELECT count(*) FROM pg_stat_activity WHERE datname = current_database()
			AND application_name = 'progressor lane' AND wait_event_type = 'Lock'`)
		if waiting == n {
			return
		}
		if time.Now().After(deadline) {
			b.t.Fatalf("%d lanes wait, want %d", waiting, n)
		}
		pause()
	}
}

// pause waits between two checks of a condition. Without a pause, the test would take CPU time from
// the code that it waits for.
func pause() { <-time.After(time.Millisecond) }

// later runs f in a goroutine, and returns a function that waits for the result of f.
func later[T any](f func() (T, error)) func() (T, error) {
	type outcome struct {
		value T
		err   error
	}
	done := make(chan outcome, 1)
	go func() {
		value, err := f()
		done <- outcome{value, err}
	}()
	return func() (T, error) {
		o := <-done
		return o.value, o.err
	}
}

// A result and a call of two nodes are stored concurrently, in both orders. The call runs at once,
// or next, or waits for a slot. It never waits for an attempt that has ended.
func TestResultAndCallOfTwoNodes(t *testing.T) {
	t.Parallel()
	for _, first := range []string{"result", "call"} {
		t.Run(first+" first", func(t *testing.T) {
			t.Parallel()
			b := newBench(t)
			b.WithGeneralStatements().WaitForLocks() // the first transaction holds the lock until its item is stored
			other := open(t, b.dsn, storage.Config{}).WithGeneralStatements().WaitForLocks()
			for _, promote := range []bool{true, false} {
				for try := 0; !resultAndCall(t, b, other, first, fmt.Sprint(promote, try), promote); try++ {
					if try == 100 {
						t.Fatal("the machine is too slow for the order of two locks")
					}
				}
			}
		})
	}
}

// resultAndCall stores a result and a call concurrently. It returns false if the lock that delays
// them lasted so long that a lane may have deferred its item, so that the order is unknown.
func resultAndCall(t *testing.T, b *bench, other *storage.Store, first, id string, promote bool) bool {
	t.Helper()
	b.process(id)
	c := end(b.claim(id), storage.Finished, events("a"))
	c.Promote = promote
	save := func() (storage.Saved, error) { return b.SaveResult(c) }
	prepare := func() (storage.Prepared, error) { return other.PrepareCall(call(id)) }
	release := b.foreign("SELECT FROM processes WHERE process_id = $1 FOR UPDATE", id)
	began := time.Now()
	var saved func() (storage.Saved, error)
	var prepared func() (storage.Prepared, error)
	if first == "result" {
		saved = later(save)
		b.blocked(1)
		prepared = later(prepare)
	} else {
		prepared = later(prepare)
		b.blocked(1)
		saved = later(save)
	}
	b.blocked(2)
	release()
	slow := time.Since(began) > storage.LockWait
	s, err := saved()
	p, err2 := prepared()
	must(t, s, err)
	must(t, p, err2)
	switch {
	case slow:
		return false
	case first == "result":
		equal(t, "the call", p.Outcome, storage.Captured)
		b.is(id, "RUNNING e1: INIT FINISHED, CALL FINISHED, CALL runs#1")
		equal(t, "the call sees the result", p.Claim.LastEventID, 1)
	default:
		equal(t, "the call", p.Outcome, storage.Postponed)
		equal(t, "the call runs next", []bool{s.Next != nil, s.Deferred}, []bool{promote, !promote})
		b.is(id, map[bool]string{
			true:  "RUNNING e1: INIT FINISHED, CALL FINISHED, CALL runs#1",
			false: "RUNNING e1: INIT FINISHED, CALL FINISHED, CALL waits for place#0",
		}[promote])
	}
	return true
}

// A call is checked against the status in the locked row, and not against the status from before
// the lock.
func TestStatusIsCheckedUnderTheLock(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	b.WaitForLocks()
	b.process("p")
	tx, err := b.db.Begin(t.Context())
	must(t, tx, err)
	t.Cleanup(func() { _ = tx.Rollback(context.Background()) }) // otherwise the pool does not close
	_, err = tx.Exec(t.Context(), `UPDATE processes SET status = 'SUSPENDED', previous_status = 'RUNNING',
		status_changed_time = now(), attention = 'SUSPENDED', attention_time = now()`)
	must(t, tx, err)
	prepared := later(func() (storage.Prepared, error) { return b.PrepareCall(call("p")) })
	b.blocked(1)
	if err := tx.Commit(t.Context()); err != nil {
		t.Fatal(err)
	}
	p, err := prepared()
	equal(t, "the call", []any{must(t, p, err).Outcome, p.Status}, []any{storage.Refused, process.StatusSuspended})
	b.is("p", "SUSPENDED e0: INIT FINISHED")
	b.recount()
}

// A foreign session that has locked a process affects only requests to that process. Results of the
// process are retried until the lock is released.
func TestProcessHeldByForeignSession(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	s := open(t, b.dsn, storage.Config{Lanes: 1})
	for _, id := range []string{"held", "removed", "free"} {
		b.process(id)
	}
	held, removed, free := b.claim("held"), b.claim("removed"), b.claim("free")
	release := b.foreign("SELECT FROM processes WHERE process_id IN ('held', 'removed') FOR UPDATE")
	saved := later(func() (storage.Saved, error) { return s.SaveResult(end(held, storage.Finished, events("a"))) })
	gone := later(func() (storage.Saved, error) { return s.SaveResult(end(removed, storage.Removed)) })
	all(30, func(i int) {
		switch i % 3 {
		case 0:
			if p, err := s.PrepareInit(newInit(fmt.Sprintf("new%d", i))); err != nil || p.Outcome != storage.Captured {
				t.Errorf("a start of another process: %v, %v", p.Outcome, err)
			}
		case 1:
			if _, err := s.PrepareCall(call("held")); !errors.Is(err, process.ErrUnavailable) {
				t.Errorf("a call to the locked process: %v", err)
			}
		case 2:
			if i == 2 {
				if _, err := s.SaveResult(end(free, storage.Finished)); err != nil {
					t.Errorf("a result of another process: %v", err)
				}
			}
		}
	})
	b.is("held", "RUNNING e0: INIT FINISHED, CALL runs#1")
	release()
	must(t, 0, func() error { _, err := saved(); return err }())
	must(t, 0, func() error { _, err := gone(); return err }())
	b.is("held", "RUNNING e1: INIT FINISHED, CALL FINISHED")
	b.is("removed", "none")
}

// Data that PostgreSQL rejects does not affect other items of the flush.
func TestInvalidDataFailsAlone(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	s := open(t, b.dsn, storage.Config{Lanes: 1}).WaitForLocks()
	b.process("p")
	b.process("q")
	c, d := b.claim("p"), b.claim("q")
	invalid := map[int]func() error{
		3: func() error { return second(s.PrepareCall(call("nul\x00"))) },
		7: func() error { return second(s.PrepareInit(newInit("bad\xff"))) },
		11: func() error {
			return second(s.PrepareInit(newInit("x", func(in *storage.Init) {
				in.Metadata = []byte(`{"a": "\u0000"}`)
			})))
		},
		13: func() error {
			return second(s.PrepareInit(newInit("y", func(in *storage.Init) { in.Metadata = []byte(`[1]`) })))
		},
		17: func() error { return second(s.SaveResult(end(c, storage.Failed, broken("nul\x00")))) },
		19: func() error {
			return second(s.SaveResult(end(d, storage.Finished, func(c *storage.Completion) {
				c.Metadata = []byte("{")
			})))
		},
		23: func() error { return second(s.PrepareInit(newInit(strings.Repeat("x", 257)))) },
	}
	release := b.foreign("SELECT FROM processes WHERE process_id = 'p' FOR UPDATE")
	first := later(func() (storage.Prepared, error) { return s.PrepareCall(call("p", keyed("k", "x"))) })
	b.blocked(1) // so that the following items form one flush
	time.AfterFunc(20*time.Millisecond, release)
	all(40, func(i int) {
		run, bad := invalid[i]
		if !bad {
			run = func() error { return second(s.PrepareInit(newInit(fmt.Sprintf("good%d", i)))) }
		}
		err := run()
		if (err != nil) != bad || errors.Is(err, process.ErrUnavailable) || errors.Is(err, process.ErrFenced) {
			t.Errorf("item %d: %v", i, err)
		}
	})
	must(t, 0, second(first()))
	equal(t, "processes with valid data",
		ask[int](b, "SELECT count(*) FROM processes WHERE process_id LIKE 'good%'"), 40-len(invalid))
	b.is("x", "none")
	b.is("q", "RUNNING e0: INIT FINISHED, CALL runs#1")
	// The next response of the processor is stored.
	b.save(end(d, storage.Finished, events("a")))
	b.save(end(c, storage.Failed, broken("plain")))
}

// A process that another node inserts after a flush has taken its locks is not locked, and the
// flush does not see the process. Otherwise, a call that waits for the INIT of the process would
// wait forever if the INIT ended before the flush.
func TestProcessInsertedBehindTheLocks(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	s := open(t, b.dsn, storage.Config{Lanes: 1}).WaitForLocks()
	for _, id := range []string{"first", "held"} {
		b.process(id)
	}
	for try := range 50 {
		id := fmt.Sprintf("new%d", try)
		release := b.foreign("SELECT FROM processes WHERE process_id = 'first' FOR UPDATE")
		first := later(func() (storage.Prepared, error) { return s.PrepareCall(call("first", withoutSlot)) })
		waits := b.waits(1)
		held := b.foreign("SELECT FROM processes WHERE process_id = 'held' FOR UPDATE")
		together := []func() (storage.Prepared, error){ // one flush, because the lane is busy
			later(func() (storage.Prepared, error) { return s.PrepareCall(call("held", withoutSlot)) }),
			later(func() (storage.Prepared, error) { return s.PrepareCall(call(id, withoutSlot)) }),
		}
		for s.Pending() < 3 && waits {
			waits = b.waits(1)
		}
		released := time.Now()
		release()
		_, err := first()
		waits = waits && err == nil && b.waits(1) // the locks of that flush are being taken
		c := b.start(id)
		held()
		waits = waits && time.Since(released) < storage.LockWait // the flush was not repeated
		_, err = together[0]()
		p, err2 := together[1]()
		if !waits || err != nil || errors.Is(err2, process.ErrUnavailable) {
			continue // this took longer than the lock timeout, so nothing was tested
		}
		equal(t, "the call", must(t, p, err2).Outcome, storage.NotFound)
		b.save(end(c, storage.Finished))
		b.is(id, "RUNNING e0: INIT FINISHED")
		return
	}
	t.Fatal("no try stayed within the lock timeout")
}

// The later statements of a flush find the processes that the flush has created.
func TestCallInTheFlushOfItsStart(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	started, called, err := b.StartAndCall(newInit("p"), call("p"))
	equal(t, "the start", must(t, started, err).Outcome, storage.Captured)
	equal(t, "the call", called.Outcome, storage.Postponed)
	b.is("p", "INIT e0: INIT runs#1, CALL waits for process#0")
	// If the process already exists, the flush also locks it.
	started, called, err = b.StartAndCall(newInit("p"), call("p"))
	equal(t, "another start", must(t, started, err).Outcome, storage.Exists)
	equal(t, "another call", called.Outcome, storage.Postponed)
}

// If a commit fails, the results of the flush are not returned to clients, although they arrive
// before the commit.
func TestCommitFails(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	s := open(t, b.dsn, storage.Config{Lanes: 1})
	for _, id := range []string{"poison", "good"} {
		b.process(id)
	}
	b.exec(`CREATE FUNCTION refuse() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN RAISE 'not at the commit'; END $$`)
	b.exec(`CREATE CONSTRAINT TRIGGER refuse AFTER INSERT ON running DEFERRABLE INITIALLY DEFERRED
		FOR EACH ROW WHEN (new.process_id = 'poison') EXECUTE FUNCTION refuse()`)
	if p, err := s.PrepareCall(call("poison")); err == nil {
		t.Errorf("the call is %s", p.Outcome)
	}
	b.is("poison", "RUNNING e0: INIT FINISHED")
	p, err := s.PrepareCall(call("good"))
	equal(t, "another call", must(t, p, err).Outcome, storage.Captured)
}

// Concurrent requests with one key on two nodes create one task. The second request sees the first
// one, even if both are in progress.
func TestDuplicatesOnTwoNodes(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	other := open(t, b.dsn, storage.Config{})
	b.process("called")
	stores := []*storage.Store{b.Store, other}
	for n := range 20 {
		k, id := fmt.Sprintf("k%d", n), fmt.Sprintf("p%d", n)
		var inits, calls [8]storage.Prepared
		all(16, func(i int) {
			var err error
			if i%2 == 0 {
				inits[i/2], err = stores[i/2%2].PrepareInit(newInit(id, keyedInit(k, "x")))
			} else {
				calls[i/2], err = stores[i/2%2].PrepareCall(call("called", keyed(k, "x"), func(c *storage.Call) {
					c.MaxWaiting = 1000
				}))
			}
			if err != nil {
				t.Error(err)
			}
		})
		for _, duplicates := range [][8]storage.Prepared{inits, calls} {
			fresh := 0
			for _, p := range duplicates {
				if p.Outcome != storage.Replayed {
					fresh++
				}
				if p.TaskID != duplicates[0].TaskID || p.Outcome == storage.Exists {
					t.Errorf("requests with key %s: %s of task %d, and task %d", k, p.Outcome, p.TaskID,
						duplicates[0].TaskID)
				}
			}
			equal(t, "requests that created a task", fresh, 1)
		}
	}
	equal(t, "tasks of called", ask[int](b,
		"SELECT count(*) FROM task_list WHERE process_id = 'called' AND task_type = 'CALL'"), 20)
}

// A start is repeated while the transaction of the first start is open, so that no snapshot shows
// the rows of the first start. The repetition waits for that transaction and returns its task.
func TestDuplicateOfUncommittedStart(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	in := newInit("p", keyedInit("k", "x"))
	tx, err := b.db.Begin(t.Context())
	must(t, tx, err)
	for _, sql := range []string{
		`INSERT INTO processes (namespace, process_id) VALUES ('shop', 'p')`,
		`INSERT INTO schedule (namespace, process_id, task_id, task_type, waits_for, scheduled_time)
			VALUES ('shop', 'p', 1000, 'INIT', 'place', now())`,
	} {
		_, err = tx.Exec(t.Context(), sql)
		must(t, tx, err)
	}
	_, err = tx.Exec(t.Context(), `INSERT INTO requests (request_id, namespace, process_id, task_id, fingerprint,
		created_time) VALUES ($1, 'shop', 'p', 1000, $2, now())`, in.RequestID, in.Fingerprint)
	must(t, tx, err)
	duplicate := later(func() (storage.Prepared, error) { return b.PrepareInit(in) })
	b.blocked(1)
	if err := tx.Commit(t.Context()); err != nil {
		t.Fatal(err)
	}
	p, err := duplicate()
	equal(t, "the duplicate", []any{must(t, p, err).Outcome, p.TaskID}, []any{storage.Replayed, 1000})
	b.recount()
}

// Times are correct if the session has another time zone than UTC. Timers work at both ends of the
// supported range.
func TestTimesInOtherZones(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	b.exec("ALTER DATABASE " + pgx.Identifier{ask[string](b, "SELECT current_database()")}.Sanitize() +
		" SET timezone = 'Asia/Tokyo'")
	s := open(t, b.dsn, storage.Config{})
	at := time.Date(2031, 7, 1, 12, 0, 0, 123456000, time.FixedZone("far", -9*3600))
	in, err := s.PrepareInit(newInit("p"))
	saved, err2 := s.SaveResult(end(must(t, in, err).Claim, storage.Finished, func(c *storage.Completion) {
		c.Timer = &storage.SetTimer{At: time.Date(9999, 12, 31, 23, 59, 59, 0, time.UTC)}
		c.NamedTimers = []storage.SetTimer{
			{Name: "n", At: at}, {Name: "old", At: time.Unix(1, 0)}, {Name: "after", After: process.MaxDuration},
			{Name: "negative", After: -time.Hour},
		}
		c.Promote = false
	}))
	if must(t, saved, err2).TimerDelay < 200*365*24*time.Hour {
		t.Errorf("a timer in 9999 is due in %v", saved.TimerDelay)
	}
	timers, err := s.GetTimers(t.Context(), key("p"))
	var names []string
	for _, timer := range must(t, timers, err) {
		names = append(names, *timer.TimerName)
		if *timer.TimerName == "n" && !timer.ScheduledTime.Equal(at) {
			t.Errorf("a timer at %v is due at %v", at, timer.ScheduledTime)
		}
	}
	equal(t, "soonest first", names, []string{"old", "negative", "n", "after", ""})
	claims, next, err := s.SearchTimers(t.Context(), room(9))
	equal(t, "due", []any{len(must(t, claims, err)), claims[0].TimerName}, "[1 old]")
	if next[ns] <= 0 || next[ns] > time.Until(at)+time.Minute {
		t.Errorf("the next is due in %v", next)
	}
	b.exec("DELETE FROM schedule WHERE timer_name <> ''")
	_, next, err = s.SearchTimers(t.Context(), room(9))
	if must(t, next, err)[ns] < 200*365*24*time.Hour {
		t.Errorf("with a timer in 9999 the next is due in %v", next)
	}
}

// Event IDs exceed 32 bits.
func TestEventIDsBeyond32Bits(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	b.process("p")
	b.exec("UPDATE processes SET last_event_id = 5000000000")
	b.save(end(b.claim("p"), storage.Finished, events("a", "b")))
	got, err := b.ReadHistory(key("p"), storage.HistoryRange{Offset: 5000000000, Limit: -1}, 1, 5000000002)
	equal(t, "ids", []any{len(must(t, got, err)), got[1].EventID}, []any{2, 5000000002})
	b.exec("UPDATE events SET event_id = event_id - 5000000000")
	b.exec("UPDATE processes SET last_event_id = 2")
}

package storage_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/progressor-engine/progressor/process"
	"github.com/progressor-engine/progressor/storage"
)

// transaction is one transaction of a matrix: it runs an operation of a node on a process, and
// returns the result. claim is the running task of the process, if there is one.
type transaction struct {
	name   string
	result bool // the transaction stores the result of the running attempt
	run    func(s *storage.Store, id string, claim *storage.Claim) (string, error)
}

// ends returns a transaction that stores a result of the running attempt. All other transactions
// come from outside.
func ends(name string, outcome storage.Outcome, change ...func(*storage.Completion)) transaction {
	return transaction{name, true, func(s *storage.Store, id string, claim *storage.Claim) (string, error) {
		saved, err := s.SaveResult(end(claim, outcome, change...))
		if errors.Is(err, process.ErrFenced) {
			return "fenced", nil
		}
		return fmt.Sprintf("%s next:%t deferred:%t cancelled:%d",
			saved.Status, saved.Next != nil, saved.Deferred, len(saved.Cancelled)), err
	}}
}

func requests(name string, prepare func(s *storage.Store, id string) (storage.Prepared, error)) transaction {
	return transaction{name, false, func(s *storage.Store, id string, _ *storage.Claim) (string, error) {
		p, err := prepare(s, id)
		if p.Claim != nil {
			return fmt.Sprintf("%s in %s after event %d", p.Outcome, p.Claim.Status, p.Claim.LastEventID), err
		}
		return string(p.Outcome), err
	}}
}

var transactions = []transaction{
	ends("finish", storage.Finished, events("done")),
	ends("finish and continue", storage.Finished, timer(0)),
	ends("release the slot", storage.Finished, withoutPromote),
	ends("fail", storage.Failed, broken("no")),
	ends("retry later", storage.Retry, retryInAnHour),
	ends("complete", storage.Completed),
	ends("remove by result", storage.Removed),
	requests("start", func(s *storage.Store, id string) (storage.Prepared, error) {
		return s.PrepareInit(newInit(id))
	}),
	requests("call", func(s *storage.Store, id string) (storage.Prepared, error) {
		return s.PrepareCall(call(id))
	}),
	requests("call without a slot", func(s *storage.Store, id string) (storage.Prepared, error) {
		return s.PrepareCall(call(id, withoutSlot))
	}),
	requests("repeat a call", func(s *storage.Store, id string) (storage.Prepared, error) {
		return s.PrepareCall(call(id, keyed("k", "x")))
	}),
	requests("repair", func(s *storage.Store, id string) (storage.Prepared, error) {
		return s.PrepareRepair(call(id))
	}),
	requests("repair without processor", func(s *storage.Store, id string) (storage.Prepared, error) {
		return s.SimpleRepair(call(id))
	}),
	deliver, suspend, resume, cancel, remove,
}

var deliver = transaction{"deliver", false, func(s *storage.Store, id string, _ *storage.Claim) (string, error) {
	deliveries, more, err := s.DeliverMessages(key(id))
	return fmt.Sprint(deliveries, more), err
}}

// The commands of operators, and the end of an overdue cancel.
var (
	suspend = commandOf("suspend", func(s *storage.Store, id string) (string, error) {
		return "", s.SuspendProcess(key(id), "why")
	})
	resume = commandOf("resume", func(s *storage.Store, id string) (string, error) {
		return "", s.ResumeProcess(key(id))
	})
	cancel = commandOf("cancel", func(s *storage.Store, id string) (string, error) {
		state, err := s.CancelProcess(storage.Cancel{Key: key(id), Grace: time.Hour})
		return fmt.Sprintf("%+v", state), err
	})
	remove = commandOf("remove", func(s *storage.Store, id string) (string, error) {
		return "", s.RemoveProcess(context.Background(), key(id))
	})
	endOverdueCancel = commandOf("end an overdue cancel", func(s *storage.Store, id string) (string, error) {
		ended, err := s.EndOverdueCancel(key(id))
		return fmt.Sprint("ended:", ended), err
	})
)

// commandOf returns a transaction with the command of an operator. A rejection is also a result.
func commandOf(name string, run func(s *storage.Store, id string) (string, error)) transaction {
	return transaction{name, false, func(s *storage.Store, id string, _ *storage.Claim) (string, error) {
		answer, err := run(s, id)
		var status *process.WrongStatusError
		if errors.As(err, &status) {
			return fmt.Sprintf("refused in %s", status.Status), nil
		}
		if errors.Is(err, process.ErrProcessNotFound) {
			return "not found", nil
		}
		return answer, err
	}}
}

// situation is a state of a process in which two transactions run concurrently.
type situation struct {
	name string
	make makeSituation
}

// makeSituation creates a process and returns the claim of its running task, or nil.
type makeSituation func(b *bench, id string) *storage.Claim

var situations = []situation{
	{"idle", func(b *bench, id string) *storage.Claim { b.process(id, timer(time.Hour)); return nil }},
	{"a call runs", func(b *bench, id string) *storage.Claim {
		b.process(id, timer(time.Hour), named(time.Hour, "n"))
		return b.claim(id)
	}},
	{"a call runs, a call waits", func(b *bench, id string) *storage.Claim {
		b.process(id)
		c := b.claim(id)
		b.call(id)
		return c
	}},
	{"a call with a key runs", func(b *bench, id string) *storage.Claim {
		b.process(id)
		return b.claim(id, keyed("k", "x"))
	}},
	{"new", func(b *bench, id string) *storage.Claim { return b.start(id) }},
	{"broken", func(b *bench, id string) *storage.Claim { b.breakProcess(id, timer(time.Hour)); return nil }},
	{"suspended, a call waits", func(b *bench, id string) *storage.Claim {
		b.process(id, timer(time.Hour))
		c := b.claim(id)
		b.call(id)
		if err := b.SuspendProcess(key(id), ""); err != nil {
			b.t.Fatal(err)
		}
		return c
	}},
	{"to be cancelled", func(b *bench, id string) *storage.Claim {
		b.process(id, timer(time.Hour))
		c := b.claim(id)
		b.call(id)
		state, err := b.CancelProcess(storage.Cancel{Key: key(id), Grace: time.Hour})
		must(b.t, state, err)
		return c
	}},
	{"in repair", func(b *bench, id string) *storage.Claim {
		b.breakProcess(id, timer(time.Hour))
		return b.repair(id).Claim
	}},
}

// matrix tests every pair of transactions in every situation.
type matrix struct {
	situations    []situation
	first, second []transaction
	// fastPath is set if the first transaction tries the fast path first. If the fast path does not
	// apply, the transaction releases the process, and may then be the second one.
	fastPath   bool
	extraState func(b *bench, id string) string // state to compare in addition to the process and its messages, or nil
	after      func(b *bench)                   // runs at the end of a situation, or nil
}

// run runs each pair of transactions concurrently on two nodes, and compares the result with that
// of running them one after the other. Both transactions wait for the lock of another session, so
// that both have begun when the first one continues.
func (m matrix) run(t *testing.T) {
	for _, situation := range m.situations {
		t.Run(situation.name, func(t *testing.T) {
			t.Parallel()
			b := newBench(t)
			other := open(t, b.dsn, storage.Config{}).WaitForLocks()
			b.WaitForLocks()
			meet := b.meetOnFastPath
			if !m.fastPath {
				b.WithGeneralStatements()
				other.WithGeneralStatements()
				meet = b.meet
			}
			if m.extraState != nil {
				b.extraState = func(id string) string { return m.extraState(b, id) }
			}
			for a, first := range m.first {
				for z, second := range m.second {
					meet(other, situation.make, fmt.Sprintf("%d-%d", a, z), first, second)
				}
			}
			if m.after != nil {
				m.after(b)
			}
		})
	}
}

// only returns the transactions with these names.
func only(t *testing.T, all []transaction, names ...string) []transaction {
	t.Helper()
	var found []transaction
	for _, name := range names {
		n := slices.IndexFunc(all, func(tr transaction) bool { return tr.name == name })
		if n < 0 {
			t.Fatalf("no transaction %q", name)
		}
		found = append(found, all[n])
	}
	return found
}

// Two concurrent transactions of two nodes on one process, in any order of their locks, have the
// same result as if they ran one after the other.
func TestEveryTwoTransactions(t *testing.T) {
	t.Parallel()
	matrix{situations: situations, first: transactions, second: transactions}.run(t)
}

func TestEveryTwoFastPathTransactions(t *testing.T) {
	t.Parallel()
	onFastPath := only(t, transactions, "call", "repeat a call", "finish", "release the slot")
	matrix{situations: situations, first: onFastPath, second: transactions, fastPath: true}.run(t)
}

// meet runs two transactions concurrently on a process, and compares the result with that of
// running them one after the other.
func (b *bench) meet(
	other *storage.Store, situation makeSituation, name string, first, second transaction,
) {
	b.t.Helper()
	if want, ok := b.serial(other, situation, "s"+name, first, second, false); ok {
		b.expect(b.together(other, situation, "t"+name, first, second), first, second, want)
	}
}

// meetOnFastPath is like meet, but the first transaction may also be the second one.
func (b *bench) meetOnFastPath(
	other *storage.Store, situation makeSituation, name string, first, second transaction,
) {
	b.t.Helper()
	if want, ok := b.serial(other, situation, "s"+name, first, second, false); ok {
		reverse, _ := b.serial(other, situation, "r"+name, first, second, true)
		b.expect(b.together(other, situation, "t"+name, first, second), first, second, want, reverse)
	}
}

func (b *bench) expect(got string, first, second transaction, want ...string) {
	b.t.Helper()
	if !slices.Contains(want, got) {
		b.t.Errorf("%s, together with %s:\n %s\nwant as if they ran one after the other:\n %s",
			first.name, second.name, got, strings.Join(want, "\n or\n "))
	}
}

// serial runs two transactions one after the other, in order or reversed. It returns the result,
// and reports whether the situation supports the transactions.
func (b *bench) serial(
	other *storage.Store, situation makeSituation, id string, first, second transaction, reverse bool,
) (string, bool) {
	b.t.Helper()
	claim := b.createWithMessages(situation, id)
	if claim == nil && (first.result || second.result) {
		return "", false
	}
	var answers [2]string
	runs := []func() error{
		func() (err error) { answers[0], err = first.run(b.Store, id, claim); return err },
		func() (err error) { answers[1], err = second.run(other, id, claim); return err },
	}
	if reverse {
		slices.Reverse(runs)
	}
	if err := errors.Join(runs[0](), runs[1]()); err != nil {
		b.t.Fatalf("%s, then %s (reverse: %t): %v", first.name, second.name, reverse, err)
	}
	return fmt.Sprintf("%s\n then %s\n %s %s", answers[0], answers[1], b.state(id), b.pendingState(id)), true
}

// createWithMessages creates a process with undelivered messages.
func (b *bench) createWithMessages(situation makeSituation, id string) *storage.Claim {
	b.t.Helper()
	claim := situation(b, id)
	b.exec(`INSERT INTO messages (namespace, process_id, kind)
		VALUES ('shop', $1, 'notify'), ('shop', $1, 'cancel')`, id)
	return claim
}

// pendingState returns the undelivered messages of a process, and the result of extraState.
func (b *bench) pendingState(id string) string {
	b.t.Helper()
	own := ""
	if b.extraState != nil {
		own = b.extraState(id) + " messages "
	}
	return own + ask[string](b, `SELECT coalesce(string_agg(kind || CASE WHEN held THEN ' held' ELSE '' END, ', '
		ORDER BY message_id), 'none') FROM messages WHERE namespace = 'shop' AND process_id = $1`, id)
}

// together makes two transactions wait for the same process, in order. A lane that has to wait
// again after its lock_timeout comes second. The pair was then not tested in this order, so
// together tries again with another process.
func (b *bench) together(
	other *storage.Store, situation makeSituation, name string, first, second transaction,
) string {
	b.t.Helper()
	for try := range 60 {
		id := fmt.Sprintf("%s-%d", name, try)
		claim := b.createWithMessages(situation, id)
		// This also locks the run, if the process is the job of a step.
		release := b.foreign(`SELECT FROM processes
			WHERE namespace = 'shop' AND process_id IN ($1, '~flow/' || $1) FOR UPDATE`, id)
		began := time.Now()
		one := later(func() (string, error) { return first.run(b.Store, id, claim) })
		waits := b.waits(1)
		two := later(func() (string, error) { return second.run(other, id, claim) })
		waits = waits && b.waits(2)
		release()
		waits = waits && time.Since(began) < storage.LockWait
		x, err := one()
		y, err2 := two()
		if err = errors.Join(err, err2); err != nil && !errors.Is(err, process.ErrUnavailable) {
			b.t.Fatalf("%s together with %s: %v", first.name, second.name, err)
		}
		if err == nil && waits {
			return fmt.Sprintf("%s\n then %s\n %s %s", x, y, b.state(id), b.pendingState(id))
		}
	}
	b.t.Fatalf("%s together with %s: no try stayed within lock_timeout", first.name, second.name)
	return ""
}

// waits reports whether n lanes wait for a lock before their lock timeout is over.
func (b *bench) waits(n int) bool {
	b.t.Helper()
	return b.lanesWait(n, "true")
}

// waitsBehind reports whether a lane waits for a session whose statement ends with this comment.
func (b *bench) waitsBehind(comment string) bool {
	b.t.Helper()
	return b.lanesWait(1, `EXISTS (
		SELECT FROM pg_stat_activity h
		 WHERE h.pid = ANY (pg_blocking_pids(a.pid)) AND h.query LIKE '%-- `+comment+`')`)
}

func (b *bench) lanesWait(n int, condition string) bool {
	b.t.Helper()
	return b.sessionsWait(n, "application_name = 'progressor lane' AND "+condition)
}

func (b *bench) sessionsWait(n int, condition string) bool {
	b.t.Helper()
	for deadline := time.Now().Add(storage.LockWait); time.Now().Before(deadline); {
		if ask[int](b, `SELECT count(*) FROM pg_stat_activity a
			WHERE datname = current_database() AND wait_event_type = 'Lock' AND `+condition) == n {
			return true
		}
		pause()
	}
	return false
}

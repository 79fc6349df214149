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

// A transaction of a matrix: what a node does to a process, and what it is told. claim is what runs in the process, if anything does.
type transaction struct {
	name   string
	result bool // of the attempt that runs
	run    func(s *storage.Store, id string, claim *storage.Claim) (string, error)
}

// ends are results of the attempt that runs; the others come from outside.
func ends(name string, outcome storage.Outcome, change ...func(*storage.Completion)) transaction {
	return transaction{name, true, func(s *storage.Store, id string, claim *storage.Claim) (string, error) {
		saved, err := s.SaveResult(end(claim, outcome, change...))
		if errors.Is(err, process.ErrFenced) {
			return "fenced", nil
		}
		return fmt.Sprintf("%s next:%t deferred:%t cancelled:%d", saved.Status, saved.Next != nil, saved.Deferred, len(saved.Cancelled)), err
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
	ends("finish and go on", storage.Finished, timer(0)),
	ends("give the place away", storage.Finished, parked),
	ends("fail", storage.Failed, broken("no")),
	ends("retry later", storage.Retry, func(c *storage.Completion) { c.RetryAfter = time.Hour }),
	ends("complete", storage.Completed),
	ends("remove by result", storage.Removed),
	requests("start", func(s *storage.Store, id string) (storage.Prepared, error) { return s.PrepareInit(newInit(id)) }),
	requests("call", func(s *storage.Store, id string) (storage.Prepared, error) { return s.PrepareCall(call(id)) }),
	requests("call without a place", func(s *storage.Store, id string) (storage.Prepared, error) {
		return s.PrepareCall(call(id, placeless))
	}),
	requests("repeat a call", func(s *storage.Store, id string) (storage.Prepared, error) {
		return s.PrepareCall(call(id, keyed("k", "x")))
	}),
	requests("repair", func(s *storage.Store, id string) (storage.Prepared, error) { return s.PrepareRepair(call(id)) }),
	requests("repair without processor", func(s *storage.Store, id string) (storage.Prepared, error) { return s.SimpleRepair(call(id)) }),
	{"remove", false, func(s *storage.Store, id string, _ *storage.Claim) (string, error) {
		err := s.RemoveProcess(context.Background(), key(id))
		if errors.Is(err, process.ErrProcessNotFound) {
			return "not found", nil
		}
		return "removed", err
	}},
	deliver,
	orders("suspend", func(s *storage.Store, id string) (string, error) { return "", s.SuspendProcess(key(id), "why") }),
	orders("resume", func(s *storage.Store, id string) (string, error) { return "", s.ResumeProcess(key(id)) }),
	orders("cancel", func(s *storage.Store, id string) (string, error) {
		state, err := s.CancelProcess(storage.Cancel{Key: key(id), Grace: time.Hour})
		return fmt.Sprintf("%+v", state), err
	}),
}

var deliver = transaction{"deliver", false, func(s *storage.Store, id string, _ *storage.Claim) (string, error) {
	deliveries, more, err := s.DeliverMessages(key(id))
	return fmt.Sprint(deliveries, more), err
}}

// orders are an operator's; a refusal is an answer.
func orders(name string, run func(s *storage.Store, id string) (string, error)) transaction {
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

// A situation is a process that transactions meet in. It gives the claim of what runs in it.
type situation struct {
	name string
	make func(b *bench, id string) *storage.Claim
}

var situations = []situation{
	{"idle", func(b *bench, id string) *storage.Claim { b.process(id, timer(time.Hour)); return nil }},
	{"at work", func(b *bench, id string) *storage.Claim {
		b.process(id, timer(time.Hour), named(time.Hour, "n"))
		return b.claim(id)
	}},
	{"at work, a call waits", func(b *bench, id string) *storage.Claim {
		b.process(id)
		c := b.claim(id)
		b.call(id)
		return c
	}},
	{"at work by key", func(b *bench, id string) *storage.Claim { b.process(id); return b.claim(id, keyed("k", "x")) }},
	{"new", func(b *bench, id string) *storage.Claim { return b.start(id) }},
	{"broken", func(b *bench, id string) *storage.Claim { b.wreck(id, timer(time.Hour)); return nil }},
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
	{"in repair", func(b *bench, id string) *storage.Claim { b.wreck(id, timer(time.Hour)); return b.repair(id).Claim }},
}

// Whatever two nodes do to one process at the same moment, in whichever order they get it: it comes out as if the first had been
// done, and then the second. Both wait for a foreign session's lock, so that both have begun when the first one goes on.
func TestEveryTwoTransactions(t *testing.T) {
	t.Parallel()
	for _, situation := range situations {
		t.Run(situation.name, func(t *testing.T) {
			t.Parallel()
			b := newBench(t)
			b.Whole().WaitForLocks()
			other := open(t, b.dsn, storage.Config{}).Whole().WaitForLocks()
			for a, first := range transactions {
				for z, second := range transactions {
					b.meet(other, situation.make, fmt.Sprintf("%d-%d", a, z), first, second)
				}
			}
		})
	}
}

// Those that try a quick statement first give the process back where it does not apply to them. Then they come out as the second.
func TestEveryTwoQuickTransactions(t *testing.T) {
	t.Parallel()
	quick := []string{"call", "repeat a call", "finish", "give the place away"}
	for _, situation := range situations {
		t.Run(situation.name, func(t *testing.T) {
			t.Parallel()
			b := newBench(t)
			b.WaitForLocks()
			other := open(t, b.dsn, storage.Config{}).WaitForLocks()
			for a, first := range transactions {
				if !slices.Contains(quick, first.name) {
					continue
				}
				for z, second := range transactions {
					b.meetQuick(other, situation.make, fmt.Sprintf("%d-%d", a, z), first, second)
				}
			}
		})
	}
}

// meet has two transactions meet in a process, and compares with one after the other.
func (b *bench) meet(other *storage.Store, situation func(*bench, string) *storage.Claim, name string, first, second transaction) {
	b.t.Helper()
	if want, ok := b.serial(other, situation, "s"+name, first, second, false); ok {
		b.expect(b.together(other, situation, "t"+name, first, second), first, second, want)
	}
}

// meetQuick is meet where the first may come out as the second.
func (b *bench) meetQuick(other *storage.Store, situation func(*bench, string) *storage.Claim, name string, first, second transaction) {
	b.t.Helper()
	if want, ok := b.serial(other, situation, "s"+name, first, second, false); ok {
		reverse, _ := b.serial(other, situation, "r"+name, first, second, true)
		b.expect(b.together(other, situation, "t"+name, first, second), first, second, want, reverse)
	}
}

func (b *bench) expect(got string, first, second transaction, want ...string) {
	b.t.Helper()
	if !slices.Contains(want, got) {
		b.t.Errorf("%s, together with %s:\n %s\nwant as one after the other:\n %s", first.name, second.name, got, strings.Join(want, "\n or\n "))
	}
}

// serial tells what comes out of two transactions one after the other, in their order or the other way round, and whether the
// situation has what they take.
func (b *bench) serial(other *storage.Store, situation func(*bench, string) *storage.Claim, id string, first, second transaction, reverse bool) (string, bool) {
	b.t.Helper()
	claim := b.posted(situation, id)
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
	return fmt.Sprintf("%s\n then %s\n %s %s", answers[0], answers[1], b.state(id), b.standing(id)), true
}

// posted makes a process to which messages are on their way.
func (b *bench) posted(situation func(*bench, string) *storage.Claim, id string) *storage.Claim {
	b.t.Helper()
	claim := situation(b, id)
	b.exec("INSERT INTO messages (namespace, process_id, kind) VALUES ('shop', $1, 'notify'), ('shop', $1, 'cancel')", id)
	return claim
}

// standing are the messages of a process that have not been delivered.
func (b *bench) standing(id string) string {
	b.t.Helper()
	own := ""
	if b.standings != nil {
		own = b.standings(id) + " messages "
	}
	return own + ask[string](b, "SELECT coalesce(string_agg(kind || CASE WHEN held THEN ' held' ELSE '' END, ', ' ORDER BY message_id), 'none') FROM messages WHERE process_id = $1", id)
}

// together has two transactions wait for the same process, the first one in front. A lane waits 250 ms for a lock, which is short on
// a machine that is busy: then nothing was tried, and another process is taken.
func (b *bench) together(other *storage.Store, situation func(*bench, string) *storage.Claim, name string, first, second transaction) string {
	b.t.Helper()
	for try := range 20 {
		id := fmt.Sprintf("%s-%d", name, try)
		claim := b.posted(situation, id)
		release := b.foreign("SELECT FROM processes WHERE process_id IN ($1, '~flow/' || $1) FOR UPDATE", id) // of the job of a step: its run, too
		one := later(func() (string, error) { return first.run(b.Store, id, claim) })
		waits := b.waits(1)
		two := later(func() (string, error) { return second.run(other, id, claim) })
		waits = waits && b.waits(2)
		release()
		x, err := one()
		y, err2 := two()
		if err = errors.Join(err, err2); err != nil && !errors.Is(err, process.ErrUnavailable) {
			b.t.Fatalf("%s together with %s: %v", first.name, second.name, err)
		}
		if err == nil && waits {
			return fmt.Sprintf("%s\n then %s\n %s %s", x, y, b.state(id), b.standing(id))
		}
	}
	b.t.Fatalf("%s together with %s: never within the lock timeout", first.name, second.name)
	return ""
}

// waits tells whether n lanes wait for a lock before their lock timeout is over.
func (b *bench) waits(n int) bool {
	b.t.Helper()
	return b.lanesWait(n, "true")
}

// waitsBehind tells whether a lane waits for a foreign session whose statement ends in a comment of this text.
func (b *bench) waitsBehind(comment string) bool {
	b.t.Helper()
	return b.lanesWait(1, "EXISTS (SELECT FROM pg_stat_activity h WHERE h.pid = ANY (pg_blocking_pids(a.pid)) AND h.query LIKE '%-- "+comment+"')")
}

func (b *bench) lanesWait(n int, condition string) bool {
	b.t.Helper()
	for deadline := time.Now().Add(200 * time.Millisecond); time.Now().Before(deadline); {
		if ask[int](b, `SELECT count(*) FROM pg_stat_activity a WHERE datname = current_database() AND application_name = 'progressor lane'
			AND wait_event_type = 'Lock' AND `+condition) == n {
			return true
		}
	}
	return false
}

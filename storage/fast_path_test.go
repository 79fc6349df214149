package storage_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"regexp"
	"slices"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	dto "github.com/prometheus/client_model/go"

	"github.com/progressor-engine/progressor/process"
	"github.com/progressor-engine/progressor/storage"
	"github.com/progressor-engine/progressor/storage/storagetest"
)

// A busy process costs a second flush only once, and not for each of its calls and results. The
// lane forgets that the process is busy when no task of the process waits.
func TestFastPathFallbacks(t *testing.T) {
	t.Parallel()
	storagetest.NeedsFastPath(t)
	dsn := storagetest.DSN(t)
	registry := prometheus.NewRegistry()
	b := &bench{
		Store: open(t, dsn, storage.Config{Registerer: registry, Lanes: 1}), t: t, dsn: dsn,
		db: storagetest.Connect(t, dsn),
	}
	misses := func(after string, want float64) {
		t.Helper()
		equal(t, "misses after "+after, fallbacks(t, registry), want)
	}
	b.process("p")
	c := b.claim("p", keyed("k", "x"))
	misses("a call to a free process", 0)
	equal(t, "a second call", b.call("p").Outcome, storage.Postponed)
	misses("a call that waits", 1)
	equal(t, "a third call", b.call("p").Outcome, storage.Postponed)
	second := b.save(end(c, storage.Finished)).Next
	third := b.save(end(second, storage.Finished)).Next
	b.save(end(third, storage.Finished))
	misses("more of the same", 1)
	c = b.claim("p", keyed("k2", "x"))
	misses("a call to a process that is free again", 1)
	b.save(end(c, storage.Finished, events("e")))
	misses("its result", 1)
	equal(t, "the first call again", b.call("p", keyed("k", "x")).Outcome, storage.Replayed)
	misses("a repeated call", 2)
	b.is("p", "RUNNING e1: INIT FINISHED, CALL FINISHED, CALL FINISHED, CALL FINISHED, CALL FINISHED")
}

// With the fast path off, a call to a busy process is stored by the first flush.
func TestFastPathIsOff(t *testing.T) {
	t.Parallel()
	dsn := storagetest.DSN(t)
	registry := prometheus.NewRegistry()
	s := open(t, dsn, storage.Config{Registerer: registry, Lanes: 1, WithoutFastPath: true})
	b := &bench{Store: s, t: t, dsn: dsn, db: storagetest.Connect(t, dsn)}
	b.process("p")
	c := b.claim("p")
	equal(t, "a second call", b.call("p").Outcome, storage.Postponed)
	equal(t, "fallbacks", fallbacks(t, registry), 0)
	b.save(end(b.save(end(c, storage.Finished)).Next, storage.Completed))
	b.is("p", "COMPLETED e0: INIT FINISHED, CALL FINISHED, CALL FINISHED")
}

// These tests also pass with the fast path off.
func TestWithoutFastPath(t *testing.T) {
	t.Parallel()
	storagetest.RunWithoutFastPath(t, map[string]func(*testing.T){
		"call": TestCallIsCaptured, "refused call": TestCallIsRefused, "call with key": TestCallWithKey,
		"calls in order": TestCallsKeepTheirOrder, "full queue": TestCallIsOverloaded,
		"result": TestSaveFinishes, "failure": TestSaveFails, "retries": TestSaveRetries,
		"rejection": TestSaveRejects, "completion": TestSaveCompletes, "removal": TestSaveRemoves,
		"fenced result": TestSaveUnderOldTokenStoresNothing, "timers": TestTimers,
		"messages": TestMessagesAreDeliveredInOrder, "child ends": TestEndsAreMessages,
		"cancel": TestCancelEnds, "commands": TestCommands, "step ends": TestEndsOfStepsAreTasksOfTheRun,
		"step starts": TestJobsStartWithTheResult,
	})
}

func fallbacks(t *testing.T, registry *prometheus.Registry) float64 {
	t.Helper()
	families, err := registry.Gather()
	n := slices.IndexFunc(must(t, families, err), func(f *dto.MetricFamily) bool {
		return f.GetName() == "progressor_quick_misses_total"
	})
	return families[n].GetMetric()[0].GetCounter().GetValue()
}

// A process that another node creates after a flush has taken its locks is not locked. The fast
// path leaves a call to this process to the next flush.
func TestFastPathSkipsUnlocked(t *testing.T) {
	t.Parallel()
	storagetest.NeedsFastPath(t)
	dsn := storagetest.DSN(t)
	registry := prometheus.NewRegistry()
	b := &bench{Store: open(t, dsn, storage.Config{}), t: t, dsn: dsn, db: storagetest.Connect(t, dsn)}
	s := open(t, dsn, storage.Config{Registerer: registry, Lanes: 1}).WaitForLocks()
	for _, id := range []string{"first", "held"} {
		b.process(id)
	}
	for try := range 50 {
		id := fmt.Sprintf("new%d", try)
		before := fallbacks(t, registry)
		release := b.foreign("SELECT FROM processes WHERE process_id = 'first' FOR UPDATE")
		first := later(func() (storage.Prepared, error) { return s.PrepareCall(call("first")) })
		waits := b.waits(1)
		held := b.foreign("SELECT FROM processes WHERE process_id = 'held' FOR UPDATE")
		together := []func() (storage.Prepared, error){ // one flush, because the lane is busy
			later(func() (storage.Prepared, error) { return s.PrepareCall(call("held")) }),
			later(func() (storage.Prepared, error) { return s.PrepareCall(call(id)) }),
		}
		for s.Pending() < 3 && waits {
			waits = b.waits(1)
		}
		released := time.Now()
		release()
		one, err := first()
		waits = waits && err == nil && b.waits(1) // the locks of that flush are being taken
		b.process(id)
		held()
		waits = waits && time.Since(released) < storage.LockWait // the flush was not repeated
		two, err2 := together[0]()
		p, err3 := together[1]()
		for _, captured := range []storage.Prepared{one, two} {
			if captured.Claim != nil {
				b.save(end(captured.Claim, storage.Finished))
			}
		}
		if !waits || errors.Join(err, err2) != nil || errors.Is(err3, process.ErrUnavailable) {
			continue // this took longer than the lock timeout, so nothing was tested
		}
		equal(t, "the call", must(t, p, err3).Outcome, storage.Captured)
		equal(t, "misses of the call", fallbacks(t, registry)-before, 1)
		return
	}
	t.Fatal("no try stayed within the lock timeout")
}

// similarSituations are similar to those in which the fast path applies.
var similarSituations = []situation{
	{"a timer is due", func(b *bench, id string) *storage.Claim {
		b.process(id, timer(time.Hour), named(time.Hour, "n"))
		c := b.claim(id)
		b.due(id)
		return c
	}},
	{"a call that another node has stored waits", func(b *bench, id string) *storage.Claim {
		b.process(id)
		c := b.claim(id)
		p, err := open(b.t, b.dsn, storage.Config{Lanes: 1}).PrepareCall(call(id))
		equal(b.t, "the call", must(b.t, p, err).Outcome, storage.Postponed)
		return c
	}},
	{"a timer waits", func(b *bench, id string) *storage.Claim {
		b.process(id, timer(time.Hour))
		return b.claim(id)
	}},
	{"a named timer waits", func(b *bench, id string) *storage.Claim {
		b.process(id, named(time.Hour, "n"))
		return b.claim(id, callWithAll)
	}},
	{"idle, a timer is due", func(b *bench, id string) *storage.Claim {
		b.process(id, timer(time.Hour))
		b.due(id)
		return nil
	}},
	{"idle, a call waits for a slot", func(b *bench, id string) *storage.Claim {
		b.process(id)
		b.call(id, withoutSlot)
		return nil
	}},
	{"new, a call waits", func(b *bench, id string) *storage.Claim {
		c := b.start(id)
		b.call(id)
		return c
	}},
	{"new, to be cancelled", func(b *bench, id string) *storage.Claim {
		c := b.start(id)
		state, err := b.CancelProcess(storage.Cancel{Key: key(id), Grace: time.Hour})
		must(b.t, state, err)
		return c
	}},
	{"new, resumed", func(b *bench, id string) *storage.Claim {
		c := b.start(id)
		must(b.t, 0, b.SuspendProcess(key(id), "why"))
		must(b.t, 0, b.ResumeProcess(key(id)))
		return c
	}},
	{"its cancel is to be retried", func(b *bench, id string) *storage.Claim {
		b.process(id)
		state, err := b.CancelProcess(storage.Cancel{Key: key(id), Grace: time.Hour})
		must(b.t, state, err)
		b.save(end(claimOf(b.searchCalls(1000), id), storage.Retry, func(c *storage.Completion) {
			c.RetryAfter = time.Hour
		}))
		return nil
	}},
	{"a call with all fields runs", func(b *bench, id string) *storage.Claim {
		b.process(id)
		return b.claim(id, keyed("old", "x"), callWithAll)
	}},
	{"repaired", func(b *bench, id string) *storage.Claim {
		b.breakProcess(id)
		b.save(end(b.repair(id).Claim, storage.Finished))
		return b.claim(id, keyed("k", "x"))
	}},
	{"a timer runs", func(b *bench, id string) *storage.Claim {
		b.process(id, timer(time.Hour))
		b.due(id)
		return claimOf(b.searchTimers(1000), id)
	}},
	{"a child", func(b *bench, id string) *storage.Claim {
		c := b.start(id)
		b.exec(`INSERT INTO parents (namespace, process_id, parent_namespace, parent_process_id, args) VALUES
			('shop', $1, 'shop', 'parent of all', 'over')`, id)
		return c
	}},
	{"removed", func(b *bench, id string) *storage.Claim {
		b.process(id)
		c := b.claim(id)
		must(b.t, 0, b.RemoveProcess(context.Background(), key(id)))
		return c
	}},
}

func claimOf(claims []storage.Claim, id string) *storage.Claim {
	return &claims[slices.IndexFunc(claims, func(c storage.Claim) bool { return c.ProcessID == id })]
}

func callWithAll(c *storage.Call) {
	c.Context, c.HistoryRange, c.Priority = []byte("context"), `{"limit": 1}`, 7
}

// The fast path stores and returns the same as the general statement: all rows and columns are
// equal except for numbers and times.
func TestFastPathStoresTheSame(t *testing.T) {
	t.Parallel()
	storagetest.NeedsFastPath(t)
	b := newBench(t)
	stores := []*storage.Store{b.Store, open(t, b.dsn, storage.Config{}).WithGeneralStatements()}
	calls := map[string][]func(*storage.Call){
		"call": nil, "notify": {notify}, "repeated call": {keyed("k", "x")},
		"another call of its key": {keyed("k", "y")},
		"call with all":           {keyed("new", "x"), callWithAll},
	}
	completes := func(c *storage.Completion) { c.Outcome = storage.Completed }
	results := map[string][]func(*storage.Completion){
		"complete": {completes},
		"complete and free keys": {completes, func(c *storage.Completion) {
			c.EffectsOnEnd = []storage.Effect{storage.FreeKeys{}}
		}},
		"complete with all": {completes, func(c *storage.Completion) {
			c.Events = []storage.NewEvent{
				{Payload: []byte("a"), Metadata: []byte(`{"a": 1}`)}, {Timestamp: time.Unix(1, 0)},
			}
			c.AuxState, c.Metadata, c.Response = []byte("aux"), []byte(`{"m": 1}`), []byte("response")
		}},
		"finish": nil, "release the slot": {withoutPromote},
		"empty": {func(c *storage.Completion) { c.AuxState, c.Response = []byte{}, []byte{} }},
		"finish with all": {func(c *storage.Completion) {
			c.Events = []storage.NewEvent{
				{Payload: []byte("a"), Metadata: []byte(`{"a": 1}`)}, {Timestamp: time.Unix(1, 0)},
			}
			c.AuxState, c.Metadata, c.Response = []byte("aux"), []byte(`{"m": 1}`), []byte("response")
		}},
		"continue": {timer(0)}, "continue later": {timer(time.Hour)}, "continue elsewhere": {timer(0), withoutPromote},
		"remove now": {func(c *storage.Completion) { c.Timer = &storage.SetTimer{Remove: true} }},
		"continue with all": {timer(0), func(c *storage.Completion) {
			c.Events = []storage.NewEvent{
				{Payload: []byte("a"), Metadata: []byte(`{"a": 1}`)}, {Timestamp: time.Unix(1, 0)},
			}
			c.AuxState, c.Metadata, c.Response = []byte("aux"), []byte(`{"m": 1}`), []byte("response")
			c.AnsweredBy, c.StepTimeout = "w", time.Hour
		}},
	}
	for n, s := range append(slices.Clone(situations), similarSituations...) {
		// compare executes the same operations on two processes, each with a different store.
		compare := func(name string, do func(store *storage.Store, id string, c *storage.Claim) (any, error)) {
			var got [2]string
			for k, store := range stores {
				id := fmt.Sprintf("%d-%s-%d", n, name, k)
				answer, err := do(store, id, s.make(b, id))
				got[k] = fmt.Sprintf("%v, %v, then\n%s", answer, err, b.rows(id))
			}
			if got[0] != got[1] {
				t.Errorf("%s, %s:\n%s\ngeneral statement:\n%s", s.name, name, got[0], got[1])
			}
		}
		for name, change := range calls {
			compare(name, func(store *storage.Store, id string, _ *storage.Claim) (any, error) {
				p, err := store.PrepareCall(call(id, change...))
				return unnumbered(t, p), err
			})
		}
		for name, change := range results {
			compare(name, func(store *storage.Store, id string, c *storage.Claim) (any, error) {
				if c == nil {
					return nil, nil
				}
				saved, err := store.SaveResult(end(c, storage.Finished, change...))
				if errors.Is(err, process.ErrFenced) {
					return "fenced", nil
				}
				return unnumbered(t, saved), err
			})
		}
	}
}

// rows returns the rows of a process and the messages that it has sent, without the values that
// numbers matches.
func (b *bench) rows(id string) string {
	b.t.Helper()
	text := ask[string](b, `SELECT coalesce(string_agg(x.name || ' ' || x.line::text, E'\n' ORDER BY x.n, x.id), '')
		FROM (
		SELECT 1 AS n, 0 AS id, 'processes' AS name, to_jsonb(p) AS line FROM processes p WHERE process_id = $1
		UNION ALL SELECT 2, task_id, 'running', to_jsonb(r) FROM running r WHERE process_id = $1
		UNION ALL SELECT 3, task_id, 'schedule', to_jsonb(s) FROM schedule s WHERE process_id = $1
		UNION ALL SELECT 4, task_id, 'tasks', to_jsonb(k) FROM tasks k WHERE process_id = $1
		UNION ALL SELECT 5, event_id, 'events', to_jsonb(e) FROM events e WHERE process_id = $1
		UNION ALL SELECT 7, message_id, 'messages',
		  to_jsonb(m) - '{message_id,child,sender_process_id,sender_task_id}'::text[] FROM messages m
		  WHERE sender_process_id = $1
		UNION ALL SELECT 8, 0, 'parents', to_jsonb(o) FROM parents o WHERE process_id = $1
		UNION ALL SELECT 6, task_id, 'requests', to_jsonb(q) FROM requests q WHERE process_id = $1) x`, id)
	return numbers.ReplaceAllString(text, `"$1": there`)
}

// numbers matches the fields with numbers and times that differ between processes.
var numbers = regexp.MustCompile(`(?i)"(cancelled|process_?id|task_?id|node_id|fencing_?token|request_id|` +
	`fingerprint|corrupted_?by|cancelled_by|\w*deadline|now|timestamp|\w+_?time)": ` +
	`?("[^"]+"|[1-9][0-9]*|\[[0-9,]+\])`)

func unnumbered(t *testing.T, answer any) string {
	t.Helper()
	text, err := json.Marshal(answer)
	return numbers.ReplaceAllString(string(must(t, text, err)), `"$1": there`)
}

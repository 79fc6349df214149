package storage_test

import (
	"fmt"
	"log/slog"
	"slices"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/progressor-engine/progressor/process"
	"github.com/progressor-engine/progressor/storage"
	"github.com/progressor-engine/progressor/storage/jobs"
	"github.com/progressor-engine/progressor/storage/storagetest"
)

func TestMain(m *testing.M) { storagetest.Main(m, storagetest.EveryInvariantChecked()) }

const (
	ns      = "shop"
	timeout = time.Minute
)

// bench is a test bench: a store with its own database, and a pool for direct access.
type bench struct {
	*storage.Store
	t   testing.TB
	dsn string
	db  *pgxpool.Pool
	// extraState returns additional state to compare after concurrent transactions; it may be nil.
	extraState func(id string) string
}

func newBench(t testing.TB, with ...storagetest.Option) *bench {
	t.Helper()
	dsn := storagetest.DSN(t, with...)
	return &bench{Store: open(t, dsn, storage.Config{}), t: t, dsn: dsn, db: storagetest.Connect(t, dsn)}
}

// recount must be called after SQL of a test that creates or changes processes.
func (b *bench) recount() {
	b.t.Helper()
	storagetest.Recount(b.t, b.db)
}

// open opens a store and registers it as a node.
func open(t testing.TB, dsn string, cfg storage.Config) *storage.Store {
	t.Helper()
	cfg.DSN, cfg.Logger = dsn, slog.New(slog.DiscardHandler)
	cfg.WithoutFastPath = cfg.WithoutFastPath || storagetest.WithoutFastPath(t)
	s, err := storage.Open(t.Context(), cfg)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(s.Close)
	node, err := s.RegisterNode(t.Context(), storage.NodeDescription{Address: "127.0.0.1:1", Version: "test"})
	must(t, node, err)
	return s
}

func key(id string) process.Key { return process.Key{Namespace: ns, ProcessID: id} }

// call returns a request with a slot, as the engine sends it.
func call(id string, change ...func(*storage.Call)) *storage.Call {
	c := &storage.Call{
		Key: key(id), TaskType: process.TaskCall, Args: []byte("args"), Capture: true, StepTimeout: timeout,
		MaxWaiting: 100,
	}
	for _, f := range change {
		f(c)
	}
	return c
}

func newInit(id string, change ...func(*storage.Init)) *storage.Init {
	in := &storage.Init{Call: *call(id)}
	for _, f := range change {
		f(in)
	}
	return in
}

// keyed sets the idempotency key of a request, and a fingerprint of args.
func keyed(k, args string) func(*storage.Call) {
	return func(c *storage.Call) {
		c.IdempotencyKey, c.RequestID = k, process.RequestID(c.Key.Namespace, c.Key.ProcessID, k)
		c.Fingerprint = process.Fingerprint("call", []byte(args))
	}
}

func withoutSlot(c *storage.Call) { c.Capture = false }

func notify(c *storage.Call) { c.TaskType = process.TaskNotify }

// end returns the Completion of a claim.
func end(c *storage.Claim, outcome storage.Outcome, change ...func(*storage.Completion)) *storage.Completion {
	completion := &storage.Completion{
		TaskAttempt: storage.TaskAttempt{
			Key: process.Key{Namespace: c.Namespace, ProcessID: c.ProcessID}, TaskID: c.TaskID,
			TaskType: c.TaskType, Attempt: c.Attempt, FencingToken: c.FencingToken,
			LastEventID: c.LastEventID, IdempotencyKey: c.IdempotencyKey,
		},
		Result:       storage.Result{Outcome: outcome},
		Continuation: storage.Continuation{Promote: true, StepTimeout: timeout},
	}
	if job, ok := jobs.JobOf(c); ok {
		completion.Record = &jobs.AttemptRecord{JobName: job.Name, Attempt: c.Attempt, Type: string(outcome)}
	}
	for _, f := range change {
		f(completion)
	}
	return completion
}

func events(payloads ...string) func(*storage.Completion) {
	return func(c *storage.Completion) {
		for _, p := range payloads {
			c.Events = append(c.Events, storage.NewEvent{Payload: []byte(p)})
		}
	}
}

// timer sets the default timer.
func timer(after time.Duration) func(*storage.Completion) {
	return func(c *storage.Completion) { c.Timer = &storage.SetTimer{After: after} }
}

// named sets timers by name, all due after the same time.
func named(after time.Duration, names ...string) func(*storage.Completion) {
	return func(c *storage.Completion) {
		for _, n := range names {
			c.NamedTimers = append(c.NamedTimers, storage.SetTimer{Name: n, After: after})
		}
	}
}

func withoutPromote(c *storage.Completion) { c.Promote = false }

func broken(detail string) func(*storage.Completion) {
	return func(c *storage.Completion) { c.Detail, c.Failure = detail, []byte(`{"reason":"`+detail+`"}`) }
}

// must fails the test on an error.
func must[T any](t testing.TB, value T, err error) T {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
	return value
}

func (b *bench) save(c *storage.Completion) storage.Saved {
	b.t.Helper()
	saved, err := b.SaveResult(c)
	return must(b.t, saved, err)
}

func (b *bench) call(id string, change ...func(*storage.Call)) storage.Prepared {
	b.t.Helper()
	p, err := b.PrepareCall(call(id, change...))
	return must(b.t, p, err)
}

// claim makes a call that must run at once.
func (b *bench) claim(id string, change ...func(*storage.Call)) *storage.Claim {
	b.t.Helper()
	p := b.call(id, change...)
	if p.Claim == nil {
		b.t.Fatalf("the call is %s, not captured", p.Outcome)
	}
	return p.Claim
}

// start creates a process whose INIT runs.
func (b *bench) start(id string, change ...func(*storage.Init)) *storage.Claim {
	b.t.Helper()
	p, err := b.PrepareInit(newInit(id, change...))
	if must(b.t, p, err).Claim == nil {
		b.t.Fatalf("the start is %s, not captured", p.Outcome)
	}
	return p.Claim
}

// process creates a RUNNING and idle process. change applies to the result of its INIT.
func (b *bench) process(id string, change ...func(*storage.Completion)) {
	b.t.Helper()
	b.save(end(b.start(id), storage.Finished, change...))
}

// breakProcess creates a process that a call has set to ERROR. change applies to the result of its
// INIT.
func (b *bench) breakProcess(id string, change ...func(*storage.Completion)) *storage.Claim {
	b.t.Helper()
	b.process(id, change...)
	c := b.claim(id)
	b.save(end(c, storage.Failed, broken("out of stock")))
	return c
}

// room returns limits with room for n tasks of the namespace.
func room(n int) []storage.ClaimLimit {
	return []storage.ClaimLimit{{Namespace: ns, Max: n, StepTimeout: timeout}}
}

func (b *bench) searchCalls(n int) []storage.Claim {
	b.t.Helper()
	claims, err := b.SearchCalls(b.t.Context(), room(n))
	return must(b.t, claims, err)
}

func (b *bench) searchTimers(n int) []storage.Claim {
	b.t.Helper()
	claims, _, err := b.SearchTimers(b.t.Context(), room(n))
	return must(b.t, claims, err)
}

func (b *bench) exec(sql string, args ...any) {
	b.t.Helper()
	if _, err := b.db.Exec(b.t.Context(), sql, args...); err != nil {
		b.t.Fatal(err)
	}
}

// due changes all tasks of a process that wait for a time, so that they have been due for an hour.
func (b *bench) due(id string) {
	b.t.Helper()
	b.exec(`UPDATE schedule SET scheduled_time = statement_timestamp() - interval '1 hour'
		WHERE process_id = $1 AND waits_for = 'time'`, id)
}

// ask returns the value of a query.
func ask[T any](b *bench, sql string, args ...any) T {
	b.t.Helper()
	rows, err := b.db.Query(b.t.Context(), sql, args...)
	value, err := pgx.CollectExactlyOneRow(must(b.t, rows, err), pgx.RowTo[T])
	return must(b.t, value, err)
}

// state returns a process and its tasks in a line, in the order of their IDs. Running and waiting
// tasks have the number of their attempts, and ended tasks have their status.
func (b *bench) state(id string) string {
	b.t.Helper()
	return ask[string](b, `SELECT coalesce((SELECT p.status || ' e' || p.last_event_id FROM processes p
		 WHERE p.namespace = 'shop' AND p.process_id = $1 AND p.removed_time IS NULL), 'none')
		|| coalesce(': ' || (SELECT string_agg(x.what, ', ' ORDER BY x.task_id) FROM (
			SELECT task_id, task_type || coalesce(' ' || NULLIF(timer_name, ''), '') || ' runs#' || attempt AS what
			  FROM running WHERE namespace = 'shop' AND process_id = $1
			UNION ALL
			SELECT task_id, task_type || coalesce(' ' || NULLIF(timer_name, ''), '') || ' waits for ' ||
			       waits_for || '#' || attempt
			  FROM schedule WHERE namespace = 'shop' AND process_id = $1
			UNION ALL
			SELECT task_id, task_type || coalesce(' ' || NULLIF(timer_name, ''), '') || ' ' || status ||
			       CASE WHEN cancelled_by IS NOT NULL THEN '!' ELSE '' END
			  FROM tasks WHERE namespace = 'shop' AND process_id = $1
		) x), '')`, id)
}

// is compares the state of a process.
func (b *bench) is(id, want string) {
	b.t.Helper()
	if got := b.state(id); got != want {
		b.t.Errorf("process %s\n is   %s\n want %s", id, got, want)
	}
}

// equal compares two values by their text.
func equal(t testing.TB, what string, got, want any) {
	t.Helper()
	if g, w := fmt.Sprintf("%v", got), fmt.Sprintf("%v", want); g != w {
		t.Errorf("%s: got %s, want %s", what, g, w)
	}
}

func ids(claims []storage.Claim) []string {
	var list []string
	for _, c := range claims {
		list = append(list, c.ProcessID)
	}
	return list
}

func sorted(list []string) []string {
	slices.Sort(list)
	return list
}

// all runs f for 0…n-1 concurrently and waits.
func all(n int, f func(i int)) {
	done := make(chan struct{})
	for i := range n {
		go func() {
			f(i)
			done <- struct{}{}
		}()
	}
	for range n {
		<-done
	}
}

package jobs_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"google.golang.org/protobuf/types/known/durationpb"
	"google.golang.org/protobuf/types/known/fieldmaskpb"
	"google.golang.org/protobuf/types/known/structpb"
	"google.golang.org/protobuf/types/known/timestamppb"

	"github.com/progressor-engine/progressor/engine"
	"github.com/progressor-engine/progressor/engine/enginetest"
	"github.com/progressor-engine/progressor/process"
	progressorv1 "github.com/progressor-engine/progressor/proto/progressor/v1"
	"github.com/progressor-engine/progressor/storage/storagetest"
)

// history returns the events of a job, oldest first, one per line.
func (n *node) history(t testing.TB, namespace, id string) string {
	t.Helper()
	list, next, err := n.ListEvents(context.Background(), &progressorv1.ListJobEventsRequest{
		Namespace: namespace, Filter: fmt.Sprintf("job_id = %q", id),
	})
	if err != nil || next != "" {
		t.Fatal(next, err)
	}
	lines := make([]string, len(list))
	for k, e := range list {
		words := []string{
			e.GetType(), e.GetFrom() + ">" + e.GetTo(), fmt.Sprint(e.GetAttempt()), e.GetWorkerId(), e.GetActor(),
			e.GetMessage(),
		}
		if e.GetMetadata() != nil {
			words = append(words, fmt.Sprint(e.GetMetadata().AsMap()))
		}
		lines[len(list)-1-k] = strings.Join(slices.DeleteFunc(words, func(w string) bool {
			return w == "" || w == "0" || w == ">"
		}), " ")
	}
	return strings.Join(lines, "\n")
}

var (
	kim  = process.Actor{Name: "kim"}
	soon = &progressorv1.Backoff{Steps: []*durationpb.Duration{durationpb.New(time.Millisecond)}}
)

// Everything that happens to a job is recorded as one event, with the actor and the worker.
func TestJobEvents(t *testing.T) {
	t.Parallel()
	n := start(t, storagetest.DSN(t), scripted())
	ctx := t.Context()
	for _, c := range []struct {
		name    string
		options *progressorv1.JobOptions
		run     func(t *testing.T, id string)
		want    []string
	}{
		{"succeeds", nil, func(t *testing.T, _ string) {
			must(t, n.succeed(n.leaseOne(t, "w"), structpb.NewStringValue("x")))
		}, []string{
			"enqueued >available", "started available>running 1 w", "succeeded running>succeeded 1 w",
		}},
		{"fails", &progressorv1.JobOptions{MaxRetry: 1, Backoff: soon}, func(t *testing.T, _ string) {
			must(t, n.fail(n.leaseOne(t, "w"), "no"))
			must(t, n.fail(n.leaseOne(t, "w2"), "no"))
		}, []string{
			"enqueued >available", "started available>running 1 w", "attempt_failed running>retryable 1 w no: as asked",
			"due retryable>available",
			"started available>running 2 w2", "attempt_failed running>failed 2 w2 no: as asked",
		}},
		{"is released", nil, func(t *testing.T, _ string) {
			l := n.leaseOne(t, "w")
			must(t, n.ReleaseLeases(ctx, []string{l.GetLeaseToken()}, 0))
			must(t, n.succeed(n.leaseOne(t, "w2"), nil))
		}, []string{
			"enqueued >available", "started available>running 1 w", "released running>available 1 w",
			"started available>running 1 w2", "succeeded running>succeeded 1 w2",
		}},
		{"takes too long", &progressorv1.JobOptions{Timeout: durationpb.New(time.Second)},
			func(t *testing.T, id string) {
				n.beat(t, "w", n.leaseOne(t, "w"))
				n.job(t, "pull", id, failed)
			}, []string{
				"enqueued >available", "started available>running 1 w",
				"timeout running>failed 1 w timeout: the attempt exceeded the step timeout",
			}},
		{"loses its worker", &progressorv1.JobOptions{LeaseDuration: durationpb.New(time.Second)},
			func(t *testing.T, _ string) {
				n.beat(t, "w", n.leaseOne(t, "w"))
				must(t, n.succeed(n.leaseOne(t, "w2"), nil))
			}, []string{
				"enqueued >available", "started available>running 1 w",
				"lease_lost running>available 1 w lease_lost: worker w sent no heartbeat for too long",
				"started available>running 2 w2", "succeeded running>succeeded 2 w2",
			}},
		{"is cancelled while it waits", &progressorv1.JobOptions{RunTime: timestamppb.New(time.Now().Add(time.Hour))},
			func(t *testing.T, id string) {
				_, err := n.Cancel(ctx, key("pull", id), "enough", kim)
				must(t, err)
				_, err = n.Retry(ctx, key("pull", id), false, kim)
				must(t, err)
				must(t, n.succeed(n.leaseOne(t, "w"), nil))
			}, []string{
				"enqueued >scheduled", "cancelled scheduled>cancelled kim enough", "retried cancelled>available kim",
				"started available>running 1 w", "succeeded running>succeeded 1 w",
			}},
		{"is cancelled while it runs", nil, func(t *testing.T, id string) {
			l := n.leaseOne(t, "w")
			_, err := n.Cancel(ctx, key("pull", id), "enough", kim)
			must(t, err)
			message := "I have stopped"
			must(t, n.CompleteLease(ctx, l.GetLeaseToken(), engine.LeaseAnswer{Acknowledged: &message}))
		}, []string{
			"enqueued >available", "started available>running 1 w",
			"cancel_requested running>cancel_requested 1 kim enough",
			"cancel_acknowledged cancel_requested>cancelled 1 w cancelled: I have stopped",
		}},
		{"fails after its cancel", &progressorv1.JobOptions{MaxRetry: 1}, func(t *testing.T, id string) {
			l := n.leaseOne(t, "w")
			_, err := n.Cancel(ctx, key("pull", id), "", kim)
			must(t, err)
			must(t, n.fail(l, "no"))
		}, []string{
			"enqueued >available", "started available>running 1 w", "cancel_requested running>cancel_requested 1 kim",
			"attempt_failed 1 w no: as asked", "cancelled cancel_requested>cancelled",
		}},
		{"does not heed its cancel", &progressorv1.JobOptions{CancelGrace: durationpb.New(time.Millisecond)},
			func(t *testing.T, id string) {
				n.leaseOne(t, "w")
				_, err := n.Cancel(ctx, key("pull", id), "", kim)
				must(t, err)
				n.job(t, "pull", id, cancelled)
			}, []string{
				"enqueued >available", "started available>running 1 w",
				"cancel_requested running>cancel_requested 1 kim", "cancel_grace_expired cancel_requested>cancelled 1",
			}},
		{"is changed and held", &progressorv1.JobOptions{RunTime: timestamppb.New(time.Now().Add(time.Hour))},
			func(t *testing.T, id string) {
				_, err := n.SuspendProcess(ctx, key("pull", id), "wait", kim)
				must(t, err)
				_, err = n.ResumeProcess(ctx, key("pull", id), kim)
				must(t, err)
				for _, paths := range [][]string{{"tags", "priority"}, {"run_time"}} {
					_, err := n.Update(ctx, &progressorv1.UpdateJobRequest{
						Namespace: "pull", JobId: id, Options: &progressorv1.JobOptions{},
						UpdateMask: &fieldmaskpb.FieldMask{Paths: paths},
					}, kim)
					must(t, err)
				}
				_, err = n.SuspendProcess(ctx, key("pull", id), "", kim)
				must(t, err)
				must(t, n.RemoveProcess(ctx, key("pull", id), kim))
			}, []string{
				"enqueued >scheduled", "suspended scheduled>available kim wait", "resumed available>scheduled kim",
				"updated kim map[options:[priority tags]]",
				"updated scheduled>available kim map[options:[run_time]]", "suspended kim", "removed available> kim",
			}},
	} {
		t.Run(c.name, func(t *testing.T) {
			n.enqueue(t, "pull", c.name, c.options)
			c.run(t, c.name)
			if got, want := n.history(t, "pull", c.name), strings.Join(c.want, "\n"); got != want {
				t.Errorf("got\n%s\nwant\n%s", got, want)
			}
		})
	}
}

// Jobs from SQL, jobs of an engine processor, and cancels by message also cause events, but only
// events that the namespace keeps are stored.
func TestKeptJobEvents(t *testing.T) {
	t.Parallel()
	n := start(t, storagetest.DSN(t), scripted())
	sql := func(text string, args ...any) {
		t.Helper()
		_, err := n.DB.Exec(t.Context(), text, args...)
		must(t, err)
	}
	sql("SELECT progressor.enqueue('ns', 'work', job_id => 'sql', args => '\"x\"')")
	enginetest.Eventually(t, testTimeout, "the message is delivered", func() bool {
		return n.Count(t, "SELECT count(*) FROM processes WHERE process_id = 'sql'") == 1
	})
	n.job(t, "ns", "sql", succeeded)
	if got := n.history(t, "ns", "sql"); got != "enqueued >available from SQL\nstarted available>running 1\nsucceeded "+
		"running>succeeded 1" {
		t.Error(got)
	}
	n.enqueue(t, "pull", "message", nil)
	sql("SELECT progressor.cancel('pull', 'message', 'by SQL')")
	n.job(t, "pull", "message", cancelled)
	if got := n.history(t, "pull", "message"); got != "enqueued >available\ncancelled available>cancelled by SQL" {
		t.Error(got)
	}
	for _, c := range []struct {
		keeps progressorv1.JobEvents
		want  string
	}{
		{progressorv1.JobEvents_JOB_EVENTS_ENDS, "attempt_failed running>failed 2 w no: as asked"},
		{progressorv1.JobEvents_JOB_EVENTS_NONE, ""},
	} {
		n.Put(t, pullNamespace(func(ns *progressorv1.Namespace) { ns.JobEvents = c.keeps }))
		id := c.keeps.String()
		n.enqueue(t, "pull", id, &progressorv1.JobOptions{MaxRetry: 1, Backoff: soon})
		must(t, n.fail(n.leaseOne(t, "w"), "no"))
		must(t, n.fail(n.leaseOne(t, "w"), "no"))
		if got := n.history(t, "pull", id); got != c.want {
			t.Errorf("%s: %s", id, got)
		}
	}
}

// watched contains the events that a watch has returned.
type watched struct {
	mu     sync.Mutex
	ids    []int64
	cursor string
}

func (w *watched) from(ctx context.Context, n *node, filter string, pause time.Duration) error {
	w.mu.Lock()
	cursor := w.cursor
	w.mu.Unlock()
	return n.WatchEvents(ctx, &progressorv1.WatchJobEventsRequest{Namespace: "pull", Filter: filter, Cursor: cursor},
		func(r *progressorv1.WatchJobEventsResponse) error {
			w.mu.Lock()
			defer w.mu.Unlock()
			if w.cursor = r.GetCursor(); r.GetEvent() != nil {
				w.ids = append(w.ids, r.GetEvent().GetEventId())
				if pause > 0 && len(w.ids)%50 == 0 {
					return context.Canceled // the client disconnects and reconnects
				}
			}
			return nil
		})
}

func (w *watched) count() int {
	w.mu.Lock()
	defer w.mu.Unlock()
	return len(w.ids)
}

// A watch returns every event once, and the events of a job in order, while two nodes write them.
// This is true whether the client stays connected, reconnects to other nodes, or begins with the
// history. A watch with a filter returns the matching events.
func TestWatchJobEvents(t *testing.T) {
	t.Parallel()
	dsn := storagetest.DSN(t)
	nodes := []*node{start(t, dsn, scripted()), start(t, dsn, scripted())}
	ctx, stop := context.WithCancel(t.Context())
	defer stop()
	nodes[0].enqueue(t, "pull", "before", nil)
	openTransaction(t, nodes[0])
	history, open := &watched{cursor: "0.0"}, &watched{}
	reconnecting, some := &watched{cursor: "0.0"}, &watched{cursor: "0.0"}
	var watches, work sync.WaitGroup
	watches.Go(func() { _ = history.from(ctx, nodes[0], "", 0) })
	watches.Go(func() { _ = open.from(ctx, nodes[1], "", 0) })
	watches.Go(func() { _ = some.from(ctx, nodes[1], "type = started", 0) })
	watches.Go(func() {
		for k := 0; ctx.Err() == nil; k++ {
			_ = reconnecting.from(ctx, nodes[k%2], "", time.Millisecond)
		}
	})
	enginetest.Eventually(t, testTimeout, "the open watch has begun", func() bool {
		open.mu.Lock()
		defer open.mu.Unlock()
		return open.cursor != "" && history.count() > 0
	})
	const jobs = 200
	for k := range 4 {
		n := nodes[k%2]
		work.Go(func() {
			for j := range jobs / 4 {
				n.enqueue(t, "pull", fmt.Sprintf("j%d-%d", k, j), nil)
				for _, l := range n.leaseAll(t, fmt.Sprint("w", k)) {
					_ = n.succeed(l, nil)
				}
			}
		})
	}
	work.Wait()
	for _, l := range nodes[0].leaseAll(t, "w") {
		must(t, nodes[0].succeed(l, nil))
	}
	all := enginetest.Count(t, nodes[0].DB, "SELECT count(*) FROM job_events")
	if all != 3*(jobs+1) {
		t.Errorf("%d events are written, want %d", all, 3*(jobs+1))
	}
	for name, w := range map[string]*watched{"with the history": history, "that reconnects": reconnecting} {
		enginetest.Eventually(t, testTimeout, "the watch "+name+" returns all", func() bool { return w.count() >= all })
	}
	enginetest.Eventually(t, testTimeout, "the open watch has returned all newer events", func() bool {
		return open.count() >= all-1
	})
	enginetest.Eventually(t, testTimeout, "the watch with a filter has returned its events", func() bool {
		return some.count() >= jobs+1
	})
	stop()
	watches.Wait()
	for name, c := range map[string]struct {
		w    *watched
		want int
	}{"history": {history, all}, "open": {open, all - 1}, "reconnecting": {reconnecting, all},
		"some": {some, jobs + 1}} {
		seen := map[int64]bool{}
		for _, id := range c.w.ids {
			seen[id] = true
		}
		if len(c.w.ids) != c.want || len(seen) != c.want {
			t.Errorf("%s: %d events, %d of them different, want %d", name, len(c.w.ids), len(seen), c.want)
		}
		if disorder := enginetest.Count(t, nodes[0].DB, `SELECT count(*) FROM (
			SELECT e.event_id < lag(e.event_id) OVER (PARTITION BY e.job_id ORDER BY w.n) AS wrong
			FROM unnest($1::bigint[]) WITH ORDINALITY w(id, n)
			  JOIN job_events e ON e.event_id = w.id) x WHERE wrong`, c.w.ids); disorder > 0 {
			t.Errorf("%s: %d events come before an earlier one of their job", name, disorder)
		}
	}
	for _, r := range []*progressorv1.WatchJobEventsRequest{
		{Namespace: "pull", Cursor: "x"}, {Namespace: "pull", Filter: "x"}, {Namespace: "none"},
	} {
		if err := nodes[0].WatchEvents(t.Context(), r, nil); err == nil {
			t.Errorf("%v is taken", r)
		}
	}
}

// openTransaction begins a transaction that writes a row and stays open until the test ends.
func openTransaction(t *testing.T, n *node) {
	t.Helper()
	tx, err := n.DB.Begin(t.Context())
	must(t, err)
	t.Cleanup(func() { _ = tx.Rollback(context.Background()) })
	_, err = tx.Exec(t.Context(), "CREATE TEMP TABLE report AS SELECT 1 AS n")
	must(t, err)
}

// A long transaction of an application does not delay a watch. A watch whose events were deleted
// ends with the cursor at which it can continue.
func TestWatchDuringALongTransaction(t *testing.T) {
	t.Parallel()
	n := start(t, storagetest.DSN(t), scripted())
	openTransaction(t, n)
	all, ctx := &watched{cursor: "0.0"}, t.Context()
	ended := make(chan error, 1)
	go func() { ended <- all.from(ctx, n, "", 0) }()
	n.enqueue(t, "pull", "first", nil)
	enginetest.Eventually(t, testTimeout, "the event is sent", func() bool { return all.count() == 1 })
	storagetest.Exec(t, n.DB, `INSERT INTO job_event_drops (namespace, lane, event_id)
		SELECT namespace, lane, event_id + 1 FROM job_events`)
	var lost *process.CursorError
	if err := <-ended; !errors.As(err, &lost) {
		t.Fatal(err)
	}
	storagetest.Exec(t, n.DB, "DELETE FROM job_event_drops")
	all.cursor = lost.Oldest
	go func() { ended <- all.from(ctx, n, "", 0) }()
	n.enqueue(t, "pull", "second", nil)
	enginetest.Eventually(t, testTimeout, "the next event is sent", func() bool { return all.count() == 2 })
}

// The counts match the jobs, by name. The age of the oldest job that could run is known, even if it
// waits for a constraint. Names without jobs are deleted.
func TestQueueStats(t *testing.T) {
	t.Parallel()
	n := start(t, storagetest.DSN(t), scripted())
	n.limit(t, &progressorv1.Constraint{Name: "one", Match: `job.name == "limited"`, MaxRunning: 1})
	for k, name := range []string{"mail", "mail", "mail", "limited", "limited"} {
		_, err := n.Enqueue(t.Context(), &progressorv1.EnqueueRequest{
			Namespace: "pull", JobId: fmt.Sprint("j", k), Name: name,
		})
		must(t, err)
	}
	n.enqueue(t, "pull", "later", &progressorv1.JobOptions{RunTime: timestamppb.New(time.Now().Add(time.Hour))})
	n.placed(t, "pull", 4)
	leases := n.poll(t, "w", 4)
	for _, l := range leases {
		switch l.GetRequest().GetProcess().GetProcessId() {
		case "j0":
			must(t, n.succeed(l, nil))
		case "j1":
			must(t, n.fail(l, "no"))
		case "j2":
			_, err := n.Cancel(t.Context(), key("pull", "j2"), "", kim)
			must(t, err)
		}
	}
	show := func() string {
		stats, err := n.Stats(t.Context(), "pull")
		must(t, err)
		var lines []string
		for _, s := range append(stats.GetNames(), &progressorv1.JobNameStats{
			Name: "all", CountByState: stats.GetCountByState(),
		}) {
			line := s.GetName()
			for state, count := range s.GetCountByState() {
				if count != 0 {
					line += fmt.Sprintf(" %s:%d", state, count)
				}
			}
			words := strings.Fields(line)
			slices.Sort(words[1:])
			lines = append(lines, strings.Join(words, " "))
		}
		return fmt.Sprintf("%s; oldest %t", strings.Join(lines, ", "), stats.GetOldestAvailableAge() != nil)
	}
	if got := show(); got != "limited available:1 running:1, mail cancel_requested:1 failed:1 succeeded:1, work "+
		"scheduled:1, all available:1 cancel_requested:1 failed:1 running:1 scheduled:1 succeeded:1; oldest true" {
		t.Error(got)
	}
	for _, id := range []string{"j0", "j1", "j2", "j3", "j4", "later"} {
		must(t, n.RemoveProcess(t.Context(), key("pull", id), kim))
	}
	if got := show(); got != "all; oldest false" {
		t.Error(got)
	}
	forget := n.Jobs.Kind().Forget
	_, err := forget(t.Context())
	must(t, err)
	if rows := n.Count(t, "SELECT count(*) FROM job_counts"); rows != 0 {
		t.Errorf("%d counters are 0", rows)
	}
	if _, err := n.Stats(t.Context(), "none"); err == nil {
		t.Error("there is no such namespace")
	}
}

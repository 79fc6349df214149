package engine_test

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/progressor-engine/progressor/engine"
	"github.com/progressor-engine/progressor/processor"
	progressorv1 "github.com/progressor-engine/progressor/proto/progressor/v1"
	"github.com/progressor-engine/progressor/storage"
	"github.com/progressor-engine/progressor/storage/storagetest"
)

// At least one timer fires in each of 1,000 namespaces, although 300 timers are due in each.
func TestTimersFireInManyNamespaces(t *testing.T) {
	t.Parallel()
	const namespaces = 1000
	var mu sync.Mutex
	fired := map[string]bool{}
	dsn := storagetest.DSN(t)
	start(t, dsn, byTask{timeoutTask: func(
		ctx context.Context, r *progressorv1.ProcessRequest,
	) (*progressorv1.ProcessResponse, error) {
		mu.Lock()
		fired[r.GetProcess().GetNamespace()] = true
		mu.Unlock()
		return processor.Echo().Process(ctx, r)
	}})
	d := openDB(t, dsn)
	for _, sql := range []string{
		`INSERT INTO processes (namespace, process_id, status, previous_status)
		 SELECT 'many' || s, 'p' || p, 'RUNNING', 'INIT' FROM generate_series(1, $1::int) s, generate_series(1, 300) p`,
		`INSERT INTO schedule (namespace, process_id, task_id, task_type, waits_for, scheduled_time, timer_name)
		 SELECT 'many' || s, 'p' || p, nextval('task_ids'), 'TIMEOUT', 'time', now(), ''
		   FROM generate_series(1, $1::int) s, generate_series(1, 300) p`,
		`INSERT INTO namespaces (namespace, config)
		 SELECT 'many' || s, config FROM namespaces, generate_series(1, $1::int) s WHERE namespace = 'ns'`,
	} {
		storagetest.Exec(t, d, sql, namespaces)
	}
	storagetest.Recount(t, d)
	eventually(t, "a timer fires in every namespace", func() bool {
		mu.Lock()
		defer mu.Unlock()
		return len(fired) == namespaces
	})
}

// The 20 timers of a namespace without a backlog fire before 10,000 of the 30,000 timers that are
// due in 1,000 other namespaces have fired.
func TestFewTimersFireAlongsideBacklogs(t *testing.T) {
	t.Parallel()
	const few, namespaces, backlog = 20, 1000, 30
	var quick, others atomic.Int64
	dsn := storagetest.DSN(t)
	start(t, dsn, byTask{timeoutTask: func(
		ctx context.Context, r *progressorv1.ProcessRequest,
	) (*progressorv1.ProcessResponse, error) {
		if r.GetProcess().GetNamespace() == "ns" {
			quick.Add(1)
		} else {
			others.Add(1)
		}
		return processor.Echo().Process(ctx, r)
	}})
	d := openDB(t, dsn)
	d.idle(t, "first-", 1)
	d.waiting(t, "first-", "TIMEOUT", "time", "")
	eventually(t, "the first timer fires", func() bool { return quick.Load() == 1 })
	d.idle(t, "few-", few)
	for _, sql := range []string{
		`INSERT INTO processes (namespace, process_id, status, previous_status)
		 SELECT 'many' || s, 'few-' || p, 'RUNNING', 'INIT'
		 FROM generate_series(1, $1::int) s, generate_series(1, $2::int) p`,
		`INSERT INTO namespaces (namespace, config)
		 SELECT 'many' || s, config FROM namespaces, generate_series(1, $1::int) s WHERE namespace = 'ns'
		   AND $2::int > 0`,
	} {
		storagetest.Exec(t, d, sql, namespaces, backlog)
	}
	storagetest.Recount(t, d)
	d.waiting(t, "few-", "TIMEOUT", "time", "") // all at once
	eventually(t, "the few timers fire", func() bool { return quick.Load() == 1+few })
	if n := others.Load(); n > few/2*namespaces {
		t.Errorf("%d timers of other namespaces fired before the last of %d", n, few)
	}
}

// The result of a task that a scan has claimed counts as a result of a backlog until it is stored.
// The result of a new request does not.
func TestBacklogResultsAreCounted(t *testing.T) {
	t.Parallel()
	var node atomic.Pointer[node]
	counted := make(chan string, 10)
	kind := engine.Kind{Name: "own", Processor: byTask{
		initTask:    answers(processor.Result().SetTimerAfter(time.Millisecond)),
		timeoutTask: answers(processor.Result().Complete()),
	}, Stored: func(c *storage.Claim, _ *storage.Completion, _ time.Time) {
		counted <- fmt.Sprint(c.TaskType, " ", node.Load().BacklogResults())
	}}
	n := startKinds(t, storagetest.DSN(t), processor.Echo(), []engine.Kind{kind})
	node.Store(n)
	n.startedOwn(t, "~own/p")
	for _, want := range []string{"INIT 0", "TIMEOUT 1"} {
		if got := receive(t, "a stored result", counted); got != want {
			t.Errorf("counted %s, want %s", got, want)
		}
	}
	eventually(t, "no result waits", func() bool { return n.BacklogResults() == 0 })
}

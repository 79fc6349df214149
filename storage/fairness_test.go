package storage_test

import (
	"testing"
	"time"

	"github.com/progressor-engine/progressor/storage"
	"github.com/progressor-engine/progressor/storage/jobs"
)

// sortsUnderLocks reports whether a plan sorts rows before it locks the first ones. Such a plan
// reads the whole backlog.
func (n planNode) sortsUnderLocks(locks bool) bool {
	locks = locks || n.Type == "LockRows"
	if locks && (n.Type == "Sort" || n.Type == "Incremental Sort") {
		return true
	}
	for _, child := range n.Plans {
		if child.sortsUnderLocks(locks) {
			return true
		}
	}
	return false
}

// fairBacklog stores 20,000 waiting jobs of 100 fairness keys, 200 of each.
func (b *bench) fairBacklog() {
	b.exec(`INSERT INTO processes (namespace, process_id, status, kind) SELECT 'shop', 'p' || n, 'INIT', 'job'
		FROM generate_series(0, 19999) n`)
	b.exec(`INSERT INTO jobs (namespace, process_id, name, timeout, fairness_key)
		SELECT 'shop', 'p' || n, 'work', '1 s', 'k' || n % 100 FROM generate_series(0, 19999) n`)
	b.exec(`INSERT INTO schedule (namespace, process_id, task_id, task_type, waits_for, scheduled_time, job_name,
		fairness_key, round)
		SELECT 'shop', 'p' || n, nextval('task_ids'), 'INIT', 'place', now(), 'work', 'k' || n % 100, n / 100 + 1
		FROM generate_series(0, 19999) n`)
	b.recount()
}

// Statements that claim jobs find the next jobs in the order of their rounds without sorting all
// waiting jobs. The round of a new job is found with at most 30 pages, although 20,000 jobs wait.
func TestRoundsAreFoundByIndexes(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	conn := b.connect(storage.HotConfig)
	look := func(when string) {
		t.Helper()
		for _, name := range []string{"Poll", "SearchCalls", "TakeLines"} {
			if explain(t, conn, hotStatements()[name]).sortsUnderLocks(false) {
				t.Errorf("%s, %s: it sorts all waiting jobs", name, when)
			}
		}
	}
	look("empty")
	b.fairBacklog()
	look("full")
	b.exec("ANALYZE schedule")
	look("analyzed")
	for key, want := range map[string]int64{"k7": 201, "new": 1} {
		var round int64
		const call = "SELECT next_round('shop', 'place', 'work', NULL, 0, $1)"
		if err := conn.QueryRow(t.Context(), call, key).Scan(&round); err != nil || round != want {
			t.Errorf("%s: round %d, %v, want %d", key, round, err, want)
		}
		if pages := buffersOf(t, conn, call, key); pages == 0 || pages > 30 {
			t.Errorf("%s: %d pages were read, want 1 to 30", key, pages)
		}
	}
}

// The jobs of one key in a batch get consecutive rounds, even though one statement stores them. The
// first waiting job of a key joins the first round of its job name. If no job of that name waits,
// it joins the first round of all jobs.
func TestRoundsOfABatch(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	job := func(id, name, fairnessKey string) *jobs.NewJob {
		return &jobs.NewJob{Key: key(id), Name: name, Timeout: time.Second, FairnessKey: &fairnessKey}
	}
	batch := []*jobs.NewJob{job("s1", "slow", "s")} // no worker takes it
	for _, id := range []string{"a1", "a2", "a3", "b1", "a4", "b2"} {
		batch = append(batch, job(id, "work", id[:1]))
	}
	_, err := jobs.EnqueueBatch(t.Context(), b.Store, batch)
	must(t, 0, err)
	b.exec("DELETE FROM schedule WHERE process_id IN ('a1', 'a2', 'b1', 'b2')") // round 3 of work is the first one
	for _, j := range []*jobs.NewJob{
		job("b3", "work", "b"), job("b4", "work", "b"), job("c1", "other", "c"), job("a5", "other", "a"),
	} {
		_, err := jobs.Enqueue(b.Store, j)
		must(t, 0, err)
	}
	equal(t, "rounds", ask[map[string]int64](b, "SELECT jsonb_object_agg(process_id, round) FROM schedule"),
		map[string]int64{"s1": 1, "a3": 3, "a4": 4, "b3": 3, "b4": 4, "c1": 1, "a5": 1})
	b.exec("DELETE FROM processes")
	b.exec("DELETE FROM jobs")
	b.exec("DELETE FROM schedule")
	b.exec("DELETE FROM job_events")
	b.recount()
}

package storage_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/progressor-engine/progressor/storage"
)

// backlog stores processes of a namespace, each with a waiting task of 1 MiB.
func (b *bench) backlog(namespace string, processes int, taskType, waitsFor string) {
	b.exec(`INSERT INTO processes (namespace, process_id, status, previous_status)
		SELECT $1, 'p' || n, 'RUNNING', 'INIT' FROM generate_series(1, $2::int) n`, namespace, processes)
	b.exec(`INSERT INTO schedule (namespace, process_id, task_id, task_type, waits_for, scheduled_time, timer_name,
		args)
		SELECT $1, 'p' || n, nextval('task_ids'), $3::text::task_type, $4::text::waits_for, now() - interval '1 minute',
		       CASE $3::text WHEN 'TIMEOUT' THEN '' END, convert_to(repeat('x', 1048576), 'UTF8')
		  FROM generate_series(1, $2::int) n`, namespace, processes, taskType, waitsFor)
}

// One scan claims about 2 MiB in all namespaces together, and the next scan continues.
func TestScansAreBoundedInBytes(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	rooms := []storage.ClaimLimit{
		{Namespace: "a", Max: 6, StepTimeout: timeout}, {Namespace: "b", Max: 200, StepTimeout: timeout},
	}
	for _, namespace := range []string{"a", "b"} {
		b.backlog(namespace, 20, "CALL", "place")
	}
	for range 2 {
		claims, err := b.SearchCalls(t.Context(), rooms)
		equal(t, "calls", []any{len(must(t, claims, err)), storage.ScanIsTruncated(claims)}, "[2 true]")
	}
	for _, namespace := range []string{"c", "d"} {
		b.backlog(namespace, 20, "TIMEOUT", "time")
	}
	rooms[0].Namespace, rooms[1].Namespace = "c", "d"
	for range 2 {
		claims, _, err := b.SearchTimers(t.Context(), rooms)
		equal(t, "timers", []any{len(must(t, claims, err)), storage.ScanIsTruncated(claims)}, "[2 true]")
	}
	b.recount()
}

// NamespacesWaiting returns the namespaces with tasks that wait for a slot. NextTimers returns the
// namespaces whose next timer is due within an interval.
func TestNamespacesDue(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	waiting, err := b.NamespacesWaiting(t.Context())
	equal(t, "nothing waits", len(must(t, waiting, err)), 0)
	for _, namespace := range []string{"a", "b.c", "b/d"} {
		b.backlog(namespace, 2, "CALL", "place")
		b.backlog("t"+namespace, 2, "TIMEOUT", "time")
	}
	b.exec("UPDATE schedule SET scheduled_time = now() + interval '1 hour' WHERE namespace = 'ta'")
	waiting, err = b.NamespacesWaiting(t.Context())
	equal(t, "waiting", must(t, waiting, err), "[{a false} {b.c false} {b/d false}]")
	next, err := b.NextTimers(t.Context(), time.Minute)
	equal(t, "due within a minute", fmt.Sprint(must(t, next, err)), "map[tb.c:0s tb/d:0s]")
	next, err = b.NextTimers(t.Context(), 2*time.Hour)
	equal(t, "namespaces with timers", len(must(t, next, err)), 3)
	equal(t, "due", []any{next["tb.c"], next["tb/d"], next["ta"] > 59*time.Minute}, "[0s 0s true]")
	b.recount()
}

// timers stores n timers in each of several namespaces.
func (b *bench) timers(prefix string, namespaces, n int, after time.Duration) {
	b.exec(`INSERT INTO processes (namespace, process_id, status, previous_status)
		SELECT $1 || m, 'p', 'RUNNING', 'INIT' FROM generate_series(1, $2::int) m`, prefix, namespaces)
	b.exec(`INSERT INTO schedule (namespace, process_id, task_id, task_type, waits_for, scheduled_time, timer_name)
		SELECT $1 || m, 'p', nextval('task_ids'), 'TIMEOUT', 'time', now() + $4 * interval '1 second', n::text
		  FROM generate_series(1, $2::int) m, generate_series(1, $3::int) n`, prefix, namespaces, n, after.Seconds())
}

// The next timers of other namespaces are found, regardless of the number of due tasks in one
// namespace.
func TestNextTimersOfAllNamespaces(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	b.timers("busy", 1, 1500, -time.Minute)
	b.timers("other", 3, 1, -time.Second)
	next, err := b.NextTimers(t.Context(), time.Minute)
	equal(t, "due", fmt.Sprint(must(t, next, err)), "map[busy1:0s other1:0s other2:0s other3:0s]")
	b.recount()
}

// A query for timers costs the same for 10 and for 1,000 namespaces that have only later timers.
func TestIdleNamespacesCostNoTime(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	conn := b.connect(storage.HotConfig)
	sql := hotStatements()["DueTimers"]
	_, err := conn.Exec(t.Context(), "PREPARE look AS "+sql)
	must(t, "", err)
	buffers := func() int { return buffersOf(t, conn, "EXECUTE look(6000000, 1000)") }
	b.timers("idle", 10, 1, time.Hour)
	few := buffers()
	b.timers("more", 1000, 10, time.Hour)
	if many := buffers(); many > few+3 {
		t.Errorf("%d buffers with 10 idle namespaces, %d with 1,010", few, many)
	}
	b.recount()
}

package storage_test

import (
	"testing"
	"time"

	"github.com/progressor-engine/progressor/storage"
)

// backlog stores processes of a namespace, each with a task of 1 MiB that waits.
func (b *bench) backlog(namespace string, processes int, taskType, waitsFor string) {
	b.exec(`INSERT INTO processes (namespace, process_id, status, previous_status)
		SELECT $1, 'p' || n, 'RUNNING', 'INIT' FROM generate_series(1, $2::int) n`, namespace, processes)
	b.exec(`INSERT INTO schedule (namespace, process_id, task_id, task_type, waits_for, scheduled_time, timer_name, args)
		SELECT $1, 'p' || n, nextval('task_ids'), $3::text::task_type, $4::text::waits_for, now() - interval '1 minute',
		       CASE $3::text WHEN 'TIMEOUT' THEN '' END, convert_to(repeat('x', 1048576), 'UTF8')
		  FROM generate_series(1, $2::int) n`, namespace, processes, taskType, waitsFor)
}

// One scan claims about 8 MiB of all namespaces together, and the next scan goes on.
func TestScansAreBoundedInBytes(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	rooms := []storage.Room{{Namespace: "a", Places: 6, StepTimeout: timeout}, {Namespace: "b", Places: 200, StepTimeout: timeout}}
	for _, namespace := range []string{"a", "b"} {
		b.backlog(namespace, 20, "CALL", "place")
	}
	for range 2 {
		claims, err := b.SearchCalls(t.Context(), rooms)
		equal(t, "calls", []any{len(must(t, claims, err)), storage.ScanIsCut(claims)}, "[8 true]")
	}
	for _, namespace := range []string{"c", "d"} {
		b.backlog(namespace, 20, "TIMEOUT", "time")
	}
	rooms[0].Namespace, rooms[1].Namespace = "c", "d"
	for range 2 {
		claims, _, err := b.SearchTimers(t.Context(), rooms)
		equal(t, "timers", []any{len(must(t, claims, err)), storage.ScanIsCut(claims)}, "[8 true]")
	}
	b.recount()
}

// The probes find only namespaces in which something waits.
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
	next, err := b.NextTimers(t.Context())
	equal(t, "namespaces with timers", len(must(t, next, err)), 3)
	equal(t, "due", []any{next["tb.c"], next["tb/d"], next["ta"] > 59*time.Minute}, "[0s 0s true]")
	b.recount()
}

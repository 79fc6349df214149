package engine_test

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/progressor-engine/progressor/process"
	progressorv1 "github.com/progressor-engine/progressor/proto/progressor/v1"
	"github.com/progressor-engine/progressor/storage/storagetest"
)

// Lists and traces of large processes return pages of at most 10 MiB, which are complete together.
// GetProcess rejects a history of more than 8 MiB.
func TestLargeReads(t *testing.T) {
	t.Parallel()
	dsn := storagetest.DSN(t)
	n := start(t, dsn, byTask{callTask: words})
	db := storagetest.Connect(t, dsn)
	var all []string
	for k := range 20 {
		all = append(all, fmt.Sprintf("p%02d", k))
		n.started(t, all[k])
	}
	taskError(t, (<-n.calling("p19", "fail")).err)
	storagetest.Exec(t, db, "UPDATE processes SET aux_state = convert_to(repeat('x', 1 << 20), 'UTF8')")
	pages := func(filter string) (string, int) {
		t.Helper()
		p := &progressorv1.ListProcessesRequest{Namespace: "ns", Filter: filter, OrderBy: "process_id", PageSize: 1000}
		var ids []string
		for count := 1; ; count++ {
			page, next, err := n.ListProcesses(t.Context(), p)
			if err != nil || len(page) > 10 {
				t.Fatalf("%d processes in a page, %v", len(page), err)
			}
			for _, m := range page {
				ids = append(ids, m.GetProcessId())
			}
			if p.PageToken = next; next == "" {
				return strings.Join(ids, " "), count
			}
		}
	}
	if ids, count := pages(""); ids != strings.Join(all, " ") || count != 3 {
		t.Errorf("%d pages: %s", count, ids)
	}
	if ids, count := pages("status = ERROR"); ids != "p19" || count != 1 {
		t.Errorf("%d pages: %s", count, ids)
	}

	storagetest.Exec(t, db,
		`INSERT INTO tasks (namespace, process_id, task_id, task_type, status, attempt, fencing_token, scheduled_time,
		running_time, finished_time, args)
		SELECT 'ns', 'p01', 1000000 + n, 'CALL', 'FINISHED', 1, nextval('fencing_tokens'), now(), now(), now(),
		  convert_to(repeat('x', 1 << 20), 'UTF8') FROM generate_series(1, 12) n`)
	storagetest.Exec(t, db, "DELETE FROM events")
	storagetest.Exec(t, db, `INSERT INTO events (namespace, process_id, event_id, task_id, "timestamp", payload)
		SELECT 'ns', 'p01', n, 1000001 + n / 6, now(), convert_to(repeat('x', 1 << 20), 'UTF8')
		FROM generate_series(1, 30) n`)
	storagetest.Exec(t, db, "UPDATE processes SET last_event_id = 30 WHERE process_id = 'p01'")
	tasks, events, token := 0, 0, ""
	for count := 1; ; count++ {
		traced, err := n.TraceProcess(t.Context(), key("p01"), 0, token)
		page, next := traced.GetTasks(), traced.GetNextPageToken()
		if err != nil || len(page) == 0 || count > 12 {
			t.Fatalf("page %d: %d tasks, %v", count, len(page), err)
		}
		size := 0
		for _, task := range page {
			size += len(task.GetArgs())
			for _, e := range task.GetEvents() {
				size += len(e.GetPayload())
			}
			events += len(task.GetEvents())
		}
		if size > 10<<20 {
			t.Errorf("page %d holds %d bytes", count, size)
		}
		tasks += len(page)
		if token = next; next == "" {
			break
		}
	}
	if tasks != 13 || events != 30 {
		t.Errorf("traced %d tasks, %d events", tasks, events)
	}

	for _, r := range []*progressorv1.HistoryRange{nil, ranged(9, 3, false), ranged(9, 0, true)} {
		var invalid *process.InvalidError
		if _, err := n.GetProcess(t.Context(), key("p01"), r, 0); !errors.As(err, &invalid) ||
			invalid.Field != "range.limit" || !invalid.TooLarge {
			t.Errorf("%v: %v", r, err)
		}
	}
	if p, err := n.GetProcess(t.Context(), key("p01"), ranged(8, 0, true), 0); err != nil || len(p.GetHistory()) != 8 {
		t.Errorf("%d events, %v", len(p.GetHistory()), err)
	}
	storagetest.Exec(t, db, "DELETE FROM events")
	storagetest.Exec(t, db, "UPDATE processes SET last_event_id = 0")
}

// A result fails with a reason if its process would then have more than 100 pending timers.
func TestTooManyTimers(t *testing.T) {
	t.Parallel()
	n := start(t, storagetest.DSN(t), byTask{initTask: words, callTask: words})
	n.started(t, "p")
	set := func(letter string) string {
		var b strings.Builder
		for k := range 60 {
			fmt.Fprintf(&b, "name %s%d 1h,", letter, k)
		}
		return b.String()
	}
	n.called(t, "p", set("a"))
	n.called(t, "p", set("a"))
	te := taskError(t, (<-n.calling("p", set("b"))).err)
	if te.Failure.GetReason() != process.ReasonBadResponse ||
		!strings.Contains(te.Failure.GetMessage(), "at most 100 timers may be pending (got 120)") {
		t.Errorf("%+v", te)
	}
}

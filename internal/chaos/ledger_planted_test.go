//go:build linux

package chaos

import (
	"slices"
	"strings"
	"testing"
	"time"
)

// The check detects all defects: a fire time without a row, a run that is missing, duplicated, not
// named or different from its row, and a trigger without an effect.
func TestLedger(t *testing.T) {
	t.Parallel()
	began := time.Date(2026, 1, 1, 10, 0, 0, 300_000_000, time.UTC)
	at := func(n int) time.Time { return began.Truncate(time.Second).Add(time.Duration(n) * time.Second) }
	good := func() (*cronWatch, []fireRow, map[string]cronRun) {
		w := &cronWatch{created: map[string]time.Time{}, asked: map[string]int{}, triggers: map[string]int{}, tries: 5}
		var rows []fireRow
		runs := map[string]cronRun{}
		for _, k := range cronKinds {
			w.created[k.id] = began
			for n := 1; n <= 3; n++ {
				fire := at(n)
				if k.id == triggered {
					fire = fire.Add(7 * time.Microsecond)
					w.triggers[fire.Format(time.RFC3339Nano)] = 1
				}
				id := k.id + "/" + fire.Format(time.RFC3339Nano)
				run := cronRun{status: "COMPLETED", operations: []string{startedToEnd}, created: fire,
					ended: fire.Add(time.Millisecond)}
				switch {
				case k.id == "asked":
					w.asked[id], run.operations, id = 1, nil, "~run/"+id
				case k.statuses[0] != "SUCCESS":
					run.status, run.operations = "CANCELLED", []string{started, cancelOp}
				}
				runs[id] = run
				rows = append(rows, fireRow{
					cron: k.id, decision: k.decisions[len(k.decisions)-1], status: k.statuses[0], process: id,
					fire: fire, started: fire, ended: run.ended,
					manual: k.id == triggered, attempt: 1,
				})
			}
		}
		return w, rows, runs
	}
	const second = "plain-1/2026-01-01T10:00:02Z"
	of := func(process string) func(fireRow) bool {
		return func(r fireRow) bool { return r.process == process }
	}
	tests := []struct {
		name  string
		plant func(w *cronWatch, rows []fireRow, runs map[string]cronRun) []fireRow
		want  string // part of the expected defect; "" if there is none
	}{
		{"no defect", func(_ *cronWatch, rows []fireRow, _ map[string]cronRun) []fireRow { return rows }, ""},
		{"the first fire time is lost", func(w *cronWatch, rows []fireRow, _ map[string]cronRun) []fireRow {
			w.created["plain-1"] = began.Add(-time.Second)
			return rows
		}, "plain-1: found a row for 2026-01-01T10:00:01Z, want one for 2026-01-01T10:00:00Z"},
		{"a fire time is lost", func(_ *cronWatch, rows []fireRow, runs map[string]cronRun) []fireRow {
			delete(runs, second)
			return slices.DeleteFunc(rows, of(second))
		}, "plain-1: found a row for 2026-01-01T10:00:03Z, want one for 2026-01-01T10:00:02Z"},
		{"a fire time has two rows", func(_ *cronWatch, rows []fireRow, _ map[string]cronRun) []fireRow {
			n := slices.IndexFunc(rows, of(second))
			return slices.Insert(rows, n, rows[n])
		}, second + " is the run of two fires"},
		{"a run is missing", func(_ *cronWatch, rows []fireRow, runs map[string]cronRun) []fireRow {
			delete(runs, second)
			return rows
		}, `its run "` + second + `" does not exist`},
		{"a run without a row", func(_ *cronWatch, rows []fireRow, _ map[string]cronRun) []fireRow {
			return slices.DeleteFunc(rows, of(second))
		}, second + " is a run without a row"},
		{"a run did its work twice", func(_ *cronWatch, rows []fireRow, runs map[string]cronRun) []fireRow {
			r := runs[second]
			r.operations = []string{startedToEnd, startedToEnd}
			runs[second] = r
			return rows
		}, "its run is COMPLETED with operations \"started to end, started to end\""},
		{"a cancelled run is still RUNNING", func(_ *cronWatch, rows []fireRow, runs map[string]cronRun) []fireRow {
			r := runs["late/2026-01-01T10:00:02Z"]
			r.status, r.operations = "RUNNING", r.operations[:1]
			runs["late/2026-01-01T10:00:02Z"] = r
			return rows
		}, "late 2026-01-01T10:00:02Z: its run is RUNNING"},
		{"the end of a run is not recorded", func(_ *cronWatch, rows []fireRow, _ map[string]cronRun) []fireRow {
			rows[slices.IndexFunc(rows, of(second))].status = "RUNNING"
			return rows
		}, "plain-1 2026-01-01T10:00:02Z: unexpected decision, status or attempt: FIRED RUNNING, attempt 1"},
		{"two runs at a time", func(_ *cronWatch, rows []fireRow, runs map[string]cronRun) []fireRow {
			r := runs["queued/2026-01-01T10:00:02Z"]
			r.ended = at(4)
			runs["queued/2026-01-01T10:00:02Z"] = r
			return rows
		}, "queued/2026-01-01T10:00:03Z began before queued/2026-01-01T10:00:02Z had ended"},
		{"a run that was not requested", func(w *cronWatch, rows []fireRow, _ map[string]cronRun) []fireRow {
			delete(w.asked, "asked/2026-01-01T10:00:02Z")
			return rows
		}, "asked 2026-01-01T10:00:02Z: its run was not requested"},
		{"a request without a row", func(w *cronWatch, rows []fireRow, _ map[string]cronRun) []fireRow {
			w.asked["asked/2026-01-01T10:00:09Z"] = 1
			return rows
		}, "asked/2026-01-01T10:00:09Z was requested, but has no row"},
		{"a trigger is lost", func(w *cronWatch, rows []fireRow, _ map[string]cronRun) []fireRow {
			w.triggers["2026-01-01T10:00:04.000007Z"] = 1
			return rows
		}, "the trigger of 2026-01-01T10:00:04.000007Z was answered but did not fire (1 times)"},
		{"more fires than triggers", func(w *cronWatch, rows []fireRow, _ map[string]cronRun) []fireRow {
			w.tries = 2
			return rows
		}, "triggered: 3 rows for 2 triggers"},
		{"a cron without rows", func(_ *cronWatch, rows []fireRow, _ map[string]cronRun) []fireRow {
			return slices.DeleteFunc(rows, func(r fireRow) bool { return r.cron == "late" })
		}, "late has no rows"},
	}
	for _, tt := range tests {
		w, rows, runs := good()
		rows = tt.plant(w, rows, runs)
		n, wrong := w.ledger(rows, runs)
		if tt.want == "" && (len(wrong) > 0 ||
			n != cronCounts{fires: 18, triggers: 3, queued: 3, cancelled: 3, timeouts: 3, requests: 3}) {
			t.Errorf("%s: %+v, %q", tt.name, n, wrong)
		}
		if tt.want != "" && !strings.Contains(strings.Join(wrong, "\n"), tt.want) {
			t.Errorf("%s: found %q, want %q", tt.name, wrong, tt.want)
		}
	}
}

//go:build linux

package chaos

import (
	"fmt"
	"slices"
	"strings"
	"time"
)

// cronCounts counts the checked fires, triggers and requests.
type cronCounts struct{ fires, triggers, queued, cancelled, timeouts, requests int }

// ledger compares the ledgers of crons with the fire times, with their runs, and with what clients
// and targets know. Each fire time must have one row. Each row must have one run, which has done
// its work once and has ended with the status in the row. There must be no other runs, and every
// answered trigger must have fired. wrong lists the differences.
func (w *cronWatch) ledger(rows []fireRow, runs map[string]cronRun) (n cronCounts, wrong []string) {
	say := func(format string, args ...any) { wrong = append(wrong, fmt.Sprintf(format, args...)) }
	of := map[string][]fireRow{}
	named := map[string]bool{}
	for _, r := range rows {
		of[r.cron] = append(of[r.cron], r)
		if named[r.process] {
			say("%s is the run of two fires", r.process)
		}
		named[r.process] = true
	}
	for id := range runs {
		if !named[id] {
			say("%s is a run without a row", id)
		}
	}
	for _, k := range cronKinds {
		if len(of[k.id]) == 0 {
			say("%s has no rows", k.id)
		}
		if k.id == triggered {
			wrong = append(wrong, w.fired(of[k.id])...)
			n.triggers += len(of[k.id])
		} else {
			wrong = append(wrong, w.eachSecond(k.id, of[k.id])...)
			n.fires += len(of[k.id])
		}
		for _, r := range of[k.id] {
			wrong = append(wrong, w.row(k, r, runs)...)
			if r.decision == "QUEUED" {
				n.queued++
			}
		}
		if k.single {
			wrong = append(wrong, inOrder(of[k.id], runs)...)
		}
	}
	n.cancelled, n.timeouts = len(of["replaced"]), len(of["late"])
	for what, times := range w.asked {
		n.requests += times
		if !named["~run/"+what] {
			say("%s was requested, but has no row", what)
		}
	}
	return n, wrong
}

// eachSecond finds seconds that do not have exactly one row, from the creation of the cron to its
// last row.
func (w *cronWatch) eachSecond(id string, rows []fireRow) (wrong []string) {
	due := w.created[id].Truncate(time.Second).Add(time.Second)
	for _, r := range rows {
		if !r.fire.Equal(due) {
			wrong = append(wrong,
				fmt.Sprintf("%s: found a row for %s, want one for %s", id, r.fire.Format(time.RFC3339Nano),
					due.Format(time.RFC3339Nano)))
		}
		due = r.fire.Add(time.Second)
	}
	return wrong
}

// fired checks that each acknowledged trigger caused its fires.
func (w *cronWatch) fired(rows []fireRow) (wrong []string) {
	left := map[string]int{}
	for fire, times := range w.triggers {
		left[fire] = times
	}
	for _, r := range rows {
		if left[r.fire.Format(time.RFC3339Nano)]--; !r.manual {
			wrong = append(wrong, fmt.Sprintf("%s: the row of %s is not from a manual trigger", triggered, r.fire))
		}
	}
	for fire, times := range left {
		if times > 0 {
			wrong = append(wrong,
				fmt.Sprintf("%s: the trigger of %s was answered but did not fire (%d times)", triggered, fire, times))
		}
	}
	if len(rows) > w.tries {
		wrong = append(wrong, fmt.Sprintf("%s: %d rows for %d triggers", triggered, len(rows), w.tries))
	}
	return wrong
}

// row compares one row with its run.
func (w *cronWatch) row(k cronKind, r fireRow, runs map[string]cronRun) (wrong []string) {
	at := k.id + " " + r.fire.Format(time.RFC3339Nano)
	say := func(format string, args ...any) { wrong = append(wrong, at+": "+fmt.Sprintf(format, args...)) }
	if !slices.Contains(k.decisions, r.decision) || !slices.Contains(k.statuses, r.status) || r.attempt < 1 {
		say("unexpected decision, status or attempt: %s %s, attempt %d", r.decision, r.status, r.attempt)
	}
	run, ok := runs[r.process]
	if !ok {
		say("its run %q does not exist", r.process)
		return wrong
	}
	var status, operations string
	switch k.statuses[0] {
	case "SUCCESS":
		status, operations = "COMPLETED", startedToEnd
	default:
		status, operations = "CANCELLED", started+", "+cancelOp
	}
	if k.id == "asked" {
		if operations = ""; w.asked[strings.TrimPrefix(r.process, "~run/")] == 0 {
			say("its run was not requested")
		}
	}
	if got := strings.Join(run.operations, ", "); run.status != status || got != operations {
		say("its run is %s with operations %q, want %s with %q", run.status, got, status, operations)
	}
	return wrong
}

// inOrder finds runs that began before the previous run had ended. The cron allows only one run at
// a time.
func inOrder(rows []fireRow, runs map[string]cronRun) (wrong []string) {
	for i := 1; i < len(rows); i++ {
		before, after := rows[i-1], rows[i]
		if runs[after.process].created.Before(runs[before.process].ended) || after.started.Before(before.ended) {
			wrong = append(wrong, fmt.Sprintf("%s began before %s had ended", after.process, before.process))
		}
	}
	return wrong
}

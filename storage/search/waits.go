package search

import (
	"context"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/progressor-engine/progressor/process"
	"github.com/progressor-engine/progressor/storage"
	"github.com/progressor-engine/progressor/storage/internal/dbsqlc"
)

// The fields of open waits. They refer to a row f of flow_steps.
var (
	fieldDue = &field{
		name: "due_time", values: isTime,
		compare: inOrder("(f.due_time IS NOT NULL AND f.due_time", "$?::timestamptz)"), there: "f.due_time IS NOT NULL",
	}
	fieldWaitRun = &field{
		name: "run_id", compare: inOrder("f.run_id", "$?::text"), prefix: "starts_with(f.run_id, $?::text)",
	}
)

const ofWaitRun = ` FROM flow_runs r WHERE r.namespace = f.namespace AND r.run_id = f.run_id LIMIT 1), false)`

var waits = &table{
	fields: []*field{
		{
			name: "kind", values: isChoice, choices: &choices{names: []string{"EXTERNAL", "HUMAN"}, prefix: "KIND_"},
			compare: map[string]string{equals: "coalesce(f.wait->>'kind' = $?::text, false)"},
		},
		{
			name: "assignees", compare: map[string]string{has: "coalesce(f.wait->'assignees' ? $?::text, false)"},
			there: "coalesce(f.wait->'assignees' IS NOT NULL, false)",
		},
		{
			name:    "template_type",
			compare: map[string]string{equals: "coalesce((SELECT r.template_type = $?::text" + ofWaitRun},
			prefix:  "coalesce((SELECT starts_with(r.template_type, $?::text)" + ofWaitRun,
		},
		fieldDue, fieldWaitRun,
	},
	example: "kind = HUMAN", text: "assignees:",
}

// waitOrder is the only order of a list of waits. The ID of a position has the run, the step and
// the item. Waits without a due time come last.
var waitOrder = &order{field: fieldDue, column: "coalesce(f.due_time, 'infinity')", upwards: true}

// never is the time in positions of waits without a due time.
var never = time.Date(9999, 12, 31, 23, 59, 59, 0, time.UTC)

// WaitQuery selects a page of a list of open waits.
type WaitQuery struct {
	Namespace string
	Filter    string   // over kind, assignees, template_type, due_time and run_id
	PageSize  int      // at most MaxPageSize; 0 means DefaultPageSize
	PageToken string   // token from the previous page; "" for the first
	Assignees []string // if not nil, only waits that one of these assignees may answer
}

// Wait is an open wait.
type Wait = dbsqlc.ReadWaitsRow

// WaitPage is a page of a list of waits. It may have fewer waits than requested, or none, and still
// have a next page.
type WaitPage struct {
	Waits         []Wait
	NextPageToken string // "" if this is the last page
}

// CheckWaits returns an error if a filter of a WaitQuery is invalid.
func CheckWaits(filter string) error {
	_, err := parse(filter, waits)
	return err
}

// ListWaits returns a page, the soonest due first.
func ListWaits(ctx context.Context, store *storage.Store, q WaitQuery) (WaitPage, error) {
	return listWaitsWithin(ctx, store, q, runReach)
}

func listWaitsWithin(ctx context.Context, store *storage.Store, q WaitQuery, r reach) (page WaitPage, err error) {
	filter, err := parse(q.Filter, waits)
	if err != nil {
		return page, err
	}
	sign := "waits"
	if q.Assignees != nil {
		sign = "waits of assignees"
	}
	signed := Query{Namespace: q.Namespace, Filter: filter}
	from := waitOrder.begin()
	if q.PageToken != "" {
		if from, err = parseToken(q.PageToken, signed, sign); err != nil {
			return page, err
		}
		if _, _, _, ok := waitKey(from); !ok {
			return page, process.InvalidPageToken()
		}
	}
	from = waitOrder.start(filter, from)
	w := &windowed{reach: r, size: pageSize(q.PageSize)}
	settings := scanSettings
	if ofOneRun(filter) {
		settings += "; " + candidateSettings // the steps of a run are read by their primary key and sorted
	}
	err = store.Search(ctx, "list waits", func(ctx context.Context, tx pgx.Tx) error {
		w.start(from)
		page = WaitPage{}
		if _, err := tx.Exec(ctx, settings); err != nil {
			return err
		}
		statement := func(from position, window, room int) *statement {
			return waitStatement(q, filter, from, window, room)
		}
		if err := w.scan(ctx, tx, r.first, statement); err != nil {
			return err
		}
		if err := w.scanOn(ctx, tx, statement); err != nil {
			return err
		}
		page.Waits, err = readWaits(ctx, tx, q.Namespace, w)
		return err
	})
	if err == nil && w.more {
		page.NextPageToken = token(signed, sign, w.last)
	}
	return page, err
}

func ofOneRun(f Filter) bool {
	return slices.ContainsFunc(f.conjuncts(), func(n node) bool { _, ok := textOf(fieldWaitRun)(n); return ok })
}

// ofAssignees is the condition of waits that one of some assignees may answer.
const ofAssignees = ` AND coalesce(f.wait->>'kind' <> 'HUMAN' OR f.wait->'assignees' IS NULL
  OR f.wait->'assignees' ?| $?::text[], true)`

// waitStatement reads the next waits after a position.
func waitStatement(q WaitQuery, filter Filter, from position, window, room int) *statement {
	const by = `coalesce(f.due_time, 'infinity'), f.run_id, f.step_id, f.index`
	s := &statement{}
	s.add(`SELECT f.run_id || '/' || f.step_id || '/' || f.index AS id, coalesce(f.due_time, $?::timestamptz) AS at,
  f.n, f.matches
  FROM (SELECT f.*, row_number() OVER (ORDER BY `+by+`) AS n, (`, never)
	s.filter(filter)
	s.add(`)`)
	if q.Assignees != nil {
		s.add(ofAssignees, q.Assignees)
	}
	s.add(` AS matches FROM (SELECT * FROM flow_steps f WHERE f.namespace = $?::text AND f.token IS NOT NULL`,
		q.Namespace)
	due, runID, stepID, index := "infinity", "", "", 0
	if from.at.Before(never) {
		due = from.at.Format(time.RFC3339Nano)
	}
	if run, step, item, ok := waitKey(from); ok {
		runID, stepID, index = run, step, item
	}
	s.add(` AND (`+by+`) > ($?::text::timestamptz, $?::text, $?::text, $?::int)`, due, runID, stepID, index)
	waitOrder.bounds(s, filter)
	for _, n := range filter.conjuncts() {
		if run, ok := textOf(fieldWaitRun)(n); ok {
			s.add(` AND f.run_id = $?::text`, run)
		}
	}
	s.add(` ORDER BY `+by+` LIMIT $?::bigint) f) f WHERE f.matches OR f.n = $?::bigint`, window, window)
	s.add(` ORDER BY `+by+` LIMIT $?::bigint`, room+1)
	return s
}

// waitKey splits the ID of a position, as created by waitStatement. The ID of a run may contain
// slashes.
func waitKey(p position) (runID, stepID string, index int, ok bool) {
	rest, item, first := cutLast(p.id)
	runID, stepID, second := cutLast(rest)
	index, err := strconv.Atoi(item)
	return runID, stepID, index, first && second && err == nil && index >= -1 && index <= 1<<31-1
}

func cutLast(text string) (before, after string, found bool) {
	at := strings.LastIndexByte(text, '/')
	if at < 0 {
		return "", text, false
	}
	return text[:at], text[at+1:], true
}

// readWaits reads the waits of the page until their bytes exceed its limit.
func readWaits(ctx context.Context, tx pgx.Tx, namespace string, w *windowed) (waits []Wait, err error) {
	var taken int64
	for found, batch := w.found, firstFill; len(found) > 0; {
		n := min(batch, len(found))
		a := dbsqlc.ReadWaitsParams{Namespace: namespace}
		for _, p := range found[:n] {
			runID, stepID, index, _ := waitKey(p)
			a.Append(dbsqlc.ReadWaitsItem{RunID: runID, StepID: stepID, Index: int32(index)})
		}
		rows, err := dbsqlc.New().ReadWaits(ctx, tx, a)
		if err != nil {
			return nil, err
		}
		waits = append(waits, rows...)
		for k := range rows {
			taken += int64(len(rows[k].Input) + len(rows[k].Wait))
		}
		if found = found[n:]; len(found) > 0 && taken > w.reach.bytes {
			w.last, w.more = w.found[len(w.found)-len(found)-1], true
			break
		}
		batch = int(max(1, min((w.reach.bytes-taken)*int64(len(waits))/max(taken, 1), MaxPageSize)))
	}
	return waits, nil
}

package flows_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"google.golang.org/protobuf/encoding/prototext"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/timestamppb"

	"github.com/progressor-engine/progressor/process"
	progressorv1 "github.com/progressor-engine/progressor/proto/progressor/v1"
	"github.com/progressor-engine/progressor/storage/storagetest"
)

// manyStatuses starts runs and brings them to every status. It returns their statuses by ID.
func manyStatuses(t *testing.T, n *node) map[string]string {
	t.Helper()
	ctx := context.Background()
	n.put(t, "pull", `{"type": "one", "steps": [{"step_id": "a", "job": {}}, {"step_id": "b", "job": {}}]}`)
	n.put(t, "pull", `{"type": "two", "cancel_policy": {"grace": "3600s"},
		"steps": [{"step_id": "a", "job": {"name": "two"}}, {"step_id": "b", "job": {}}]}`)
	n.put(t, "pull", `{"type": "ask", "steps": [{"step_id": "a", "wait": {"title": "continue, ${payload.who}?",
		"due": "3600s"}}, {"step_id": "b", "job": {}}]}`)
	n.put(t, "pull", `{"type": "askall", "steps": [{"step_id": "a", "for_each": {"items": "payload.all"},
		"wait": {"kind": "KIND_HUMAN", "title": "${item}", "assignees": ["kim", "${item}"],
		"result_schema": {"type": "boolean"}}}]}`)
	n.put(t, "pull", `{"type": "both", "step_order": "STEP_ORDER_GRAPH",
		"steps": [{"step_id": "a", "wait": {"due": "60s"}}, {"step_id": "b", "job": {}}]}`)
	n.put(t, "pull", `{"type": "each",
		"steps": [{"step_id": "a", "for_each": {"items": "payload.all", "max_running": 1}, "job": {"name": "item"}}]}`)
	n.put(t, "pull", `{"type": "rest", "retry_policy": {"max_attempts": 2, "backoff": {"steps": ["3600s"]}},
		"steps": [{"step_id": "a", "job": {"name": "rest"}}, {"step_id": "b", "job": {}}]}`)
	n.put(t, "pull", `{"type": "undo",
		"steps": [{"step_id": "a", "job": {"name": "do"}, "compensation": {"name": "undo"}},
		{"step_id": "b", "job": {"name": "break"}}]}`)
	n.put(t, "pull", `{"type": "delay", "steps": [{"step_id": "a", "delay": {"duration": "3600s"}},
		{"step_id": "b", "job": {}}]}`)
	n.put(t, "pull", `{"type": "outer", "steps": [{"step_id": "a", "run": {"type": "one"}}]}`)
	n.put(t, "pull", `{"type": "short", "timeout": "0.001s", "steps": [{"step_id": "a", "delay": {"duration": "60s"}},
		{"step_id": "b", "delay": {"duration": "60s"}}]}`)
	n.put(t, "ns", `{"type": "pushed", "steps": [{"step_id": "a", "job": {}},
		{"step_id": "b", "job": {}, "condition": "has(payload.b)"}]}`)

	if _, err := n.Start(ctx, &progressorv1.StartRunRequest{
		Namespace: "pull", Type: "one", RunId: "later", RunTime: timestamppb.New(time.Now().Add(time.Hour)),
	}, kim); err != nil {
		t.Fatal(err)
	}
	n.run(t, "pull", "rest", "rests", "")
	n.answer(t, n.lease(t, "rest"), "", "broken")
	n.run(t, "pull", "two", "runs", "")
	n.lease(t, "two")
	n.run(t, "pull", "two", "stops", "")
	n.lease(t, "two")
	n.run(t, "pull", "undo", "undone", "")
	n.answer(t, n.lease(t, "do"), "1", "")
	n.answer(t, n.lease(t, "break"), "", "broken")
	n.answer(t, n.lease(t, "undo"), "1", "")
	n.run(t, "pull", "undo", "undoing", "")
	n.answer(t, n.lease(t, "do"), "1", "")
	n.answer(t, n.lease(t, "break"), "", "broken")
	n.run(t, "pull", "ask", "asks", `{"who": "kim"}`)
	n.run(t, "pull", "ask", "x/y/0", `{"who": "ann"}`)
	n.run(t, "pull", "askall", "asksall", `{"all": ["ann", "bob"]}`)
	n.run(t, "pull", "both", "both", "")
	n.run(t, "pull", "each", "each", `{"all": [1, 2, 3, 4]}`)
	n.answer(t, n.lease(t, "item"), "1", "")
	n.run(t, "pull", "delay", "delays", "")
	n.run(t, "pull", "outer", "outer", "")
	n.run(t, "pull", "one", "stopped", "")
	n.run(t, "pull", "short", "late", "")
	for _, id := range []string{"stops", "stopped"} {
		if _, err := n.Cancel(ctx, &progressorv1.CancelRunRequest{
			Namespace: "pull", RunId: id, Reason: "enough",
		}, kim); err != nil {
			t.Fatal(err)
		}
	}
	n.run(t, "ns", "pushed", "done", `{"b": 1}`)
	n.run(t, "ns", "pushed", "half", `{"a": "x"}`)
	n.run(t, "ns", "pushed", "bad", `{"fail": {"a": "why"}}`)
	want := map[string]string{
		"later": "PENDING", "rests": "PENDING", "runs": "RUNNING", "stops": "CANCEL_REQUESTED", "stopped": "CANCELLED",
		"asks": "WAITING_WORKER", "x/y/0": "WAITING_WORKER",
		"asksall": "WAITING_WORKER", "both": "QUEUED", "each": "RUNNING", "delays": "RUNNING", "outer": "RUNNING",
		"outer/a": "QUEUED", "late": "EXPIRED",
		"undone": "FAILED", "undoing": "COMPENSATING",
		"done": "SUCCEEDED", "half": "SUCCEEDED", "bad": "FAILED",
	}
	for id, status := range want {
		n.until(t, namespaceOf(id), id, status+":")
	}
	return want
}

func namespaceOf(runID string) string {
	if slices.Contains([]string{"done", "half", "bad"}, runID) {
		return "ns"
	}
	return "pull"
}

// list returns all runs of a list, reading two per page.
func (n *node) list(t testing.TB, namespace, filter, orderBy string) (list []*progressorv1.Run) {
	t.Helper()
	q := &progressorv1.ListRunsRequest{Namespace: namespace, Filter: filter, OrderBy: orderBy, PageSize: 2}
	for {
		page, next, err := n.ListRuns(t.Context(), q)
		if err != nil {
			t.Fatalf("%q: %v", filter, err)
		}
		list = append(list, page...)
		if q.PageToken = next; next == "" {
			return list
		}
	}
}

func ids(list []*progressorv1.Run) string {
	var all []string
	for _, r := range list {
		all = append(all, r.GetRunId())
	}
	return strings.Join(all, " ")
}

// TestListRunsAsGetRun checks that lists, their filters and the view run_list agree with GetRun.
func TestListRunsAsGetRun(t *testing.T) {
	t.Parallel()
	n := start(t, storagetest.DSN(t))
	want := manyStatuses(t, n)
	byStatus, byPhase := map[string][]string{}, map[string][]string{}
	for id, status := range want {
		get, err := n.Get(t.Context(), namespaceOf(id), id, 0)
		if err != nil {
			t.Fatal(err)
		}
		get.Steps = nil
		list := n.list(t, namespaceOf(id), "created_time = "+get.GetCreatedTime().AsTime().Format(time.RFC3339Nano), "")
		at := slices.IndexFunc(list, func(r *progressorv1.Run) bool { return r.GetRunId() == id })
		if at < 0 || !proto.Equal(list[at], get) {
			t.Errorf("%s: ListRuns returns\n%s\nbut GetRun returns\n%s", id, prototext.Format(list[max(at, 0)]),
				prototext.Format(get))
			continue
		}
		if got := strings.TrimPrefix(get.GetStatus().String(), "RUN_STATUS_"); got != status {
			t.Errorf("%s is %s, want %s", id, got, status)
		}
		var viewed, phase string
		var attempt int32
		var began *time.Time
		row := n.DB.QueryRow(t.Context(), `SELECT status, coalesce(phase, ''), attempt, running_time
			FROM run_list WHERE namespace = $1 AND run_id = $2`, namespaceOf(id), id)
		err = row.Scan(&viewed, &phase, &attempt, &began)
		if err != nil || viewed != status || phase != get.GetPhase() {
			t.Errorf("%s: run_list says %s at %q, %v; GetRun %s at %q", id, viewed, phase, err, status, get.GetPhase())
		}
		if attempt != get.GetAttempt() || !sameTime(began, get.GetRunningTime()) {
			t.Errorf("%s: run_list has attempt %d since %v, GetRun %d since %v", id, attempt, began, get.GetAttempt(),
				get.GetRunningTime())
		}
		if namespaceOf(id) == "pull" {
			byStatus[status], byPhase[get.GetPhase()] = append(byStatus[status], id),
				append(byPhase[get.GetPhase()], id)
		}
	}
	for _, status := range []string{
		"PENDING", "QUEUED", "RUNNING", "WAITING_WORKER", "CANCEL_REQUESTED", "COMPENSATING", "SUCCEEDED", "FAILED",
		"CANCELLED", "EXPIRED",
	} {
		n.finds(t, "status = "+status, byStatus[status])
		n.finds(t, "status = run_status_"+strings.ToLower(status)+" AND template_type = \"*\"", byStatus[status])
		rest := slices.Concat(values(byStatus, status)...)
		n.finds(t, "status != "+status, rest)
	}
	for _, phase := range []string{"a", "b", ""} {
		n.finds(t, `phase = "`+phase+`"`, byPhase[phase])
	}
	n.finds(t, "status = RUNNING OR status = PENDING", slices.Concat(byStatus["RUNNING"], byStatus["PENDING"]))
	n.finds(t, "status = EXPIRED OR status = CANCELLED", slices.Concat(byStatus["EXPIRED"], byStatus["CANCELLED"]))
	n.finds(t, "status = EXPIRED OR status = QUEUED", slices.Concat(byStatus["EXPIRED"], byStatus["QUEUED"]))
}

func values(all map[string][]string, without string) (list [][]string) {
	for key, value := range all {
		if key != without {
			list = append(list, value)
		}
	}
	return list
}

// finds checks which runs of namespace "pull" a filter finds, in all orders.
func (n *node) finds(t *testing.T, filter string, want []string) {
	t.Helper()
	slices.Sort(want)
	for _, orderBy := range []string{"", "created_time", "updated_time", "updated_time desc"} {
		list := n.list(t, "pull", filter, orderBy)
		got := strings.Fields(ids(list))
		slices.Sort(got)
		if !slices.Equal(got, want) {
			t.Errorf("%q by %q: %v, want %v", filter, orderBy, got, want)
		}
		if !slices.IsSortedFunc(list, func(a, b *progressorv1.Run) int {
			x, y := a.GetCreatedTime(), b.GetCreatedTime()
			if strings.HasPrefix(orderBy, "updated") {
				x, y = a.GetUpdatedTime(), b.GetUpdatedTime()
			}
			if orderBy == "" || strings.HasSuffix(orderBy, "desc") {
				x, y = y, x
			}
			return x.AsTime().Compare(y.AsTime())
		}) {
			t.Errorf("%q by %q: not in order", filter, orderBy)
		}
	}
}

// TestListRunsWhileRunsStart checks that pages neither repeat nor omit a run if other runs start
// between them.
func TestListRunsWhileRunsStart(t *testing.T) {
	t.Parallel()
	n := start(t, storagetest.DSN(t))
	n.put(t, "pull", `{"type": "one", "steps": [{"step_id": "a", "job": {}}]}`)
	var want []string
	for i := range 6 {
		n.run(t, "pull", "one", fmt.Sprintf("r%d", i), "")
		want = append([]string{fmt.Sprintf("r%d", i)}, want...)
	}
	var got []string
	q := &progressorv1.ListRunsRequest{Namespace: "pull", PageSize: 2}
	for i := 0; ; i++ {
		page, next, err := n.ListRuns(t.Context(), q)
		if err != nil {
			t.Fatal(err)
		}
		got = append(got, strings.Fields(ids(page))...)
		if q.PageToken = next; next == "" {
			break
		}
		n.run(t, "pull", "one", fmt.Sprintf("new%d", i), "")
	}
	same(t, strings.Join(got, " "), strings.Join(want, " "))
	q.PageToken, q.PageSize = "", 1
	_, next, err := n.ListRuns(t.Context(), q)
	if err != nil {
		t.Fatal(err)
	}
	_, _, err = n.ListRuns(t.Context(), &progressorv1.ListRunsRequest{
		Namespace: "pull", OrderBy: "created_time", PageToken: next,
	})
	refusedField(t, err, "page_token", "belongs to another list")
}

func refusedField(t *testing.T, err error, field, want string) {
	t.Helper()
	invalid, ok := errors.AsType[*process.InvalidError](err)
	if !ok || invalid.Field != field || !strings.Contains(invalid.Message, want) {
		t.Errorf("%v, want %s: %s", err, field, want)
	}
}

// TestListRunsByFields checks that runs are found by the fields of their start requests.
func TestListRunsByFields(t *testing.T) {
	t.Parallel()
	n := start(t, storagetest.DSN(t))
	n.put(t, "pull", `{"type": "one", "steps": [{"step_id": "a", "job": {}}]}`)
	n.put(t, "pull", `{"type": "other", "steps": [{"step_id": "a", "job": {}}]}`)
	for i, r := range []*progressorv1.StartRunRequest{
		{Type: "one", Scope: "user", ScopeId: "42", Payload: value(t, `{"target": "x", "n": 7}`)},
		{Type: "one", Scope: "user", ScopeId: "43", Payload: value(t, `{"target": "y", "n": 9}`)},
		{Type: "other", Scope: "account", ScopeId: "42", Payload: value(t, `[1]`)},
		{Type: "other"},
	} {
		r.Namespace, r.RunId = "pull", fmt.Sprintf("r%d", i)
		if i < 2 {
			r.Metadata = value(t, fmt.Sprintf(`{"team": "t%d", "all": ["a", "b%d"]}`, i, i)).GetStructValue()
		}
		if _, err := n.Start(t.Context(), r, kim); err != nil {
			t.Fatal(err)
		}
	}
	for filter, want := range map[string]string{
		"template_type = other": "r2 r3", "template_type = o*": "r0 r1 r2 r3", "scope = user": "r0 r1",
		`scope_id = "42"`: "r0 r2", "scope_id = 4*": "r0 r1 r2", "NOT scope_id:4": "",
		`scope = user scope_id = "42"`: "r0", `scope_id = ""`: "r3", "cron_id = nightly": "",
		"cron_id != nightly": "r0 r1 r2 r3",
		"payload.target = x": "r0", "payload.n > 8": "r1", "payload.n:*": "r0 r1", "metadata.team = t1": "r1",
		"metadata.all:a": "r0 r1", "NOT metadata.all:b0": "r1 r2 r3",
		"metadata.team = t0 OR metadata.team = t1": "r0 r1", `metadata.team = t0 AND scope_id = "43"`: "",
	} {
		if strings.HasPrefix(filter, "NOT scope_id:") {
			_, _, err := n.ListRuns(t.Context(), &progressorv1.ListRunsRequest{Namespace: "pull", Filter: filter})
			refusedField(t, err, "filter", "scope_id supports only = != (got :)")
			continue
		}
		n.finds(t, filter, strings.Fields(want))
	}
	for filter, want := range map[string]string{
		"state = FAILED": `there is no field "state": use run_id, status, template_type, scope, scope_id, phase, ` +
			`cron_id, created_time, reason, fingerprint, payload.KEY or metadata.KEY`,
		"status = ERROR":           `"ERROR" is not a status: use one of PENDING, QUEUED,`,
		"created_time > yesterday": "is not a time", "payload = 5": "write payload.KEY",
		"scope.a = 5": "only payload or metadata has",
	} {
		_, _, err := n.ListRuns(t.Context(), &progressorv1.ListRunsRequest{Namespace: "pull", Filter: filter})
		refusedField(t, err, "filter", want)
	}
	_, _, err := n.ListRuns(t.Context(), &progressorv1.ListRunsRequest{Namespace: "pull", OrderBy: "phase"})
	refusedField(t, err, "order_by", "must be created_time desc")
	if _, _, err := n.ListRuns(t.Context(), &progressorv1.ListRunsRequest{Namespace: "none"}); !errors.Is(err,
		process.ErrNamespaceNotFound) {
		t.Error(err)
	}
}

// TestListOpenWaits checks that open waits are ordered by due time, can be filtered and contain
// their title and input, and that answered waits are not listed.
func TestListOpenWaits(t *testing.T) {
	t.Parallel()
	n := start(t, storagetest.DSN(t))
	manyStatuses(t, n)
	list := func(filter string) string {
		t.Helper()
		var got []string
		q := &progressorv1.ListOpenWaitsRequest{Namespace: "pull", Filter: filter, PageSize: 2}
		for {
			page, next, err := n.ListOpenWaits(t.Context(), q)
			if err != nil {
				t.Fatalf("%q: %v", filter, err)
			}
			for _, w := range page {
				name := w.GetRunId() + ":" + w.GetStepId()
				if w.Index != nil {
					name += fmt.Sprintf(".%d", w.GetIndex())
				}
				got = append(got, name)
			}
			if q.PageToken = next; next == "" {
				return strings.Join(got, " ")
			}
		}
	}
	same(t, list(""), "both:a asks:a x/y/0:a asksall:a.0 asksall:a.1")
	for filter, want := range map[string]string{
		"kind = HUMAN": "asksall:a.0 asksall:a.1", "kind != KIND_HUMAN": "both:a asks:a x/y/0:a",
		"assignees:ann": "asksall:a.0", "assignees:kim": "asksall:a.0 asksall:a.1",
		"assignees:*": "asksall:a.0 asksall:a.1", "template_type = ask": "asks:a x/y/0:a",
		`run_id = "x/y/0"`: "x/y/0:a", "run_id = ask*": "asks:a asksall:a.0 asksall:a.1",
		"NOT due_time:*": "asksall:a.0 asksall:a.1",
		"due_time > " + time.Now().Add(10*time.Minute).Format(time.RFC3339): "asks:a x/y/0:a",
		"due_time < " + time.Now().Add(10*time.Minute).Format(time.RFC3339): "both:a",
		"due_time < 1999-01-01T00:00:00Z OR assignees:bob":                  "asksall:a.1",
	} {
		same(t, filter+": "+list(filter), filter+": "+want)
	}
	_, _, err := n.ListOpenWaits(t.Context(), &progressorv1.ListOpenWaitsRequest{
		Namespace: "pull", Filter: "kind = robot",
	})
	refusedField(t, err, "filter", `"robot" is not a kind: use one of EXTERNAL, HUMAN`)
	_, _, err = n.ListOpenWaits(t.Context(), &progressorv1.ListOpenWaitsRequest{
		Namespace: "pull", Filter: "step_id = a",
	})
	refusedField(t, err, "filter",
		`there is no field "step_id": use kind, assignees, template_type, due_time or run_id`)
	page, _, err := n.ListOpenWaits(t.Context(), &progressorv1.ListOpenWaitsRequest{
		Namespace: "pull", Filter: "run_id = asksall OR run_id = asks",
	})
	if err != nil || len(page) != 3 {
		t.Fatalf("%d waits, %v", len(page), err)
	}
	if w := page[0]; w.GetTitle() != "continue, kim?" || w.GetToken() == "" || w.GetDueTime() == nil ||
		w.GetInput().GetStructValue().GetFields()["who"].GetStringValue() != "kim" {
		t.Errorf("%v", w)
	}
	if w := page[1]; w.GetTitle() != "ann" || len(w.GetAssignees()) != 2 || w.GetResultSchema() == nil ||
		w.GetInput().GetStringValue() != "ann" || w.GetCreatedTime() == nil {
		t.Errorf("%v", w)
	}
	if _, err := n.Complete(t.Context(), &progressorv1.CompleteStepRequest{
		Namespace: "pull", RunId: "asks", StepId: "a", Token: page[0].GetToken(),
		Outcome: &progressorv1.CompleteStepRequest_Result{},
	}, kim); err != nil {
		t.Fatal(err)
	}
	if _, err := n.Cancel(t.Context(), &progressorv1.CancelRunRequest{
		Namespace: "pull", RunId: "x/y/0",
	}, kim); err != nil {
		t.Fatal(err)
	}
	same(t, list("template_type = ask"), "x/y/0:a")
	page, _, err = n.ListOpenWaits(t.Context(), &progressorv1.ListOpenWaitsRequest{
		Namespace: "pull", Filter: "template_type = ask",
	})
	if err != nil || len(page) != 1 || !page[0].GetCancelRequested() {
		t.Errorf("%v, %v", page, err)
	}
}

// TestStepList checks that step_list contains each step of a run, including those that have not
// begun, and each item.
func TestStepList(t *testing.T) {
	t.Parallel()
	n := start(t, storagetest.DSN(t))
	manyStatuses(t, n)
	for runID, want := range map[string]string{
		"runs":    "a RUNNING w , b PENDING  ",
		"asksall": "a RUNNING  , a.0 RUNNING  an answer, a.1 RUNNING  an answer",
		"both":    "a RUNNING  an answer, b PENDING  a worker",
		"later":   "a PENDING  , b PENDING  ",
	} {
		rows, err := n.DB.Query(t.Context(),
			`SELECT step_id || coalesce('.' || index, '') || ' ' || status || ' ' || coalesce(worker_id,
			'') || ' ' || coalesce(reason, '')
			FROM step_list WHERE namespace = 'pull' AND run_id = $1 ORDER BY ord, index NULLS FIRST`, runID)
		if err != nil {
			t.Fatal(err)
		}
		got, err := pgx.CollectRows(rows, pgx.RowTo[string])
		if err != nil {
			t.Fatal(err)
		}
		same(t, runID+": "+strings.Join(got, ", "), runID+": "+want)
	}
}

// TestItemsResultsReachTheNextStep checks that the step after a for_each sees the results of all
// items, even if the last item ended in a separate task.
func TestItemsResultsReachTheNextStep(t *testing.T) {
	t.Parallel()
	n := start(t, storagetest.DSN(t))
	n.put(t, "ns", `{"type": "each", "steps": [{"step_id": "a", "for_each": {"items": "payload"}, "input": "${item}",
		"job": {}},
		{"step_id": "b", "input": "${steps.a.result}", "condition": "size(steps.a.result) == size(payload)",
		"process": {}}, {"step_id": "c", "input": "${size(steps.a.result)}", "job": {}}]}`)
	n.run(t, "ns", "each", "r", `[1, 2, 3]`)
	r := n.ended(t, "ns", "r")
	same(t, runSummary(r), "SUCCEEDED: a SUCCEEDED b SUCCEEDED c SUCCEEDED")
	if got := r.GetSteps()[1].GetInput().GetListValue().GetValues(); len(got) != 3 || got[2].GetStringValue() != "a 3" {
		t.Errorf("%v", r.GetSteps()[1].GetInput())
	}
	same(t, r.GetResult().GetStringValue(), "c 3")
}

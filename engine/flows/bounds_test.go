package flows_test

import (
	"fmt"
	"strings"
	"testing"

	progressorv1 "github.com/progressor-engine/progressor/proto/progressor/v1"
	stored "github.com/progressor-engine/progressor/storage/flows"
	"github.com/progressor-engine/progressor/storage/storagetest"
)

// TestListStepsIsBoundedInBytes checks that a page of steps ends with the step that exceeds 8 MiB,
// and that the next page begins after it.
func TestListStepsIsBoundedInBytes(t *testing.T) {
	t.Parallel()
	n := start(t, storagetest.DSN(t))
	var steps []string
	for k := range 12 {
		steps = append(steps, fmt.Sprintf(`{"step_id": "s%02d", "wait": {}}`, k))
	}
	n.put(t, "pull", `{"type": "waits", "steps": [`+strings.Join(steps, ", ")+`]}`)
	n.run(t, "pull", "waits", "r", "")
	storagetest.Exec(t, n.DB, `INSERT INTO flow_steps (namespace, run_id, step_id, index, ord, status, result)
		SELECT 'pull', 'r', 's' || to_char(k, 'FM00'), 0, k, 'succeeded', to_jsonb(repeat('x', 1 << 20))
		  FROM generate_series(0, 11) k
		ON CONFLICT (namespace, run_id, step_id, index) DO UPDATE SET result = excluded.result`)
	q := &progressorv1.ListStepsRequest{Namespace: "pull", RunId: "r", PageSize: 1000}
	var pages []string
	for more := true; more; more = q.PageToken != "" {
		list, next, err := n.ListSteps(t.Context(), q)
		if err != nil {
			t.Fatal(err)
		}
		large := 0
		for _, s := range list {
			if s.GetResult() != nil {
				large++
			}
		}
		pages = append(pages, fmt.Sprint(large))
		q.PageToken = next
	}
	same(t, strings.Join(pages, " "), "8 4")
}

// TestGetRunIsBoundedInBytes checks that a run shows all its steps, but only the first 8 MiB of
// their values. The other steps report that values are omitted, and ListSteps returns these values.
func TestGetRunIsBoundedInBytes(t *testing.T) {
	t.Parallel()
	dsn := storagetest.DSN(t)
	n := start(t, dsn)
	var steps []string
	for k := range 12 {
		steps = append(steps, fmt.Sprintf(`{"step_id": "s%02d", "wait": {}}`, k))
	}
	n.put(t, "pull", `{"type": "waits", "steps": [`+strings.Join(steps, ", ")+`]}`)
	n.run(t, "pull", "waits", "r", "")
	storagetest.Exec(t, n.DB,
		`INSERT INTO flow_steps (namespace, run_id, step_id, index, ord, status, result, failure, progress)
		SELECT 'pull', 'r', 's' || to_char(k, 'FM00'), -1, k, 'succeeded', to_jsonb(repeat('x', 1 << 19)),
		       jsonb_build_object('reason', 'why', 'message', repeat('y', 1 << 18)), jsonb_build_object('percent', 40,
		         'summary', repeat('z', 1 << 18))
		  FROM generate_series(0, 11) k
		ON CONFLICT (namespace, run_id, step_id, index) DO UPDATE
		   SET result = excluded.result, failure = excluded.failure, progress = excluded.progress,
		     status = 'succeeded'`)
	show := func(r *progressorv1.Run) (text string) {
		for _, s := range r.GetSteps() {
			text += fmt.Sprintf("%s %t %d %s %d %.0f %d, ", s.GetStepId(), s.GetValuesOmitted(),
				len(s.GetResult().GetStringValue()),
				s.GetFailure().GetReason(), len(s.GetFailure().GetMessage()), s.GetProgress().GetPercent(),
				len(s.GetProgress().GetSummary()))
		}
		return text
	}
	complete, want := "false 524288 why 262144 40 262144", ""
	for k := range 12 {
		if k < 8 {
			want += fmt.Sprintf("s%02d %s, ", k, complete)
		} else {
			want += fmt.Sprintf("s%02d true 0 why 1000 40 0, ", k)
		}
	}
	r, err := n.Get(t.Context(), "pull", "r", 0)
	if err != nil {
		t.Fatal(err)
	}
	same(t, show(r), want)
	list, _, err := n.ListSteps(t.Context(), &progressorv1.ListStepsRequest{
		Namespace: "pull", RunId: "r", StepId: "s11",
	})
	if err != nil {
		t.Fatal(err)
	}
	same(t, show(&progressorv1.Run{Steps: list}), "s11 "+complete+", ")
	// The limit also applies on a node that does not find the template.
	storagetest.Exec(t, n.DB, `DELETE FROM flow_templates`)
	if r, err = start(t, dsn).Get(t.Context(), "pull", "r", 0); err != nil {
		t.Fatal(err)
	}
	same(t, show(r), want)
}

// TestListTemplatesIsBoundedInBytes checks that the bytes of a page of templates are limited,
// regardless of the page size.
func TestListTemplatesIsBoundedInBytes(t *testing.T) {
	t.Parallel()
	n := start(t, storagetest.DSN(t))
	for _, name := range []string{"a", "b", "c"} {
		n.put(t, "ns", fmt.Sprintf(`{"type": %q, "steps": [{"step_id": "s", "job": {}}]}`, name))
	}
	storagetest.Exec(t, n.DB, `UPDATE flow_templates
		SET definition = definition || jsonb_build_object('description', repeat('x', 5000000))`)
	for after, want := range map[string]string{"": "2 true", "b": "1 false"} {
		rows, cut, err := stored.ListTemplates(t.Context(), n.Store, "ns", after, 100)
		if err != nil {
			t.Fatal(err)
		}
		same(t, fmt.Sprint(len(rows), " ", cut), want)
	}
}

// TestListRunsShortensSummaries checks that a list has only the beginning of a run's summary.
func TestListRunsShortensSummaries(t *testing.T) {
	t.Parallel()
	n := start(t, storagetest.DSN(t))
	n.put(t, "pull", `{"type": "waits", "steps": [{"step_id": "a", "wait": {}}]}`)
	n.run(t, "pull", "waits", "r", "")
	storagetest.Exec(t, n.DB,
		`UPDATE flow_steps SET progress = jsonb_build_object('percent', 50, 'summary', repeat('x', 60000),
		'details', jsonb_build_object('k', 'v'))`)
	list, _, err := n.ListRuns(t.Context(), &progressorv1.ListRunsRequest{Namespace: "pull"})
	if err != nil || len(list) != 1 || list[0].GetProgress().GetPercent() != 50 ||
		len(list[0].GetProgress().GetSummary()) != 1000 {
		t.Errorf("%d runs, progress %.100v, %v", len(list), list[0].GetProgress(), err)
	}
}

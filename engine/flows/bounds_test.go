package flows_test

import (
	"fmt"
	"strings"
	"testing"

	progressorv1 "github.com/progressor-engine/progressor/proto/progressor/v1"
	stored "github.com/progressor-engine/progressor/storage/flows"
	"github.com/progressor-engine/progressor/storage/storagetest"
)

// fill changes rows to large values.
func (n *node) fill(t *testing.T, sql string) {
	t.Helper()
	if _, err := n.db.Exec(t.Context(), sql); err != nil {
		t.Fatal(err)
	}
}

// A page of steps ends with the step that passes 8 MiB, and the next page begins after it.
func TestListStepsIsBoundedInBytes(t *testing.T) {
	t.Parallel()
	n := start(t, storagetest.DSN(t))
	var steps []string
	for k := range 12 {
		steps = append(steps, fmt.Sprintf(`{"step_id": "s%02d", "wait": {}}`, k))
	}
	n.put(t, "pull", `{"type": "waits", "steps": [`+strings.Join(steps, ", ")+`]}`)
	n.run(t, "pull", "waits", "r", "")
	n.fill(t, `INSERT INTO flow_steps (namespace, run_id, step_id, index, ord, status, result)
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

// What a list reads of templates is bounded in bytes, too, however many it is asked for.
func TestListTemplatesIsBoundedInBytes(t *testing.T) {
	t.Parallel()
	n := start(t, storagetest.DSN(t))
	for _, name := range []string{"a", "b", "c"} {
		n.put(t, "ns", fmt.Sprintf(`{"type": %q, "steps": [{"step_id": "s", "job": {}}]}`, name))
	}
	n.fill(t, `UPDATE flow_templates
		SET definition = definition || jsonb_build_object('description', repeat('x', 5000000))`)
	for after, want := range map[string]string{"": "2 true", "b": "1 false"} {
		rows, cut, err := stored.ListTemplates(t.Context(), n.store, "ns", after, 100)
		if err != nil {
			t.Fatal(err)
		}
		same(t, fmt.Sprint(len(rows), " ", cut), want)
	}
}

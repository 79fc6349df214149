package flows_test

import (
	"strings"
	"testing"

	"github.com/progressor-engine/progressor/engine/enginetest"
	"github.com/progressor-engine/progressor/process"
	"github.com/progressor-engine/progressor/storage/storagetest"
)

// TestStateOfNewerVersion checks that a node does not change a run whose state a newer version of
// the engine has stored, and that the run continues when the node can read the state again.
func TestStateOfNewerVersion(t *testing.T) {
	t.Parallel()
	n := start(t, storagetest.DSN(t))
	n.put(t, "pull", `{"type": "one", "steps": [{"step_id": "a", "job": {}}]}`)
	change := func(runID, state string) {
		t.Helper()
		_, err := n.DB.Exec(t.Context(), `UPDATE processes SET aux_state = convert_to((`+state+`)::text, 'UTF8')
			FROM (SELECT convert_from(p.aux_state, 'UTF8')::jsonb AS old FROM processes p
			WHERE p.process_id = $1) stored
			WHERE process_id = $1`, "~flow/"+runID)
		if err != nil {
			t.Fatal(err)
		}
	}
	for runID, novel := range map[string]struct{ plant, remove, field string }{
		"outer":   {`old || '{"novel": 1}'`, `old - 'novel'`, `the field "novel"`},
		"inner":   {`jsonb_set(old, '{run,novel}', '[1]')`, `old #- '{run,novel}'`, `the field "novel"`},
		"version": {`jsonb_set(old, '{run,v}', '2')`, `jsonb_set(old, '{run,v}', '1')`, "version 2"},
	} {
		n.run(t, "pull", "one", runID, "")
		l := n.lease(t)
		change(runID, novel.plant)
		n.answer(t, l, "1", "")
		enginetest.Eventually(t, testTimeout, "the task of the run fails", func() bool {
			return enginetest.Count(t, n.DB,
				"SELECT count(*) FROM failed_attempts WHERE process_id = $1 AND reason = 'newer_state'",
				"~flow/"+runID) > 0
		})
		m, err := n.ExplainProcess(t.Context(), process.Key{Namespace: "pull", ProcessID: "~flow/" + runID})
		if err != nil {
			t.Fatal(err)
		}
		got := m.GetWaitsForDetail()
		if !strings.Contains(got, "newer_state: ") || !strings.Contains(got, novel.field+" of the state") {
			t.Errorf("%s: %s", runID, got)
		}
		if r, err := n.Get(t.Context(), "pull", runID, 0); err != nil || r.GetFinishedTime() != nil {
			t.Fatalf("%v, %v", r, err)
		}
		change(runID, novel.remove)
		same(t, runSummary(n.ended(t, "pull", runID)), "SUCCEEDED: a SUCCEEDED")
	}
}

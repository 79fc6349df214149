package flows_test

import (
	"maps"
	"testing"

	progressorv1 "github.com/progressor-engine/progressor/proto/progressor/v1"
	"github.com/progressor-engine/progressor/storage/storagetest"
)

// TestOverview checks that the overview counts runs that have not ended or ended without success,
// open waits, and jobs.
func TestOverview(t *testing.T) {
	t.Parallel()
	n := start(t, storagetest.DSN(t))
	n.put(t, "pull", `{"type": "ask", "steps": [{"step_id": "ask", "wait": {"kind": "KIND_HUMAN"}}]}`)
	n.put(t, "pull", `{"type": "work", "steps": [{"step_id": "work", "job": {}}]}`)
	for _, id := range []string{"open", "failed", "cancelled", "succeeded"} {
		n.run(t, "pull", "ask", id, "null")
	}
	n.run(t, "pull", "work", "works", "null")
	for id, r := range map[string]*progressorv1.CompleteStepRequest{
		"succeeded": result(nil),
		"failed": {Outcome: &progressorv1.CompleteStepRequest_Failure{
			Failure: &progressorv1.Failure{Reason: "no"},
		}},
	} {
		if _, err := n.complete(id, "ask", "", r); err != nil {
			t.Fatal(err)
		}
	}
	n.cancel(t, "pull", "cancelled")
	n.ended(t, "pull", "failed")
	for _, namespace := range []string{"pull", ""} {
		o, err := n.GetOverview(t.Context(), namespace, 0)
		if err != nil {
			t.Fatal(err)
		}
		for _, ns := range o.GetNamespaces() {
			runs, jobs, waits := map[string]int64{}, int64(0), int64(0)
			if ns.GetNamespace() == "pull" {
				runs, jobs, waits = map[string]int64{"active": 2, "failed": 1, "cancelled": 1}, 1, 1
			}
			if !maps.Equal(ns.GetRunsByStatus(), runs) || ns.GetOpenWaits() != waits ||
				ns.GetJobsByState()["available"] != jobs {
				t.Errorf("%q: %v", namespace, ns)
			}
		}
	}
}

package flows_test

import (
	"strings"
	"testing"

	"github.com/progressor-engine/progressor/storage/storagetest"
)

// TestRunsOfRunsAreChecked checks that a step fails if the template of its run does not allow the
// start, even if the step names a version.
func TestRunsOfRunsAreChecked(t *testing.T) {
	t.Parallel()
	n := start(t, storagetest.DSN(t))
	n.put(t, "ns", `{"type": "inner", "payload_schema": {"required": ["x"]}, "steps": [{"step_id": "a", "job": {}}]}`)
	n.put(t, "ns", `{"type": "off", "enabled": false, "steps": [{"step_id": "a", "job": {}}]}`)
	for id, tt := range map[string]struct{ run, want string }{
		"newest":  {`{"type": "inner", "payload": {"y": 1}}`, "payload.x"},
		"version": {`{"type": "inner", "version": 1, "payload": {"y": 1}}`, "payload.x"},
		"off":     {`{"type": "off", "version": 1}`, "template off is disabled"},
		"none":    {`{"type": "inner", "version": 2, "payload": {"x": 1}}`, "there is no version 2 of template inner"},
	} {
		n.put(t, "ns", `{"type": "outer", "steps": [{"step_id": "sub", "run": `+tt.run+`}]}`)
		n.run(t, "ns", "outer", id, "")
		r := n.ended(t, "ns", id)
		same(t, runSummary(r)+" "+r.GetFailure().GetReason(), "FAILED: sub FAILED not_started")
		if !strings.Contains(r.GetFailure().GetMessage(), tt.want) {
			t.Errorf("%s: %s", id, r.GetFailure().GetMessage())
		}
	}
}

// TestLargestInputs passes the largest payload to a process and a run.
func TestLargestInputs(t *testing.T) {
	t.Parallel()
	n := start(t, storagetest.DSN(t))
	n.put(t, "ns", `{"type": "inner", "steps": [{"step_id": "a", "delay": {"duration": "0s"}}]}`)
	n.put(t, "ns", `{"type": "outer", "step_order": "STEP_ORDER_GRAPH",
		"steps": [{"step_id": "sub", "run": {"type": "inner"}}, {"step_id": "p", "process": {}}]}`)
	// The stored JSON contains additional spaces.
	payload := `{"a":"` + strings.Repeat("x", 1<<20-40) + `","b":[1,2,3]}`
	n.run(t, "ns", "outer", "long", payload)
	r := n.ended(t, "ns", "long")
	same(t, runSummary(r), "SUCCEEDED: sub SUCCEEDED p SUCCEEDED")
}

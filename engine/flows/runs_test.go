package flows_test

import (
	"testing"

	"github.com/progressor-engine/progressor/storage/storagetest"
)

// TestLine checks that the steps of a linear template run one after the other, each with the input
// of its template.
func TestLine(t *testing.T) {
	t.Parallel()
	n := start(t, storagetest.DSN(t))
	n.put(t, "ns", `{"type": "line", "steps": [
		{"step_id": "first", "job": {}}, {"step_id": "second", "job": {}, "input": "${payload.n + 1.0}"},
		{"step_id": "third", "job": {"name": "last"}, "input": "${steps.first.result} and ${steps.second.status}"}]}`)
	n.run(t, "ns", "line", "r1", `{"n": 1}`)
	r := n.ended(t, "ns", "r1")
	same(t, runSummary(r), "SUCCEEDED: first SUCCEEDED second SUCCEEDED third SUCCEEDED")
	same(t, r.GetResult().GetStringValue(), `last "first {\"n\":1} and succeeded"`)
	same(t, r.GetSteps()[1].GetResult().GetStringValue(), "second 2")
}

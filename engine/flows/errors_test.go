package flows_test

import (
	"context"
	"fmt"
	"slices"
	"testing"

	progressorv1 "github.com/progressor-engine/progressor/proto/progressor/v1"
	"github.com/progressor-engine/progressor/storage/storagetest"
)

// TestFailedRunsAreErrors checks that the list of errors contains the runs that failed or expired,
// but not the jobs of their steps, the runs that their steps started, or cancelled runs.
func TestFailedRunsAreErrors(t *testing.T) {
	t.Parallel()
	n := start(t, storagetest.DSN(t))
	n.put(t, "ns", `{"type": "bad", "steps": [{"step_id": "a", "job": {}, "input": "${payload.missing}"}]}`)
	n.put(t, "ns", `{"type": "late", "timeout": "0.001s", "steps": [{"step_id": "a", "wait": {}}]}`)
	n.put(t, "ns", `{"type": "inner", "steps": [{"step_id": "only", "job": {}}]}`)
	n.put(t, "ns", `{"type": "outer", "steps": [{"step_id": "sub", "run": {"type": "inner"}}]}`)
	n.put(t, "ns", `{"type": "waits", "steps": [{"step_id": "a", "wait": {}}]}`)
	for runID, templateType := range map[string]string{"b1": "bad", "b2": "bad", "l1": "late", "o1": "outer"} {
		n.run(t, "ns", templateType, runID, `{"fail": {"only": "no luck"}}`)
		n.ended(t, "ns", runID)
	}
	for runID, fails := range map[string]string{"i1": "no tea", "i2": "no bread", "i3": "no bread"} {
		n.run(t, "ns", "inner", runID, `{"fail": {"only": "`+fails+`"}}`)
		n.ended(t, "ns", runID)
	}
	n.run(t, "ns", "waits", "w1", "")
	if _, err := n.Cancel(context.Background(), &progressorv1.CancelRunRequest{
		Namespace: "ns", RunId: "w1",
	}, kim); err != nil {
		t.Fatal(err)
	}
	groups, _, err := n.ListErrors(context.Background(), "ns", 0, "")
	if err != nil {
		t.Fatal(err)
	}
	list := func() []string {
		var got []string
		for _, g := range groups {
			runs, _, err := n.ListRuns(context.Background(), &progressorv1.ListRunsRequest{
				Namespace: "ns", Filter: g.GetFilter(),
			})
			if err != nil {
				t.Fatalf("%s: %v", g.GetFilter(), err)
			}
			got = append(got, fmt.Sprintf("%d %s %d %v", g.GetCount(), g.GetReason(), len(runs), g.GetRuns()))
		}
		slices.Sort(got)
		return got
	}
	want := []string{
		"1 broken 1 true", "1 broken 1 true", "1 timeout 1 true", "2 broken 2 true", "2 expression 2 true",
	}
	if got := list(); !slices.Equal(got, want) {
		t.Fatalf("%q, want %q", got, want)
	}
	if groups, _, err = n.ListErrors(context.Background(), "pull", 0, ""); err != nil || len(groups) != 0 {
		t.Fatalf("%v, %v", groups, err)
	}
}

package flows_test

import (
	"context"
	"strings"
	"testing"

	"github.com/progressor-engine/progressor/process"
	"github.com/progressor-engine/progressor/storage/storagetest"
)

// TestExplainRun checks that the explanation of a run describes what each step waits for, and that
// the explanation of a failed job of a step names the command that retries it.
func TestExplainRun(t *testing.T) {
	t.Parallel()
	n := start(t, storagetest.DSN(t))
	n.put(t, "pull", `{"type": "ask", "dedupe_keys": ["scope_id", "scope"], "steps": [
		{"step_id": "sign", "wait": {"kind": "KIND_HUMAN", "title": "Sign it", "assignees": ["sales", "kim"],
		"due": "3600s"}}, {"step_id": "ship", "job": {}}]}`)
	explains := func(id string, want ...string) {
		t.Helper()
		m, err := n.ExplainProcess(context.Background(), process.Key{Namespace: "pull", ProcessID: id})
		if err != nil {
			t.Fatal(err)
		}
		text := m.GetWaitsForDetail() + "\n" + m.GetNext() + "\n" + m.GetUnblock()
		for _, w := range want {
			if !strings.Contains(text, w) {
				t.Fatalf("no %q in\n%s", w, text)
			}
		}
	}
	n.run(t, "pull", "ask", "r1", "")
	explains("~flow/r1", `Step sign waits for sales, kim, "Sign it", until 20`,
		"To answer it, run progressor run complete pull r1 sign --result ….")
	if _, err := n.complete("r1", "sign", "", result(nil)); err != nil {
		t.Fatal(err)
	}
	n.until(t, "pull", "r1", "QUEUED")
	explains("~flow/r1", "The job of step ship has waited for a worker or a slot since")
	l := n.lease(t, "ship")
	explains("~flow/r1", "Worker w has the job of step ship.")
	n.answer(t, l, "", "no_address")
	n.ended(t, "pull", "r1")
	explains("~flow/r1", "The run is FAILED: no_address: as asked.",
		"To retry it from the steps that did not succeed, run progressor run retry pull r1.")
	explains("~job/r1/ship", "To retry its run, which runs the step again, run progressor run retry pull r1.")
}

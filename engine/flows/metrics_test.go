package flows_test

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/progressor-engine/progressor/engine/enginetest"
	"github.com/progressor-engine/progressor/process"
	progressorv1 "github.com/progressor-engine/progressor/proto/progressor/v1"
	"github.com/progressor-engine/progressor/storage/storagetest"
)

// counted returns the numbers of ended runs by status, without those that are 0.
func (n *node) counted(t *testing.T) string {
	t.Helper()
	families, err := n.Registry.Gather()
	if err != nil {
		t.Fatal(err)
	}
	var list []string
	for _, f := range families {
		if f.GetName() != "progressor_flow_runs_total" {
			continue
		}
		for _, m := range f.GetMetric() {
			if m.GetCounter().GetValue() == 0 {
				continue
			}
			list = append(list, fmt.Sprint(m.GetLabel()[0].GetValue(), " ", m.GetLabel()[1].GetValue(), " ",
				m.GetCounter().GetValue()))
		}
	}
	return strings.Join(list, ", ")
}

// TestEndsAreCounted checks that ended runs are counted by status. A retried run counts again when
// it ends. A run that did not start does not count.
func TestEndsAreCounted(t *testing.T) {
	t.Parallel()
	n := start(t, storagetest.DSN(t))
	n.put(t, "ns", `{"type": "one", "payload_schema": {"type": "object"},
		"steps": [{"step_id": "a", "job": {"name": "a"}, "input": "${payload}"}]}`)
	n.put(t, "ns", `{"type": "rest", "steps": [{"step_id": "a", "delay": {"duration": "3600s"}}]}`)
	_, err := n.Start(t.Context(),
		&progressorv1.StartRunRequest{Namespace: "ns", Type: "one", Payload: value(t, `[]`)}, process.Actor{})
	if wrong, ok := errors.AsType[*process.InvalidError](err); !ok || !wrong.Schema || wrong.Field != "payload" {
		t.Errorf("a payload that does not match its schema: %v", err)
	}
	n.run(t, "ns", "one", "r1", `{}`)
	n.ended(t, "ns", "r1")
	n.run(t, "ns", "one", "r2", `{"fail": {"a": "no"}}`)
	n.ended(t, "ns", "r2")
	if _, err := n.Retry(t.Context(), &progressorv1.RetryRunRequest{Namespace: "ns", RunId: "r2"},
		process.Actor{}); err != nil {
		t.Fatal(err)
	}
	n.ended(t, "ns", "r2")
	n.run(t, "ns", "rest", "r3", "")
	if _, err := n.Cancel(t.Context(), &progressorv1.CancelRunRequest{Namespace: "ns", RunId: "r3"},
		process.Actor{}); err != nil {
		t.Fatal(err)
	}
	n.ended(t, "ns", "r3")
	enginetest.Eventually(t, testTimeout, "the runs are counted", func() bool {
		return n.counted(t) == "ns cancelled 1, ns failed 2, ns succeeded 1"
	})
}

package flow_test

import (
	"reflect"
	"testing"

	"github.com/progressor-engine/progressor/flow"
	progressorv1 "github.com/progressor-engine/progressor/proto/progressor/v1"
)

// TestCompiled checks the properties of a compiled template that Decide uses: the index,
// dependencies, weight, join rule and inputs of each step, and whether the template is linear.
func TestCompiled(t *testing.T) {
	c := compile(t, graph(job("a", ""), job("b", `, "dependsOn": ["a"], "weight": 5, "cancelable": false`),
		job("c", `, "dependsOn": ["a"]`),
		job("d", `, "dependsOn": ["b", "c"], "joinRule": "JOIN_RULE_ANY_SUCCEEDED", `+
			`"condition": "steps.a.status == 'succeeded'", "input": {"b": "${steps.b.result.x}"}`)))
	if i, ok := c.Index("d"); i != 3 || !ok {
		t.Error("index of d:", i, ok)
	}
	if _, ok := c.Index("e"); ok {
		t.Error("Index found step e, which does not exist")
	}
	a, b, d := c.Steps[0], c.Steps[1], c.Steps[3]
	if !reflect.DeepEqual(a.Dependents, []int{1, 2}) || a.DependsOn != nil ||
		!reflect.DeepEqual(d.DependsOn, []int{1, 2}) {
		t.Errorf("edges: %v %v %v", a.Dependents, a.DependsOn, d.DependsOn)
	}
	if b.Weight != 5 || a.Weight != 1 || b.Cancelable || !a.Cancelable || a.Action != flow.ActionJob {
		t.Errorf("a %+v, b %+v", a, b)
	}
	if a.Join != progressorv1.JoinRule_JOIN_RULE_NONE_FAILED ||
		d.Join != progressorv1.JoinRule_JOIN_RULE_ANY_SUCCEEDED {
		t.Error("join rules:", a.Join, d.Join)
	}
	if !reflect.DeepEqual(d.Reads, []int{0, 1}) || a.Reads != nil {
		t.Error("reads:", d.Reads, a.Reads)
	}
	chain := compile(t, linear(job("a", ""), job("b", ""), job("c", "")))
	if !chain.Linear || c.Linear || !reflect.DeepEqual(chain.Steps[2].DependsOn, []int{1}) ||
		!reflect.DeepEqual(chain.Steps[0].Dependents, []int{1}) {
		t.Errorf("linear template: %+v", chain.Steps)
	}
}

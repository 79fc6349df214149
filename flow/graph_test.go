package flow_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"github.com/progressor-engine/progressor/flow"
	progressorv1 "github.com/progressor-engine/progressor/proto/progressor/v1"
)

// reaches returns which steps depend on which, over any number of steps. It uses Warshall's
// algorithm, which is slow and simple.
func reaches(n int, edges [][2]int) [][]bool {
	r := make([][]bool, n)
	for i := range r {
		r[i] = make([]bool, n)
	}
	for _, e := range edges {
		r[e[0]][e[1]] = true
	}
	for k := range n {
		for i := range n {
			for j := range n {
				r[i][j] = r[i][j] || r[i][k] && r[k][j]
			}
		}
	}
	return r
}

// TestCycles checks that each reported cycle exists, and that in a graph without cycles, a step may
// name exactly the steps on which it depends, directly or indirectly.
func TestCycles(t *testing.T) {
	cyclic := 0
	rapid.Check(t, func(t *rapid.T) {
		n := rapid.IntRange(1, 9).Draw(t, "steps")
		source := &progressorv1.Template{Namespace: "n", Type: "t", StepOrder: progressorv1.StepOrder_STEP_ORDER_GRAPH}
		for i := range n {
			source.Steps = append(source.Steps, &progressorv1.StepTemplate{StepId: fmt.Sprintf("s%d", i),
				Action: &progressorv1.StepTemplate_Job{Job: &progressorv1.JobAction{}}})
		}
		var edges [][2]int
		for range rapid.IntRange(0, 2*n).Draw(t, "edges") {
			e := [2]int{rapid.IntRange(0, n-1).Draw(t, "from"), rapid.IntRange(0, n-1).Draw(t, "on")}
			if !slices.Contains(edges, e) {
				edges = append(edges, e)
				source.Steps[e[0]].DependsOn = append(source.Steps[e[0]].DependsOn, fmt.Sprintf("s%d", e[1]))
			}
		}
		r := reaches(n, edges)
		isCyclic := false
		for i := range n {
			isCyclic = isCyclic || r[i][i]
		}
		compiled, problems := flow.Compile(source)
		if isCyclic {
			cyclic++
			checkCycles(t, edges, problems)
			return
		}
		if len(problems) > 0 {
			t.Fatal(lines(problems))
		}
		for i, s := range compiled.Steps {
			for _, on := range s.DependsOn {
				if !slices.Contains(edges, [2]int{i, on}) || !slices.Contains(compiled.Steps[on].Dependents, i) {
					t.Fatalf("%v: %d depends on %v", edges, i, s.DependsOn)
				}
			}
		}
		from, on := rapid.IntRange(0, n-1).Draw(t, "who names"), rapid.IntRange(0, n-1).Draw(t, "whom")
		source.Steps[from].Condition = fmt.Sprintf("steps.s%d.status == 'succeeded'", on)
		if _, problems := flow.Compile(source); (len(problems) == 0) != r[from][on] {
			t.Fatalf("%v: s%d depends on s%d, but the problems are:\n%s", edges, from, on, lines(problems))
		}
	})
	if cyclic == 0 {
		t.Error("no graph had a cycle")
	}
}

func checkCycles(t *rapid.T, edges [][2]int, problems []flow.Problem) {
	if len(problems) == 0 {
		t.Fatalf("%v: no problem reports a cycle", edges)
	}
	for _, p := range problems {
		_, rest, ok := strings.Cut(p.Message, "closes a cycle, ")
		written, _, _ := strings.Cut(rest, ":")
		ids := strings.Split(written, " → ")
		if !ok || len(ids) < 2 || ids[0] != ids[len(ids)-1] {
			t.Fatalf("%v: %s", edges, p)
		}
		for i := range len(ids) - 1 {
			var e [2]int
			_, _ = fmt.Sscanf(ids[i], "s%d", &e[0])
			_, _ = fmt.Sscanf(ids[i+1], "s%d", &e[1])
			if !slices.Contains(edges, e) {
				t.Fatalf("%v: %s has no edge %v", edges, p, e)
			}
		}
	}
}

// TestThousandSteps compiles 1,000 steps in a row, and 1,000 steps that depend on all previous
// ones. A cycle of 1,000 steps and a template of 1,001 steps are rejected.
func TestThousandSteps(t *testing.T) {
	steps := func(n int, dependsOn func(int) []string) string {
		var list []string
		for i := range n {
			list = append(list,
				job(fmt.Sprintf("s%d", i),
					`, "dependsOn": [`+strings.Join(dependsOn(i), ",")+`], "input": "${payload.x}"`))
		}
		return graph(list...)
	}
	before := func(i int) []string { return []string{fmt.Sprintf(`"s%d"`, i-1)}[:min(i, 1)] }
	all := func(i int) []string {
		var ids []string
		for n := range i {
			ids = append(ids, fmt.Sprintf(`"s%d"`, n))
		}
		return ids
	}
	for _, dependsOn := range []func(int) []string{before, all} {
		if c := compile(t, steps(1000, dependsOn)); len(c.Steps) != 1000 {
			t.Error(len(c.Steps))
		}
	}
	ring := source(t, steps(1000, before))
	ring.Steps[0].DependsOn = []string{"s999"}
	if _, problems := flow.Compile(ring); len(problems) != 1 ||
		!strings.Contains(problems[0].Message,
			"s0 → s999 → s998 → s997 → s996 → s995 → … → s5 → s4 → s3 → s2 → s1 → s0") {
		t.Error(lines(problems))
	}
	_, problems := flow.Compile(source(t, steps(1001, before)))
	if want := "steps: must be at most 1000 (got 1001): start runs of other templates from steps of this one"; lines(
		problems) != want {
		t.Error(lines(problems))
	}
}

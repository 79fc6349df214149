package flows_test

import (
	"fmt"
	"math/rand/v2"
	"strings"
)

// The random templates of TestRandomRuns.

// oneIn returns true in one of n cases.
func (m *model) oneIn(n int) bool { return m.rand.IntN(n) == 0 }

func pick[T any](r *rand.Rand, list ...T) T { return list[r.IntN(len(list))] }

func (m *model) payload() string {
	list := pick(m.rand, "[]", "[1]", "[1, 2, 3]", "[1, 1, 2, 5, 7]")
	return fmt.Sprintf(`{"x": %d, "list": %s, "text": %q}`, m.rand.IntN(3), list,
		strings.Repeat("<", pick(m.rand, 1, 1, 2000, 300_000)))
}

// template returns a random template without its type.
func (m *model) template() string {
	var fields []string
	graph := m.oneIn(2)
	if graph {
		fields = append(fields, `"step_order": "STEP_ORDER_GRAPH"`)
	}
	if m.oneIn(3) {
		fields = append(fields, `"retry_policy": {"max_attempts": 2, "backoff": {"steps": ["0.01s"]}}`)
	}
	if m.oneIn(6) {
		fields = append(fields, `"timeout": "0.5s"`)
	}
	if m.oneIn(2) {
		fields = append(fields, `"cancel_policy": {"grace": "`+pick(m.rand, "0s", "0.1s")+`"}`)
	}
	if m.oneIn(4) {
		fields = append(fields, `"result": "${steps.s0.`+pick(m.rand, "result", "status", "result.none.none")+`}"`)
	}
	var steps []string
	for i := range 1 + m.rand.IntN(6) {
		steps = append(steps, m.templateStep(i, graph))
	}
	return strings.Join(append(fields, `"steps": [`+strings.Join(steps, ",\n ")+`]`), ", ")
}

func (m *model) templateStep(i int, graph bool) string {
	fields := []string{fmt.Sprintf(`"step_id": "s%d"`, i)}
	add := func(format string, args ...any) { fields = append(fields, fmt.Sprintf(format, args...)) }
	if graph {
		var deps []string
		for j := range i {
			if m.oneIn(2) {
				deps = append(deps, fmt.Sprintf(`"s%d"`, j))
			}
		}
		add(`"depends_on": [%s]`, strings.Join(deps, ", "))
		if len(deps) > 0 {
			add(`"join_rule": %d`, m.rand.IntN(5))
		}
	} else if i > 0 && m.oneIn(6) {
		add(`"join_rule": "JOIN_RULE_ALL_ENDED"`)
	}
	if m.oneIn(5) {
		add(`"condition": %q`, pick(m.rand, "payload.x > 0", "payload.x > 1", "true", "false", "payload.none.none"))
	}
	if m.oneIn(3) {
		add(`"for_each": {"items": %q, "max_running": %d, "max_failures": %d}`,
			pick(m.rand, "payload.list", "payload.list", "payload.list", "[1, 2]", "[1, 2, 3, 4]", "payload.none"),
			m.rand.IntN(3), m.rand.IntN(2))
	}
	if m.oneIn(5) {
		add(`"cancelable": false`)
	}
	if m.oneIn(5) {
		add(`"ignore_failure": true`)
	}
	if m.oneIn(2) {
		add(`"compensation": {"name": "undo", "options": %s}`, m.jobOptions())
	}
	switch m.rand.IntN(10) {
	case 0:
		add(`"delay": {"duration": "%s"}`, pick(m.rand, "0s", "0.02s", "0.2s"))
	case 1, 2:
		wait := []string{fmt.Sprintf(`"kind": %d`, 1+m.rand.IntN(2))}
		if m.oneIn(3) {
			wait = append(wait, `"due": "0.05s"`,
				pick(m.rand, `"due_action": 1`, `"due_action": 2`, `"due_action": 3, "due_result": 1`))
		}
		add(`"wait": {%s}`, strings.Join(wait, ", "))
	case 3:
		do := pick(m.rand, "end", "end", "fail", "nothing")
		if do == "nothing" || m.oneIn(3) {
			add(`"timeout": "0.2s"`)
		}
		add(`"process": {"namespace": "ns"}, "input": {"do": %q, "bytes": %d}`, do, m.size())
	case 4:
		if m.oneIn(3) {
			add(`"timeout": "0.2s"`)
		}
		add(`"run": {"type": "inner"}`)
	default:
		add(`"timeout": "5s", "job": {"options": %s}`, m.jobOptions())
	}
	return "{" + strings.Join(fields, ", ") + "}"
}

func (m *model) jobOptions() string {
	return fmt.Sprintf(`{"max_retry": %d, "max_takeovers": %d, "backoff": {"steps": ["0.01s"]}, "cancel_grace": %q}`,
		m.rand.IntN(2), m.rand.IntN(2), pick(m.rand, "0s", "0.1s", "1s"))
}

// size returns a random size of a result: usually small, sometimes larger than allowed.
func (m *model) size() int { return modelSize(m.rand) }

func modelSize(r *rand.Rand) int {
	return pick(r, 0, 1, 1, 10, 10, 100, 2000, 100_000, 300_000, 1<<20-10, 2<<20)
}

package flow_test

import (
	"flag"
	"fmt"
	"maps"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/progressor-engine/progressor/flow"
)

var update = flag.Bool("update", false, "rewrite testdata/problems.txt; review the diff")

// sections returns the sections of a file by name. Each begins with "== NAME".
func sections(t *testing.T, name string) map[string]string {
	content, err := os.ReadFile(name)
	if err != nil && !*update {
		t.Fatal(err)
	}
	parts := map[string]string{}
	for part := range strings.SplitSeq("\n"+string(content), "\n== ") {
		if name, body, ok := strings.Cut(part, "\n"); ok {
			parts[name] = strings.TrimSuffix(body, "\n")
		}
	}
	return parts
}

// doubling returns 40 definitions, each of which refers twice to the next one.
func doubling(definition string) string {
	var list []string
	for i := range 40 {
		next := fmt.Sprintf(`{"$ref": "#/$defs/a%d"}`, i+1)
		list = append(list, fmt.Sprintf(`"a%d": {%s}`, i, fmt.Sprintf(definition, next, next)))
	}
	return strings.Join(append(list, `"a40": {"type": "object"}`), ",")
}

// TestProblems checks that each problem is reported with its path and a description of what is
// valid.
func TestProblems(t *testing.T) {
	const schema = `"payloadSchema": {"type": "object", "properties": %s}, "steps": [{"stepId": "a", "job": {}}]`
	wait := func(fields string) string { return linear(`{"stepId": "a", "wait": {` + fields + `}}`) }
	want := sections(t, "testdata/problems.txt")
	reported := map[string]string{}
	for _, test := range []struct{ name, template string }{
		{"no steps", `{}`},
		{"type", `{"type": "Order 1", "steps": [{"stepId": "a", "job": {}}]}`},
		{"long type", `{"type": "` + strings.Repeat("a", 129) + `", "steps": [{"stepId": "a", "job": {}}]}`},
		{"namespace", `{"namespace": "a b", "steps": [{"stepId": "a", "job": {}}]}`},
		{"step ids", linear(job("A", ""), job("a-b", ""), job("", ""), job(strings.Repeat("a", 65), ""))},
		{"twice", linear(job("a", ""), job("b", ""), job("a", ""))},
		{"weight", linear(job("a", `, "weight": -1`))},
		{"no action", linear(`{"stepId": "a"}`)},
		{"enum", `{"stepOrder": 7, "steps": [{"stepId": "a", "job": {}, "joinRule": 9}]}`},
		{"line with depends_on", linear(job("a", ""), job("b", `, "dependsOn": ["a"]`))},
		{"unknown step", graph(job("prepare", ""), job("execute", `, "dependsOn": ["prepar", "zzz"]`))},
		{"twice the same", graph(job("a", ""), job("b", `, "dependsOn": ["a", "a"]`))},
		{"itself", graph(job("a", `, "dependsOn": ["a"]`))},
		{"cycle", graph(job("x", ""), job("a", `, "dependsOn": ["x", "c"]`), job("b", `, "dependsOn": ["a"]`),
			job("c", `, "dependsOn": ["b"]`))},
		{"two cycles", graph(job("a", `, "dependsOn": ["b"]`), job("b", `, "dependsOn": ["a"]`),
			job("c", `, "dependsOn": ["d"]`), job("d", `, "dependsOn": ["c", "b"]`))},
		{"durations", `{"timeout": "-1s", "cancelPolicy": {"grace": "3153600001s"}, "steps": [{"stepId": "a", ` +
			`"job": {}, "timeout": "-2s"}]}`},
		{"timeout of a job", linear(job("a", `, "timeout": "31536001s"`))},
		{"start deadline", linear(`{"stepId": "a", "job": {"options": {"startDeadline": "0s"}}}`,
			`{"stepId": "c", "job": {"options": {"startDeadline": "-1s"}}}`,
			`{"stepId": "b", "job": {"options": {"startDeadline": "60s", "workers": {"count": 1}}}}`)},
		{"options", linear(`{"stepId": "a", "job": {"options": {"runTime": "2026-01-01T00:00:00Z", "unique": {}, ` +
			`"keepResult": true, "workers": {"count": 2}}}}`)},
		{"schema", `{` + fmt.Sprintf(schema, `{"a": {"type": "strin"}, "b": {"minimum": "1"}}`) + `}`},
		{"remote schema", `{` + fmt.Sprintf(schema, `{"a": {"$ref": "https://example.com/a.json"}}`) + `}`},
		{"relative schema", `{` + fmt.Sprintf(schema, `{"a": {"$ref": "a.json"}}`) + `}`},
		{"file schema", `{` + fmt.Sprintf(schema, `{"a": {"$ref": "file:///etc/passwd"}}`) + `}`},
		{"no such definition", `{` + fmt.Sprintf(schema, `{"a": {"$ref": "#/$defs/a"}}`) + `}`},
		{"pattern of a schema", `{` + fmt.Sprintf(schema, `{"a": {"pattern": "("}}`) + `}`},
		{"schema in a circle",
			`{"payloadSchema": {"properties": {"x": {"$ref": "#/$defs/a"}}, ` +
				`"$defs": {"a": {"anyOf": [{"$ref": "#/$defs/b"}]}, "b": {"$ref": "#/$defs/a"}}}, ` +
				`"steps": [{"stepId": "a", "job": {}}]}`},
		{"schema that doubles",
			`{"payloadSchema": {"$ref": "#/$defs/a0", "$defs": {` + doubling(`"allOf": [%s, %s]`) +
				`}}, "steps": [{"stepId": "a", "job": {}}]}`},
		{"schema that doubles below",
			`{"payloadSchema": {"$ref": "#/$defs/a0", "$defs": {` +
				doubling(`"properties": {"x": {"allOf": [%s, %s]}}`) + `}}, "steps": [{"stepId": "a", "job": {}}]}`},
		{"dialect", `{"payloadSchema": {"$schema": "http://json-schema.org/draft-07/schema#"}, "steps": [{"stepId": "a", "job": {}}]}`},
		{"dedupe keys", `{"dedupeKeys": ["user..id", "scope", "scope", ""], "steps": [{"stepId": "a", "job": {}}]}`},
		{"syntax", linear(job("a", `, "condition": "payload.a ="`))},
		{"deep", linear(job("a", `, "input": "${`+strings.Repeat("[", 240)+strings.Repeat("]", 240)+`}"`))},
		{"large", linear(job("a", `, "input": "${`+strings.Repeat(" ", 17_000)+`1}"`))},
		{"large together", linear(
			job("a", `, "input": ["`+strings.Repeat("${"+strings.Repeat(" ", 16_000)+`1}", "`, 17)+`"]`))},
		{"bare", linear(job("a", `, "condition": "payload"`), job("b", `, "condition": "steps.a"`),
			job("c", `, "condition": "steps"`), job("d", `, "condition": "run == 1"`))},
		{"name", linear(job("a", `, "condition": "payloat.a"`))},
		{"type of a condition", linear(job("a", `, "condition": "1 + 1"`), job("b", `, "condition": "scope"`))},
		{"field of a step", linear(job("a", ""), job("b", `, "condition": "steps.a.results.x"`))},
		{"has", linear(job("a", ""), job("b", `, "condition": "has(steps.a.result)"`),
			job("c", `, "condition": "has(run.id)"`))},
		{"variable of a macro", linear(job("a", `, "condition": "payload.all(steps, steps > 1)"`))},
		{"unknown step in an expression",
			linear(job("prepare", ""), job("b", `, "condition": "steps.prepar.status == 'succeeded'"`))},
		{"later step", linear(job("a", `, "input": "${steps.b.result}"`), job("b", ""))},
		{"own step", linear(job("a", `, "input": "${steps.a.result}"`))},
		{"no ancestor", graph(job("a", ""), job("b", `, "input": "${steps.a.result}"`))},
		{"item outside", linear(
			job("a", `, "condition": "item.x", "input": "${index}", "forEach": {"items": "[item]"}`))},
		{"items", linear(job("a", `, "forEach": {"items": "{'a': 1}"}`), job("b", `, "forEach": {}`))},
		{"time", linear(`{"stepId": "a", "delay": {"time": "'2026-01-01T00:00:00Z'"}}`,
			`{"stepId": "b", "delay": {"time": "1"}}`, `{"stepId": "c", "delay": {}}`)},
		{"literals", linear(job("a", `, "condition": "duration('1 hour') > duration('1s')"`),
			job("b", `, "condition": "'a'.matches('(')"`))},
		{"values", linear(job("a",
			`, "input": {"a b": ["${payload.", "${}", "$${ ${1 +}"], "c": "${{1: 2}}", "d": "${type(1)}"}`))},
		{"result", `{"result": {"x": "${steps.nope.result}"}, "steps": [{"stepId": "a", "job": {}}]}`},
		{"run", linear(`{"stepId": "a", "run": {"type": "A B", "version": -1, "payload": {"x": "${nope}"}}}`)},
		{"endless", linear(job("a", ""), `{"stepId": "b", "run": {"type": "order"}}`)},
		{"wait", wait(`"title": "${payload.", "assignees": ["${x}"], "dueAction": "DUE_ACTION_SKIP", "dueResult": 1`)},
		{"schema of an answer", wait(`"resultSchema": {"type": 1}`)},
		{"due result", wait(
			`"due": "3600s", "dueAction": "DUE_ACTION_SUCCEED", "resultSchema": {"type": "object", ` +
				`"required": ["ok", "by"], "properties": {"ok": {"type": "boolean"}}}, "dueResult": {"ok": 1}`)},
		{"no due result", wait(
			`"due": "3600s", "dueAction": "DUE_ACTION_SUCCEED", "resultSchema": {"type": "object"}`)},
		{"compensation", linear(`{"stepId": "a", "job": {}, "compensation": {}}`,
			`{"stepId": "b", "job": {"name": "x"}, "compensation": {"name": "y", "options": {"keepResult": true}}}`)},
		{"policy", `{"retryPolicy": {"maxAttempts": -1, "backoff": {"factor": 0.5, "jitter": 2}}, ` +
			`"steps": [{"stepId": "a", "job": {}}]}`},
		{"metadata", linear(`{"stepId": "a", "process": {"metadata": {"a": "` + strings.Repeat("x", 70_000) + `"}}}`)},
	} {
		t.Run(test.name, func(t *testing.T) {
			compiled, problems := flow.Compile(source(t, test.template))
			if compiled != nil {
				t.Error("compiled with problems")
			}
			reported[test.name] = lines(problems)
			if got := reported[test.name]; got != want[test.name] && !*update {
				t.Errorf("got:\n%s\nwant:\n%s", got, want[test.name])
			}
		})
	}
	if len(reported) != len(want) && !*update {
		t.Errorf("%d templates, and testdata/problems.txt has %d", len(reported), len(want))
	}
	if *update {
		var b strings.Builder
		for _, name := range slices.Sorted(maps.Keys(reported)) {
			fmt.Fprintf(&b, "== %s\n%s\n", name, reported[name])
		}
		if err := os.WriteFile("testdata/problems.txt", []byte(b.String()), 0o600); err != nil {
			t.Fatal(err)
		}
	}
}

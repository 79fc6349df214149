package flow_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/progressor-engine/progressor/flow"
)

// Schemas with many patterns, or many bytes, are rejected before they are compiled. 20,000 patterns
// took 46 s and 1.4 GB.
func TestSchemasAreBounded(t *testing.T) {
	t.Parallel()
	properties := func(n int, schema string) string {
		var list []string
		for i := range n {
			list = append(list, fmt.Sprintf(`"p%d": %s`, i, strings.ReplaceAll(schema, "#", fmt.Sprint(i))))
		}
		return `{"properties": {` + strings.Join(list, ",") + `}}`
	}
	named := func(n int) string {
		return strings.Replace(properties(n, "true"), `"properties"`, `"patternProperties"`, 1)
	}
	wait := func(schema string) string { return `{"stepId": "w", "wait": {"resultSchema": ` + schema + `}}` }
	for name, tt := range map[string]struct{ payload, answer, want string }{
		"few":      {properties(100, `{"pattern": "^(a|b){1,9}#$"}`), named(100), ""},
		"property": {`{"properties": {"pattern": {"type": "string"}}}`, properties(200, `{"pattern": "#"}`), ""},
		"many": {properties(20_000, `{"pattern": "^(a|b){1,9}x#$"}`), `{}`,
			"payload_schema: makes the schemas of the template larger than 262144 bytes in total"},
		"many short": {properties(2000, `{"pattern": "#"}`), `{}`,
			"payload_schema: makes the schemas of the template contain more than 200 patterns"},
		"names": {named(201), `{}`, "payload_schema: makes the schemas of the template contain more than 200 patterns"},
		"together": {properties(101, `{"pattern": "#"}`), named(100),
			"more than 200 patterns in total"},
		"nested": {`{"allOf": [` + properties(201, `{"items": {"pattern": "#"}}`) + `]}`, `{}`,
			"more than 200 patterns"},
		"bytes": {`{"title": "` + strings.Repeat("x", 262144) + `"}`, `{}`, "larger than 262144 bytes"},
		"bytes, together": {`{"title": "` + strings.Repeat("x", 200_000) + `"}`,
			`{"title": "` + strings.Repeat("x", 100_000) + `"}`, "larger than 262144 bytes"},
	} {
		_, problems := flow.Compile(source(t, `{"payloadSchema": `+tt.payload+`, "steps": [`+wait(tt.answer)+`]}`))
		if got := lines(problems); (got == "") != (tt.want == "") || !strings.Contains(got, tt.want) {
			t.Errorf("%s: %.300s, want %q", name, got, tt.want)
		}
	}
}

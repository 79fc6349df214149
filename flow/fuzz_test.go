package flow_test

import (
	"errors"
	"strings"
	"testing"
	"unicode/utf8"

	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/types/known/structpb"

	"github.com/progressor-engine/progressor/flow"
	progressorv1 "github.com/progressor-engine/progressor/proto/progressor/v1"
)

// FuzzCompile checks that Compile returns either a template or problems, and that the expressions
// of the template can be evaluated without a panic.
func FuzzCompile(f *testing.F) {
	for _, seed := range []string{
		graph(job("a", ""), job("b",
			`, "dependsOn": ["a", "b", "zz"], "condition": "steps.a.status == 'x'", `+
				`"input": {"x": ["${payload.a}", "$${"]}`)),
		linear(`{"stepId": "a", "wait": {"title": "${scope}", "assignees": ["${payload}"], "due": "1s", ` +
			`"dueAction": 3, "dueResult": {"a": 1}, "resultSchema": {"type": "object"}}}`),
		linear(`{"stepId": "a", "delay": {"time": "timestamp(payload.at)"}, `+
			`"forEach": {"items": "payload.list.map(x, x)"}}`,
			`{"stepId": "b", "run": {"type": "order", "payload": "${steps.a.result}"}}`),
		`{"payloadSchema": {"$ref": "#"}, "dedupeKeys": ["a.b"], "steps": [{"stepId": "a", "job": {}}]}`,
		`{"payloadSchema": {"$defs": {"a": {"$ref": "#/$defs/b"}, "b": {"$ref": "#/$defs/a"}}, "$ref": "#/$defs/a", ` +
			`"$dynamicRef": "#x"}, "steps": [null, {}]}`,
		`{"payloadSchema": {"$id": "x", "$anchor": "y", "properties": {"a": {"pattern": "(", "minimum": 1e400}}}}`,
	} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, text string) {
		m := &progressorv1.Template{}
		if protojson.Unmarshal([]byte(text), m) != nil {
			return
		}
		m.Namespace, m.Type = "shop", "order"
		c, problems := flow.Compile(m)
		if (c == nil) != (len(problems) > 0) {
			t.Fatal("neither a template nor a problem")
		}
		for _, p := range problems {
			if !utf8.ValidString(p.Path) || !utf8.ValidString(p.Message) || p.Message == "" {
				t.Errorf("problem %+q", p)
			}
		}
		if c == nil {
			return
		}
		s := scope(t)
		s.Step = func(int) (flow.Ended, error) { return flow.Ended{Status: "succeeded", Result: s.Payload}, nil }
		_ = c.CheckPayload(s.Payload)
		_ = c.DedupeKey("a", "b", s.Payload)
		for i := range c.Steps {
			step := &c.Steps[i]
			_, err := c.Condition(step, s)
			known(t, err)
			_, err = c.Input(step, s)
			known(t, err)
			_, err = c.Payload(step, s)
			known(t, err)
			if step.ForEach() {
				_, err = c.Items(step, s)
				known(t, err)
			}
			_ = step.CheckAnswer(s.Payload)
		}
	})
}

func known(t *testing.T, err error) {
	t.Helper()
	if _, ok := errors.AsType[*flow.ExpressionError](err); err != nil && !ok {
		t.Errorf("%T %v", err, err)
	}
}

// FuzzValue checks values with any text. A value is rejected with its path, evaluates to a result,
// or returns an error. A value without ${ stays unchanged.
func FuzzValue(f *testing.F) {
	for _, seed := range []string{"", "$", "${", "${}", "$${", "${payload}", "a${item}b", "${'}'}", "${{'a': 1}}",
		"${payload.list.map(x, x + x)}", "${r'\\'}", "${`a b`}", "${1u - 2u}",
		"${'a'.matches(payload.yes)}", "${[1].map(i, [1].map(j, i))}", "${bytes('x')}", "${google.protobuf.Struct{}}",
		"${google.protobuf.Any{}}", "${type(1) == int}", "${payload.?a}",
		"${duration('-1s')}", "${timestamp('0001-01-01T00:00:00Z')}", "${timestamp(253402300799)}",
		"${google.protobuf.Timestamp{seconds: 1}}", "${google.protobuf.Value{}}", "${steps.a.result}"} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, text string) {
		if !utf8.ValidString(text) {
			return
		}
		m := source(t, linear(job("a", ""), job("b", `, "forEach": {"items": "[1]"}`)))
		m.Steps[1].Input = structpb.NewListValue(
			&structpb.ListValue{Values: []*structpb.Value{structpb.NewStringValue(text)}})
		c, problems := flow.Compile(m)
		for _, p := range problems {
			if p.Path != "steps[1].input[0]" || p.Message == "" {
				t.Errorf("problem %+v", p)
			}
		}
		if c == nil {
			return
		}
		got, err := c.Input(&c.Steps[1], scope(t))
		known(t, err)
		if err != nil {
			return
		}
		if !strings.Contains(text, "${") && got.GetListValue().GetValues()[0].GetStringValue() != text {
			t.Errorf("%q became %v", text, got)
		}
		if _, err := got.MarshalJSON(); err != nil {
			t.Errorf("%q became invalid JSON: %v", text, err)
		}
	})
}

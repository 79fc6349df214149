package flow_test

import (
	"strings"
	"testing"

	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/types/known/structpb"

	"github.com/progressor-engine/progressor/flow"
	progressorv1 "github.com/progressor-engine/progressor/proto/progressor/v1"
)

// source reads a template from JSON. It sets the namespace and the type if they are missing.
func source(t testing.TB, text string) *progressorv1.Template {
	t.Helper()
	m := &progressorv1.Template{}
	if err := protojson.Unmarshal([]byte(text), m); err != nil {
		t.Fatalf("%s: %s", err, text)
	}
	if m.Namespace == "" {
		m.Namespace = "shop"
	}
	if m.Type == "" {
		m.Type = "order"
	}
	return m
}

func compile(t testing.TB, text string) *flow.Template {
	t.Helper()
	compiled, problems := flow.Compile(source(t, text))
	if len(problems) > 0 {
		t.Fatalf("%s\nproblems:\n%s", text, lines(problems))
	}
	return compiled
}

func lines(problems []flow.Problem) string {
	var list []string
	for _, p := range problems {
		list = append(list, p.String())
	}
	return strings.Join(list, "\n")
}

// value reads a value from JSON.
func value(t testing.TB, text string) *structpb.Value {
	t.Helper()
	v := &structpb.Value{}
	if err := protojson.Unmarshal([]byte(text), v); err != nil {
		t.Fatalf("%s: %s", err, text)
	}
	return v
}

func text(t testing.TB, v *structpb.Value) string {
	t.Helper()
	b, err := v.MarshalJSON()
	if err != nil {
		t.Fatal(err)
	}
	return strings.ReplaceAll(string(b), " ", "")
}

// linear returns a linear template with the given steps.
func linear(fields ...string) string { return `{"steps": [` + strings.Join(fields, ",") + `]}` }

// graph returns a graph template with the given steps.
func graph(fields ...string) string {
	return `{"stepOrder": "STEP_ORDER_GRAPH", "steps": [` + strings.Join(fields, ",") + `]}`
}

// job returns a step that is a job, with additional fields.
func job(id, more string) string { return `{"stepId": "` + id + `", "job": {}` + more + `}` }

package flow

import (
	"fmt"
	"testing"

	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/structpb"
	"pgregory.net/rapid"

	progressorv1 "github.com/progressor-engine/progressor/proto/progressor/v1"
)

// drawValue draws JSON with few names, so that paths often match.
func drawValue(t *rapid.T, depth int) *structpb.Value {
	kinds := 5
	if depth > 0 {
		kinds = 8
	}
	switch rapid.IntRange(0, kinds-1).Draw(t, "kind") {
	case 0:
		return structpb.NewNullValue()
	case 1:
		return structpb.NewBoolValue(rapid.Bool().Draw(t, "bool"))
	case 2:
		return structpb.NewNumberValue(rapid.Float64Range(-1e20, 1e20).Draw(t, "number"))
	case 3:
		return structpb.NewStringValue(rapid.String().Draw(t, "string"))
	case 4:
		return structpb.NewNumberValue(float64(rapid.IntRange(-3, 3).Draw(t, "integer")))
	case 5:
		list := &structpb.ListValue{}
		for range rapid.IntRange(0, 3).Draw(t, "items") {
			list.Values = append(list.Values, drawValue(t, depth-1))
		}
		return structpb.NewListValue(list)
	}
	object := &structpb.Struct{Fields: map[string]*structpb.Value{}}
	for _, name := range rapid.SliceOfN(rapid.SampledFrom([]string{"a", "b", "C_1"}), 0, 3).Draw(t, "names") {
		object.Fields[name] = drawValue(t, depth-1)
	}
	return structpb.NewStructValue(object)
}

// TestPlainPathsMatchCEL checks that a path is plain if and only if CEL accepts it, and that a
// plain path has the same value as in CEL, or an error if CEL returns an error.
func TestPlainPathsMatchCEL(t *testing.T) {
	source := &progressorv1.Template{Namespace: "n", Type: "t", Steps: []*progressorv1.StepTemplate{
		{StepId: "a", Action: &progressorv1.StepTemplate_Job{Job: &progressorv1.JobAction{}}},
	}}
	compiled, problems := Compile(source)
	if len(problems) > 0 {
		t.Fatal(problems)
	}
	seen := map[string]int{}
	rapid.Check(t, func(t *rapid.T) {
		scope := &Scope{Payload: drawValue(t, 3), Scope: "s", RunID: "r", Item: drawValue(t, 2), Index: 3,
			Step: func(int) (Ended, error) {
				return Ended{Status: "failed", Result: drawValue(t, 2), Failure: &progressorv1.Failure{Reason: "x"}},
					nil
			}}
		path := rapid.SampledFrom(
			[]string{"payload", "item", "steps.a.result", "steps.a.failure", "steps.a.status", "scope", "index",
				"run.id", "run.created_time"}).Draw(t, "root")
		if rapid.Bool().Draw(t, "deep") {
			for _, name := range rapid.SliceOfN(rapid.SampledFrom([]string{"a", "b", "C_1", "reason"}), 0, 3).Draw(t,
				"fields") {
				path += "." + name
			}
		}
		at := place{step: noStep, item: true}
		plain := parsePlain(path, at)
		c := newCompiler(source)
		c.template = compiled
		slow := &expression{path: "p", text: path}
		c.check(slow, at, wantValue)
		if len(c.list) > 0 {
			if plain != nil {
				t.Fatalf("%s is a plain path, but CEL rejects it: %s", path, c.list[0])
			}
			seen["refused"]++
			return
		}
		if plain == nil {
			t.Fatalf("%s is a path, but not plain", path)
		}
		vars := compiled.variables(scope)
		value := func(e *expression) (*structpb.Value, error) {
			result, err := e.eval(vars)
			if err != nil {
				return nil, err
			}
			return (&conversion{most: 1 << 30}).value(result)
		}
		want, wantErr := value(slow)
		got, err := value(&expression{path: "p", text: path, plain: plain})
		if (err == nil) != (wantErr == nil) || !proto.Equal(got, want) {
			t.Fatalf("%s in %s:\nplain %v, %v\nCEL   %v, %v", path, scope.Payload, got, err, want, wantErr)
		}
		seen[fmt.Sprint("error ", err != nil)]++
	})
	// -short tries only a few paths.
	if !testing.Short() && (seen["refused"] == 0 || seen["error true"] == 0 || seen["error false"] == 0) {
		t.Error("the paths are too similar:", seen)
	}
}

func TestClosing(t *testing.T) {
	for text, want := range map[string]int{
		"a}": 1, "}": 0, "": -1, "a": -1, "{1: {}}}x": 7, `'}'}`: 3, `"\"}"}`: 5, `r"\"}`: 4, `br'\'}`: 5,
		`'''a'}'''}`: 9, `'''}`: -1, `'}`: -1,
		"`}`}": 3, "`}": -1, "1 // }\n}": 7, "1 // }": -1, "1 / 2}": 5, `bar'x'}`: 6, `'\\'}`: 4,
	} {
		if got := closing(text); got != want {
			t.Errorf("%s: %d, want %d", text, got, want)
		}
	}
}

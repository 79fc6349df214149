package durable_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/types/known/durationpb"
	"google.golang.org/protobuf/types/known/structpb"

	"github.com/progressor-engine/progressor/flow"
	"github.com/progressor-engine/progressor/process"
	"github.com/progressor-engine/progressor/processor/durable"
	"github.com/progressor-engine/progressor/processor/processortest"
	progressorv1 "github.com/progressor-engine/progressor/proto/progressor/v1"
)

// Verdict is the answer of a person.
type Verdict struct {
	Approved bool      `json:"approved"`
	Comment  string    `json:"comment,omitempty"`
	Parts    []Part    `json:"parts"`
	At       time.Time `json:"at"`
	By       *string   `json:"by"`
	Hidden   int       `json:"-"`
	Count    uint
	Free     any         `json:"free"`
	Ratio    float64     `json:"ratio,omitzero"`
	Next     *Verdict    `json:"next,omitempty"`
	Older    []Verdict   `json:"older,omitempty"`
	Amount   json.Number `json:"amount,omitempty"`
	inner    int
}

// Part is a part of an answer.
type Part struct {
	Name string `json:"name"`
	N    int    `json:"n"`
}

// asks returns a function that asks a person with the given options.
func asks[Out any](opts ...durable.HumanOption) func(ctx durable.Ctx) (string, error) {
	return func(ctx durable.Ctx) (string, error) {
		answer, err := durable.Human[Out](ctx, "c", opts...)
		return fmt.Sprint(answer), err
	}
}

// A question is a run with a wait that has the options and a schema of the answer.
func TestHumanAsks(t *testing.T) {
	for want, f := range map[string]func(ctx durable.Ctx) (string, error){
		`{"kind":"KIND_HUMAN","title":"c","resultSchema":{"type":"boolean"}} null`: asks[bool](),
		`{"kind":"KIND_HUMAN","title":"Release $${a}?","assignees":["$${b}","sales"],` +
			`"resultSchema":{"type":"string"},"due":"172800s"} {"a":1}`: asks[string](
			durable.Title("Release ${a}?"), durable.Due(48*time.Hour), durable.Assignees("${b}", "sales"),
			durable.About(map[string]int{"a": 1})),
		`{"kind":"KIND_HUMAN","title":"c","resultSchema":` +
			`{"items":{"maximum":127,"minimum":-128,"type":"integer"},"type":["array","null"]},"due":"0.001s",` +
			`"dueAction":"DUE_ACTION_SUCCEED","dueResult":[7]} null`: asks[[]int8](
			durable.Due(-time.Hour), durable.DueAnswer([]int8{7})),
		`{"kind":"KIND_HUMAN","title":"c"} null`: asks[any](),
		`{"kind":"KIND_HUMAN","title":"c","resultSchema":{"const":1}} null`: asks[any](
			durable.AnswerSchema(map[string]int{"const": 1})),
	} {
		p := start(t, function(f))
		if len(p.Commands()) != 1 {
			t.Fatal(p.Commands())
		}
		c := p.Commands()[0].GetStartRun()
		if got := text(t, c.GetWait()) + " " + text(t, c.GetPayload()); got != want || c.GetRunId() != "process/c~1" {
			t.Errorf("%s\n got %s\nwant %s", c.GetRunId(), got, want)
		}
	}
}

// The schema of an answer follows from its type.
func TestHumanSchema(t *testing.T) {
	p := start(t, function(asks[Verdict]()))
	schema := p.Commands()[0].GetStartRun().GetWait().GetResultSchema().GetFields()
	check(t, "required", text(t, schema["required"].GetListValue()),
		`["approved","parts","at","Count","free"]`)
	const integer = `{"description":"a whole number","maximum":9223372036854775000,"minimum":-9223372036854775000,` +
		`"type":"integer"}`
	properties := schema["properties"].GetStructValue().GetFields()
	for name, want := range map[string]string{
		"approved": `{"type":"boolean"}`, "comment": `{"type":"string"}`, "free": `{}`,
		"by": `{"type":["string","null"]}`,
		"parts": `{"items":{"properties":{"n":` + integer + `,"name":{"type":"string"}},` +
			`"required":["name","n"],"type":"object"},"type":["array","null"]}`,
		"Count": `{"description":"a whole number, at least 0","maximum":18446744073709550000,"minimum":0,` +
			`"type":"integer"}`, "ratio": `{"type":"number"}`, "next": `{}`,
		"older": `{"items":{},"type":["array","null"]}`,
	} {
		check(t, name, text(t, properties[name].GetStructValue()), want)
	}
	if len(properties) != 11 || (Verdict{}).inner != 0 {
		t.Error(properties)
	}
}

// All values of a type are valid answers, even if everything that can be nil is nil.
func TestHumanDueAnswerWithNil(t *testing.T) {
	type nested struct {
		Verdict
		Bytes []byte
		Map   map[string]int
	}
	for name, f := range map[string]func(ctx durable.Ctx) (string, error){
		"struct":  asks[Verdict](durable.Due(1), durable.DueAnswer(Verdict{})),
		"nested":  asks[nested](durable.Due(1), durable.DueAnswer(nested{})),
		"slice":   asks[[]string](durable.Due(1), durable.DueAnswer([]string(nil))),
		"bytes":   asks[[]byte](durable.Due(1), durable.DueAnswer([]byte(nil))),
		"map":     asks[map[string]int](durable.Due(1), durable.DueAnswer(map[string]int(nil))),
		"map set": asks[map[int]bool](durable.Due(1), durable.DueAnswer(map[int]bool{1: true})),
		"pointer": asks[*int](durable.Due(1), durable.DueAnswer(nil)),
	} {
		p := start(t, function(f))
		if len(p.Commands()) != 1 {
			t.Fatal(name, p.Detail())
		}
		c := p.Commands()[0].GetStartRun()
		answer := &progressorv1.Template{Namespace: "ns", Type: "a", Version: 1, Steps: []*progressorv1.StepTemplate{{
			StepId: "a", Action: &progressorv1.StepTemplate_Wait{Wait: c.GetWait()},
		}}}
		if _, problems := flow.Compile(answer); len(problems) > 0 {
			t.Error(name, problems)
		}
	}
}

// accepts reports whether the engine accepts an answer to the question of a function.
func accepts(t *testing.T, f func(ctx durable.Ctx) (string, error), answer string) bool {
	t.Helper()
	w := start(t, function(f)).Commands()[0].GetStartRun().GetWait()
	w.Due, w.DueAction = durationpb.New(1), progressorv1.WaitAction_DUE_ACTION_SUCCEED
	w.DueResult = &structpb.Value{}
	if err := protojson.Unmarshal([]byte(answer), w.DueResult); err != nil {
		t.Fatal(answer, err)
	}
	_, problems := flow.Compile(&progressorv1.Template{Namespace: "ns", Type: "a", Version: 1,
		Steps: []*progressorv1.StepTemplate{{StepId: "a", Action: &progressorv1.StepTemplate_Wait{Wait: w}}}})
	return len(problems) == 0
}

// The engine rejects answers that cannot be decoded as the type of the answer.
func TestHumanAnswers(t *testing.T) {
	for _, tt := range []struct {
		name      string
		f         func(ctx durable.Ctx) (string, error)
		good, bad []string
	}{
		{"uint8", asks[uint8](), []string{"0", "255"}, []string{"-1", "256", "1.5", "null"}},
		{"int8", asks[int8](), []string{"-128", "127"}, []string{"-129", "128"}},
		{"int", asks[int](), []string{"-9223372036854775000", "9223372036854775000"},
			[]string{"1e30", "9223372036854775807", "-9223372036854775808"}},
		{"uint64", asks[uint64](), []string{"18446744073709549568"}, []string{"18446744073709551615"}},
		{"float32", asks[float32](), []string{"3.4028234e38"}, []string{"1e39"}},
		{"bytes", asks[[]byte](), []string{`""`, `"YWI="`, `"YWJj"`}, []string{`"yes"`, `"YWJ"`, "1"}},
		{"number", asks[json.Number](), []string{"1.5", `"12e3"`}, []string{`"x"`, "true"}},
		{"time", asks[time.Time](), []string{`"2026-01-31T15:04:05Z"`, `"2026-01-31T15:04:05.123+01:00"`},
			[]string{`"tomorrow"`, `"2026-01-31"`, `"2026-13-01T00:00:00Z"`, "1"}},
		{"times", asks[[]*time.Time](), []string{"null", "[null]"}, []string{`["x"]`}},
	} {
		for _, answer := range tt.good {
			if !accepts(t, tt.f, answer) {
				t.Errorf("%s: %s is rejected", tt.name, answer)
			}
		}
		for _, answer := range tt.bad {
			if accepts(t, tt.f, answer) {
				t.Errorf("%s: %s is accepted", tt.name, answer)
			}
		}
	}
}

// A function can handle an answer that cannot be decoded, and ask again.
func TestHumanBadAnswer(t *testing.T) {
	p := start(t, function(func(ctx durable.Ctx) (string, error) {
		_, err := durable.Human[time.Time](ctx, "c", durable.In("kids"))
		wrong, _ := errors.AsType[*durable.StepError](err)
		if wrong == nil || wrong.Reason != durable.ReasonBadValue {
			return "", err
		}
		_, err = durable.Human[bool](ctx, "again", durable.Title(wrong.Message))
		return "", err
	}))
	endOf(t, p, "~flow/process/c~1", &progressorv1.ChildEnd{
		Status: completed, Response: []byte(`"2026-02-30T00:00:00Z"`),
	})
	check(t, "journal", journal(p), "start:f child:c ended:c child:again")
	commands := p.Commands()
	title := commands[len(commands)-1].GetStartRun().GetWait().GetTitle()
	if !strings.HasPrefix(title, "the answer of run c cannot be decoded: ") {
		t.Error(title)
	}
}

// text returns a message as JSON without spaces, with the members in alphabetical order.
func text(t *testing.T, m interface{ ProtoReflect() protoreflect.Message }) string {
	t.Helper()
	text, err := protojson.Marshal(m)
	if err != nil {
		t.Fatal(err)
	}
	return strings.NewReplacer(`": `, `":`, `, "`, `,"`, `, {`, `,{`).Replace(string(text))
}

// Human returns the answer, or an error that says why there is no answer.
func TestHuman(t *testing.T) {
	for name, test := range map[string]struct {
		end  *progressorv1.ChildEnd
		want string
	}{
		"yes": {&progressorv1.ChildEnd{Status: completed, Response: []byte("true")},
			`{"k":"end","n":"f","v":"true"}`},
		"no": {&progressorv1.ChildEnd{Status: completed, Response: []byte("false")},
			`{"k":"end","n":"f","v":"false"}`},
		"due": {&progressorv1.ChildEnd{Status: broken, Reason: durable.ReasonTimeout, Detail: "no answer"},
			`{"k":"fail","n":"f","e":{"reason":"timeout","message":"run c: no answer"}}`},
		"withdrawn": {&progressorv1.ChildEnd{Status: cancelled},
			`{"k":"fail","n":"f","e":{"reason":"child_cancelled","message":"run c: the process was cancelled"}}`},
	} {
		t.Run(name, func(t *testing.T) {
			p := start(t, function(asks[bool](durable.In("kids"))))
			endOf(t, p, "~flow/process/c~1", test.end)
			check(t, "last event", lastEvent(p.Snapshot()), test.want)
		})
	}
}

// A function that fails withdraws its open questions.
func TestAsk(t *testing.T) {
	p := start(t, function(func(ctx durable.Ctx) (string, error) {
		first, second := durable.Ask[bool](ctx, "c"), durable.Ask[bool](ctx, "d")
		late := durable.After(ctx, "late", time.Hour)
		if durable.First(ctx, "which", first, second, late) == late {
			first.Cancel("too late")
			return "", context.DeadlineExceeded
		}
		return "answered", nil
	}))
	if err := p.Advance(t.Context(), 2*time.Hour); err != nil {
		t.Fatal(err)
	}
	check(t, "journal", journal(p),
		"start:f child:c child:d timer:late fired:late first:which cancel:c fail:f cancel:d")
	if p.Status() != process.StatusError {
		t.Error(p.Status(), p.Detail())
	}
}

// A question that cannot be asked is misuse.
func TestHumanMisuse(t *testing.T) {
	for want, f := range map[string]func(ctx durable.Ctx) (string, error){
		"run c: the value of About cannot be encoded as JSON": asks[bool](durable.About(func() {})),
		"run c: json: unsupported type":                       asks[bool](durable.AnswerSchema(func() {})),
		"run c: the schema must be a JSON":                    asks[bool](durable.AnswerSchema(7)),
		"run c: DueAnswer requires Due":                       asks[bool](durable.DueAnswer(true)),
		"run c: the value of DueAnswer cannot be decoded as the type of the answer": asks[bool](
			durable.Due(1), durable.DueAnswer("yes")),
		"DueAnswer does not match the schema of the answer: n: got string, want integer": asks[any](
			durable.Due(1), durable.DueAnswer(map[string]string{"n": "x"}), durable.AnswerSchema(map[string]any{
				"properties": map[string]any{"n": map[string]string{"type": "integer"}},
			})),
		"DueAnswer does not match the schema of the answer: got null, want boolean": asks[bool](
			durable.Due(1), durable.DueAnswer(nil)),
		"run c: the schema is not valid": asks[any](durable.AnswerSchema(map[string]int{"type": 7})),
		"only references inside the document are allowed": asks[any](
			durable.AnswerSchema(map[string]string{"$ref": "https://example.com/a"})),
		"commands[0].wait.title: must have at most 16384": asks[bool](durable.Title(strings.Repeat("x", 1<<15))),
		"commands[0].wait.assignees[0]: must have 1 to":   asks[bool](durable.Assignees("")),
		"commands[0].wait.due: must be 0 to":              asks[bool](durable.Due(1 << 62)),
		"commands[0].wait: must have at most 65536 bytes": asks[bool](durable.Title(strings.Repeat("x", 1<<17))),
	} {
		p := processortest.New(function(f))
		if _, err := p.Start(t.Context(), []byte(`{}`)); err != nil {
			t.Fatal(err)
		}
		if detail := p.Detail(); !strings.Contains(detail, "human_test.go") || !strings.Contains(detail, want) {
			t.Errorf("%q, want %s", detail, want)
		}
	}
}

package durable_test

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"time"

	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/reflect/protoreflect"

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

// asks asks with these options, and returns the answer.
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
		`{"kind":"KIND_HUMAN","title":"c","resultSchema":{"items":{"type":"integer"},"type":["array","null"]},` +
			`"due":"0.001s","dueAction":"DUE_ACTION_SUCCEED","dueResult":[7]} null`: asks[[]int](
			durable.Due(-time.Hour), durable.DueAnswer([]int{7})),
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
	properties := schema["properties"].GetStructValue().GetFields()
	for name, want := range map[string]string{
		"approved": `{"type":"boolean"}`, "comment": `{"type":"string"}`, "at": `{}`, "free": `{}`,
		"by": `{"type":["string","null"]}`,
		"parts": `{"items":{"properties":{"n":{"type":"integer"},"name":{"type":"string"}},` +
			`"required":["name","n"],"type":"object"},"type":["array","null"]}`,
		"Count": `{"minimum":0,"type":"integer"}`, "ratio": `{"type":"number"}`, "next": `{}`,
		"older": `{"items":{},"type":["array","null"]}`, "amount": `{}`,
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

// text returns a message as JSON without spaces, with the members in alphabetical order.
func text(t *testing.T, m interface{ ProtoReflect() protoreflect.Message }) string {
	t.Helper()
	text, err := protojson.Marshal(m)
	if err != nil {
		t.Fatal(err)
	}
	return strings.NewReplacer(`": `, `":`, `, "`, `,"`, `, {`, `,{`).Replace(string(text))
}

// Human returns the answer, or an error with the reason why there is none.
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
		"run c: the value of DueAnswer cannot be the answer":  asks[bool](durable.Due(1), durable.DueAnswer("yes")),
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

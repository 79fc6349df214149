package flow

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/types/known/structpb"

	"github.com/progressor-engine/progressor/cmd/progressor/internal/cli"
	"github.com/progressor-engine/progressor/cmd/progressor/internal/cli/clitest"
	"github.com/progressor-engine/progressor/cmd/progressor/internal/cli/cron"
	"github.com/progressor-engine/progressor/cmd/progressor/internal/cli/protoyaml"
	"github.com/progressor-engine/progressor/flow"
	progressorv1 "github.com/progressor-engine/progressor/proto/progressor/v1"
)

const wrongTemplate = `type: order
steps:
  - step_id: prepare
    job:
      options: {keep_result: true}
  - stepId: run
    dependsOn: [prepare]
    input:
      list:
        - a
        - "a b": ${steps.prepar.result}
    condition: 1 + 1
    wait:
      due: 1h
      due-action: succeed
      due_result: {ok: 1}
      result_schema: {properties: {ok: {type: boolean}}}
`

// Every problem of a template is printed with its line and path, or as JSON.
func TestTemplateCheck(t *testing.T) {
	file := clitest.TemplateFile(t, "order.yaml", wrongTemplate)
	r := clitest.Program{Commands: newCommands}.Run(t, "template", "check", "-f", file)
	want := strings.ReplaceAll(
		`FILE:5: steps[0].job.options.keep_result: is not allowed in a flow, which keeps the result of each step
FILE:7: steps[1].depends_on: is not allowed with step_order LINEAR, where each step follows the `+
			`previous one: remove it, or set step_order: GRAPH
FILE:11: steps[1].input.list[1]["a b"]: `+"`steps.prepar.result`"+`: there is no step prepar; did you mean prepare?
FILE:12: steps[1].condition: `+"`1 + 1`"+`: is of type int; a condition must be true or false
FILE:16: steps[1].wait.due_result.ok: must match result_schema: must be of type boolean (got number)
`, "FILE", file)
	if r.Code != cli.ExitUsage || r.Stdout != want || !strings.Contains(r.Stderr, "5 problems in 1 file") {
		t.Errorf("code %d\n%s%s\nwant\n%s", r.Code, r.Stdout, r.Stderr, want)
	}
	good := clitest.TemplateFile(t, "report.json",
		`{"type": "report", "steps": [{"stepId": "a", "job": {"name": "make"}}, {"stepId": "b", `+
			`"delay": {"duration": "60s"}}]}`)
	r = clitest.Program{Commands: newCommands}.Run(t, "template", "check", "-f", file, "-f", good, "-o", "json")
	var output struct{ Templates []checkedTemplate }
	if err := json.Unmarshal([]byte(r.Stdout), &output); err != nil {
		t.Fatalf("%s: %s", err, r.Stdout)
	}
	if all := output.Templates; r.Code != cli.ExitUsage || len(all) != 2 || len(all[0].Problems) != 5 ||
		all[0].Problems[0].Line != 5 || all[1].Type != "report" || len(all[1].Problems) != 0 {
		t.Errorf("code %d, %+v", r.Code, output)
	}
	out := clitest.Program{Commands: newCommands}.OK(t, "template", "check", "-f", good)
	for _, want := range []string{"report is valid, 2 steps in sequence", "a     job make\n",
		"b     delay of 1m  a\n"} {
		if !strings.Contains(out, want) {
			t.Errorf("the output has no %q:\n%s", want, out)
		}
	}
	// A response of the API is also a valid file.
	got, err := protojson.Marshal(
		&progressorv1.GetTemplateResponse{Template: &progressorv1.Template{Namespace: "a b", Type: "order"},
			Versions: []int32{1}})
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct{ text, want string }{
		{string(got), "-:1: namespace: \"a b\" must be 1 to 128 characters of"},
		{"type: x\nstepss: []\n", "-:2: stepss: unknown field; use one of namespace, type"},
		{"type: x\nsteps:\n  - step_id: a\n    timeout: soon\n",
			"-:4: steps[0].timeout: must be a duration with a unit, such as 30s or 1h"},
		{"type: [x\n", "-:1: did not find expected"},
		{"", "-: must be a Template, but the input is empty"},
		{"- a", "-:1: document: must have the fields of a Template"},
	} {
		if r := (clitest.Program{Commands: newCommands, Stdin: c.text}).Run(t, "template", "check", "-f",
			"-"); r.Code != cli.ExitUsage || !strings.Contains(r.Stdout, c.want) {
			t.Errorf("%q: code %d, %s; want %s", c.text, r.Code, r.Stdout, c.want)
		}
	}
	if r := (clitest.Program{Commands: newCommands}).Run(t, "template", "check", "-f", "/nowhere/x.yaml"); r.Code !=
		cli.ExitUsage || !strings.Contains(r.Stderr, "--file: open /nowhere/x.yaml") {
		t.Errorf("code %d, %s", r.Code, r.Stderr)
	}
}

func TestPathTokens(t *testing.T) {
	for path, want := range map[string]string{
		"": "", "a": "a", "steps[12].input": "steps|12|input", `a["b.c"].d`: "a|b.c|d", `a["\"]"][0][1]`: `a|"]|0|1`,
		`a["b`: "a", "a[": "a|",
	} {
		if got := strings.Join(protoyaml.PathTokens(path), "|"); got != want {
			t.Errorf("%s: %s, want %s", path, got, want)
		}
	}
}

// exampleTemplate compiles a template of examples/flows.
func exampleTemplate(t *testing.T, name string) *flow.Template {
	t.Helper()
	file := filepath.Join("../../../../../examples/flows", name)
	clitest.Program{Commands: newCommands}.OK(t, "template", "check", "-f", file)
	text, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	docs, err := templatesFrom(text)
	if err != nil {
		t.Fatal(err)
	}
	m := docs[0].template
	m.Namespace = "flows"
	compiled, problems := flow.Compile(m)
	if len(problems) > 0 {
		t.Fatal(problems)
	}
	return compiled
}

// The templates of examples/ are valid, and so are the inputs that they compute.
func TestExampleTemplates(t *testing.T) {
	for _, test := range []struct{ file, payload, inputs string }{
		{"demo_long_task.yaml", `{"target": "x"}`,
			`[{"target":"x"},{"parts":10,"prepared":{"of":0},"target":"x"},{"executed":{"of":1},"target":"x"}]`},
		{"external_worker_task.yaml", `{"document": "d-1", "language": "de"}`,
			`[{"answer_to":"run-1","document":"d-1"},{"of":0},{"document":"d-1","text":"done"}]`},
		{"scheduled_report.yaml", `{"from": "a", "to": "b", "recipients": ["x@example.com"]}`,
			`[{"from":"a","to":"b"},{"rows":{"of":0},"title":"Report of a to b"},` +
				`{"document":{"of":1},"number":1,"to":"item"}]`},
		{"multi_step_pipeline.yaml", `{"order": "A-7", "total": 1200, "parcels": [{"sku": "s", "count": 1}]}`,
			`[{"order":"A-7","parcels":[{"count":1,"sku":"s"}],"total":1200},` +
				`{"order":"A-7","parcels":[{"count":1,"sku":"s"}]},` +
				`{"order":"A-7","parcels":[{"count":1,"sku":"s"}],"total":1200},` +
				`{"amount":1200,"approved":true,"order":"A-7","reservation":{"of":1}},` +
				`{"label":"A-7-0","order":"A-7","parcel":"item"},` +
				`{"order":"A-7","parcels":{"of":4},"shipped":true}]`},
	} {
		c := exampleTemplate(t, test.file)
		payload := &structpb.Value{}
		if err := protojson.Unmarshal([]byte(test.payload), payload); err != nil {
			t.Fatal(err)
		}
		if problems := c.CheckPayload(payload); len(problems) > 0 {
			t.Errorf("%s: %v", test.file, problems)
		}
		scope := &flow.Scope{Payload: payload, RunID: "run-1", Item: structpb.NewStringValue("item"),
			Step: func(i int) (flow.Ended, error) {
				result, err := structpb.NewValue(map[string]any{"of": i})
				if c.Steps[i].ID == "translate" {
					result, err = structpb.NewValue(map[string]any{"text": "done"})
				}
				return flow.Ended{Status: "succeeded", Result: result}, err
			}}
		var inputs []any
		for i := range c.Steps {
			if ok, err := c.Condition(&c.Steps[i], scope); !ok || err != nil {
				t.Errorf("%s: condition of %s: %t, %v", test.file, c.Steps[i].ID, ok, err)
			}
			input, err := c.Input(&c.Steps[i], scope)
			if err != nil {
				t.Errorf("%s: %s", test.file, err)
			}
			inputs = append(inputs, input.AsInterface())
		}
		if got, err := json.Marshal(inputs); err != nil || string(got) != test.inputs {
			t.Errorf("%s:\ngot  %s, %v\nwant %s", test.file, got, err, test.inputs)
		}
		if _, err := c.Result(scope); err != nil {
			t.Errorf("%s: %s", test.file, err)
		}
		if c.DedupeKey("", "42", payload) == "" {
			t.Errorf("%s: two runs are never the same", test.file)
		}
	}
}

// The cron of the report computes a payload that the template of the report accepts.
func TestExampleCronOfATemplate(t *testing.T) {
	text, err := os.ReadFile("../../../../../examples/flows/scheduled_report_cron.yaml")
	if err != nil {
		t.Fatal(err)
	}
	c, err := cron.Read(text)
	if err != nil {
		t.Fatal(err)
	}
	target, problems := flow.CompileTarget(c.GetTarget().GetStartRun())
	if len(problems) > 0 {
		t.Fatal(problems)
	}
	payload, err := target.Payload(
		flow.Fire{CronID: "daily_report", Time: time.Date(2026, 11, 22, 5, 0, 0, 0, time.UTC), Attempt: 1})
	if err != nil {
		t.Fatal(err)
	}
	want := `{"from":"2026-11-21T05:00:00Z","recipients":["reports@example.com"],"to":"2026-11-22T05:00:00Z"}`
	if got, err := json.Marshal(payload.AsInterface()); err != nil || string(got) != want {
		t.Errorf("%s, %v, want %s", got, err, want)
	}
	report := exampleTemplate(t, "scheduled_report.yaml")
	if problems := report.CheckPayload(payload); len(problems) > 0 ||
		c.GetTarget().GetStartRun().GetType() != report.Source.GetType() {
		t.Error(problems)
	}
}

package flow_test

import (
	"errors"
	"fmt"
	"reflect"
	"strings"
	"testing"
	"time"

	"google.golang.org/protobuf/types/known/structpb"

	"github.com/progressor-engine/progressor/flow"
	"github.com/progressor-engine/progressor/process"
	progressorv1 "github.com/progressor-engine/progressor/proto/progressor/v1"
)

// scope returns the scope of a run in which step a succeeded, b failed and c was skipped.
func scope(t testing.TB) *flow.Scope {
	return &flow.Scope{
		Payload: value(t, `{"user": {"id": 7, "name": "Ada", "none": null}, "list": [1, "two", {"three": 3}],
			"price": 1.5, "total": {"$float": 1200}, "big": 9007199254740993,
			"at": "2026-03-01T10:00:00Z", "on": true, "a b": "c", "yes": "yes", "in": "reserved",
			"people": ["ada", "bob"], "empty": []}`),
		Scope: "user", ScopeID: "42", RunID: "r1", Attempt: 2,
		CreatedTime: time.Date(2026, 3, 1, 9, 0, 0, 500_000_000, time.UTC),
		Step: func(i int) (flow.Ended, error) {
			return []flow.Ended{
				{Status: "succeeded", Result: value(t, `{"url": "https://x/1", "n": 3}`)},
				{Status: "failed",
					Failure: &progressorv1.Failure{Reason: "timeout", Message: "too late",
						Details: value(t, `{"after": 30}`)}},
				{Status: "skipped"},
			}[i], nil
		},
		Item: value(t, `{"sku": "x"}`), Index: 4,
	}
}

// evaluated evaluates input as the input of the last of four steps. The expressions in input may
// use every variable, including the item and the other steps.
func evaluated(t testing.TB, input string) (*structpb.Value, error) {
	t.Helper()
	c := compile(t, linear(job("a", ""), job("b", ""), job("c", ""),
		job("d", `, "forEach": {"items": "[1]"}, "input": `+input)))
	return c.Input(&c.Steps[3], scope(t))
}

func TestValues(t *testing.T) {
	for _, test := range []struct{ input, want string }{
		{`1`, `1`}, {`null`, `null`}, {`"text"`, `"text"`}, {`[1, {"a": "b"}]`, `[1,{"a":"b"}]`},
		{`"${payload.user}"`, `{"id":7,"name":"Ada","none":null}`},
		{`"${payload.user.none}"`, `null`},
		{`"${payload.total + 1.0}"`, `1201`}, {`"${payload.total > 1000.0}"`, `true`},
		{`"${payload.total}"`, `{"$float":1200}`},
		{`"${ payload.user.id }"`, `7`},
		{`{"id": "${payload.user.id}", "list": ["x", "${payload.list}"], "plain": true}`,
			`{"id":7,"list":["x",[1,"two",{"three":3}]],"plain":true}`},
		{`"user-${payload.user.id}/${payload.user.name}"`, `"user-7/Ada"`},
		{`"${scope}:${scope_id} ${run.id}#${run.attempt}"`, `"user:42r1#2"`},
		{`"${payload.list}, ${payload.user} and ${payload.on} or ${payload.price}"`,
			`"[1,\"two\",{\"three\":3}],{\"id\":7,\"name\":\"Ada\",\"none\":null}andtrueor1.5"`},
		{`"$${payload.x} costs $5 and $$${payload.price}$"`, `"${payload.x}costs$5and$${payload.price}$"`},
		{`"$$ ${payload.price}"`, `"$$1.5"`},
		{`"${steps.a.status} ${steps.b.status} ${steps.c.status}"`, `"succeededfailedskipped"`},
		{`"${steps.a.result.url}"`, `"https://x/1"`},
		{`"${steps.c.result}"`, `null`},
		{`"${steps.a.failure}"`, `null`},
		{`"${steps.b.failure}"`,
			`{"details":{"after":30},"message":"toolate","non_retryable":false,"reason":"timeout"}`},
		{`"${steps.b.failure.details.after}"`, `30`},
		{`{"item": "${item.sku}", "index": "${index}", "next": "${index + 1}"}`, `{"index":4,"item":"x","next":5}`},
		{`"${run.created_time}"`, `"2026-03-01T09:00:00.500Z"`},
		{`"${timestamp(payload.at) - run.created_time}"`, `"3599.500s"`},
		{`"${duration('90s')}"`, `"90s"`},
		{`"${timestamp(payload.at) + duration('24h')}"`, `"2026-03-02T10:00:00Z"`},
		{`"${9007199254740991}"`, `9007199254740991`},
		{`"${9007199254740992}"`, `"9007199254740992"`},
		{`"${-9007199254740992}"`, `"-9007199254740992"`},
		{`"${18446744073709551615u}"`, `"18446744073709551615"`},
		{`"n${9007199254740993}"`, `"n9007199254740993"`},
		{`"${b'\\xff\\x00'}"`, `"/wA="`},
		{`"${1.0 / 3.0}"`, `0.3333333333333333`},
		{`"${payload.list.map(x, type(x) == string)}"`, `[false,true,false]`},
		{`"${{'a': payload.user.id, 'b': [scope, {'}': '${'}]}}"`, `{"a":7,"b":["user",{"}":"${"}]}`},
		{`"${'}' + \"}\" + r'\\' + '''}'}'''}"`, `"}}\\}'}"`},
		{`"${payload['a b']}"`, `"c"`},
		{`"${payload.list[2].three}"`, `3`},
		{`"${payload.list[payload.user.id > 3.0 ? 1 : 0]}"`, `"two"`},
		{`"${has(payload.user.email) ? payload.user.email : 'none'}"`, `"none"`},
		{`"${payload.user == {'id': 7, 'name': 'Ada', 'none': null}}"`, `true`},
		{`"${payload.user.id + 1.0}"`, `8`},
		{`"${steps.a.result.n > 2 && steps.b.failure.reason == 'timeout'}"`, `true`},
		{`"${[1, 2, 3].filter(n, n > 1).map(n, n * 2)}"`, `[4,6]`},
		{`"${payload.list.size()}"`, `3`},
		{`"${// a comment with }\npayload.on}"`, `true`},
	} {
		got, err := evaluated(t, test.input)
		if err != nil {
			t.Errorf("%s: %s", test.input, err)
		} else if text(t, got) != test.want {
			t.Errorf("%s:\ngot  %s\nwant %s", test.input, text(t, got), test.want)
		}
	}
}

// TestErrors checks that an error names the expression, its path and the reason.
func TestErrors(t *testing.T) {
	for _, test := range []struct{ input, want string }{
		{`{"x": ["${payload.user.email}"]}`,
			"steps[3].input.x[0]: `payload.user.email`: there is no field \"email\" in payload.user"},
		{`"${payload.user.none.x}"`,
			"steps[3].input: `payload.user.none.x`: payload.user.none is null and has no field \"x\""},
		{`"${payload.list.x}"`, "steps[3].input: `payload.list.x`: payload.list is a list and has no field \"x\""},
		{`"${steps.c.result.url}"`,
			"steps[3].input: `steps.c.result.url`: steps.c.result is null and has no field \"url\""},
		{`"Dear ${payload.user.none}"`,
			"steps[3].input: `payload.user.none`: is null, which has no text: provide a default, as in " +
				"${EXPR != null ? EXPR : 'none'}"},
		{`"${payload.user.email + 'x'}"`, "steps[3].input: `payload.user.email + 'x'`: there is no field \"email\""},
		{`"${payload.user.id + 1}"`,
			"no such overload: an operator, a function or a field is used with a value of the wrong type (numbers in " +
				"JSON are doubles: 1.0, not 1; null has no fields)"},
		{`"${payload.list[9]}"`, "steps[3].input: `payload.list[9]`: index out of bounds: 9"},
		{`"${1 / (index - 4)}"`, "steps[3].input: `1 / (index - 4)`: division by zero"},
		{`"${1.0 / 0.0}"`, "steps[3].input: `1.0 / 0.0`: is +Inf, which JSON cannot represent"},
		{`"${dyn({1: 2})}"`,
			"steps[3].input: `dyn({1: 2})`: has the key 1 of type int, but the keys of a JSON object are strings: " +
				"write string(…) around it"},
		{`"${dyn({'a b': [type(1)]})}"`,
			"steps[3].input: `dyn({'a b': [type(1)]})`: [\"a b\"]: [0]: is of type type, which JSON cannot represent"},
		{`"${timestamp(payload.yes)}"`, "steps[3].input: `timestamp(payload.yes)`: "},
		{`"${[1,2,3,4,5,6,7,8,9].all(a, [1,2,3,4,5,6,7,8,9].all(b, [1,2,3,4,5,6,7,8,9].all(c, ` +
			`[1,2,3,4,5,6,7,8,9].all(d, a + b + c + d > 0))))}"`, "costs more than"},
	} {
		_, err := evaluated(t, test.input)
		var e *flow.ExpressionError
		if !errors.As(err, &e) || !strings.Contains(err.Error(), test.want) {
			t.Errorf("%s:\ngot  %v\nwant %s", test.input, err, test.want)
		}
	}
}

// TestBounds checks the limits on the size of results and on their cost. CEL itself would count the
// cost of some of these functions as 1 per call.
func TestBounds(t *testing.T) {
	var items []any
	for i := range 10_000 {
		items = append(items, map[string]any{"sku": fmt.Sprint(i), "price": float64(i)})
	}
	payload, err := structpb.NewValue(
		map[string]any{"items": items, "text": strings.Repeat("x", 100_000), "half": strings.Repeat("x", 600_000)})
	if err != nil {
		t.Fatal(err)
	}
	for _, test := range []struct{ input, want string }{
		{`"${payload.items.filter(i, i.price >= 9998.0).map(i, {'id': i.sku, 'double': i.price * 2.0})}"`, ""},
		{`"${payload.items.map(i, payload.text + payload.text)}"`, "costs more than the limit"},
		{`"${payload.items.all(i, payload == payload)}"`, "costs more than the limit"},
		{`"${payload.items.all(i, !payload.text.matches('(a*)*b'))}"`, "costs more than the limit"},
		{`"${payload.items.all(i, !('nothing' in payload.items))}"`, "costs more than the limit"},
		{`"${payload.items.map(i, payload.items)}"`, "is larger than 1048576 bytes"},
		{`["${payload.half}", "${payload.half}"]`, "is larger than 1048576 bytes"},
		{`"${payload.half} ${payload.half}"`, "is larger than 1048576 bytes"},
	} {
		c := compile(t, linear(job("a", `, "input": `+test.input)))
		_, err := c.Input(&c.Steps[0], &flow.Scope{Payload: payload})
		if (test.want == "") != (err == nil) || err != nil && !strings.Contains(err.Error(), test.want) {
			t.Errorf("%s: got %v, want %q", test.input, err, test.want)
		}
	}
}

// TestLargestValues checks that values of exactly the maximum size are accepted, including a list
// of many small values.
func TestLargestValues(t *testing.T) {
	c := compile(t, linear(job("a", `, "input": "${payload}"`), job("b", `, "input": "${[payload][0]}"`)))
	zeros := &structpb.ListValue{}
	for range process.MaxPayloadBytes/2 - 1 { // "[0,0,…,0]"
		zeros.Values = append(zeros.Values, structpb.NewNumberValue(0))
	}
	text := strings.Repeat("x", process.MaxPayloadBytes-len(`""`))
	tooLong := &structpb.ListValue{Values: append(zeros.Values, structpb.NewStringValue(text))}
	for _, test := range []struct {
		payload *structpb.Value
		fits    bool
	}{
		{structpb.NewStringValue(text), true},
		{structpb.NewStringValue(text + "xx"), false},
		{structpb.NewListValue(zeros), true},
		{structpb.NewListValue(tooLong), false},
	} {
		for n := range c.Steps {
			if _, err := c.Input(&c.Steps[n], &flow.Scope{Payload: test.payload}); (err == nil) != test.fits {
				t.Errorf("step %d, %.20s…: %v, want it to fit: %t", n, test.payload, err, test.fits)
			}
		}
	}
}

// TestConstants checks that an input without expressions is returned without a copy.
func TestConstants(t *testing.T) {
	c := compile(t, linear(job("a", `, "input": {"x": ["a", 1, null, {"y": "$"}]}`)))
	s := scope(t)
	s.Step = func(int) (flow.Ended, error) { return flow.Ended{}, errors.New("no expression names a step") }
	got, err := c.Input(&c.Steps[0], s)
	if err != nil || got != c.Source.GetSteps()[0].GetInput() {
		t.Error("the constant was copied:", got, err)
	}
	if n := testing.AllocsPerRun(100, func() { _, _ = c.Input(&c.Steps[0], s) }); n != 0 {
		t.Error("a constant takes", n, "allocations")
	}
}

// TestLazyLookup checks that an evaluation looks up a step only when it needs the step, and at most
// once. An error of the lookup is returned.
func TestLazyLookup(t *testing.T) {
	c := compile(t, linear(job("a", ""), job("b", ""), job("c", ""),
		job("d", `, "condition": "payload.on || steps.a.result.x == 1", "input": ["${steps.b.result}", `+
			`"${steps.b.status}", "${[1, 2].all(i, steps.b.status != steps.c.status)}"]`)))
	asked := map[int]int{}
	s := scope(t)
	step := s.Step
	s.Step = func(i int) (flow.Ended, error) { asked[i]++; return step(i) }
	if ok, err := c.Condition(&c.Steps[3], s); !ok || err != nil || len(asked) > 0 {
		t.Error(ok, err, asked)
	}
	if _, err := c.Input(&c.Steps[3], s); err != nil || !reflect.DeepEqual(asked, map[int]int{1: 1, 2: 1}) {
		t.Error(err, asked)
	}
	if !reflect.DeepEqual(c.Steps[3].Reads, []int{0, 1, 2}) {
		t.Error("reads", c.Steps[3].Reads)
	}
	errDown := errors.New("the database is unavailable")
	s.Step = func(int) (flow.Ended, error) { return flow.Ended{}, errDown }
	for _, condition := range []string{"steps.a.status == 'x'", "steps.a.result"} {
		c := compile(t, linear(job("a", ""), job("b", `, "condition": "`+condition+`"`)))
		if _, err := c.Condition(&c.Steps[1], s); err != errDown { //nolint:errorlint // must not be wrapped
			t.Errorf("%s: %v", condition, err)
		}
	}
}

func TestConditionsItemsAndTimes(t *testing.T) {
	s := scope(t)
	for condition, want := range map[string]string{
		"payload.on": "true", "!payload.on": "false", "payload.user.id == 7": "true",
		"steps.a.status == 'succeeded'": "true",
		"payload.yes": "steps[3].condition: `payload.yes`: is a string; a condition must be true " +
			"or false",
		"payload.list[0]": "steps[3].condition: `payload.list[0]`: is of type double; a condition must be true " +
			"or false",
		"payload.no": "steps[3].condition: `payload.no`: there is no field \"no\" in payload",
	} {
		c := compile(t, linear(job("a", ""), job("b", ""), job("c", ""), job("d", `, "condition": "`+condition+`"`)))
		if ok, err := c.Condition(&c.Steps[3], s); fmt.Sprint(ok) != want && (err == nil || err.Error() != want) {
			t.Errorf("%s: %t, %v, want %s", condition, ok, err, want)
		}
	}
	for items, want := range map[string]string{
		"payload.list": `[1,"two",{"three":3}]`, "payload.list.filter(x, x == 1)": `[1]`, "[]": `[]`,
		"payload.empty": `[]`, "[scope, 'x']": `["user","x"]`,
		"payload.user":   "steps[0].for_each.items: `payload.user`: is an object; for_each needs a list",
		"payload.price":  "steps[0].for_each.items: `payload.price`: is a number; for_each needs a list",
		"payload[scope]": "steps[0].for_each.items: `payload[scope]`: there is no field \"user2\"",
		"dyn([{1: 2}])": "steps[0].for_each.items: `dyn([{1: 2}])`: [0]: has the key 1 of type int, but the " +
			"keys of a JSON object are strings: write string(…) around it",
		"payload['a b']":     "steps[0].for_each.items: `payload['a b']`: is of type string; for_each needs a list",
		"payload.user.none":  "steps[0].for_each.items: `payload.user.none`: is null; for_each needs a list",
		"payload.list[1][0]": "there is no field \"0\"",
	} {
		s.Scope = "user"
		if items == "payload[scope]" {
			s.Scope = "user2"
		}
		c := compile(t, linear(job("a", `, "forEach": {"items": "`+items+`"}`)))
		list, err := c.Items(&c.Steps[0], s)
		if got := text(t, structpb.NewListValue(&structpb.ListValue{Values: list})); err == nil && got != want ||
			err != nil && !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %s, %v, want %s", items, got, err, want)
		}
	}
	now := time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)
	for until, want := range map[string]string{
		`"duration": "90s"`:                                "2026-03-01 12:01:30 +0000 UTC",
		`"time": "run.created_time"`:                       "2026-03-01 09:00:00.5 +0000 UTC",
		`"time": "timestamp(payload.at) + duration('1h')"`: "2026-03-01 11:00:00 +0000 UTC",
		`"time": "payload.at"`: "steps[0].delay.time: `payload.at`: is a " +
			"string: write timestamp(…) around it",
		`"time": "payload['a b']"`: "steps[0].delay.time: `payload['a b']`: is a string: write timestamp(…) around it",
		`"time": "payload.list"`: "steps[0].delay.time: `payload.list`: is a " +
			"list; a delay needs a timestamp",
		`"time": "payload.on ? dyn(1) : dyn(run.created_time)"`:     "is of type int; a delay needs a timestamp",
		`"time": "payload.price > 1.0 ? run.created_time : dyn(1)"`: "2026-03-01 09:00:00.5 +0000 UTC",
	} {
		c := compile(t, linear(`{"stepId": "a", "delay": {`+until+`}}`))
		if at, err := c.Until(&c.Steps[0], scope(t), now); at.String() != want &&
			(err == nil || !strings.Contains(err.Error(), want)) {
			t.Errorf("%s: %s, %v, want %s", until, at, err, want)
		}
	}
}

func TestItemsAreBounded(t *testing.T) {
	c := compile(t, linear(job("a", `, "forEach": {"items": "payload"}`),
		job("b", `, "forEach": {"items": "payload + payload"}`)))
	list := &structpb.ListValue{Values: make([]*structpb.Value, flow.MaxItems)}
	for i := range list.Values {
		list.Values[i] = structpb.NewNumberValue(float64(i))
	}
	s := &flow.Scope{Payload: structpb.NewListValue(list)}
	if got, err := c.Items(&c.Steps[0], s); err != nil || len(got) != flow.MaxItems {
		t.Error(len(got), err)
	}
	if _, err := c.Items(&c.Steps[1], s); err == nil ||
		!strings.Contains(err.Error(), "must have at most 10000 items (got 20000)") {
		t.Error(err)
	}
}

// TestDefaultInputs checks that a step without an input gets the payload, or its item under
// for_each. If a step starts a run and names no payload, the run gets the input of the step.
func TestDefaultInputs(t *testing.T) {
	c := compile(t, linear(job("a", ""), job("b", `, "forEach": {"items": "[1]"}`),
		`{"stepId": "c", "input": {"x": "${scope}"}, "run": {"type": "other"}}`,
		`{"stepId": "d", "run": {"type": "other", "payload": ["${scope_id}"]}}`))
	s := &flow.Scope{Payload: value(t, `{"p": 1}`), Item: value(t, `"i"`), Scope: "user", ScopeID: "42"}
	for i, want := range []string{`{"p":1}`, `"i"`, `{"x":"user"}`, `["42"]`} {
		evaluate := c.Payload
		if i < 2 {
			evaluate = c.Input
		}
		if got, err := evaluate(&c.Steps[i], s); err != nil || text(t, got) != want {
			t.Errorf("%d: %s, %v, want %s", i, got, err, want)
		}
	}
	if got, err := c.Input(&c.Steps[0], &flow.Scope{}); err != nil || text(t, got) != "null" {
		t.Error(got, err)
	}
}

func TestWaits(t *testing.T) {
	wait := func(fields string) *flow.Template { return compile(t, linear(`{"stepId": "a", "wait": {`+fields+`}}`)) }
	c := wait(`"title": "Check ${payload.user.name}'s ${payload.list}", "assignees": ["ops", "${payload.people}", ` +
		`"team-${scope}"]`)
	if title, err := c.Title(&c.Steps[0], scope(t)); err != nil || title != `Check Ada's [1,"two",{"three":3}]` {
		t.Error(title, err)
	}
	if all, err := c.Assignees(&c.Steps[0], scope(t)); err != nil ||
		!reflect.DeepEqual(all, []string{"ops", "ada", "bob", "team-user"}) {
		t.Error(all, err)
	}
	if title, err := wait(`"title": "${payload.user.id}"`).Title(&wait(`"title": "${payload.user.id}"`).Steps[0],
		scope(t)); err != nil || title != "7" {
		t.Error(title, err)
	}
	for _, c := range []*flow.Template{wait(``), wait(`"title": "$${x}"`)} {
		if all, err := c.Assignees(&c.Steps[0], scope(t)); err != nil || len(all) != 0 {
			t.Error(all, err)
		}
	}
	for assignee, want := range map[string]string{
		"${payload.empty}": "steps[0].wait.assignees[0]: `payload.empty`: is empty, which would let anyone answer",
		"${payload.list}":  "contains a number; an assignee must be a string", "${payload.price}": "contains a number",
		"${payload.nobody}": "there is no field", "${payload.user.none}": "contains null",
		"${payload.yes.substring}": "is a string and has no field",
		"${''}":                    "contains an empty name",
	} {
		c := wait(`"assignees": ["` + assignee + `"]`)
		if all, err := c.Assignees(&c.Steps[0], scope(t)); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %q, %v, want %s", assignee, all, err, want)
		}
	}
}

func TestResult(t *testing.T) {
	c := compile(t, `{"result": {"url": "${steps.a.result.url}", "run": "${run.id}"}, "steps": [`+job("a", "")+`]}`)
	if got, err := c.Result(scope(t)); err != nil || text(t, got) != `{"run":"r1","url":"https://x/1"}` || !c.HasResult() {
		t.Error(got, err)
	}
	if c := compile(t, linear(job("a", ""))); c.HasResult() {
		t.Error("has a result")
	}
}

func TestTargets(t *testing.T) {
	target := &progressorv1.StartRunTarget{Type: "report",
		PayloadTemplate: value(t, `{"cron": "${cron_id}", "at": "${fire_time}", "day": "${fire_time.getDayOfMonth()}",
		"from": "${fire_time - duration('24h')}", "text": "attempt ${attempt}"}`)}
	c, problems := flow.CompileTarget(target)
	if len(problems) > 0 {
		t.Fatal(lines(problems))
	}
	fire := flow.Fire{CronID: "daily", Time: time.Date(2026, 3, 1, 6, 0, 0, 0, time.UTC), Attempt: 2}
	got, err := c.Payload(fire)
	fired := `{"at":"2026-03-01T06:00:00Z","cron":"daily","day":0,"from":"2026-02-28T06:00:00Z","text":"attempt2"}`
	if err != nil || text(t, got) != fired {
		t.Errorf("%s, %v, want %s", got, err, fired)
	}
	for want, constant := range map[string]*structpb.Value{"null": nil, `{"x":1}`: value(t, `{"x": 1}`)} {
		c, _ := flow.CompileTarget(&progressorv1.StartRunTarget{Type: "report", PayloadTemplate: constant})
		if got, err := c.Payload(fire); err != nil || text(t, got) != want {
			t.Error(got, err)
		}
	}
	bad := &progressorv1.StartRunTarget{Type: "Report", Version: -1,
		PayloadTemplate: value(t, `{"a": "${payload.x}", "b": "${steps.a.result}", "c": "${fire_time"}`)}
	want := "type: \"Report\" must be 1 to 128 characters of a-z, 0-9, _, . and -\n" +
		"version: must be greater than or equal to 0\n" +
		"payload_template.a: `payload.x`: line 1, column 1: payload is not available here; use cron_id, fire_time, " +
		"attempt\n" +
		"payload_template.b: `steps.a.result`: line 1, column 1: steps is not available here; use cron_id, " +
		"fire_time, attempt\npayload_template.c: ${fire_time: has ${ without }: close it, or write $${ for the text ${"
	if _, problems := flow.CompileTarget(bad); lines(problems) != want {
		t.Errorf("got:\n%s\nwant:\n%s", lines(problems), want)
	}
}

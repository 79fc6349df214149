package flow_test

import (
	"strings"
	"testing"

	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/structpb"
	"google.golang.org/protobuf/types/known/timestamppb"
	"pgregory.net/rapid"

	"github.com/progressor-engine/progressor/flow"
	progressorv1 "github.com/progressor-engine/progressor/proto/progressor/v1"
)

func withDedupeKeys(t testing.TB, keys string) *flow.Template {
	return compile(t, `{"dedupeKeys": [`+keys+`], "steps": [`+job("a", "")+`]}`)
}

func TestDedupeKeys(t *testing.T) {
	for _, test := range []struct{ keys, scope, scopeID, payload, want string }{
		{``, "user", "42", `{}`, `{"scope":"user","scope_id":"42"}`},
		{``, "", "42", `null`, `{"scope":"","scope_id":"42"}`},
		{``, "", "", `{"a": 1}`, ``},
		{`"target", "scope"`, "user", "42", `{"target": "x"}`, `{"scope":"user","target":"x"}`},
		{`"scope", "target"`, "user", "42", `{"target": "x"}`, `{"scope":"user","target":"x"}`},
		{`"user.id"`, "user", "42", `{"user": {"id": 7}}`, `{"user.id":7}`},
		{`"user.id"`, "user", "42", `{"user": {"id": 7.0}}`, `{"user.id":7}`},
		{`"user.id"`, "user", "42", `{"user": {"id": "7"}}`, `{"user.id":"7"}`},
		{`"user.id"`, "user", "42", `{"user": {"id": 0}}`, `{"user.id":0}`},
		{`"user.id"`, "user", "42", `{"user": {"id": -0.0}}`, `{"user.id":0}`},
		{`"user.id"`, "user", "42", `{"user": {"id": false}}`, `{"user.id":false}`},
		{`"user.id"`, "user", "42", `{"user": {"id": null}}`, ``},
		{`"user.id"`, "user", "42", `{"user": {"id": ""}}`, ``},
		{`"user.id"`, "user", "42", `{"user": {"id": []}}`, ``},
		{`"user.id"`, "user", "42", `{"user": {"id": {}}}`, ``},
		{`"user.id"`, "user", "42", `{"user": 7}`, ``},
		{`"user.id"`, "user", "42", `null`, ``},
		{`"user"`, "user", "42", `{"user": {"b": [1, {"d": 1, "c": "<ä>"}], "a": null}}`,
			`{"user":{"a":null,"b":[1,{"c":"<ä>","d":1}]}}`},
		{`"a", "b"`, "", "", `{"a": "x"}`, `{"a":"x","b":null}`},
		{`"a"`, "", "", `{"a": "` + strings.Repeat("x", 600) + `"}`, `sha256:`},
	} {
		got := withDedupeKeys(t, test.keys).DedupeKey(test.scope, test.scopeID, value(t, test.payload))
		if digest, ok := strings.CutPrefix(got, "sha256:"); ok && len(digest) == 64 {
			got = "sha256:"
		}
		if got != test.want {
			t.Errorf("%s of %s: got %s, want %s", test.keys, test.payload, got, test.want)
		}
	}
}

// TestDedupeKeysAreUnambiguous checks that two runs have the same key if and only if their values
// are equal.
func TestDedupeKeysAreUnambiguous(t *testing.T) {
	c := withDedupeKeys(t, `"scope", "a", "b.c"`)
	texts := rapid.OneOf(rapid.SampledFrom([]string{"", "a", `"`, `","b.c":"`, "null", "1", "ä", "\x00", "\\"}),
		rapid.String())
	draw := func(t *rapid.T, label string) *structpb.Value {
		return rapid.OneOf(
			rapid.Map(texts, structpb.NewStringValue), rapid.Just(structpb.NewNullValue()),
			rapid.Map(rapid.Bool(), structpb.NewBoolValue),
			rapid.Map(rapid.SampledFrom([]float64{0, 1, -1, 1e21, 1e-7, 9007199254740993}), structpb.NewNumberValue),
			rapid.Map(rapid.SliceOfN(texts, 0, 2), func(list []string) *structpb.Value {
				made := &structpb.ListValue{}
				for _, s := range list {
					made.Values = append(made.Values, structpb.NewStringValue(s))
				}
				return structpb.NewListValue(made)
			}),
		).Draw(t, label)
	}
	rapid.Check(t, func(t *rapid.T) {
		run := func(label string) (string, *structpb.Value, string) {
			scope, a, bc := texts.Draw(t, label+" scope"), draw(t, label+" a"), draw(t, label+" b.c")
			payload := structpb.NewStructValue(&structpb.Struct{Fields: map[string]*structpb.Value{
				"a": a, "b": structpb.NewStructValue(
					&structpb.Struct{Fields: map[string]*structpb.Value{"c": bc, "other": draw(t, label+" other")}}),
			}})
			values := structpb.NewListValue(
				&structpb.ListValue{Values: []*structpb.Value{structpb.NewStringValue(scope), a, bc}})
			return scope, values, c.DedupeKey(scope, "", payload)
		}
		_, first, firstKey := run("first")
		_, second, secondKey := run("second")
		if firstKey != "" && secondKey != "" && proto.Equal(first, second) != (firstKey == secondKey) {
			t.Fatalf("%s has %s, and %s has %s", first, firstKey, second, secondKey)
		}
	})
}

func TestSame(t *testing.T) {
	const plain = `{"steps": [{"stepId": "a", "job": {}}, {"stepId": "b", "wait": {"due": "60s"}}]}`
	const full = `{"version": 7, "enabled": false, "repeatable": true, "schedulable": true,
		"concurrencyPolicy": "SCOPE_POLICY_ALLOW", "stepOrder": "STEP_ORDER_LINEAR",
		"steps": [{"stepId": "a", "job": {}, "cancelable": true, "weight": 1, "joinRule": "JOIN_RULE_NONE_FAILED"},
		{"stepId": "b", "wait": {"kind": "KIND_EXTERNAL", "due": "60s", "dueAction": "DUE_ACTION_FAIL"}}]}`
	a, b := source(t, plain), source(t, full)
	b.CreatedTime, b.UpdatedTime = timestamppb.Now(), timestamppb.Now()
	kept := proto.CloneOf(b)
	if !flow.Same(a, b) || !flow.Same(b, a) {
		t.Error("a template that spells out the defaults differs from one without them")
	}
	if !proto.Equal(b, kept) {
		t.Error("Same changed its arguments")
	}
	for name, change := range map[string]func(*progressorv1.Template){
		"name":       func(t *progressorv1.Template) { t.Name = "x" },
		"repeatable": func(t *progressorv1.Template) { t.Repeatable = proto.Bool(false) },
		"weight":     func(t *progressorv1.Template) { t.Steps[0].Weight = 2 },
		"order":      func(t *progressorv1.Template) { t.Steps[0], t.Steps[1] = t.Steps[1], t.Steps[0] },
		"result":     func(t *progressorv1.Template) { t.Result = structpb.NewNullValue() },
		"type":       func(t *progressorv1.Template) { t.Type = "other" },
		"graph":      func(t *progressorv1.Template) { t.StepOrder = progressorv1.StepOrder_STEP_ORDER_GRAPH },
	} {
		c := proto.CloneOf(a)
		if change(c); flow.Same(a, c) {
			t.Error("ignores the difference of another", name)
		}
	}
}

func TestPayloads(t *testing.T) {
	m := source(t, `{"payloadSchema": {"type": "object", "required": ["user"], "additionalProperties": false,
		"properties": {
		"user": {"$ref": "#/$defs/user"}, "n": {"type": "integer", "minimum": 1, "maximum": 9},
		"tags": {"type": "array", "maxItems": 3, "uniqueItems": true,
			"items": {"type": "string", "minLength": 2, "maxLength": 3}},
		"kind": {"enum": ["a", "b"]},
		"when": {"anyOf": [{"type": "integer"}, {"type": "object", "required": ["at"]}]},
		"one": {"oneOf": [{"type": "number"}, {"const": 1}]}, "code": {"pattern": "^[a-z]+$"},
		"odd name": {"const": 5}, "no": false,
		"deps": {"dependentRequired": {"a": ["b"]}, "propertyNames": {"maxLength": 3}},
		"total": {"exclusiveMinimum": 0, "exclusiveMaximum": 100, "multipleOf": 2},
		"size": {"minProperties": 1, "maxProperties": 2, "not": {"required": ["x"]}},
		"has": {"contains": {"const": 1}}}},
		"steps": [`+job("a", "")+`]}`)
	m.PayloadSchema.Fields["$defs"] = value(t,
		`{"user": {"type": "object", "required": ["id", "name"], "properties": {"id": {"type": "string"}, `+
			`"boss": {"$ref": "#/$defs/user"}}}}`)
	c, problems := flow.Compile(m)
	if len(problems) > 0 {
		t.Fatal(lines(problems))
	}
	for payload, want := range map[string]string{
		`{"user": {"id": "x", "name": "y"}}`:             "",
		`{"user": {"id": "x", "name": "y"}, "total": 0}`: "payload.total: must be greater than 0 (got 0)",
		`{"user": {"id": "x", "name": "y"}, "total": 101}`: "payload.total: must be less than " +
			"100 (got 101)\npayload.total: must be a multiple of 2 (got 101)",
		`{"user": {"id": "x", "name": "y"}, "size": {}}`: "payload.size: must have at least 1 fields (got 0)",
		`{"user": {"id": "x", "name": "y"}, "size": {"a": 1, "b": 1, "x": 1}}`: "payload.size: must have at most 2 " +
			"fields (got 3)\npayload.size: must not match the schema of not",
		`{"user": {"id": "x", "name": "y"}, "has": []}`: "payload.has: must have an item that " +
			"matches the schema of contains",
		`null`: "payload: must be of type object (got null)",
		`{}`:   "payload.user: is required",
		`{"user": {"boss": {"id": 1}}}`: "payload.user.boss.id: must be of type string (got number)\n" +
			"payload.user.boss.name: is required\npayload.user.id: is required\npayload.user.name: is required",
		`{"user": {"id": "x", "name": "y"}, "x y": 1, "z": 2}`: "payload.z: is not in the " +
			"schema, which allows no other fields\n" +
			"payload[\"x y\"]: is not in the schema, which allows no other fields",
		`{"user": {"id": "x", "name": "y"}, "n": {"$float": 7}}`: "",
		`{"user": {"id": "x", "name": "y"}, "n": 0}`:             "payload.n: must be at least 1 (got 0)",
		`{"user": {"id": "x", "name": "y"}, "n": 10.5}`:          "payload.n: must be of type integer (got number)",
		`{"user": {"id": "x", "name": "y"}, "n": 10}`:            "payload.n: must be at most 9 (got 10)",
		`{"user": {"id": "x", "name": "y"}, "tags": ["a", "bb", "bb", 4, "long"]}`: "payload.tags: must have at most " +
			"3 items (got 5)\npayload.tags: must have unique items (items 1 and 2 are equal)\n" +
			"payload.tags[0]: must have at least 2 characters (got 1)\n" +
			"payload.tags[3]: must be of type string (got number)\n" +
			"payload.tags[4]: must have at most 3 characters (got 4)",
		`{"user": {"id": "x", "name": "y"}, "kind": "c"}`: "payload.kind: value must be one of 'a', 'b'",
		`{"user": {"id": "x", "name": "y"}, "when": {}}`: "payload.when: must match one of " +
			"2 schemas: (1) must be of type integer (got object); (2) at is required",
		`{"user": {"id": "x", "name": "y"}, "one": 1}`: "payload.one: must match exactly " +
			"one schema of oneOf (matches number 1 and number 2)",
		`{"user": {"id": "x", "name": "y"}, "one": "x"}`: "payload.one: must match exactly " +
			"one of 2 schemas: (1) must be of type number (got string); (2) value must be 1",
		`{"user": {"id": "x", "name": "y"}, "code": "A"}`:   "payload.code: \"A\" must match the pattern ^[a-z]+$",
		`{"user": {"id": "x", "name": "y"}, "odd name": 4}`: "payload[\"odd name\"]: value must be 5",
		`{"user": {"id": "x", "name": "y"}, "deps": {"a": 1, "long": 1}}`: "payload.deps.b: is required if " +
			"a is set\npayload.deps.long: has a name that the schema does not allow",
		`{"user": {"id": "x", "name": "y"}, "no": 1}`: "payload.no: must not be set",
	} {
		if got := lines(c.CheckPayload(value(t, payload))); got != want {
			t.Errorf("%s:\ngot\n%s\nwant\n%s", payload, got, want)
		}
	}
	// The schema of a tree descends into the value before it refers to itself.
	tree := compile(t, `{"payloadSchema": {"properties": {"left": {"$ref": "#"}, "right": {"$ref": "#"}, `+
		`"n": {"type": "number"}}, "unevaluatedProperties": false}, "steps": [`+job("a", "")+`]}`)
	got := lines(tree.CheckPayload(value(t, `{"left": {"right": {"n": "x"}}}`)))
	if got != "payload.left.right.n: must be of type number (got string)" {
		t.Error(got)
	}
	if got := compile(t, linear(job("a", ""))).CheckPayload(value(t, `1`)); got != nil {
		t.Error("without a schema:", got)
	}
	wait := compile(t, linear(`{"stepId": "a", "wait": {"resultSchema": {"required": ["ok"]}}}`))
	if got := lines(wait.Steps[0].CheckAnswer(value(t, `{}`))); got != "result.ok: is required" {
		t.Error(got)
	}
}

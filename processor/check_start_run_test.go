package processor_test

import (
	"errors"
	"math"
	"strings"
	"testing"

	"google.golang.org/protobuf/types/known/durationpb"
	"google.golang.org/protobuf/types/known/structpb"

	"github.com/progressor-engine/progressor/process"
	"github.com/progressor-engine/progressor/processor"
	progressorv1 "github.com/progressor-engine/progressor/proto/progressor/v1"
)

// The error of an invalid command that starts a run names the invalid field.
func TestCheckStartRun(t *testing.T) {
	t.Parallel()
	long := strings.Repeat("x", 257)
	for field, c := range map[string]*progressorv1.StartRunCommand{
		"":                   {RunId: long[:160], Type: "a.b-c_1", Version: 2, Scope: "s", ScopeId: "1"},
		"run_id":             {Type: "a"},
		"run_id ":            {RunId: long[:161], Type: "a"},
		"run_id  ":           {RunId: "~flow/a", Type: "a"},
		"namespace":          {RunId: "r", Type: "a", Namespace: "a b"},
		"type":               {RunId: "r"},
		"type ":              {RunId: "r", Type: "A"},
		"version":            {RunId: "r", Type: "a", Version: -1},
		" ":                  {RunId: "r", Wait: &progressorv1.WaitAction{}},
		"wait":               {RunId: "r", Type: "a", Wait: &progressorv1.WaitAction{}},
		"wait ":              {RunId: "r", Version: 1, Wait: &progressorv1.WaitAction{}},
		"wait  ":             {RunId: "r", Wait: &progressorv1.WaitAction{Title: strings.Repeat(long, 256)}},
		"scope":              {RunId: "r", Type: "a", Scope: long},
		"scope_id":           {RunId: "r", Type: "a", ScopeId: "\x00"},
		"payload":            {RunId: "r", Type: "a", Payload: structpb.NewNumberValue(math.NaN())},
		"metadata.a":         {RunId: "r", Type: "a", Metadata: object(math.Inf(1))},
		"notify_parent_args": {RunId: "r", Type: "a", NotifyParentArgs: make([]byte, process.MaxPayloadBytes+1)},
	} {
		response, err := processor.Result().StartRun(c).Done()
		if err != nil {
			t.Fatal(err)
		}
		err = processor.Check(taskTimeout, response)
		invalid, _ := errors.AsType[*process.InvalidError](err)
		want := "result.commands[0]." + strings.TrimSpace(field)
		valid := strings.TrimSpace(field) == ""
		if valid && err != nil || !valid && (invalid == nil || invalid.Field != want) {
			t.Errorf("%q: %v", field, err)
		}
	}
}

// The error of a wait that the engine would reject names the invalid field.
func TestCheckWait(t *testing.T) {
	t.Parallel()
	const succeed = progressorv1.WaitAction_DUE_ACTION_SUCCEED
	long := strings.Repeat("x", 16385)
	for field, w := range map[string]*progressorv1.WaitAction{
		"":              {Title: long[1:], Assignees: []string{long[1:]}, Due: durationpb.New(process.MaxDuration)},
		"title":         {Title: long},
		"assignees":     {Assignees: strings.Split(strings.Repeat("x,", 1000), ",")},
		"assignees[1]":  {Assignees: []string{"a", ""}},
		"assignees[0]":  {Assignees: []string{long}},
		"due":           {Due: durationpb.New(process.MaxDuration + 1)},
		"due ":          {Due: durationpb.New(-1)},
		"due_action":    {DueAction: succeed},
		"due_result":    {DueResult: structpb.NewBoolValue(true)},
		"due_result ":   {DueAction: succeed, Due: durationpb.New(1), DueResult: structpb.NewNumberValue(math.NaN())},
		"result_schema": {ResultSchema: object(math.Inf(1))},
		"result_schema ": {ResultSchema: &structpb.Struct{Fields: map[string]*structpb.Value{
			"title": structpb.NewStringValue(long),
		}}},
		"result_schema  ": {ResultSchema: &structpb.Struct{Fields: map[string]*structpb.Value{
			"pattern": structpb.NewStringValue(strings.Repeat("(a{9}b){100}", 12)),
		}}},
		"result_schema   ": {ResultSchema: &structpb.Struct{Fields: map[string]*structpb.Value{
			"patternProperties": structpb.NewStructValue(&structpb.Struct{Fields: map[string]*structpb.Value{
				strings.Repeat("a{1000}", 10): structpb.NewBoolValue(true),
			}}),
		}}},
	} {
		response, err := processor.Result().StartRun(&progressorv1.StartRunCommand{RunId: "r", Wait: w}).Done()
		if err != nil {
			t.Fatal(err)
		}
		err = processor.Check(taskTimeout, response)
		invalid, _ := errors.AsType[*process.InvalidError](err)
		want := "result.commands[0].wait." + strings.TrimSpace(field)
		if field == "" && err != nil || field != "" && (invalid == nil || !strings.HasPrefix(invalid.Field, want)) {
			t.Errorf("%q: %v", field, err)
		}
	}
}

func object(n float64) *structpb.Struct {
	return &structpb.Struct{Fields: map[string]*structpb.Value{"a": structpb.NewNumberValue(n)}}
}

// A cancel may have the ID of a run, but not of another process of the engine.
func TestCheckCancelOfARun(t *testing.T) {
	t.Parallel()
	for id, want := range map[string]bool{
		"p": true, "~flow/r": true, "~flow/": false, "~flow/~x": false, "~job/x": false, "~": false,
	} {
		response, err := processor.Result().Cancel("", id, "").Done()
		if err != nil {
			t.Fatal(err)
		}
		if err := processor.Check(taskTimeout, response); (err == nil) != want {
			t.Errorf("%s: %v", id, err)
		}
	}
}

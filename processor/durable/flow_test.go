package durable_test

import (
	"cmp"
	"errors"
	"fmt"
	"os"
	"strings"
	"testing"
	"time"

	"google.golang.org/protobuf/types/known/structpb"

	"github.com/progressor-engine/progressor/process"
	"github.com/progressor-engine/progressor/processor"
	"github.com/progressor-engine/progressor/processor/durable"
	"github.com/progressor-engine/progressor/processor/durable/durabletest"
	"github.com/progressor-engine/progressor/processor/processortest"
	progressorv1 "github.com/progressor-engine/progressor/proto/progressor/v1"
)

// flowing returns the result of its run.
func flowing(ctx durable.Ctx, _ struct{}) (any, error) {
	return durable.Flow[any](ctx, "c", "order", map[string]int{"n": 7}, durable.In("kids"), durable.TemplateVersion(2),
		durable.Scope("order", "A-7")).Get()
}

// A function starts a run with its options, and gets its result or its error.
func TestFlow(t *testing.T) {
	like := `{"k":"fail","n":"g","e":{"reason":"full","message":"no seats","rejected":true}}`
	failed := func(reason, message string) string {
		return `{"k":"fail","n":"f","e":{"reason":"` + reason + `","message":"run c: ` + message + `"}}`
	}
	for name, test := range map[string]struct {
		end  *progressorv1.ChildEnd
		want string
	}{
		"a result": {&progressorv1.ChildEnd{Status: completed, Response: []byte(`{"a":1}`)},
			`{"k":"end","n":"f","v":{"a":1}}`},
		"none": {&progressorv1.ChildEnd{Status: completed}, `{"k":"end","n":"f","v":null}`},
		"a result like a rejection": {&progressorv1.ChildEnd{Status: completed, Response: []byte(like)},
			`{"k":"end","n":"f","v":{"e":{"message":"no seats","reason":"full","rejected":true},"k":"fail","n":"g"}}`},
		"failed": {&progressorv1.ChildEnd{Status: broken, Detail: "odd", Reason: "no_stock"},
			failed("no_stock", "odd")},
		"broken": {&progressorv1.ChildEnd{Status: broken, Detail: "odd"}, failed("child_failed", "odd")},
		"cancelled": {&progressorv1.ChildEnd{Status: cancelled, Detail: "kim"},
			failed("child_cancelled", "the process was cancelled")},
		"not started": {&progressorv1.ChildEnd{Detail: "not started: there is no template order"},
			failed("child_failed", "not started: there is no template order")},
	} {
		t.Run(name, func(t *testing.T) {
			p := start(t, durable.Func("f", flowing))
			check(t, "commands", fmt.Sprint(p.Commands()), fmt.Sprint([]*progressorv1.Command{{
				Command: &progressorv1.Command_StartRun{StartRun: &progressorv1.StartRunCommand{
					Namespace: "kids", RunId: "process/c~1", Type: "order", Version: 2, Scope: "order", ScopeId: "A-7",
					NotifyParentArgs: []byte(`"c"`),
					Payload: structpb.NewStructValue(&structpb.Struct{Fields: map[string]*structpb.Value{
						"n": structpb.NewNumberValue(7)}}),
				}},
			}}))
			check(t, "entry", string(p.Events()[1].GetPayload()),
				`{"k":"child","n":"c","v":{"namespace":"kids","process_id":"~flow/process/c~1","run":"flow"}}`)
			endOf(t, p, "~flow/process/c~1", test.end)
			check(t, "last event", lastEvent(p.Snapshot()), test.want)
		})
	}
}

// A run can be a source of First. A function that returns an error cancels its runs that have not
// ended.
func TestFlowsAndChildren(t *testing.T) {
	p := start(t, function(func(ctx durable.Ctx) (string, error) {
		child := durable.Child[int](ctx, "c", 1)
		run := durable.Flow[int](ctx, "c", "order", 2)
		other := durable.Flow[int](ctx, "c", "order", 3)
		if durable.First(ctx, "which", child, run, other) == run {
			n, _ := run.Get()
			return "", processor.Reject("run", "%d %s", n, run.Process())
		}
		return "other", nil
	}))
	if err := durabletest.EndChild("c#2", 5)(t.Context(), p); err != nil {
		t.Fatal(err)
	}
	check(t, "journal", journal(p),
		"start:f child:c child:c#2 child:c#3 ended:c#2 first:which fail:f cancel:c cancel:c#3")
	if p.Status() != process.StatusCompleted || !strings.Contains(string(p.Events()[6].GetPayload()),
		`"message":"5 test/~flow/process/c#2~1"`) {
		t.Error(p.Status(), string(p.Events()[6].GetPayload()))
	}
	if last := p.Commands(); len(last) != 5 || last[3].GetCancel().GetProcessId() != "process/c~1" ||
		last[4].GetCancel().GetProcessId() != "~flow/process/c#3~1" {
		t.Error(last)
	}
}

// A run that cannot be started is misuse.
func TestFlowMisuse(t *testing.T) {
	for want, f := range map[string]func(ctx durable.Ctx){
		"run c: result.commands[0].type": func(ctx durable.Ctx) { durable.Flow[int](ctx, "c", "A b", 7) },
		"run c: result.commands[0].namespace": func(ctx durable.Ctx) {
			durable.Flow[int](ctx, "c", "order", 7, durable.In("a b"))
		},
		"the payload of run c: the value cannot be encoded": func(ctx durable.Ctx) {
			durable.Flow[int](ctx, "c", "order", func() {})
		},
	} {
		p := processortest.New(function(func(ctx durable.Ctx) (string, error) {
			f(ctx)
			return "", nil
		}))
		if _, err := p.Start(t.Context(), []byte(`{}`)); err != nil {
			t.Fatal(err)
		}
		if detail := p.Detail(); !strings.Contains(detail, "flow_test.go") || !strings.Contains(detail, want) {
			t.Errorf("%q, want %s", detail, want)
		}
	}
}

type Return struct {
	Order string `json:"order"`
}

// takeBack runs the flow "refund" for an order. It cancels a refund that does not end within a
// week. If the card has expired, it runs the flow "voucher".
func takeBack(ctx durable.Ctx, in Return) (string, error) {
	refund := durable.Flow[string](ctx, "refund", "refund", in, durable.Scope("order", in.Order))
	late := durable.After(ctx, "late", 7*24*time.Hour)
	if durable.First(ctx, "refund-or-late", refund, late) == late {
		refund.Cancel("too late")
	}
	receipt, err := refund.Get()
	if failed, ok := errors.AsType[*durable.StepError](err); ok && failed.Reason == "card_expired" {
		return durable.Flow[string](ctx, "voucher", "voucher", in).Get()
	}
	return receipt, err
}

// Wherever the function is killed, its runs are started and cancelled once.
func TestTakeBack(t *testing.T) {
	for name, script := range map[string][]durabletest.Action{
		"refunded": {durabletest.EndChild("refund", "R-7")},
		"failed": {durabletest.FailRun("refund", "card_expired", "the card has expired"),
			durabletest.EndChild("voucher", "V-1")},
		"late": {durabletest.Advance(8 * 24 * time.Hour), durabletest.EndChild("refund", "R-7")},
	} {
		t.Run(name, func(t *testing.T) {
			durabletest.KillEverywhere(t, func(*testing.T) processor.Processor {
				return durable.Func("take-back", takeBack)
			}, Return{Order: "A-7"}, script...)
		})
	}
}

// docs/functions.md contains the code unchanged.
func TestTakeBackInDocs(t *testing.T) {
	page, err := os.ReadFile("../../docs/functions.md")
	code, errCode := os.ReadFile("flow_test.go")
	if err := cmp.Or(err, errCode); err != nil {
		t.Fatal(err)
	}
	_, text, _ := strings.Cut(string(code), "\nfunc takeBack(")
	text, _, found := strings.Cut(text, "\n}\n")
	if !found || !strings.Contains(string(page), "```go\nfunc takeBack("+text+"\n}\n```") {
		t.Error("docs/functions.md does not have the function takeBack")
	}
}

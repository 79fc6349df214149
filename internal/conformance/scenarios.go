package conformance

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"time"

	"google.golang.org/protobuf/proto"

	"github.com/progressor-engine/progressor/processor"
	"github.com/progressor-engine/progressor/processor/processortest"
	progressorv1 "github.com/progressor-engine/progressor/proto/progressor/v1"
)

// scenario is a process with a script.
type scenario struct {
	name     string
	function string
	input    string
	script   []action
}

// action is one step of a script. It returns a line for the trace.
type action func(ctx context.Context, p *processortest.Process) string

const day = 24 * time.Hour

const teaForTwo = `{"item":"tea","price":200,"parcels":["cup","pot","can"]}`

// scenarios returns the scripts of the kit.
func scenarios() []scenario {
	visa := call(`{"pay":{"card":"visa","amount":200}}`)
	return slices.Concat([]scenario{
		{"an order is paid", "order", teaForTwo, []action{
			call(`{"pay":{"card":"visa","amount":1}}`), call(`{"sell":{}}`), call(`{}`), call(`7`), visa, visa,
			advance(15 * day),
		}},
		{"an order without parcels", "order", `{"item":"tea","price":200}`, []action{visa, advance(15 * day)}},
		{"an order is not paid", "order", teaForTwo, []action{advance(2 * day), visa}},
		{"an order is rejected", "order", `{"item":"tea"}`, nil},
		{"a payment is rejected", "order", teaForTwo, []action{
			call(`{"pay":{"card":"declined","amount":200}}`), advance(time.Hour),
		}},
	}, orderRepairs(), []scenario{
		{"an order is cancelled", "order", teaForTwo, []action{visa, advance(time.Hour), cancel("no more")}},
		{"names are used again", "names", `{"rounds":2}`, []action{advance(time.Hour)}},
		{"a step is retried, and Each fails", "retries", `{"failures":3,"tries":5}`, []action{advance(time.Hour)}},
		{"a step fails, and repairs run it again", "retries", `{"failures":3,"tries":2}`, []action{
			advance(time.Hour), byStep(`{"rewind":["a"]}`), advance(time.Hour), byStep(`{"rewind":["a"]}`),
			advance(time.Hour), byStep(`{"skip":["a"]}`), byStep(`{"set":{"a":"by hand"}}`), advance(time.Hour),
		}},
		{"a step fails", "retries", `{"failures":9,"tries":2}`, []action{advance(time.Hour)}},
		{"a function rejects after a step", "retries", `{"tries":1,"reject":true}`, []action{advance(time.Hour)}},
		{"children end", "family", teaForTwo, []action{
			endChild("parcel[1]/label", `"pot label"`), rejectChild("parcel[0]/label", "odd", "no"),
			endChild("parcel[1]/label", `"twice"`), endChild("invoice", `"R7"`), endChild("parcel[2]/label", ``),
		}},
		{"a child fails", "family", teaForTwo, []action{
			endChild("parcel[1]/label", `"pot label"`), failChild("parcel[0]/label", "no paper"),
			endChild("parcel[2]/label", `"can label"`), advance(time.Minute), repair(``),
		}},
		{"a child fails, and a repair rewinds", "family", teaForTwo, []action{
			endChild("parcel[1]/label", `"pot label"`), failChild("parcel[0]/label", "no paper"),
			endChild("parcel[2]/label", `"can label"`), advance(time.Minute), byStep(`{"rewind":["parcel[0]/label"]}`),
			endChild("parcel[0]/label", `"cup label"`), endChild("invoice", `"R7"`),
		}},
		{"a child is late", "family", `{"parcels":[]}`, []action{advance(2 * day)}},
		{"a parent is cancelled", "family", teaForTwo, []action{cancel("no more")}},
		{"a function restarts", "sum", `{}`, []action{
			call(`{"add":1}`), call(`{"add":2}`), call(`{"add":3}`), call(`{"add":4}`), advance(time.Hour),
			call(`{"add":5}`), call(`{"add":6}`), advance(time.Hour),
		}},
		{"an operation in the body of a step", "misuse", `{}`, []action{repairSimple}},
	})
}

// orderRepairs returns the scripts in which orders are repaired.
func orderRepairs() []scenario {
	return []scenario{
		{"a payment fails, and a repair starts again", "order", teaForTwo, []action{
			call(`{"pay":{"card":"broken","amount":200}}`), advance(time.Hour), repair(`{"item":"milk","price":1}`),
			call(`{"pay":{"card":"visa","amount":1}}`), advance(15 * day),
		}},
		{"a payment fails, and a repair skips it", "order", teaForTwo, []action{
			call(`{"pay":{"card":"broken","amount":200}}`), advance(time.Hour), byStep(`{"skip":["charge"]}`),
			advance(15 * day),
		}},
		{"a payment fails, and a repair sets it", "order", teaForTwo, []action{
			call(`{"pay":{"card":"broken","amount":200}}`), advance(time.Hour), byStep(`{"skip":["chrge"]}`),
			byStep(`{"skip":["reserve","charge"],"set":{"charge":"R7"}}`), byStep(`{}`),
			byStep(`{"Skip":["charge"]}`), byStep(`{"skip":null,"set":{"charge":1}}`), byStep(`null`),
			byStep(`{"set":{"charge":"by hand"}}`), advance(15 * day),
		}},
		{"a payment fails, and repairs rewind", "order", teaForTwo, []action{
			call(`{"pay":{"card":"broken","amount":200}}`), advance(time.Hour), byStep(`{"rewind":["pay-within"]}`),
			advance(time.Hour), byStep(`{"rewind":["return-period"]}`), byStep(`{"rewind":["charge"]}`),
			advance(time.Hour),
			byStep(`{"rewind":["reserve"],"set":{"charge":"by hand"}}`), advance(15 * day),
		}},
		{"an order is cancelled after a repair", "order", teaForTwo, []action{
			call(`{"pay":{"card":"broken","amount":200}}`), advance(time.Hour), byStep(`{"set":{"charge":"by hand"}}`),
			advance(time.Hour), cancel("no more"),
		}},
		{"a payment fails again, and a second repair rewinds", "order", teaForTwo, []action{
			call(`{"pay":{"card":"broken","amount":200}}`), advance(time.Hour),
			byStep(`{"skip":["reserve"],"rewind":["charge"]}`), advance(time.Hour),
			byStep(`{"rewind":["first:charge"]}`), byStep(`{"rewind":["timer:pay-within"]}`),
			advance(time.Hour), byStep(`{"set":{"charge":"by hand"}}`), advance(15 * day),
		}},
	}
}

// outcome describes what a request returned. It omits the messages of errors, because they may
// differ between SDKs.
func outcome(what string, response []byte, err error) string {
	if rejected, ok := errors.AsType[*processor.RejectionError](err); ok {
		return fmt.Sprintf("%s: rejected %s", what, rejected.Rejection.GetReason())
	}
	if failed, ok := errors.AsType[*processor.FailureError](err); ok {
		return fmt.Sprintf("%s: failed %s", what, failed.Failure.GetReason())
	}
	if err != nil {
		return fmt.Sprintf("%s: not possible", what) // such as a call after the end
	}
	return fmt.Sprintf("%s: %s", what, canonical(response))
}

func call(args string) action {
	return func(ctx context.Context, p *processortest.Process) string {
		response, err := p.Call(ctx, []byte(args))
		return outcome("call "+args, response, err)
	}
}

func repair(args string) action {
	return func(ctx context.Context, p *processortest.Process) string {
		response, err := p.Repair(ctx, []byte(args))
		return outcome("repair "+args, response, err)
	}
}

// byStep repairs a process by step.
func byStep(args string) action { return repair(`{"durable_repair":` + args + `}`) }

func repairSimple(ctx context.Context, p *processortest.Process) string {
	return outcome("repair", nil, p.RepairSimple(ctx))
}

func cancel(reason string) action {
	return func(ctx context.Context, p *processortest.Process) string {
		return outcome("cancel", nil, p.Cancel(ctx, reason))
	}
}

func advance(d time.Duration) action {
	return func(ctx context.Context, p *processortest.Process) string {
		return outcome(fmt.Sprintf("advance %s", d), nil, p.Advance(ctx, d))
	}
}

func endChild(name, response string) action {
	return childEnd(name, &progressorv1.ChildEnd{
		Status: progressorv1.ProcessStatus_PROCESS_STATUS_COMPLETED, Response: []byte(response),
	})
}

func failChild(name, detail string) action {
	return childEnd(name, &progressorv1.ChildEnd{
		Status: progressorv1.ProcessStatus_PROCESS_STATUS_ERROR, Detail: detail,
	})
}

// rejectChild completes a child whose function ended with a rejection.
func rejectChild(name, reason, message string) action {
	response := fmt.Sprintf(`{"k":"fail","n":"f","e":{"reason":%q,"message":%q,"rejected":true}}`, reason, message)
	return endChild(name, response)
}

// childEnd reports the end of the newest child with the given name.
func childEnd(name string, end *progressorv1.ChildEnd) action {
	return func(ctx context.Context, p *processortest.Process) string {
		what := "the end of child " + name
		for _, command := range slices.Backward(p.Commands()) {
			start := command.GetStart()
			var started string
			if start == nil || json.Unmarshal(start.GetNotifyParentArgs(), &started) != nil || started != name {
				continue
			}
			child := proto.CloneOf(end)
			child.Namespace = cmp.Or(start.GetNamespace(), p.Snapshot().GetNamespace())
			child.ProcessId = start.GetProcessId()
			return outcome(what, nil, p.ChildEnded(ctx, child, start.GetNotifyParentArgs()))
		}
		return what + ": it was not started"
	}
}

package conformance

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/progressor-engine/progressor/processor"
	"github.com/progressor-engine/progressor/processor/processortest"
	progressorv1 "github.com/progressor-engine/progressor/proto/progressor/v1"
)

// entry is an entry of the journal.
type entry struct {
	Kind  string          `json:"k"`
	Name  string          `json:"n"`
	Value json.RawMessage `json:"v"`
	Error *struct {
		Reason   string `json:"reason"`
		Message  string `json:"message"`
		Rejected bool   `json:"rejected"`
	} `json:"e"`
}

func decode(payload []byte) entry {
	var e entry
	if err := json.Unmarshal(payload, &e); err != nil {
		return entry{Kind: "other", Name: "event"}
	}
	return e
}

// canonical returns JSON with sorted fields. It replaces the values of Now, UUID and Rand, which
// differ in each run.
func canonical(text []byte) string {
	var value any
	if len(text) == 0 {
		return "nothing"
	}
	if json.Unmarshal(text, &value) != nil {
		return fmt.Sprintf("%q, which is not JSON", text)
	}
	if fields, ok := value.(map[string]any); ok && fields["k"] == "value" && fields["v"] != nil {
		fields["v"] = "made"
	}
	sorted, _ := json.Marshal(value) // was JSON
	return string(sorted)
}

// describe describes the answer to a task: everything that a result stores.
func describe(req *progressorv1.ProcessRequest, resp *progressorv1.ProcessResponse, err error) string {
	task := strings.ToLower(strings.TrimPrefix(req.GetType().String(), "TASK_TYPE_"))
	if name := req.GetTimerName(); name != "" {
		task += " " + name
	}
	if err == nil {
		err = processor.Check(req.GetType(), resp)
	}
	rejected := resp.GetRejection()
	failed := resp.GetFailure()
	switch {
	case err != nil:
		failed = processor.FailureOf(err)
		if r, ok := errors.AsType[*processor.RejectionError](err); ok {
			rejected, failed = r.Rejection, nil
		}
	case rejected == nil && failed == nil:
		return task + ": " + strings.Join(parts(resp.GetResult()), "; ")
	}
	if rejected != nil {
		return fmt.Sprintf("%s: rejection %s", task, rejected.GetReason())
	}
	return fmt.Sprintf("%s: failure %s, retryable: %t", task, failed.GetReason(), !failed.GetNonRetryable())
}

// parts describes a result. Timers and commands have no order.
func parts(r *progressorv1.Result) []string {
	var list []string
	for _, event := range r.GetEvents() {
		list = append(list, "entry "+canonical(event.GetPayload()))
	}
	if r.GetRestartHistory() {
		list = append(list, "new history")
	}
	var more []string
	for _, timer := range r.GetNamedTimers() {
		more = append(more, fmt.Sprintf("timer %s after %s", timer.GetName(), timer.GetAfter().AsDuration()))
	}
	for _, name := range r.GetUnsetNamedTimers() {
		more = append(more, "no timer "+name)
	}
	for _, command := range r.GetCommands() {
		more = append(more, describeCommand(command))
	}
	switch action := r.GetAction().(type) {
	case *progressorv1.Result_SetTimer:
		more = append(more, fmt.Sprintf("default timer after %s", action.SetTimer.GetAfter().AsDuration()))
	case *progressorv1.Result_Complete:
		more = append(more, "complete")
	case nil:
	default:
		more = append(more, fmt.Sprintf("%T", action))
	}
	if r.AuxState != nil {
		more = append(more, "state "+canonical(r.GetAuxState()))
	}
	if r.GetMetadata() != nil {
		metadata, _ := json.Marshal(r.GetMetadata().AsMap()) // was JSON
		more = append(more, "metadata "+string(metadata))
	}
	if len(r.GetResponse()) > 0 {
		more = append(more, "response "+canonical(r.GetResponse()))
	}
	slices.Sort(more)
	return append(list, more...)
}

func describeCommand(command *progressorv1.Command) string {
	switch c := command.GetCommand().(type) {
	case *progressorv1.Command_Start:
		return fmt.Sprintf("start %q %s %s, notify %s", c.Start.GetNamespace(), c.Start.GetProcessId(),
			canonical(c.Start.GetArgs()), canonical(c.Start.GetNotifyParentArgs()))
	case *progressorv1.Command_Cancel:
		return fmt.Sprintf("cancel %q %s: %s", c.Cancel.GetNamespace(), c.Cancel.GetProcessId(), c.Cancel.GetReason())
	}
	return "another command"
}

// outcomeOf describes the part of the state of a process that must not depend on kills.
func outcomeOf(p *processortest.Process) []string {
	var entries, commands []string
	returned := "nothing"
	for _, event := range p.Events() {
		e := decode(event.GetPayload())
		switch e.Kind {
		case "try": // a kill may reduce their number
			continue
		case "end":
			returned = cmp.Or(string(e.Value), "an empty value")
		case "fail":
			if e.Error != nil {
				returned = fmt.Sprintf("error %+v", *e.Error)
			}
		}
		entries = append(entries, e.Kind+" "+e.Name)
	}
	for _, command := range p.Commands() {
		commands = append(commands, strings.ReplaceAll(describeCommand(command), p.Snapshot().GetProcessId(), "ID"))
	}
	slices.Sort(entries)
	slices.Sort(commands)
	metadata, _ := json.Marshal(p.Metadata()) // was JSON
	timers := []string{}
	for _, timer := range p.Timers() {
		timers = append(timers, timer.GetName())
	}
	return []string{
		fmt.Sprintf("status: %s", p.Status()), "state: " + canonical(p.State()), "metadata: " + string(metadata),
		"returned: " + returned, "entries: " + strings.Join(entries, ", "), "commands: " + strings.Join(commands, ", "),
		"timers: " + strings.Join(timers, ", "),
	}
}

package flows

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"

	"google.golang.org/protobuf/types/known/structpb"

	"github.com/progressor-engine/progressor/flow"
	"github.com/progressor-engine/progressor/process"
	progressorv1 "github.com/progressor-engine/progressor/proto/progressor/v1"
	"github.com/progressor-engine/progressor/wire"
)

// maxInputBytes limits the JSON of the inputs that retries of a run set. They are part of the state
// of the run, which is written whenever a step ends.
const maxInputBytes = 256 << 10

// stepInput is the input of a step that RetryRun sets, as JSON.
type stepInput struct {
	StepID string          `json:"step_id"`
	Input  json.RawMessage `json:"input"`
}

// inputs are the inputs that retries have set, by step ID. They replace the inputs that the
// template computes.
type inputs map[string]json.RawMessage

// inputsOf checks and converts the inputs of a request.
func inputsOf(list []*progressorv1.StepInput) ([]stepInput, error) {
	all := make([]stepInput, len(list))
	for n, i := range list {
		text, err := resultJSON(fmt.Sprintf("inputs[%d].input", n), i.GetInput())
		if err != nil {
			return nil, err
		}
		if slices.ContainsFunc(all[:n], func(earlier stepInput) bool { return earlier.StepID == i.GetStepId() }) {
			return nil, &process.InvalidError{
				Field:   fmt.Sprintf("inputs[%d].step_id", n),
				Message: fmt.Sprintf("step %s is listed twice", i.GetStepId()),
			}
		}
		all[n] = stepInput{i.GetStepId(), text}
	}
	if size := (inputs{}).with(all).size(); size > maxInputBytes {
		return nil, &process.InvalidError{Field: "inputs", TooLarge: true, Message: tooLargeInputs(size)}
	}
	return all, nil
}

func tooLargeInputs(size int) string {
	return fmt.Sprintf("must have at most %d bytes of JSON for all steps of a run (got %d)", maxInputBytes, size)
}

// with returns the inputs with those in list added or replaced.
func (all inputs) with(list []stepInput) inputs {
	if len(list) == 0 {
		return all
	}
	set := inputs{}
	maps.Copy(set, all)
	for _, i := range list {
		set[i.StepID] = i.Input
	}
	return set
}

func (all inputs) size() (bytes int) {
	for _, text := range all {
		bytes += len(text)
	}
	return bytes
}

// retryMessage returns the message of the event that records a retry with new inputs.
func retryMessage(list []stepInput) string {
	if len(list) == 0 {
		return ""
	}
	ids := make([]string, len(list))
	for n, i := range list {
		ids[n] = i.StepID
	}
	slices.Sort(ids)
	return "with new inputs for " + strings.Join(ids, ", ")
}

// checkInputs returns a reply that refuses a retry if it cannot set an input, if an input would
// have no effect, or if the inputs are too large. Otherwise, it returns nil.
func (t *task) checkInputs(list []stepInput) *reply {
	for n, i := range list {
		if why := t.refusedInput(i.StepID); why != "" {
			return &reply{Refused: why, Field: fmt.Sprintf("inputs[%d].step_id", n)}
		}
	}
	if size := t.state.Inputs.with(list).size(); len(list) > 0 && size > maxInputBytes {
		return &reply{Refused: tooLargeInputs(size), Field: "inputs"}
	}
	return nil
}

// refusedInput returns the reason why a retry cannot set the input of a step, or "".
func (t *task) refusedInput(id string) string {
	step, ok := t.template.Index(id)
	if !ok {
		return fmt.Sprintf("version %d of the template has no step %s", t.template.Source.GetVersion(), id)
	}
	s, status := &t.template.Steps[step], t.state.Run.StatusOf(step)
	switch {
	case s.ForEach():
		return fmt.Sprintf("step %s has for_each: its input cannot be set", id)
	case s.Action == flow.ActionWait, s.Action == flow.ActionDelay:
		return fmt.Sprintf("step %s has no input", id)
	case s.Source.GetProcess().GetArgs() != nil:
		return fmt.Sprintf("step %s does not use its input, because its process has args", id)
	case status != flow.Pending && status != flow.Failed && status != flow.Cancelled &&
		!slices.Contains(t.state.Run.Undone, step):
		return fmt.Sprintf("step %s does not run again, so its input cannot be set", id)
	}
	return ""
}

// input returns the input of a step, or of the item in the scope. If the step has no input, own is
// false, and the step gets the payload of the run.
func (r rules) input(s *flow.Step, scope *flow.Scope) (v *structpb.Value, own bool, err error) {
	if text, ok := r.state.Inputs[s.ID]; ok && !s.ForEach() {
		v, err = wire.Value(text)
		return orNull(v), true, err
	}
	v, err = r.template.Input(s, scope)
	return v, s.Source.GetInput() != nil || s.ForEach(), err
}

// payload returns the payload of the run that a step starts.
func (r rules) payload(s *flow.Step, scope *flow.Scope) (*structpb.Value, error) {
	if _, ok := r.state.Inputs[s.ID]; ok && !s.ForEach() {
		v, _, err := r.input(s, scope)
		return v, err
	}
	return r.template.Payload(s, scope)
}

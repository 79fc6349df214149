package process

import (
	"encoding/json"
	"fmt"
	"strings"
)

// stepRepairFlags are the flags that repair a durable function by step.
type stepRepairFlags struct {
	SkipStep []string `sep:"none" placeholder:"STEP" help:"In a durable function, let a step count as done, without a value. It must not have completed."`
	SetStep  []string `sep:"none" placeholder:"STEP=JSON" help:"In a durable function, let a step count as done, with this value."`
	Rewind   []string `sep:"none" placeholder:"NAME" help:"In a durable function, run a step, or an operation such as timer:NAME, and everything after it again."`
}

// stepArgs returns the args of a repair by step, or nil if no flag is set. They are described in
// docs/journal.md.
func (f *stepRepairFlags) stepArgs() ([]byte, error) {
	if len(f.SkipStep)+len(f.SetStep)+len(f.Rewind) == 0 {
		return nil, nil
	}
	set := map[string]json.RawMessage{}
	for _, text := range f.SetStep {
		name, value, ok := strings.Cut(text, "=")
		if !ok || !json.Valid([]byte(value)) {
			return nil, fmt.Errorf(`--set-step %s: must be STEP=JSON, such as charge=7 or 'charge="by hand"'`, text)
		}
		if _, ok := set[name]; ok {
			return nil, fmt.Errorf("--set-step: step %s has two values", name)
		}
		set[name] = json.RawMessage(value)
	}
	return json.Marshal(map[string]any{"durable_repair": struct {
		Skip   []string                   `json:"skip,omitempty"`
		Set    map[string]json.RawMessage `json:"set,omitempty"`
		Rewind []string                   `json:"rewind,omitempty"`
	}{f.SkipStep, set, f.Rewind}})
}

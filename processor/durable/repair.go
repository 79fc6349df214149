package durable

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/progressor-engine/progressor/internal/spelling"
	"github.com/progressor-engine/progressor/process"
	"github.com/progressor-engine/progressor/processor"
	progressorv1 "github.com/progressor-engine/progressor/proto/progressor/v1"
)

// repairField is the only field in the args of a repair by step.
const repairField = "durable_repair"

const (
	maxRepaired   = 100                         // names in a repair, and in its response
	maxRepairName = maxFullName + len("timer:") // bytes of a name with its kind
)

// stepRepair is the request of a repair by step: an operator skips steps, sets their values, or
// rewinds the function to an operation.
type stepRepair struct {
	Skip   []string                   `json:"skip,omitempty"`
	Set    map[string]json.RawMessage `json:"set,omitempty"`
	Rewind []string                   `json:"rewind,omitempty"`
}

// repairRecord is the value of a repair entry.
type repairRecord struct {
	Skip   []string `json:"skip,omitempty"`
	Set    []string `json:"set,omitempty"`
	Rewind []string `json:"rewind,omitempty"`
	Forget []int    `json:"forget,omitempty"` // the indexes of the entries that no longer count
}

// isByStep returns the request in args such as {"durable_repair":{"skip":["reserve"]}}. ok is false
// if the args are those of another repair.
func isByStep(args []byte) (request json.RawMessage, ok bool) {
	var fields map[string]json.RawMessage
	if json.Unmarshal(args, &fields) != nil || len(fields) != 1 {
		return nil, false
	}
	request, ok = fields[repairField]
	return request, ok
}

// parseRepair decodes the request of a repair by step. Unlike json.Unmarshal, it rejects field
// names that differ in case, and null as a list or a name.
func parseRepair(request json.RawMessage) (*stepRepair, error) {
	var fields map[string]json.RawMessage
	if json.Unmarshal(request, &fields) != nil || fields == nil {
		return nil, fmt.Errorf(`%s: must be an object such as {"skip":["a"],"set":{"b":1},"rewind":["c"]}`, repairField)
	}
	r := &stepRepair{}
	for _, field := range slices.Sorted(maps.Keys(fields)) {
		names := &r.Skip
		switch field {
		case "set":
			if json.Unmarshal(fields[field], &r.Set) != nil || r.Set == nil {
				return nil, fmt.Errorf(`%s.set: must be an object such as {"b":1}`, repairField)
			}
			continue
		case "rewind":
			names = &r.Rewind
		case "skip":
		default:
			return nil, fmt.Errorf("%s: must have no fields other than skip, set and rewind", repairField)
		}
		var list []*string
		if json.Unmarshal(fields[field], &list) != nil || list == nil || slices.Contains(list, nil) {
			return nil, fmt.Errorf(`%s.%s: must be a list of names such as ["a"]`, repairField, field)
		}
		for _, name := range list {
			*names = append(*names, *name)
		}
	}
	switch names := len(r.Skip) + len(r.Set) + len(r.Rewind); {
	case names == 0:
		return nil, fmt.Errorf("%s: must name a step", repairField)
	case names > maxRepaired:
		return nil, fmt.Errorf("%s: must name at most %d steps (got %d)", repairField, maxRepaired, names)
	}
	for _, name := range slices.Concat(r.Skip, slices.Collect(maps.Keys(r.Set)), r.Rewind) {
		if len(name) > maxRepairName {
			return nil, fmt.Errorf("%s: a name has %d bytes, at most %d are allowed", repairField, len(name),
				maxRepairName)
		}
	}
	for _, name := range r.Skip {
		if _, ok := r.Set[name]; ok {
			return nil, fmt.Errorf("%s.set: step %s cannot be both skipped and set", repairField, name)
		}
	}
	for name, value := range r.Set {
		if len(value) > maxValueBytes {
			return nil, fmt.Errorf("%s.set: the value of step %s has %d bytes, at most %d are allowed", repairField,
				name, len(value), maxValueBytes)
		}
	}
	return r, nil
}

func (r *stepRepair) names(step string) bool {
	_, set := r.Set[step]
	return set || slices.Contains(r.Skip, step)
}

// repairSteps applies a repair by step to the journal, unless the function would then fail. The
// function continues in the next task.
func (t *task) repairSteps(request json.RawMessage) (*progressorv1.ProcessResponse, error) {
	r, err := parseRepair(request)
	if err != nil {
		return nil, processor.Reject(processor.ReasonBadArgs, "%w", err)
	}
	old := t.journal.snapshot()
	order, err := t.currentOrder()
	if err != nil {
		return nil, err
	}
	forget, err := t.journal.toForget(r, order)
	if err != nil {
		return nil, processor.Reject(processor.ReasonBadArgs, "%w", err)
	}
	cancels := t.cancelsOf(old, forget)
	if len(cancels) > process.MaxCommands {
		return nil, processor.Reject(processor.ReasonBadArgs,
			"%s: must cancel at most %d children (got %d): rewind to a later entry", repairField, process.MaxCommands,
			len(cancels))
	}
	timers := slices.Concat(t.journal.pendingTimers(), t.journal.pendingRetries())
	record, _ := json.Marshal(repairRecord{r.Skip, slices.Sorted(maps.Keys(r.Set)), r.Rewind, forget}) // cannot fail
	made := []entry{{Kind: kindRepair, Name: t.journal.start().Name, Value: record}}
	t.journal.add(made[0])
	ended, err := t.endSteps(r, old)
	if err != nil {
		return nil, err
	}
	t.effects = newEffects() // those of the function follow in the next task
	pending := slices.Concat(t.journal.pendingTimers(), t.journal.pendingRetries())
	for _, name := range timers {
		if !slices.Contains(pending, name) {
			t.effects.unsetTimer(name)
		}
	}
	t.effects.commands = cancels
	addEvents(t.result, append(made, ended...))
	t.effects.addTo(t.result)
	return t.result.Response(repairResponse(old, forget)).SetTimerAfter(0).Done()
}

// endSteps adds the entries of the steps that a repair skips or sets, and returns them. It runs the
// function to find steps that have no entry yet, and to check that it does not fail.
func (t *task) endSteps(r *stepRepair, old []entry) (made []entry, err error) {
	end := func(name string, undo bool) {
		value, set := r.Set[name]
		e := entry{Kind: kindStep, Name: name, Value: value, Undo: undo && set, Skipped: !set}
		t.journal.add(e)
		made = append(made, e)
	}
	if err := t.rehearse(); err != nil {
		return nil, err
	}
	for {
		waiting := t.waitingSteps(r)
		for _, step := range waiting {
			end(step.name, step.undo)
		}
		if len(waiting) == 0 {
			break
		}
		if err := t.rehearse(); err != nil {
			return nil, err
		}
	}
	added := len(made)
	for _, name := range slices.Concat(r.Skip, slices.Sorted(maps.Keys(r.Set))) {
		if t.journal.has(kindStep, name) {
			continue
		}
		at := slices.IndexFunc(old, func(e entry) bool {
			return e.Name == name && (e.Kind == kindStep || e.Kind == kindTry)
		})
		if at < 0 {
			field := "skip"
			if _, set := r.Set[name]; set {
				field = "set"
			}
			return nil, processor.Reject(processor.ReasonBadArgs, "%s.%s: the function has not reached a step %s: %s",
				repairField, field, name, nearest(name, t.knownSteps(old)))
		}
		end(name, old[at].Undo)
	}
	if len(made) > added {
		err = t.rehearse()
	}
	return made, err
}

// rehearse runs the function. It returns a rejection if the function fails.
func (t *task) rehearse() error {
	err := t.advance()
	if err == nil || t.ctx.Err() != nil {
		return err
	}
	failure := processor.FailureOf(err)
	return processor.Reject(failure.GetReason(), "the function would fail after this repair: %s", failure.GetMessage())
}

// waitingSteps returns the steps for which the function waits and that the repair ends.
func (t *task) waitingSteps(r *stepRepair) (found []*stepRun) {
	for _, b := range t.branches {
		if b.wait == nil || b.wait.step == nil {
			continue
		}
		if step := b.wait.step; r.names(step.name) && !t.journal.has(kindStep, step.name) {
			found = append(found, step)
		}
	}
	return found
}

// knownSteps returns the names of the steps in the journal, and of those for which the function
// waits.
func (t *task) knownSteps(old []entry) (names []string) {
	for _, e := range old {
		if e.Kind == kindStep || e.Kind == kindTry {
			names = append(names, e.Name)
		}
	}
	for _, b := range t.branches {
		if b.wait != nil && b.wait.step != nil {
			names = append(names, b.wait.step.name)
		}
	}
	return names
}

// nearest returns the end of a message. It lists the names that are most similar to name.
func nearest(name string, names []string) string {
	const most = 5
	slices.Sort(names)
	names = slices.Compact(names)
	if len(names) == 0 {
		return "there are none yet"
	}
	if len(names) > most {
		distances := map[string]int{}
		for _, n := range names {
			distances[n] = spelling.Distance(name, n)
		}
		slices.SortStableFunc(names, func(a, b string) int { return distances[a] - distances[b] })
		return "similar names are " + strings.Join(names[:most], ", ")
	}
	return "the names are " + strings.Join(names, ", ")
}

// cancelsOf returns the commands that cancel the forgotten children that still run.
func (t *task) cancelsOf(entries []entry, forget []int) (commands []*progressorv1.Command) {
	for _, at := range forget {
		e := &entries[at]
		if e.Kind == kindChild && !t.journal.has(kindEnded, e.Name) && !t.journal.has(kindCancel, e.Name) {
			commands = append(commands, t.cancelOf(childOf(e), "an operator has repaired the parent"))
		}
	}
	return commands
}

// repairResponse returns the response of a repair: the entries that the journal has forgotten.
func repairResponse(entries []entry, forget []int) []byte {
	response := struct {
		Forgotten []string `json:"forgotten"`
	}{Forgotten: []string{}}
	for _, at := range forget {
		if len(response.Forgotten) == maxRepaired {
			response.Forgotten = append(response.Forgotten, "…")
			break
		}
		response.Forgotten = append(response.Forgotten, entries[at].Kind+" "+entries[at].Name)
	}
	text, _ := json.Marshal(response) // texts can be encoded
	return text
}

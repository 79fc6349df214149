package durable

import (
	"maps"
	"slices"
	"time"

	"github.com/progressor-engine/progressor/process"
	"github.com/progressor-engine/progressor/processor"
	progressorv1 "github.com/progressor-engine/progressor/proto/progressor/v1"
)

// Limits of this package. The engine has larger ones for a whole result.
const (
	maxNewEntries = 500                            // new entries of a result, before the function must wait
	maxNewBytes   = 2 << 20                        // bytes of these entries
	maxValueBytes = process.MaxPayloadBytes - 4096 // one value, without the rest of its entry
	maxSteps      = 100                            // steps that run in one task
	maxTimers     = 80                             // pending timers of After; the engine allows more, for retries
	maxWaiting    = 500                            // calls that the function has not taken
	maxStepBytes  = 4 << 20                        // values of the steps of one task together
	maxNameBytes  = 100
	maxFullName   = 200 // a name with its scope and number
)

// effects contains what a run changes besides the journal.
type effects struct {
	timers    map[string]time.Duration // set by this task
	unset     map[string]bool
	published []byte // nil if Publish was not called
	metadata  map[string]any
	commands  []*progressorv1.Command // to children
	replies   []reply

	metadataStored bool // by a checkpoint
}

func newEffects() effects {
	return effects{timers: map[string]time.Duration{}, unset: map[string]bool{}}
}

func (e *effects) setTimer(name string, d time.Duration) {
	delete(e.unset, name)
	e.timers[name] = d
}

func (e *effects) unsetTimer(name string) {
	if _, ok := e.timers[name]; ok { // the same task has set it
		delete(e.timers, name)
		return
	}
	e.unset[name] = true
}

// addTo adds the effects to a result.
func (e *effects) addTo(result *processor.ResultBuilder) {
	for _, name := range slices.Sorted(maps.Keys(e.timers)) {
		result.SetNamedTimerAfter(name, e.timers[name])
	}
	for _, name := range slices.Sorted(maps.Keys(e.unset)) {
		result.UnsetNamedTimer(name)
	}
	if e.published != nil {
		result.AuxState(e.published)
	}
	if e.metadata != nil && !e.metadataStored {
		result.Metadata(e.metadata)
	}
	for _, command := range e.commands {
		result.Command(command)
	}
	for _, r := range e.replies {
		r.addTo(result)
	}
}

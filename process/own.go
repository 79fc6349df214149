package process

import (
	"strconv"
	"strings"
)

// The prefixes of the ids of the engine's processes. Clients cannot use such ids. SQL has the same
// texts.
const (
	OwnPrefix     = "~"
	BulkPrefix    = "~bulk/"
	CronPrefix    = "~cron/"
	CronRunPrefix = "~run/"  // runs of crons whose target is not a process of a user
	FlowPrefix    = "~flow/" // before the id of the run
	StepPrefix    = "~job/"  // of the jobs of steps: the run and the step follow
	MemberPrefix  = "~job/~/"
)

// Own reports whether an id belongs to a process of the engine.
func Own(processID string) bool { return strings.HasPrefix(processID, OwnPrefix) }

// StepJob returns what follows ~job/ in the id of the job of a step: the run, the step, and the
// item or the compensation. It reports false for all other ids.
func StepJob(jobID string) (name string, ok bool) {
	if strings.HasPrefix(jobID, MemberPrefix) {
		return "", false
	}
	return strings.CutPrefix(jobID, StepPrefix)
}

// StepOfRun is a step of a run, or an item of the step.
type StepOfRun struct {
	RunID, StepID string
	Index         int32 // of the item; -1 for the step itself
}

// ParseStepJob returns the step whose work, or whose compensation, a job does. The ID of the job is
// ~job/RUN/STEP, ~job/RUN/STEP.INDEX or ~job/RUN/STEP.undo, each with ~ROUND after a retry of the
// run. It reports false for all other IDs.
func ParseStepJob(jobID string) (place StepOfRun, ok bool) {
	rest, ok := StepJob(jobID)
	slash := strings.LastIndexByte(rest, '/')
	if !ok || slash < 0 {
		return StepOfRun{}, false
	}
	name, _, _ := strings.Cut(rest[slash+1:], "~")
	name, item, _ := strings.Cut(name, ".")
	place = StepOfRun{RunID: rest[:slash], StepID: name, Index: -1}
	if n, err := strconv.ParseInt(item, 10, 32); err == nil {
		place.Index = int32(n)
	}
	return place, true
}

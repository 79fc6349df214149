package process

import (
	"strconv"
	"strings"
)

// The prefixes of the IDs of the engine's own processes. Clients cannot use such IDs. SQL
// statements contain the same prefixes.
const (
	OwnPrefix     = "~"
	BulkPrefix    = "~bulk/"
	CronPrefix    = "~cron/"
	CronRunPrefix = "~run/"   // a run of a cron that has an internal process, see engine/crons
	FlowPrefix    = "~flow/"  // followed by the ID of the run
	StepPrefix    = "~job/"   // the job of a step; followed by the run and the step
	MemberPrefix  = "~job/~/" // a member of a job for several workers
)

// The names of the kinds that SQL statements and other packages refer to.
const (
	JobKind  = "job"
	FlowKind = "flow" // kind of runs of flows
)

// Own reports whether an ID belongs to a process of the engine.
func Own(processID string) bool { return strings.HasPrefix(processID, OwnPrefix) }

// KeepsTrace reports whether the span of a request is stored with a process, so that its later
// tasks belong to the trace. Crons and bulks keep none: the timers of a cron continue for years,
// and a bulk calls a million processes.
func KeepsTrace(processID string) bool {
	return !Own(processID) || strings.HasPrefix(processID, FlowPrefix)
}

// StartsTraces reports whether the tasks of a process are traced although no trace is stored with
// it. A task then belongs to the trace of the request that caused it, and a timer to a new trace.
func StartsTraces(processID string) bool { return strings.HasPrefix(processID, CronPrefix) }

// StepJob returns the part after ~job/ in the ID of a step's job. This part names the run, the
// step, and the item or the compensation. StepJob reports false for all other IDs.
func StepJob(jobID string) (name string, ok bool) {
	if strings.HasPrefix(jobID, MemberPrefix) {
		return "", false
	}
	return strings.CutPrefix(jobID, StepPrefix)
}

// memberHashLen is the length of the hash that replaces a long job ID in the ID of a member.
const memberHashLen = 32

// MayCompensate reports whether the engine may have composed the args of a job. This is the case if
// the job is a compensation or a member of one. Members of jobs with long IDs contain only a hash
// of the ID, so MayCompensate reports true for all of them.
func MayCompensate(jobID string) bool {
	if member, ok := strings.CutPrefix(jobID, MemberPrefix); ok {
		slash := strings.LastIndexByte(member, '/')
		if slash < 0 {
			return false
		}
		if jobID = member[:slash]; len(jobID) == memberHashLen && !strings.Contains(jobID, "/") {
			return true
		}
	}
	rest, ok := StepJob(jobID)
	slash := strings.LastIndexByte(rest, '/')
	if !ok || slash < 0 {
		return false
	}
	name, _, _ := strings.Cut(rest[slash+1:], "~")
	return strings.HasSuffix(name, ".undo")
}

// StepOfRun is a step of a run, or an item of the step.
type StepOfRun struct {
	RunID, StepID string
	Index         int32 // index of the item; -1 for the step itself
}

// ParseStepJob returns the step that a job executes or compensates. The ID of the job is
// ~job/RUN/STEP, ~job/RUN/STEP.INDEX or ~job/RUN/STEP.undo. After a retry of the run, ~ROUND
// follows. ParseStepJob reports false for all other IDs.
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

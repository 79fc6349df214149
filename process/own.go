package process

import "strings"

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

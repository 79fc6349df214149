package process

import "strings"

// What the ids of the engine's own processes begin with: nobody else may give such ids, and SQL has the same texts.
const (
	OwnPrefix     = "~"
	BulkPrefix    = "~bulk/"
	CronPrefix    = "~cron/"
	CronRunPrefix = "~run/"  // runs of crons whose target is no process of a user
	FlowPrefix    = "~flow/" // before the id of the run
	StepPrefix    = "~job/"  // of the jobs of steps: the run and the step follow
	MemberPrefix  = "~job/~/"
)

// Own tells whether an id is one of the engine's own.
func Own(processID string) bool { return strings.HasPrefix(processID, OwnPrefix) }

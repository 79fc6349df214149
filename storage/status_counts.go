package storage

import (
	"github.com/progressor-engine/progressor/process"
)

// laneLocks is the first key of the advisory locks with which TakeLane assigns a number to each
// lane. It is "prog" in ASCII.
const laneLocks = 0x70726f67

// changesStatus reports whether a result may change the counted status of its process. INIT and
// RUNNING count as one status, so a task with the outcome Finished changes the counted status only
// if it is a repair.
func (c *Completion) changesStatus() bool {
	switch c.Outcome {
	case Failed, Completed, Cancelled:
		return true
	case Finished:
		return c.TaskType == process.TaskRepair
	}
	return false
}

package storage

import (
	"github.com/progressor-engine/progressor/process"
)

// laneLocks is the class of the advisory locks that number the lanes: "prog" in ASCII.
const laneLocks = 0x70726f67

// changesStatus reports whether a result may change the counted status of its process. INIT and
// RUNNING count as one status. Among tasks that finish, only a repair changes it.
func (c *Completion) changesStatus() bool {
	switch c.Outcome {
	case Failed, Completed, Cancelled:
		return true
	case Finished:
		return c.TaskType == process.TaskRepair
	}
	return false
}

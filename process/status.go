package process

// Status is the status of a process. Its values are the labels of the SQL type process_status.
type Status string

// The statuses of a process. See docs/concepts.md for what each event does in each of them.
const (
	StatusInit      Status = "INIT"      // its INIT task has not finished
	StatusRunning   Status = "RUNNING"   // accepts calls, and its timers fire
	StatusError     Status = "ERROR"     // a task failed permanently; waits for Repair
	StatusSuspended Status = "SUSPENDED" // stopped by an operator
	StatusCompleted Status = "COMPLETED" // ended by the processor's complete action
	StatusCancelled Status = "CANCELLED" // ended by a cancel
)

// Statuses lists every status, in the order of the SQL type and of the proto enum.
func Statuses() []Status {
	return []Status{StatusInit, StatusRunning, StatusError, StatusSuspended, StatusCompleted, StatusCancelled}
}

// Ended reports whether the status is final. Only a retry of a job or of a run changes a final
// status.
func (s Status) Ended() bool { return s == StatusCompleted || s == StatusCancelled }

// TaskType is the type of a task. Its values are the labels of the SQL type task_type.
type TaskType string

// The types of a task.
const (
	TaskInit    TaskType = "INIT"
	TaskCall    TaskType = "CALL"
	TaskNotify  TaskType = "NOTIFY" // a call without a waiting caller
	TaskRepair  TaskType = "REPAIR"
	TaskTimeout TaskType = "TIMEOUT" // a timer that fired
	TaskRemove  TaskType = "REMOVE"  // a removal timer that fired; the processor is not called
	TaskCancel  TaskType = "CANCEL"
)

// TaskTypes lists every task type, in the order of the SQL type and of the proto enum.
func TaskTypes() []TaskType {
	return []TaskType{TaskInit, TaskCall, TaskNotify, TaskRepair, TaskTimeout, TaskRemove, TaskCancel}
}

// Timer reports whether a task of this type is a timer.
func (t TaskType) Timer() bool { return t == TaskTimeout || t == TaskRemove }

// RetriedOnFailure reports whether the retry policy applies to a failure that the processor
// reports. INIT, CALL and REPAIR are not retried: their failure is returned to the waiting caller.
func (t TaskType) RetriedOnFailure() bool {
	return t == TaskTimeout || t == TaskNotify || t == TaskRemove || t == TaskCancel
}

// TaskStatus is the status of a task. Its values are the labels of the SQL type task_status.
type TaskStatus string

// The statuses of a task. BLOCKED is derived, not stored: the task is a timer, and another task of
// its process waits or runs.
const (
	TaskStatusWaiting   TaskStatus = "WAITING"
	TaskStatusRunning   TaskStatus = "RUNNING"
	TaskStatusBlocked   TaskStatus = "BLOCKED"
	TaskStatusFinished  TaskStatus = "FINISHED"
	TaskStatusError     TaskStatus = "ERROR"
	TaskStatusCancelled TaskStatus = "CANCELLED"
)

// TaskStatuses lists every task status, in the order of the SQL type and of the proto enum.
func TaskStatuses() []TaskStatus {
	return []TaskStatus{
		TaskStatusWaiting, TaskStatusRunning, TaskStatusBlocked,
		TaskStatusFinished, TaskStatusError, TaskStatusCancelled,
	}
}

// Ended reports whether a task with this status has ended.
func (s TaskStatus) Ended() bool {
	return s == TaskStatusFinished || s == TaskStatusError || s == TaskStatusCancelled
}

// WaitsFor is the reason why a task is in the table schedule. Its values are the labels of the SQL
// type waits_for.
type WaitsFor string

// The reasons why a task waits.
const (
	WaitsForTime       WaitsFor = "time"       // until its scheduled_time
	WaitsForPlace      WaitsFor = "place"      // for a free slot; any node may claim it
	WaitsForProcess    WaitsFor = "process"    // behind another task of its process
	WaitsForOperator   WaitsFor = "operator"   // its process is suspended
	WaitsForConstraint WaitsFor = "constraint" // a constraint has reached its limit
	WaitsForMembers    WaitsFor = "members"    // until a member of this job ends; several workers run it
	WaitsForReply      WaitsFor = "reply"      // for the response of a later task of its process
)

// WaitsFors lists every value, in the order of the SQL type.
func WaitsFors() []WaitsFor {
	return []WaitsFor{
		WaitsForTime, WaitsForPlace, WaitsForProcess, WaitsForOperator, WaitsForConstraint, WaitsForMembers,
		WaitsForReply,
	}
}

// ZombiePolicy defines what happens to a task whose node or worker died.
type ZombiePolicy string

// The zombie policies.
const (
	ZombieRetry ZombiePolicy = "RETRY" // the task is retried until max_attempts, then handled as with ZombieError
	ZombieError ZombiePolicy = "ERROR" // the process goes to ERROR with "zombie detected"
)

// HistoryMode defines which events the processor gets if the request sets no range.
type HistoryMode string

// The history modes.
const (
	HistoryFull HistoryMode = "FULL"
	HistoryNone HistoryMode = "NONE" // no events; the processor uses aux_state
	HistoryLast HistoryMode = "LAST" // only the last event
)

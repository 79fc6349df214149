package wire

import (
	"strings"
	"time"

	"google.golang.org/protobuf/types/known/durationpb"
	"google.golang.org/protobuf/types/known/timestamppb"

	"github.com/progressor-engine/progressor/process"
	progressorv1 "github.com/progressor-engine/progressor/proto/progressor/v1"
)

// Status returns the API's value of s. It is UNSPECIFIED if s is unknown or empty.
func Status(s process.Status) progressorv1.ProcessStatus {
	return progressorv1.ProcessStatus(progressorv1.ProcessStatus_value["PROCESS_STATUS_"+string(s)])
}

// StatusOf is the inverse of Status. It returns "" for UNSPECIFIED.
func StatusOf(s progressorv1.ProcessStatus) process.Status {
	if s == progressorv1.ProcessStatus_PROCESS_STATUS_UNSPECIFIED {
		return ""
	}
	return process.Status(strings.TrimPrefix(s.String(), "PROCESS_STATUS_"))
}

// taskTypes replaces a search by name, because every attempt converts a task type.
var taskTypes = map[process.TaskType]progressorv1.TaskType{
	process.TaskInit: progressorv1.TaskType_TASK_TYPE_INIT, process.TaskCall: progressorv1.TaskType_TASK_TYPE_CALL,
	process.TaskNotify:  progressorv1.TaskType_TASK_TYPE_NOTIFY,
	process.TaskRepair:  progressorv1.TaskType_TASK_TYPE_REPAIR,
	process.TaskTimeout: progressorv1.TaskType_TASK_TYPE_TIMEOUT,
	process.TaskRemove:  progressorv1.TaskType_TASK_TYPE_REMOVE,
	process.TaskCancel:  progressorv1.TaskType_TASK_TYPE_CANCEL,
}

// TaskType returns the API's value of t.
func TaskType(t process.TaskType) progressorv1.TaskType { return taskTypes[t] }

// TaskStatus returns the API's value of s.
func TaskStatus(s process.TaskStatus) progressorv1.TaskStatus {
	return progressorv1.TaskStatus(progressorv1.TaskStatus_value["TASK_STATUS_"+string(s)])
}

// Timestamp returns t as a message, or nil if t is nil.
func Timestamp(t *time.Time) *timestamppb.Timestamp { return timestampOf(t) }

func timestampOf(t *time.Time) *timestamppb.Timestamp {
	if t == nil {
		return nil
	}
	return timestamppb.New(*t)
}

func durationOf(d *time.Duration) *durationpb.Duration {
	if d == nil {
		return nil
	}
	return durationpb.New(*d)
}

// WaitsFor returns the API's value of w. It is UNSPECIFIED if w is empty.
func WaitsFor(w process.WaitsFor) progressorv1.WaitsFor {
	return progressorv1.WaitsFor(progressorv1.WaitsFor_value["WAITS_FOR_"+strings.ToUpper(string(w))])
}

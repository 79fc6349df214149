package processor

import (
	"fmt"

	"google.golang.org/protobuf/proto"

	"github.com/progressor-engine/progressor/process"
	progressorv1 "github.com/progressor-engine/progressor/proto/progressor/v1"
)

// checkReplies checks the replies of a result to open tasks, and whether it may leave its own task
// open.
func checkReplies(task progressorv1.TaskType, result *progressorv1.Result, limit int) *process.InvalidError {
	if err := checkDeferred(task, result); err != nil {
		return err
	}
	if n := len(result.GetReplies()); n > process.MaxReplies {
		return invalid("result.replies", "must have at most %d replies (got %d)", process.MaxReplies, n)
	}
	if result.GetRemove() != nil && len(result.GetReplies()) > 0 {
		return invalid("result.replies", "must be empty in a result that removes the process")
	}
	seen := make(map[int64]bool, len(result.GetReplies()))
	for i, reply := range result.GetReplies() {
		switch field := fmt.Sprintf("result.replies[%d]", i); {
		case reply.GetTaskId() <= 0:
			return invalid(field+".task_id", "must be the task_id of a task whose response was deferred (got %d)",
				reply.GetTaskId())
		case seen[reply.GetTaskId()]:
			return invalid(field+".task_id", "duplicate reply to task %d", reply.GetTaskId())
		case len(reply.GetResponse()) > limit:
			return tooLarge(field+".response", len(reply.GetResponse()), limit)
		case proto.Size(reply.GetRejection()) > process.MaxPayloadBytes:
			return tooLarge(field+".rejection", proto.Size(reply.GetRejection()), process.MaxPayloadBytes)
		default:
			seen[reply.GetTaskId()] = true
		}
	}
	return nil
}

func checkDeferred(task progressorv1.TaskType, result *progressorv1.Result) *process.InvalidError {
	if result.GetDeferResponse() {
		switch {
		case task != progressorv1.TaskType_TASK_TYPE_CALL && task != progressorv1.TaskType_TASK_TYPE_NOTIFY:
			return invalid("result.defer_response", "a task of type %s has no response to defer", task)
		case result.GetComplete() != nil || result.GetRemove() != nil:
			return invalid("result.defer_response", "must not be set in a result that ends the process")
		case len(result.GetResponse()) > 0:
			return invalid("result.defer_response", "must not be set in a result with a response")
		}
	}
	return nil
}

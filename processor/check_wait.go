package processor

import (
	"fmt"

	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/structpb"

	"github.com/progressor-engine/progressor/process"
	progressorv1 "github.com/progressor-engine/progressor/proto/progressor/v1"
)

const (
	maxWaitText  = 16 << 10 // the title of a wait, and each of its assignees
	maxAssignees = 1000
)

// checkWait checks the rules for waits of templates that need no compiler. The engine checks the
// expressions and the schema.
func checkWait(field string, w *progressorv1.WaitAction) *process.InvalidError {
	if size := proto.Size(w); size > process.MaxWaitBytes {
		return tooLarge(field, size, process.MaxWaitBytes)
	}
	if n := len(w.GetTitle()); n > maxWaitText {
		return tooLarge(field+".title", n, maxWaitText)
	}
	if n := len(w.GetAssignees()); n > maxAssignees {
		return invalid(field+".assignees", "must be at most %d (got %d)", maxAssignees, n)
	}
	for i, assignee := range w.GetAssignees() {
		if n := len(assignee); n == 0 || n > maxWaitText {
			return invalid(fmt.Sprintf("%s.assignees[%d]", field, i), "must have 1 to %d bytes (got %d)", maxWaitText,
				n)
		}
	}
	if err := checkDuration(field+".due", w.GetDue(), process.MaxDuration); err != nil {
		return err
	}
	if err := checkDueAction(field, w); err != nil {
		return err
	}
	if s := w.GetResultSchema(); s != nil {
		return checkJSON(field+".result_schema", structpb.NewStructValue(s), 0)
	}
	return nil
}

func checkDueAction(field string, w *progressorv1.WaitAction) *process.InvalidError {
	action, result := w.GetDueAction(), w.GetDueResult()
	switch {
	case action != progressorv1.WaitAction_DUE_ACTION_UNSPECIFIED && w.GetDue().AsDuration() == 0:
		return invalid(field+".due_action", "requires due, such as 24h")
	case action != progressorv1.WaitAction_DUE_ACTION_SUCCEED && result != nil:
		return invalid(field+".due_result", "is allowed only with due_action: SUCCEED")
	case result != nil:
		return checkJSON(field+".due_result", result, 0)
	}
	return nil
}

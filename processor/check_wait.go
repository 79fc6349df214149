package processor

import (
	"fmt"
	"regexp/syntax"

	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/structpb"

	"github.com/progressor-engine/progressor/process"
	progressorv1 "github.com/progressor-engine/progressor/proto/progressor/v1"
)

const (
	maxWaitText  = 16 << 10 // maximum size in bytes of a wait's title, and of each assignee
	maxAssignees = 1000
)

// The engine compiles the schemas of up to 100 waits when a result is stored. With these limits, a
// schema takes about 0.1 s. Without them, it took up to 2.2 s.
const (
	maxWaitSchema  = 16 << 10 // maximum size in bytes of a wait's schema, in protobuf
	maxWaitPattern = 10_000   // maximum total size of its patterns, with repeats written out
)

// checkWait checks the rules for waits of templates, except those that require compiling
// expressions or the schema. The engine checks these when it compiles the wait.
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
		return checkWaitSchema(field+".result_schema", s)
	}
	return nil
}

func checkWaitSchema(field string, s *structpb.Struct) *process.InvalidError {
	if size := proto.Size(s); size > maxWaitSchema {
		return tooLarge(field, size, maxWaitSchema)
	}
	v := structpb.NewStructValue(s)
	if err := checkJSON(field, v, 0); err != nil {
		return err
	}
	if n := patternSize(v); n > maxWaitPattern {
		return invalid(field, "must have at most %d characters in patterns, with repeats written out (got %d)",
			maxWaitPattern, n)
	}
	return nil
}

// patternSize returns the total size of the patterns in a schema, with repeats written out.
func patternSize(v *structpb.Value) (size int) {
	for name, member := range v.GetStructValue().GetFields() {
		if text, ok := member.GetKind().(*structpb.Value_StringValue); name == "pattern" && ok {
			size += expandedSize(text.StringValue)
		}
		if name == "patternProperties" {
			for pattern := range member.GetStructValue().GetFields() {
				size += expandedSize(pattern)
			}
		}
		size += patternSize(member)
	}
	for _, element := range v.GetListValue().GetValues() {
		size += patternSize(element)
	}
	return size
}

// expandedSize returns the size of a pattern with its repeats written out, or 0 if it is not valid.
func expandedSize(pattern string) int {
	parsed, err := syntax.Parse(pattern, syntax.Perl)
	if err != nil {
		return 0
	}
	var sizeOf func(e *syntax.Regexp) int
	sizeOf = func(e *syntax.Regexp) int {
		size := 1 + len(e.Rune)
		for _, part := range e.Sub {
			size += sizeOf(part)
		}
		if e.Op == syntax.OpRepeat {
			size *= max(1, e.Min, e.Max)
		}
		return size
	}
	return sizeOf(parsed)
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

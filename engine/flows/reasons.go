package flows

import (
	"cmp"
	"strings"

	"github.com/progressor-engine/progressor/flow"
	progressorv1 "github.com/progressor-engine/progressor/proto/progressor/v1"
)

// endReason returns the reason to store for steps that end because the run stops. The reason names
// the step that failed the run, repeats the reason of the cancel, or reports that the timeout has
// passed.
func (t *task) endReason() (string, error) {
	switch t.state.Run.Cause {
	case flow.ByCancel:
		if t.state.Cancel == "" {
			return "the run was cancelled", nil
		}
		return "the run was cancelled: " + t.state.Cancel, nil
	case flow.ByTime:
		return t.passedTimeout(), nil
	}
	if t.state.Run.Broken == nil {
		return "the run failed", nil
	}
	failure, err := t.runFailure(*t.state.Run.Broken)
	if err != nil {
		return "", err
	}
	reason := "step " + t.template.Steps[*t.state.Run.Broken].ID + " failed"
	if text := shorten(cmp.Or(failure.GetMessage(), failure.GetReason())); text != "" {
		reason += ": " + text
	}
	return reason, nil
}

// shorten cuts a text to maxEndReason characters.
func shorten(s string) string {
	if text := []rune(s); len(text) > maxEndReason {
		return string(text[:maxEndReason]) + "…"
	}
	return s
}

// failureText returns a failure as the message of an event.
func failureText(f *progressorv1.Failure) string {
	return shorten(strings.TrimPrefix(strings.TrimSuffix(f.GetReason()+": "+f.GetMessage(), ": "), ": "))
}

// maxEndReason is the maximum length, in characters, of the failure that each step repeats when it
// ends with its run. A failure may be long, and a run may have many steps.
const maxEndReason = 200

// cancelReason returns the reason why the work of a step is asked to end.
func (t *task) cancelReason() string {
	s := t.state.Run
	switch {
	case s.Cause == flow.ByCancel:
		return "its run is ending: " + cmp.Or(t.state.Cancel, "it was cancelled")
	case s.Cause == flow.ByTime:
		return "its run is ending because its timeout expired"
	case s.Cause == flow.ByFailure && s.Broken != nil:
		return "its run is ending: step " + t.template.Steps[*s.Broken].ID + " failed"
	case s.Cause == flow.ByFailure:
		return "its run is ending: a step failed"
	}
	return "its run continues without it"
}

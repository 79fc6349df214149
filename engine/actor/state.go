package actor

import (
	"bytes"
	"encoding/json"
	"errors"
	"strings"

	"github.com/progressor-engine/progressor/process"
	"github.com/progressor-engine/progressor/processor"
)

// Decode decodes the JSON state of a process for a task that will store it again. If the state has
// fields that v does not have, a newer version of the engine has stored it, and storing it again
// would lose them. Decode then returns the error of NewerState.
func Decode(text []byte, v any) error {
	decoder := json.NewDecoder(bytes.NewReader(text))
	decoder.DisallowUnknownFields()
	err := decoder.Decode(v)
	if err == nil {
		return nil
	}
	if field, unknown := strings.CutPrefix(err.Error(), "json: unknown field "); unknown {
		return NewerState("the field " + field)
	}
	return err
}

// NewerState returns the failure of a task whose process has a state that only newer versions of
// the engine know. what names the part that this version does not know. The task is retried until a
// node with a newer version takes it.
func NewerState(what string) error {
	return processor.Fail(process.ReasonNewerState,
		"a newer version of the engine has stored the state of this process: this node does not know %s of the state, "+
			"and leaves the task to a node with that version", what)
}

// BadState returns the failure of a task whose process has a state that cannot be read because of
// err. If err is nil, or already a failure such as that of NewerState, BadState returns it
// unchanged.
func BadState(err error) error {
	if _, ok := errors.AsType[*processor.FailureError](err); ok || err == nil {
		return err
	}
	return processor.Fail(processor.ReasonBadState, "%w", err).NonRetryable()
}

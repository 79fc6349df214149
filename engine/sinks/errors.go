package sinks

import "errors"

// ErrGone is the error of a target that wants no more changes. It disables the sink.
var ErrGone = errors.New("the target is gone")

// PermanentError is the error of a change that a target will never accept, such as one that is too
// large. If one change was delivered, it goes to the dead letters. If several were, each of them is
// delivered separately.
type PermanentError struct{ Err error }

func (e *PermanentError) Error() string { return e.Err.Error() }

func (e *PermanentError) Unwrap() error { return e.Err }

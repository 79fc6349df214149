package sinks

import "errors"

// ErrGone reports that a target accepts no more changes. It disables the sink.
var ErrGone = errors.New("the target is gone")

// PermanentError reports that a target will never accept a change, for example because the change
// is too large. If the delivery had one change, the change becomes a dead letter. If it had
// several, each of them is delivered separately.
type PermanentError struct{ Err error }

func (e *PermanentError) Error() string { return e.Err.Error() }

func (e *PermanentError) Unwrap() error { return e.Err }

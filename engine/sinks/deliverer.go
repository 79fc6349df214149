package sinks

import (
	"context"

	progressorv1 "github.com/progressor-engine/progressor/proto/progressor/v1"
)

// Deliverer is the target of a sink. Deliver is not called concurrently.
type Deliverer interface {
	// Deliver returns nil when the target has stored all changes, those of a process in their
	// order. After an error, some of them may be stored, and all are delivered again. A
	// *PermanentError says that repeating cannot succeed, and ErrGone that the target wants no
	// more changes.
	Deliver(ctx context.Context, changes []*progressorv1.Change) error
	// Close releases the connections of the target.
	Close()
}

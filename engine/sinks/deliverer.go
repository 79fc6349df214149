package sinks

import (
	"context"

	progressorv1 "github.com/progressor-engine/progressor/proto/progressor/v1"
)

// Deliverer is the target of a sink. Deliver is not called concurrently.
type Deliverer interface {
	// Deliver returns nil when the target has stored all changes, in order for each process. After
	// an error, the target may have stored some of them, and all are delivered again. A
	// *PermanentError means that a repeat cannot succeed, and ErrGone that the target wants no more
	// changes.
	Deliver(ctx context.Context, changes []*progressorv1.Change) error
	// Close releases the connections of the target.
	Close()
}

package engine

import (
	"context"
	"encoding/json"

	"github.com/progressor-engine/progressor/process"
	progressorv1 "github.com/progressor-engine/progressor/proto/progressor/v1"
	"github.com/progressor-engine/progressor/storage"
	"github.com/progressor-engine/progressor/storage/changes"
)

// putNamespace stores a namespace. If the namespace records changes, putNamespace starts the
// recording first.
func (e *Engine) putNamespace(
	ctx context.Context, m *progressorv1.Namespace,
	config func(before json.RawMessage) (json.RawMessage, error), by []process.Actor,
) (storage.Namespace, error) {
	if len(m.GetChanges().GetKinds()) == 0 {
		return e.store.ReplaceNamespace(ctx, m.GetNamespace(), config, by...)
	}
	return changes.PutNamespace(ctx, e.store, m.GetNamespace(), config, by...)
}

// changesEvery returns the interval, in passes of the collector, between two passes that maintain
// the change stream. It is a minute, or an hour if this node knows no namespace that records
// changes. Triggers that are no longer needed remain until the next of these passes.
func (e *Engine) changesEvery() int {
	for _, ns := range e.registry.all() {
		if ns.recordsChanges {
			return 60
		}
	}
	return 3600
}

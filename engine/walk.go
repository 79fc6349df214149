package engine

import (
	"context"

	"github.com/progressor-engine/progressor/storage/search"
)

// WalkProcesses returns the next processes of a namespace that match a filter, oldest first (see
// search.Walk).
func (e *Engine) WalkProcesses(
	ctx context.Context, namespace string, filter search.Filter, from search.Cursor, limit int,
) ([]search.Step, search.Cursor, bool, error) {
	share, err := e.enter(ctx, namespace)
	if err != nil {
		return nil, from, false, err
	}
	defer e.leave(share)
	return search.Walk(ctx, e.store, namespace, filter, from, limit)
}

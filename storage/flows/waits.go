package flows

import (
	"context"
	"errors"

	"github.com/jackc/pgx/v5"

	"github.com/progressor-engine/progressor/storage"
	"github.com/progressor-engine/progressor/storage/internal/dbsqlc"
)

// Wait is the stored state of a wait, against which an answer is checked.
type Wait = dbsqlc.GetWaitRow

// GetWait returns a wait, or false if its step has not begun.
func GetWait(
	ctx context.Context, s *storage.Store, namespace, runID, stepID string, index int32,
) (w Wait, found bool, err error) {
	w, err = storage.Query(ctx, s.ReadOne, "get wait", dbsqlc.New().GetWait,
		dbsqlc.GetWaitParams{Namespace: namespace, RunID: runID, StepID: stepID, Index: index})
	if errors.Is(err, pgx.ErrNoRows) {
		return w, false, nil
	}
	return w, err == nil, err
}

// WaitingNamespaces returns the given namespaces that have open waits, in the given order.
func WaitingNamespaces(ctx context.Context, s *storage.Store, namespaces []string) ([]string, error) {
	return storage.Query(ctx, s.ReadOne, "list namespaces with waits", dbsqlc.New().WaitingNamespaces, namespaces)
}

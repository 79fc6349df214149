package storage

import (
	"context"
	"encoding/json"
	"errors"

	"github.com/jackc/pgx/v5"

	"github.com/progressor-engine/progressor/process"
	"github.com/progressor-engine/progressor/storage/internal/dbsqlc"
)

// PutNamespace creates a namespace or replaces its configuration. It does not pause or resume the
// namespace. It returns process.ErrNamespaceDeleting if the namespace is being deleted.
func (s *Store) PutNamespace(
	ctx context.Context, namespace string, config json.RawMessage, by ...process.Actor,
) (Namespace, error) {
	same := func(json.RawMessage) (json.RawMessage, error) { return config, nil }
	return s.ReplaceNamespace(ctx, namespace, same, by...)
}

// ReplaceNamespace is PutNamespace for a configuration that depends on the stored one, which is nil
// if the namespace does not exist. config may be called again, because changes.PutNamespace repeats
// the transaction.
func (s *Store) ReplaceNamespace(
	ctx context.Context, namespace string, config func(before json.RawMessage) (json.RawMessage, error),
	by ...process.Actor,
) (Namespace, error) {
	var row Namespace
	var change ConfigChange
	err := s.audited(ctx, note{"PutNamespace", namespace, namespace, &change}, by, func(db DB) (err error) {
		change.Before, err = s.q.LockNamespaceConfig(ctx, db, namespace)
		if err != nil && !errors.Is(err, pgx.ErrNoRows) {
			return err
		}
		if change.After, err = config(change.Before); err != nil {
			return err
		}
		row, err = s.q.PutNamespace(ctx, db, dbsqlc.PutNamespaceParams{Namespace: namespace, Config: change.After})
		return err
	})
	return row, noRow(mapped("put namespace "+namespace, err), process.ErrNamespaceDeleting)
}

// GetNamespace returns a namespace, or process.ErrNamespaceNotFound.
func (s *Store) GetNamespace(ctx context.Context, namespace string) (Namespace, error) {
	row, err := s.q.GetNamespace(ctx, s.general, namespace)
	return row, noRow(mapped("get namespace "+namespace, err), process.ErrNamespaceNotFound)
}

// CountNamespaces returns the number of namespaces, including those that are being deleted.
func (s *Store) CountNamespaces(ctx context.Context) (int, error) {
	n, err := s.q.NumberOfNamespaces(ctx, s.general)
	return int(n), mapped("count namespaces", err)
}

// ListNamespaces lists the selected namespaces after a name, at most limit and about ListBytes.
// more reports whether the list ended before the limit because of its size, so that there may be
// more namespaces.
func (s *Store) ListNamespaces(
	ctx context.Context, selected process.Patterns, after string, limit int,
) (rows []Namespace, more bool, err error) {
	rows, err = s.q.ListNamespaces(ctx, s.general, dbsqlc.ListNamespacesParams{
		After: after, Visible: selected.Like(), Lim: int32(limit), MaxBytes: ListBytes,
	})
	bytes := 0
	for n := range rows {
		bytes += len(rows[n].Config)
	}
	return rows, bytes > ListBytes, mapped("list namespaces", err)
}

// NamespaceState is a namespace with the state that every node polls. It shows changes by other
// nodes and whether work is due. Overdue and Late are the same for all namespaces.
type NamespaceState = dbsqlc.ReadNamespaceStatesRow

// ReadNamespaceStates reads all namespaces.
func (s *Store) ReadNamespaceStates(ctx context.Context) ([]NamespaceState, error) {
	rows, err := s.q.ReadNamespaceStates(ctx, s.kept)
	return rows, mapped("read namespaces", err)
}

// SetNamespacePaused pauses or resumes a namespace. It returns process.ErrNamespaceNotFound if the
// namespace does not exist, and process.ErrNamespaceDeleting if it is being deleted.
func (s *Store) SetNamespacePaused(
	ctx context.Context, namespace string, paused bool, by ...process.Actor,
) (Namespace, error) {
	var row Namespace
	method := "ResumeNamespace"
	if paused {
		method = "PauseNamespace"
	}
	err := s.audited(ctx, note{method, namespace, namespace, nil}, by, func(db DB) (err error) {
		row, err = s.q.SetNamespacePaused(ctx, db, dbsqlc.SetNamespacePausedParams{
			Namespace: namespace, Paused: paused,
		})
		return err
	})
	if !errors.Is(err, pgx.ErrNoRows) {
		return row, mapped("pause namespace "+namespace, err)
	}
	if _, err := s.GetNamespace(ctx, namespace); err != nil {
		return row, err
	}
	return row, process.ErrNamespaceDeleting
}

func noRow(err, missing error) error {
	if errors.Is(err, pgx.ErrNoRows) {
		return missing
	}
	return err
}

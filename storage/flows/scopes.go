package flows

import (
	"context"

	"github.com/progressor-engine/progressor/storage"
	"github.com/progressor-engine/progressor/storage/internal/dbsqlc"
)

// Scope is a dedupe key that a run requests.
type Scope struct {
	Namespace    string
	TemplateType string
	DedupeKey    string
	RunID        string
	Once         bool // after a run has succeeded, no other run may start
	Alone        bool // only one run at a time; otherwise only succeeded runs count
	Queues       bool // wait if another run holds the key
}

// Holder is the run that holds a dedupe key. Both fields are "" if the requesting run holds it.
type Holder struct {
	RunID string // a run that has not ended
	Done  string // a run that has succeeded, so that no other run may start
}

// Enter assigns a dedupe key to a run, or returns its holder. It may be called again for the same
// run.
func Enter(ctx context.Context, s *storage.Store, sc Scope) (holder Holder, err error) {
	err = s.RunLocked(ctx, "enter scope", nil, func(ctx context.Context, db storage.DB) error {
		q := dbsqlc.New()
		if err := q.LockScope(ctx, db,
			dbsqlc.LockScopeParams{Namespace: sc.Namespace, TemplateType: sc.TemplateType,
				DedupeKey: sc.DedupeKey}); err != nil {
			return err
		}
		row, err := q.EnterScope(ctx, db, dbsqlc.EnterScopeParams{
			Namespace: sc.Namespace, TemplateType: sc.TemplateType, DedupeKey: sc.DedupeKey, RunID: sc.RunID,
			Repeatable: !sc.Once,
		})
		if err != nil {
			return err
		}
		holder = Holder{Done: row.Done}
		if holder.Done != "" || !sc.Alone {
			return nil
		}
		if holder.RunID = row.Holder; holder.RunID != "" && !sc.Queues {
			return nil
		}
		return q.TakeScope(ctx, db, dbsqlc.TakeScopeParams{
			Namespace: sc.Namespace, TemplateType: sc.TemplateType, DedupeKey: sc.DedupeKey, RunID: sc.RunID,
			Holds: holder.RunID == "",
		})
	})
	return holder, err
}

// Leave returns the effects that release the dedupe key of an ended run and give it to the run that
// has waited longest. The first effect locks the key, so that the statement of the second one sees
// what concurrent transactions have stored.
func Leave(templateType, dedupeKey, runID string) []storage.Effect {
	l := leave{templateType, dedupeKey, runID}
	return []storage.Effect{&lockKey{l}, &l}
}

type leave struct{ templateType, dedupeKey, runID string }

type lockKey struct{ leave }

// Bytes implements storage.Effect.
func (l *leave) Bytes() int { return 200 + len(l.dedupeKey) }

// Batch implements storage.Effect.
func (*lockKey) Batch() string { return "LockScopes" }

// Write implements storage.Effect.
func (*lockKey) Write(ctx context.Context, db storage.DB, all []storage.BoundEffect) error {
	var a dbsqlc.LockScopesParams
	for _, bound := range all {
		l := bound.Effect.(*lockKey)
		a.Append(dbsqlc.LockScopesItem{
			Namespace: bound.Key.Namespace, TemplateType: l.templateType, DedupeKey: l.dedupeKey,
		})
	}
	return dbsqlc.New().LockScopes(ctx, db, a)
}

// Batch implements storage.Effect.
func (*leave) Batch() string { return "LeaveScopes" }

// Write implements storage.Effect.
func (*leave) Write(ctx context.Context, db storage.DB, all []storage.BoundEffect) error {
	var a dbsqlc.LeaveScopesParams
	for _, bound := range all {
		l := bound.Effect.(*leave)
		a.Append(dbsqlc.LeaveScopesItem{
			Key: bound.Key, TaskID: bound.TaskID, FencingToken: bound.FencingToken,
			TemplateType: l.templateType, DedupeKey: l.dedupeKey, RunID: l.runID,
		})
	}
	_, err := dbsqlc.New().LeaveScopes(ctx, db, a)
	return err
}

// Peek returns the holder of a dedupe key. It changes nothing.
func Peek(ctx context.Context, s *storage.Store, sc Scope) (holder Holder, err error) {
	if sc.DedupeKey == "" || !sc.Alone && !sc.Once {
		return holder, nil
	}
	row, err := storage.Query(ctx, s.ReadOne, "peek scope", dbsqlc.New().PeekScope, dbsqlc.PeekScopeParams{
		Namespace: sc.Namespace, TemplateType: sc.TemplateType, DedupeKey: sc.DedupeKey, RunID: sc.RunID,
		Repeatable: !sc.Once,
	})
	holder = Holder{RunID: row.Holder, Done: row.Done}
	if !sc.Alone {
		holder.RunID = ""
	}
	return holder, err
}

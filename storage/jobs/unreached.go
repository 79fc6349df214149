package jobs

import (
	"context"
	"encoding/json"
	"time"

	"github.com/progressor-engine/progressor/process"
	"github.com/progressor-engine/progressor/storage"
	"github.com/progressor-engine/progressor/storage/internal/dbsqlc"
)

// ReadUnreached returns how a job has waited for its processor, and the time of the database.
func ReadUnreached(ctx context.Context, s *storage.Store, key process.Key) (u storage.Unreached, now time.Time, err error) {
	err = s.ReadOne(ctx, "read unreached", func(ctx context.Context, db storage.DB) error {
		r, err := dbsqlc.New().ReadUnreached(ctx, db, dbsqlc.ReadUnreachedParams{Namespace: key.Namespace, ProcessID: key.ProcessID})
		if err != nil {
			return err
		}
		now = r.Now
		u, err = storage.UnreachedOf(r.Unreached)
		return err
	})
	return u, now, err
}

// Unreached is an effect that stores how a job waits for its processor.
type Unreached struct{ storage.Unreached }

// Bytes implements storage.Effect.
func (u Unreached) Bytes() int { return 200 + len(u.Cause) }

// Batch implements storage.Effect.
func (Unreached) Batch() string { return "WriteUnreached" }

// Write implements storage.Effect.
func (Unreached) Write(ctx context.Context, db storage.DB, all []storage.BoundEffect) error {
	var a dbsqlc.WriteUnreachedParams
	a.Namespaces, a.ProcessIds, a.TaskIds, a.FencingTokens = storage.Attempts(all)
	for _, r := range all {
		text, err := json.Marshal(r.Effect.(Unreached).Unreached)
		if err != nil {
			return err
		}
		a.Unreacheds = append(a.Unreacheds, string(text))
	}
	return dbsqlc.New().WriteUnreached(ctx, db, a)
}

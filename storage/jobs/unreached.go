package jobs

import (
	"context"
	"encoding/json"
	"fmt"
	"time"

	"github.com/progressor-engine/progressor/process"
	"github.com/progressor-engine/progressor/storage"
	"github.com/progressor-engine/progressor/storage/internal/dbsqlc"
)

// Unreached describes how long and how often a job has waited for a processor that could not be
// reached. It is also the effect that stores this description.
type Unreached struct {
	Attempt int32     `json:"attempt"` // number of the attempt, which was not counted
	Tries   int32     `json:"tries"`
	Since   time.Time `json:"since"` // time of the first try
	Cause   string    `json:"cause"` // error of the last try
}

// UnreachedOf reads an Unreached from its column. It returns the zero value if that is NULL.
func UnreachedOf(text []byte) (u Unreached, err error) {
	if len(text) == 0 {
		return u, nil
	}
	if err := json.Unmarshal(text, &u); err != nil {
		return u, fmt.Errorf("read column unreached of a job: %w", err)
	}
	return u, nil
}

// ReadUnreached returns the Unreached of a job, and the current time of the database.
func ReadUnreached(ctx context.Context, s *storage.Store, key process.Key) (u Unreached, now time.Time, err error) {
	err = s.ReadOne(ctx, "read unreached", func(ctx context.Context, db storage.DB) error {
		r, err := dbsqlc.New().ReadUnreached(ctx, db, dbsqlc.ReadUnreachedParams{
			Namespace: key.Namespace, ProcessID: key.ProcessID,
		})
		if err != nil {
			return err
		}
		now = r.Now
		u, err = UnreachedOf(r.Unreached)
		return err
	})
	return u, now, err
}

// Bytes implements storage.Effect.
func (u Unreached) Bytes() int { return 200 + len(u.Cause) }

// Batch implements storage.Effect.
func (Unreached) Batch() string { return "WriteUnreached" }

// Write implements storage.Effect.
func (Unreached) Write(ctx context.Context, db storage.DB, all []storage.BoundEffect) error {
	var a dbsqlc.WriteUnreachedParams
	for _, r := range all {
		text, err := json.Marshal(r.Effect.(Unreached))
		if err != nil {
			return err
		}
		a.Append(dbsqlc.WriteUnreachedItem{
			Key: r.Key, TaskID: r.TaskID, FencingToken: r.FencingToken, Unreached: string(text),
		})
	}
	return dbsqlc.New().WriteUnreached(ctx, db, a)
}

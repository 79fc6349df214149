package jobs

import (
	"context"

	"github.com/progressor-engine/progressor/process"
	"github.com/progressor-engine/progressor/storage"
	"github.com/progressor-engine/progressor/storage/internal/dbsqlc"
)

// unkeyedLimit is the maximum number of messages for one process ID that get a fairness key at
// once. Only the first start of an ID creates a job.
const unkeyedLimit = 100

// KeyStarts stores fairness keys for the jobs in start messages to a process, except for jobs that
// have one, and for jobs of several workers and their members.
func KeyStarts(ctx context.Context, s *storage.Store, target process.Key, keyOf func(Subject) string) error {
	a := dbsqlc.KeyStartsParams{Namespace: target.Namespace, ProcessID: target.ProcessID}
	err := s.ReadOne(ctx, "read messages", func(ctx context.Context, db storage.DB) error {
		rows, err := dbsqlc.New().ReadUnkeyedStarts(ctx, db, dbsqlc.ReadUnkeyedStartsParams{
			Namespace: target.Namespace, ProcessID: target.ProcessID, Lim: unkeyedLimit,
		})
		for _, r := range rows {
			key := keyOf(Subject{
				Name: r.Name, Args: r.Args, Metadata: r.Metadata, Tags: r.Tags, Priority: r.Priority,
			})
			a.Append(dbsqlc.KeyStartsItem{MessageID: r.MessageID, FairnessKey: key})
		}
		return err
	})
	if err != nil || len(a.MessageIds) == 0 {
		return err
	}
	return s.Write(ctx, "store fairness keys", func(ctx context.Context, db storage.DB) error {
		return dbsqlc.New().KeyStarts(ctx, db, a)
	})
}

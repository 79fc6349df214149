package jobs

import (
	"context"

	"github.com/progressor-engine/progressor/storage"
	"github.com/progressor-engine/progressor/storage/internal/dbsqlc"
)

// AttemptRecord is the event and the count of an attempt of a job.
type AttemptRecord struct {
	JobName  string // "" if unknown
	Attempt  int32
	Type     string // type of the event, as listed in docs/jobs.md
	WorkerID string // the worker that held the lease; "" if a node ran the attempt
	Message  string
}

// Name implements storage.Record.
func (r *AttemptRecord) Name() string { return r.JobName }

// Bytes implements storage.Effect.
func (r *AttemptRecord) Bytes() int { return 200 + len(r.Message) }

// Batch implements storage.Effect.
func (*AttemptRecord) Batch() string { return "EndJobs" }

// Write implements storage.Effect.
func (*AttemptRecord) Write(ctx context.Context, db storage.DB, all []storage.BoundEffect) error {
	var a dbsqlc.EndJobsParams
	a.Namespaces, a.ProcessIds, a.TaskIds, a.FencingTokens = storage.Attempts(all)
	for n := range all {
		r := all[n].Effect.(*AttemptRecord)
		a.Names = append(a.Names, r.JobName)
		a.Attempts = append(a.Attempts, r.Attempt)
		a.WorkerIds = append(a.WorkerIds, r.WorkerID)
		a.Types = append(a.Types, r.Type)
		a.Messages = append(a.Messages, r.Message)
		a.Modes = append(a.Modes, int32(all[n].Mode))
	}
	return dbsqlc.New().EndJobs(ctx, db, a)
}

package storage

import (
	"context"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/progressor-engine/progressor/process"
	"github.com/progressor-engine/progressor/storage/internal/dbsqlc"
)

// WorkerCommand is a command of an operator to a worker.
type WorkerCommand string

// The commands.
const (
	WorkerContinue WorkerCommand = ""
	WorkerQuiet    WorkerCommand = "quiet" // take no new tasks
	WorkerStop     WorkerCommand = "stop"  // also give up the remaining leases after the grace period
)

// WorkerSeen is a worker that was seen in a namespace.
type WorkerSeen struct{ Namespace, WorkerID string }

// Worker is a worker in a list.
type Worker struct {
	WorkerID     string
	Namespaces   []string
	LastSeenTime time.Time
	Command      WorkerCommand
	Leases       int32
}

// StoppingWorker is a worker with a command.
type StoppingWorker struct {
	Command WorkerCommand
	Lost    time.Time     // when its leases are released; zero if it keeps them
	Left    time.Duration // time until then, at the time of the read
}

// RecordWorkers records that workers were seen.
func (s *Store) RecordWorkers(ctx context.Context, seen []WorkerSeen) error {
	var a dbsqlc.RecordWorkersParams
	for _, w := range seen {
		a.Namespaces = append(a.Namespaces, w.Namespace)
		a.WorkerIds = append(a.WorkerIds, w.WorkerID)
	}
	return mapped("store workers", s.q.RecordWorkers(ctx, s.kept, a))
}

// StoppingWorkers returns the workers with a command, by ID.
func (s *Store) StoppingWorkers(ctx context.Context) (map[string]StoppingWorker, error) {
	rows, err := s.q.ListStoppingWorkers(ctx, s.kept)
	commands := make(map[string]StoppingWorker, len(rows))
	for _, r := range rows {
		t := StoppingWorker{Command: WorkerCommand(r.Directive)}
		if !r.LostTime.Equal(epoch) {
			t.Lost, t.Left = r.LostTime, microseconds(r.LeftUs)
		}
		commands[r.WorkerID] = t
	}
	return commands, mapped("read commands for workers", err)
}

// SetWorkerCommand stores a command to a worker of a namespace. It returns
// process.ErrWorkerNotFound if the worker was not seen there within a day.
func (s *Store) SetWorkerCommand(ctx context.Context, namespace, workerID string, order WorkerCommand, grace time.Duration, reason string, by ...process.Actor) error {
	tell := func(tx pgx.Tx) error {
		n, err := s.q.SetWorkerCommand(ctx, tx, dbsqlc.SetWorkerCommandParams{
			Namespace: namespace, WorkerID: workerID, Directive: string(order), GraceUs: grace.Microseconds(), Reason: reason,
		})
		if err != nil {
			return err
		}
		if n == 0 {
			return process.ErrWorkerNotFound
		}
		if len(by) == 0 {
			return nil
		}
		note := AuditRecord{By: by[0], Details: map[string]string{"directive": "continue", "reason": reason}}
		if order != WorkerContinue {
			note.Details["directive"] = string(order)
		}
		if order == WorkerStop {
			note.Details["grace"] = grace.String()
		}
		return s.q.InsertAudit(ctx, tx, dbsqlc.InsertAuditParams{
			Actor: by[0].Name, Source: by[0].Source, Method: "StopWorker", Namespace: namespace, Subject: workerID, Details: note.details(),
		})
	}
	err := s.write(ctx, func(conn *pgx.Conn) error { return pgx.BeginFunc(ctx, conn, tell) })
	return mapped(fmt.Sprintf("stop worker %q", workerID), err)
}

// ListWorkers lists the workers of a namespace by ID, after the ID `after`, at most limit and about
// ListBytes. more reports that there may be more within the limit. If only is set, it lists only
// the worker with that ID.
func (s *Store) ListWorkers(ctx context.Context, namespace, after, only string, limit int) (list []Worker, more bool, err error) {
	rows, err := s.q.ListWorkers(ctx, s.general, dbsqlc.ListWorkersParams{
		Namespace: namespace, After: after, Exactly: only, Lim: int32(limit), MaxBytes: ListBytes,
	})
	list = make([]Worker, len(rows))
	bytes := 0
	for n, r := range rows {
		for _, namespace := range r.Namespaces {
			bytes += len(namespace)
		}
		list[n] = Worker{WorkerID: r.WorkerID, Namespaces: r.Namespaces, LastSeenTime: r.LastSeenTime, Command: WorkerCommand(r.Directive), Leases: r.Leases}
	}
	return list, bytes > ListBytes, mapped("list workers", err)
}

// LeasesOf returns the tokens of at most limit leases of workers.
func (s *Store) LeasesOf(ctx context.Context, workerIDs []string, limit int) ([]LeaseToken, error) {
	rows, err := s.q.LeasesOf(ctx, s.kept, dbsqlc.LeasesOfParams{WorkerIds: workerIDs, Lim: int32(limit)})
	tokens := make([]LeaseToken, len(rows))
	for n, r := range rows {
		tokens[n] = LeaseToken{Key: process.Key{Namespace: r.Namespace, ProcessID: r.ProcessID}, FencingToken: r.FencingToken, Salt: r.Salt}
	}
	return tokens, mapped("leases of workers", err)
}

// WorkerRetention is how long a worker is kept after it was last seen.
const WorkerRetention = 24 * time.Hour

// ForgetWorkers deletes workers whose retention is over. more reports that there are more.
func (s *Store) ForgetWorkers(ctx context.Context) (more bool, err error) {
	n, err := s.q.ForgetWorkers(ctx, s.general, dbsqlc.ForgetWorkersParams{RetentionUs: WorkerRetention.Microseconds(), Lim: forgetBatch})
	return n == forgetBatch, mapped("delete old workers", err)
}

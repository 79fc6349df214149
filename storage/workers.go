package storage

import (
	"context"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/progressor-engine/progressor/process"
	"github.com/progressor-engine/progressor/storage/internal/dbsqlc"
)

// WorkerCommand is what an operator has told a worker.
type WorkerCommand string

// The orders. A worker that was told nothing goes on.
const (
	WorkerGoesOn WorkerCommand = ""
	WorkerQuiet  WorkerCommand = "quiet" // it takes nothing new
	WorkerStop   WorkerCommand = "stop"  // and what it holds when the grace is over goes to others
)

// WorkerSeen is a worker that was heard of in a namespace.
type WorkerSeen struct{ Namespace, WorkerID string }

// Worker is a worker as lists show it.
type Worker struct {
	WorkerID     string
	Namespaces   []string
	LastSeenTime time.Time
	Command      WorkerCommand
	Leases       int32
}

// StoppingWorker is a worker that is not to go on as it does.
type StoppingWorker struct {
	Command WorkerCommand
	Lost    time.Time     // when what it holds goes to others; zero if it keeps that
	Left    time.Duration // until then, when this was read
}

// SeeWorkers notes that workers were heard of.
func (s *Store) SeeWorkers(ctx context.Context, seen []WorkerSeen) error {
	var a dbsqlc.SeeWorkersParams
	for _, w := range seen {
		a.Namespaces = append(a.Namespaces, w.Namespace)
		a.WorkerIds = append(a.WorkerIds, w.WorkerID)
	}
	return mapped("note workers", s.q.SeeWorkers(ctx, s.kept, a))
}

// StoppingWorkers gives the workers that are not to go on as they do, by their ids.
func (s *Store) StoppingWorkers(ctx context.Context) (map[string]StoppingWorker, error) {
	rows, err := s.q.ToldWorkers(ctx, s.kept)
	told := make(map[string]StoppingWorker, len(rows))
	for _, r := range rows {
		t := StoppingWorker{Command: WorkerCommand(r.Directive)}
		if !r.LostTime.Equal(epoch) {
			t.Lost, t.Left = r.LostTime, microseconds(r.LeftUs)
		}
		told[r.WorkerID] = t
	}
	return told, mapped("read orders to workers", err)
}

// SetWorkerCommand stores an order to a worker of a namespace. process.ErrWorkerNotFound: it was not heard of there within a day.
func (s *Store) SetWorkerCommand(ctx context.Context, namespace, workerID string, order WorkerCommand, grace time.Duration, reason string, by ...process.Actor) error {
	tell := func(tx pgx.Tx) error {
		n, err := s.q.TellWorker(ctx, tx, dbsqlc.TellWorkerParams{
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
		note := Note{By: by[0], Details: map[string]string{"directive": "continue", "reason": reason}}
		if order != WorkerGoesOn {
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

// ListWorkers lists at most limit workers of a namespace whose ids come behind one, by their ids; only: no other than that one.
func (s *Store) ListWorkers(ctx context.Context, namespace, after, only string, limit int) ([]Worker, error) {
	rows, err := s.q.ListWorkers(ctx, s.general, dbsqlc.ListWorkersParams{Namespace: namespace, After: after, Exactly: only, Lim: int32(limit)})
	list := make([]Worker, len(rows))
	for n, r := range rows {
		list[n] = Worker{WorkerID: r.WorkerID, Namespaces: r.Namespaces, LastSeenTime: r.LastSeenTime, Command: WorkerCommand(r.Directive), Leases: r.Leases}
	}
	return list, mapped("list workers", err)
}

// LeasesOf gives the tokens of leases that workers hold, at most limit.
func (s *Store) LeasesOf(ctx context.Context, workerIDs []string, limit int) ([]LeaseToken, error) {
	rows, err := s.q.LeasesOf(ctx, s.kept, dbsqlc.LeasesOfParams{WorkerIds: workerIDs, Lim: int32(limit)})
	tokens := make([]LeaseToken, len(rows))
	for n, r := range rows {
		tokens[n] = LeaseToken{Key: process.Key{Namespace: r.Namespace, ProcessID: r.ProcessID}, FencingToken: r.FencingToken, Salt: r.Salt}
	}
	return tokens, mapped("leases of workers", err)
}

// WorkerRetention is how long a worker is known that is not heard of any more.
const WorkerRetention = 24 * time.Hour

// ForgetWorkers drops workers that were not heard of for longer. more: there are more of them.
func (s *Store) ForgetWorkers(ctx context.Context) (more bool, err error) {
	n, err := s.q.ForgetWorkers(ctx, s.general, dbsqlc.ForgetWorkersParams{RetentionUs: WorkerRetention.Microseconds(), Lim: forgetBatch})
	return n == forgetBatch, mapped("forget workers", err)
}

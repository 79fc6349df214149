package pull

import (
	"context"
	"fmt"
	"time"

	"github.com/progressor-engine/progressor/process"
	"github.com/progressor-engine/progressor/storage"
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

// WorkerKey identifies a worker in a namespace.
type WorkerKey struct{ Namespace, WorkerID string }

// WorkerOf is a worker ID with the client that uses it, or "" if it is not known. If different
// clients use the same ID, they are different workers.
type WorkerOf struct{ Owner, WorkerID string }

// Sender is where the requests of a worker come from. Each field is empty if it is not known.
type Sender struct {
	Owner     string // client that uses the worker ID
	Address   string // IP address of the worker, or of its proxy
	UserAgent string
}

// OwnedFor is how long a worker ID still belongs to a client after the worker was last seen, if it
// holds no leases.
const OwnedFor = 2 * time.Minute

// MaxWorkerIDs is the maximum number of worker IDs of a client in a namespace. Each concurrent
// request can exceed it by one.
const MaxWorkerIDs = 10_000

// Worker is a worker in a list.
type Worker struct {
	WorkerID     string
	Sender       Sender // who sent its last request
	Namespaces   []string
	LastSeenTime time.Time
	Command      WorkerCommand
	Leases       int32
}

// StoppingWorker is the command of an operator to a worker, with its deadline.
type StoppingWorker struct {
	Command WorkerCommand
	Lost    time.Time     // when its leases are released; zero if it keeps them
	Left    time.Duration // time until Lost when the row was read
}

// RecordWorkers records that workers were seen. It skips workers whose ID belongs to another
// client, and workers of namespaces that are deleted or being deleted. It returns the workers that
// it has stored.
func RecordWorkers(
	ctx context.Context, s *storage.Store, seen map[WorkerKey]Sender,
) (stored map[WorkerKey]bool, err error) {
	rows, err := storage.Query(ctx, s.RunReserved, "store workers", dbsqlc.New().RecordWorkers, recordOf(seen))
	stored = make(map[WorkerKey]bool, len(rows))
	for _, r := range rows {
		stored[WorkerKey(r)] = true
	}
	return stored, err
}

func recordOf(seen map[WorkerKey]Sender) dbsqlc.RecordWorkersParams {
	a := dbsqlc.RecordWorkersParams{OwnedUs: OwnedFor.Microseconds()}
	for w, by := range seen {
		a.Append(dbsqlc.RecordWorkersItem{
			Namespace: w.Namespace, WorkerID: w.WorkerID, Owner: by.Owner, Address: by.Address, UserAgent: by.UserAgent,
		})
	}
	return a
}

// OwnWorkers records that workers were seen, and that by.Owner uses their IDs. It returns those
// whose ID belongs to another client. The error is a *process.OverloadError if the client would
// have more than MaxWorkerIDs in a namespace.
func OwnWorkers(
	ctx context.Context, s *storage.Store, by Sender, workers []WorkerKey,
) (foreign []WorkerKey, err error) {
	seen := make(map[WorkerKey]Sender, len(workers))
	for _, w := range workers {
		seen[w] = by
	}
	if err := makeRoom(ctx, s, by.Owner, workers); err != nil {
		return nil, err
	}
	stored, err := RecordWorkers(ctx, s, seen)
	if err != nil || len(stored) == len(seen) {
		return nil, err
	}
	others := dbsqlc.OwnedByOthersParams{Owner: &by.Owner}
	for w := range seen {
		others.Append(dbsqlc.OwnedByOthersItem{Namespace: w.Namespace, WorkerID: w.WorkerID})
	}
	rows, err := storage.Query(ctx, s.RunReserved, "read owners of workers", dbsqlc.New().OwnedByOthers, others)
	for _, r := range rows {
		foreign = append(foreign, WorkerKey(r))
	}
	return foreign, err
}

// makeRoom deletes the absent workers of a client if the client has too many IDs to use another
// one.
func makeRoom(ctx context.Context, s *storage.Store, owner string, workers []WorkerKey) error {
	wanted := dbsqlc.CrowdedWorkersParams{Owner: &owner, MaxIds: MaxWorkerIDs}
	for _, w := range workers {
		wanted.Append(dbsqlc.CrowdedWorkersItem{Namespace: w.Namespace, WorkerID: w.WorkerID})
	}
	crowded, err := storage.Query(ctx, s.RunReserved, "count workers", dbsqlc.New().CrowdedWorkers, wanted)
	if err != nil || len(crowded) == 0 {
		return err
	}
	gone := dbsqlc.ForgetWorkersOfParams{Owner: &owner, OwnedUs: OwnedFor.Microseconds(), Lim: forgetBatch}
	for _, w := range crowded {
		gone.Namespaces = append(gone.Namespaces, w.Namespace)
	}
	err = s.RunReserved(ctx, "delete workers", func(ctx context.Context, db storage.DB) error {
		return dbsqlc.New().ForgetWorkersOf(ctx, db, gone)
	})
	if err != nil {
		return err
	}
	// Another node may have made room, so count again instead of counting the deleted rows.
	crowded, err = storage.Query(ctx, s.RunReserved, "count workers", dbsqlc.New().CrowdedWorkers, wanted)
	if err != nil || len(crowded) == 0 {
		return err
	}
	return &process.OverloadError{Bound: fmt.Sprintf("worker_id: a client may use %d IDs in namespace %s",
		MaxWorkerIDs, crowded[0].Namespace)}
}

// StoppingWorkers returns the workers with a command.
func StoppingWorkers(ctx context.Context, s *storage.Store) (map[WorkerOf]StoppingWorker, error) {
	var rows []dbsqlc.ListStoppingWorkersRow
	err := s.RunReserved(ctx, "read commands for workers", func(ctx context.Context, db storage.DB) (err error) {
		rows, err = dbsqlc.New().ListStoppingWorkers(ctx, db)
		return err
	})
	commands := make(map[WorkerOf]StoppingWorker, len(rows))
	for _, r := range rows {
		t := StoppingWorker{Command: WorkerCommand(r.Directive)}
		if !r.LostTime.Equal(time.Unix(0, 0)) {
			t.Lost, t.Left = r.LostTime, time.Duration(r.LeftUs)*time.Microsecond
		}
		commands[WorkerOf{r.Owner, r.WorkerID}] = t
	}
	return commands, err
}

// SetCommand stores a command to a worker of a namespace, for all namespaces in which the same
// client uses the worker ID. It returns process.ErrWorkerNotFound if the worker was not seen in the
// namespace within a day.
func SetCommand(
	ctx context.Context, s *storage.Store, worker WorkerKey, order WorkerCommand, grace time.Duration, reason string,
	by ...process.Actor,
) error {
	op := fmt.Sprintf("stop worker %q", worker.WorkerID)
	return s.RunLocked(ctx, op, nil, func(ctx context.Context, db storage.DB) error {
		n, err := dbsqlc.New().SetWorkerCommand(ctx, db, dbsqlc.SetWorkerCommandParams{
			Namespace: worker.Namespace, WorkerID: worker.WorkerID, Directive: string(order),
			GraceUs: grace.Microseconds(), Reason: reason,
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
		note := storage.AuditRecord{
			Method: "StopWorker", By: by[0], Details: map[string]string{"directive": "continue", "reason": reason},
		}
		if order != WorkerContinue {
			note.Details["directive"] = string(order)
		}
		if order == WorkerStop {
			note.Details["grace"] = grace.String()
		}
		return note.Record(ctx, db, worker.Namespace, worker.WorkerID)
	})
}

// MaxShownNamespaces is the maximum number of namespaces of a worker that ListWorkers returns.
const MaxShownNamespaces = 1000

// ListWorkers lists the workers of a namespace by ID, after the ID `after`, at most limit and about
// storage.ListBytes. more reports whether the list ended before the limit because of its size, so
// that there may be more workers. If only is set, it lists only the worker with that ID.
func ListWorkers(
	ctx context.Context, s *storage.Store, namespace, after, only string, limit int,
) (list []Worker, more bool, err error) {
	rows, err := storage.Query(ctx, s.ReadOne, "list workers", dbsqlc.New().ListWorkers, dbsqlc.ListWorkersParams{
		Namespace: namespace, After: after, Exactly: only, Lim: int32(limit), MaxNamespaces: MaxShownNamespaces,
		MaxBytes: storage.ListBytes,
	})
	list = make([]Worker, len(rows))
	bytes := 0
	for n, r := range rows {
		for _, namespace := range r.Namespaces {
			bytes += len(namespace)
		}
		list[n] = Worker{
			WorkerID: r.WorkerID, Sender: Sender{Owner: r.Owner, Address: r.Address, UserAgent: r.UserAgent},
			Namespaces: r.Namespaces, LastSeenTime: r.LastSeenTime, Command: WorkerCommand(r.Directive),
			Leases: r.Leases,
		}
	}
	return list, bytes > storage.ListBytes, err
}

// WorkerLease is a lease of a worker, with the progress that it reported.
type WorkerLease = dbsqlc.WorkerLeasesRow

// WorkerLeases returns the leases of a worker in a namespace, the oldest first, at most limit. For
// a member, the process ID is that of the job of several workers.
func WorkerLeases(
	ctx context.Context, s *storage.Store, worker WorkerKey, limit int,
) ([]WorkerLease, error) {
	return storage.Query(ctx, s.ReadOne, "leases of a worker", dbsqlc.New().WorkerLeases, dbsqlc.WorkerLeasesParams{
		Namespace: worker.Namespace, WorkerID: worker.WorkerID, Lim: int32(limit),
	})
}

// LeasesOf returns the tokens of at most limit leases of workers. It omits leases with a pending
// result.
func LeasesOf(ctx context.Context, s *storage.Store, workers []WorkerOf, limit int) ([]LeaseToken, error) {
	a := dbsqlc.LeasesOfParams{Lim: int32(limit)}
	for _, w := range workers {
		a.Append(dbsqlc.LeasesOfItem(w))
	}
	rows, err := storage.Query(ctx, s.RunReserved, "leases of workers", dbsqlc.New().LeasesOf, a)
	tokens := make([]LeaseToken, len(rows))
	for n, r := range rows {
		tokens[n] = LeaseToken{
			Key: process.Key{Namespace: r.Namespace, ProcessID: r.ProcessID}, FencingToken: r.FencingToken,
			Salt: r.Salt,
		}
	}
	return tokens, err
}

// WorkerRetention is how long a worker is kept after it was last seen.
const WorkerRetention = 24 * time.Hour

// forgetBatch is the maximum number of workers that one statement deletes.
const forgetBatch = 5000

// ForgetWorkers deletes workers whose retention is over. more is true if there may be more.
func ForgetWorkers(ctx context.Context, s *storage.Store) (more bool, err error) {
	err = s.Write(ctx, "delete old workers", func(ctx context.Context, db storage.DB) error {
		n, err := dbsqlc.New().ForgetWorkers(ctx, db, dbsqlc.ForgetWorkersParams{
			RetentionUs: WorkerRetention.Microseconds(), Lim: forgetBatch,
		})
		more = n == forgetBatch
		return err
	})
	return more, err
}

package pull

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"google.golang.org/protobuf/types/known/timestamppb"

	"github.com/progressor-engine/progressor/engine"
	"github.com/progressor-engine/progressor/process"
	progressorv1 "github.com/progressor-engine/progressor/proto/progressor/v1"
	"github.com/progressor-engine/progressor/storage/pull"
	"github.com/progressor-engine/progressor/wire"
)

const (
	// workersRest is the interval between queries for commands to workers, while this node has
	// workers.
	workersRest = time.Second
	// idleWorkersRest is the same interval while this node has no workers. A stopped worker that is
	// silent may still hold leases.
	idleWorkersRest = 10 * time.Second
	// stoppingCacheTime is how long a poll may use the result of a query for commands.
	stoppingCacheTime = 2 * workersRest
	// seenWriteInterval is the minimum interval between writes of the time at which a worker was
	// last seen. Without it, each poll would cause a write.
	seenWriteInterval = 5 * time.Second
	// seenCacheTime is how long a node remembers a worker after its last request.
	seenCacheTime = time.Minute
	// defaultStopGrace is how long a stopped worker keeps its leases by default.
	defaultStopGrace = 30 * time.Second
	// pruneEvery is the interval between two passes over the cached leases.
	pruneEvery = 30 * time.Second
	// maxReleased is the maximum number of leases of stopped workers that one pass releases.
	maxReleased = 256
)

// workers holds the workers that this node has seen recently, and the commands to all stopping
// workers.
type workers struct {
	server *Server

	reading      sync.Mutex // held while commands are read
	mu           sync.Mutex
	seen         map[pull.WorkerKey]*sighting
	stopping     map[pull.WorkerOf]pull.StoppingWorker
	over         map[pull.WorkerOf]time.Time // when the grace period of a worker ends, by the clock of this node
	stoppingRead time.Time                   // when stopping was read
	pruned       time.Time                   // when cached leases were last dropped; used only by Run
}

// sighting is when a node last heard from a worker, and when it last stored that time.
type sighting struct {
	heard, noted time.Time
	sender       pull.Sender // who sent the last request
}

func newWorkers(s *Server) *workers {
	return &workers{server: s, seen: map[pull.WorkerKey]*sighting{}}
}

// recordSeen records that workers were seen.
func (w *workers) recordSeen(by pull.Sender, seen []pull.WorkerKey) {
	now := time.Now()
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, key := range seen {
		if w.seen[key] == nil {
			w.seen[key] = &sighting{}
		}
		w.seen[key].heard, w.seen[key].sender = now, by
	}
}

// own records that workers of the caller were seen. It returns an error for field(n) if the ID of
// the nth worker belongs to another client in its namespace. An ID belongs to the first client that
// uses it there, until the worker has not been seen for pull.OwnedFor and has no leases.
func (w *workers) own(ctx context.Context, field func(n int) string, seen ...pull.WorkerKey) error {
	by := callerOf(ctx).sender()
	if by.Owner == "" {
		w.recordSeen(by, seen)
		return nil
	}
	unknown := w.notOwned(by, seen)
	if len(unknown) == 0 {
		return nil
	}
	foreign, err := pull.OwnWorkers(ctx, w.server.store, by, unknown)
	if err != nil {
		return err
	}
	if len(foreign) > 0 {
		first := foreign[0]
		return &process.DeniedError{
			Field: field(slices.Index(seen, first)), Namespace: first.Namespace,
			Message: fmt.Sprintf("worker_id %q is used by another client in namespace %s", first.WorkerID,
				first.Namespace),
		}
	}
	now := time.Now()
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, key := range unknown {
		w.seen[key] = &sighting{now, now, by}
	}
	return nil
}

// notOwned returns the workers for which this node does not know whether the client owns their IDs.
// It records that the others were seen. An entry stored within seenCacheTime is still valid,
// because seenCacheTime is shorter than pull.OwnedFor.
func (w *workers) notOwned(by pull.Sender, seen []pull.WorkerKey) (unknown []pull.WorkerKey) {
	now := time.Now()
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, key := range seen {
		s := w.seen[key]
		if s != nil && s.sender.Owner == by.Owner && now.Sub(s.noted) < seenCacheTime {
			s.heard, s.sender = now, by
		} else {
			unknown = append(unknown, key)
		}
	}
	return unknown
}

// command returns the command to a worker. It may be up to stoppingCacheTime old.
func (w *workers) command(ctx context.Context, workerID string) (pull.WorkerCommand, error) {
	if w.age() > stoppingCacheTime {
		w.reading.Lock()
		defer w.reading.Unlock()
		if w.age() > stoppingCacheTime { // no other request has read them in the meantime
			if _, err := w.readCommands(ctx); err != nil {
				return "", err
			}
		}
	}
	return w.lastCommand(ctx, workerID), nil
}

func (w *workers) age() time.Duration {
	w.mu.Lock()
	defer w.mu.Unlock()
	return time.Since(w.stoppingRead)
}

// lastCommand returns the command to a worker of the caller. Without authentication, it is the
// command to the worker of any client with this ID.
func (w *workers) lastCommand(ctx context.Context, workerID string) pull.WorkerCommand {
	owner := callerOf(ctx).Owner
	w.mu.Lock()
	defer w.mu.Unlock()
	if owner == "" {
		for of, t := range w.stopping {
			if of.WorkerID == workerID {
				return t.Command
			}
		}
	}
	return w.stopping[pull.WorkerOf{Owner: owner, WorkerID: workerID}].Command
}

// readCommands reads the commands to workers and ends the waiting polls of stopping workers. It
// returns the workers whose grace period is over.
func (w *workers) readCommands(ctx context.Context) (over []pull.WorkerOf, err error) {
	began := time.Now()
	commands, err := pull.StoppingWorkers(ctx, w.server.store)
	if err != nil {
		return nil, err
	}
	w.mu.Lock()
	if w.stoppingRead.Before(began) {
		w.over = w.graces(commands, began)
		w.stopping, w.stoppingRead = commands, began
	}
	for of, at := range w.over {
		if !began.Before(at) {
			over = append(over, of)
		}
	}
	w.mu.Unlock()
	for of := range commands {
		w.server.pulls.wakeWorker(of.WorkerID)
	}
	return over, nil
}

// graces returns when the grace periods of workers end. Once they have been read, steps of the
// database clock do not change them.
func (w *workers) graces(
	commands map[pull.WorkerOf]pull.StoppingWorker, now time.Time,
) map[pull.WorkerOf]time.Time {
	over := map[pull.WorkerOf]time.Time{}
	for of, t := range commands {
		switch at, known := w.over[of]; {
		case t.Lost.IsZero():
		case known && w.stopping[of].Lost.Equal(t.Lost):
			over[of] = at
		default:
			over[of] = now.Add(t.Left)
		}
	}
	return over
}

// Run records and reads workers until ctx is cancelled.
func (w *workers) Run(ctx context.Context) error {
	return engine.Every(ctx, min(w.server.scan, workersRest), func() {
		if err := w.runOnce(ctx); err != nil {
			w.server.engine.ReportScanError(ctx, "workers", err)
		}
	})
}

func (w *workers) runOnce(ctx context.Context) error {
	if now := time.Now(); now.Sub(w.pruned) > pruneEvery {
		w.pruned = now
		w.server.leased.prune()
	}
	heard := w.forget()
	if age := w.age(); !heard && age < idleWorkersRest {
		return nil
	}
	limit, cancel := scanContext(ctx)
	defer cancel()
	noted := w.storeSeen(limit, seenWriteInterval)
	over, err := w.readCommands(limit)
	if err == nil && len(over) > 0 {
		err = w.releaseLeases(limit, over)
	}
	return errors.Join(noted, err)
}

// forget drops workers that were not seen for seenCacheTime. It reports whether any are left.
func (w *workers) forget() bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	for key, s := range w.seen {
		if time.Since(s.heard) > seenCacheTime {
			delete(w.seen, key)
		}
	}
	return len(w.seen) > 0
}

// storeSeen stores which workers were seen since the last write, if the last write is at least age
// ago.
func (w *workers) storeSeen(ctx context.Context, age time.Duration) error {
	now := time.Now()
	due := map[pull.WorkerKey]pull.Sender{}
	w.mu.Lock()
	for key, s := range w.seen {
		if s.heard.After(s.noted) && now.Sub(s.noted) >= age {
			due[key] = s.sender
		}
	}
	w.mu.Unlock()
	if len(due) == 0 {
		return nil
	}
	stored, err := pull.RecordWorkers(ctx, w.server.store, due)
	if err != nil {
		return err
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	for key := range due {
		switch s := w.seen[key]; {
		case s == nil:
		case stored[key]:
			s.noted = now
		default: // another client has taken the ID, or the namespace is being deleted
			delete(w.seen, key)
		}
	}
	return nil
}

// releaseLeases releases the leases of stopped workers. The attempts are not counted, and their
// answers are no longer stored.
func (w *workers) releaseLeases(ctx context.Context, stopped []pull.WorkerOf) error {
	s := w.server
	tokens, err := pull.LeasesOf(ctx, s.store, stopped, maxReleased)
	if err != nil {
		return err
	}
	for _, t := range tokens {
		l, err := s.heldLease(ctx, t)
		if errors.Is(err, process.ErrFenced) {
			continue // the worker answered first
		}
		if err != nil {
			return err
		}
		s.log.Info("released a lease of a stopped worker", "namespace", t.Key.Namespace, "process_id", t.Key.ProcessID,
			"worker_id", l.WorkerID)
		s.engine.ReleaseLease(l, 0)
		s.leased.drop(t)
	}
	return nil
}

// WorkerDirective returns the directive for a worker that has just sent a poll or a heartbeat.
func (s *Server) WorkerDirective(ctx context.Context, workerID string) progressorv1.WorkerDirective {
	order, err := s.workers.command(ctx, workerID)
	if err != nil { // the request has succeeded, so the worker gets the directive with its next one
		order = s.workers.lastCommand(ctx, workerID)
	}
	return directiveOf(order)
}

func directiveOf(order pull.WorkerCommand) progressorv1.WorkerDirective {
	switch order {
	case pull.WorkerQuiet:
		return progressorv1.WorkerDirective_WORKER_DIRECTIVE_QUIET
	case pull.WorkerStop:
		return progressorv1.WorkerDirective_WORKER_DIRECTIVE_STOP
	}
	return progressorv1.WorkerDirective_WORKER_DIRECTIVE_CONTINUE
}

// StopWorker sends a worker the directive to accept no new tasks, to stop, or to continue.
func (s *Server) StopWorker(
	ctx context.Context, r *progressorv1.StopWorkerRequest, by process.Actor,
) (*progressorv1.Worker, error) {
	if _, err := s.engine.NamespaceState(ctx, r.GetNamespace()); err != nil {
		return nil, err
	}
	order, grace := pull.WorkerStop, defaultStopGrace
	switch r.GetDirective() {
	case progressorv1.WorkerDirective_WORKER_DIRECTIVE_QUIET:
		order = pull.WorkerQuiet
	case progressorv1.WorkerDirective_WORKER_DIRECTIVE_CONTINUE:
		order = pull.WorkerContinue
	}
	if r.GetGrace() != nil {
		if order != pull.WorkerStop {
			return nil, &process.InvalidError{Field: "grace", Message: "is allowed only with the directive STOP"}
		}
		grace = r.GetGrace().AsDuration()
	}
	if err := s.workers.storeSeen(ctx, 0); err != nil {
		return nil, err
	}
	seen := pull.WorkerKey{Namespace: r.GetNamespace(), WorkerID: r.GetWorkerId()}
	if err := pull.SetCommand(ctx, s.store, seen, order, grace, r.GetReason(), by); err != nil {
		return nil, err
	}
	if _, err := s.workers.readCommands(ctx); err != nil {
		return nil, err
	}
	return s.readWorker(ctx, r.GetNamespace(), r.GetWorkerId())
}

// Worker returns a worker of a namespace. It returns process.ErrWorkerNotFound if the worker was
// not seen there within a day.
func (s *Server) Worker(ctx context.Context, namespace, workerID string) (*progressorv1.Worker, error) {
	_, leave, err := s.engine.Enter(ctx, namespace)
	if err != nil {
		return nil, err
	}
	defer leave()
	if err := s.workers.storeSeen(ctx, 0); err != nil {
		return nil, err
	}
	return s.readWorker(ctx, namespace, workerID)
}

func (s *Server) readWorker(ctx context.Context, namespace, workerID string) (*progressorv1.Worker, error) {
	list, _, err := pull.ListWorkers(ctx, s.store, namespace, "", workerID, 1)
	if err != nil || len(list) == 0 {
		return nil, cmp.Or(err, process.ErrWorkerNotFound)
	}
	return workerMessage(&list[0]), nil
}

// MaxShownNamespaces is the maximum number of namespaces of a worker that are read.
const MaxShownNamespaces = pull.MaxShownNamespaces

// The page sizes of ListWorkers.
const (
	defaultWorkers = 100
	maxWorkers     = 1000
)

// ListWorkers lists the workers of a namespace that were seen within a day, by ID.
func (s *Server) ListWorkers(
	ctx context.Context, r *progressorv1.ListWorkersRequest,
) (list []*progressorv1.Worker, next string, err error) {
	_, leave, err := s.engine.Enter(ctx, r.GetNamespace())
	if err != nil {
		return nil, "", err
	}
	defer leave()
	after, err := wire.NameAfter(r.GetPageToken())
	if err != nil {
		return nil, "", err
	}
	if err := s.workers.storeSeen(ctx, 0); err != nil {
		return nil, "", err
	}
	size := defaultWorkers
	if r.GetPageSize() > 0 {
		size = min(int(r.GetPageSize()), maxWorkers)
	}
	all, more, err := pull.ListWorkers(ctx, s.store, r.GetNamespace(), after, "", size+1)
	if err != nil {
		return nil, "", err
	}
	if len(all) > size {
		all, more = all[:size], true
	}
	for n := range all {
		list = append(list, workerMessage(&all[n]))
	}
	if more {
		next = wire.TokenAfter(all[len(all)-1].WorkerID)
	}
	return list, next, nil
}

func workerMessage(w *pull.Worker) *progressorv1.Worker {
	return &progressorv1.Worker{
		WorkerId: w.WorkerID, Namespaces: w.Namespaces, Leases: w.Leases, LastSeenTime: timestamppb.New(w.LastSeenTime),
		Directive: directiveOf(w.Command), Owner: w.Sender.Owner, Address: w.Sender.Address,
		UserAgent: w.Sender.UserAgent,
	}
}

package engine

import (
	"cmp"
	"context"
	"encoding/base64"
	"errors"
	"slices"
	"sync"
	"time"
	"unicode/utf8"

	"google.golang.org/protobuf/types/known/timestamppb"

	"github.com/progressor-engine/progressor/process"
	progressorv1 "github.com/progressor-engine/progressor/proto/progressor/v1"
	"github.com/progressor-engine/progressor/storage"
)

const (
	// workersRest is the time between two looks at what operators have told workers, while some are heard of here.
	workersRest = time.Second
	// idleWorkersRest is that time while none are: a worker that was stopped, and is silent, may still hold leases.
	idleWorkersRest = 10 * time.Second
	// stoppingCacheTime is how long what was read of that holds for a poll.
	stoppingCacheTime = 2 * workersRest
	// notedEvery is how often it is noted that a worker was heard of: a row for each poll would be a write for each.
	notedEvery = 5 * time.Second
	// heardFor is how long a node remembers a worker.
	heardFor = time.Minute
	// defaultStopGrace is how long a worker that is stopped keeps what it holds.
	defaultStopGrace = 30 * time.Second
	// takenBack is how many leases of stopped workers one look takes back.
	takenBack = 256
)

// workers are those that this node has heard of lately, and what operators have told workers of any node.
type workers struct {
	engine *Engine

	looking  sync.Mutex // held by who reads what workers were told
	mu       sync.Mutex
	seen     map[storage.WorkerSeen]*sighting
	stopping map[string]storage.StoppingWorker
	over     map[string]time.Time // when the grace of a worker is over, by the clock of this node
	looked   time.Time            // when told was read
}

type sighting struct{ heard, noted time.Time }

func newWorkers(e *Engine) *workers {
	return &workers{engine: e, seen: map[storage.WorkerSeen]*sighting{}}
}

// see remembers that a worker was heard of.
func (w *workers) see(workerID string, namespaces ...string) {
	now := time.Now()
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, namespace := range namespaces {
		key := storage.WorkerSeen{Namespace: namespace, WorkerID: workerID}
		if w.seen[key] == nil {
			w.seen[key] = &sighting{}
		}
		w.seen[key].heard = now
	}
}

// command is what a worker was told, as it was a moment ago.
func (w *workers) command(ctx context.Context, workerID string) (storage.WorkerCommand, error) {
	if w.age() > stoppingCacheTime {
		w.looking.Lock()
		defer w.looking.Unlock()
		if w.age() > stoppingCacheTime { // nobody has looked while this one waited
			if _, err := w.look(ctx); err != nil {
				return "", err
			}
		}
	}
	return w.lastCommand(workerID), nil
}

func (w *workers) age() time.Duration {
	w.mu.Lock()
	defer w.mu.Unlock()
	return time.Since(w.looked)
}

func (w *workers) lastCommand(workerID string) storage.WorkerCommand {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.stopping[workerID].Command
}

// look reads what workers were told, and has polls that wait for such workers end. over are the workers whose grace is over.
func (w *workers) look(ctx context.Context) (over []string, err error) {
	began := time.Now()
	told, err := w.engine.store.StoppingWorkers(ctx)
	if err != nil {
		return nil, err
	}
	w.mu.Lock()
	if w.looked.Before(began) {
		w.over = w.graces(told, began)
		w.stopping, w.looked = told, began
	}
	for id, at := range w.over {
		if !began.Before(at) {
			over = append(over, id)
		}
	}
	w.mu.Unlock()
	for id := range told {
		w.engine.pulls.wakeWorker(id)
	}
	return over, nil
}

// graces returns when the graces of workers are over. A step of the database's clock does not change that once it was read.
func (w *workers) graces(told map[string]storage.StoppingWorker, now time.Time) map[string]time.Time {
	over := map[string]time.Time{}
	for id, t := range told {
		switch at, known := w.over[id]; {
		case t.Lost.IsZero():
		case known && w.stopping[id].Lost.Equal(t.Lost):
			over[id] = at
		default:
			over[id] = now.Add(t.Left)
		}
	}
	return over
}

// Run notes and looks until ctx ends.
func (w *workers) Run(ctx context.Context) error {
	ticker := time.NewTicker(min(w.engine.cfg.ScanInterval, workersRest))
	defer ticker.Stop()
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-ticker.C:
		}
		if err := w.runOnce(ctx); err != nil {
			w.engine.scanFailed(ctx, "workers", err)
		}
	}
}

func (w *workers) runOnce(ctx context.Context) error {
	heard := w.forget()
	if age := w.age(); !heard && age < idleWorkersRest {
		return nil
	}
	limit, cancel := scanContext(ctx)
	defer cancel()
	noted := w.note(limit, notedEvery)
	over, err := w.look(limit)
	if err == nil && len(over) > 0 {
		err = w.takeBack(limit, over)
	}
	return errors.Join(noted, err)
}

// forget drops the workers that were not heard of for a while. It tells whether there are others.
func (w *workers) forget() bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	for key, s := range w.seen {
		if time.Since(s.heard) > heardFor {
			delete(w.seen, key)
		}
	}
	return len(w.seen) > 0
}

// note stores which workers were heard of since that was noted last, where that is so long ago.
func (w *workers) note(ctx context.Context, age time.Duration) error {
	now := time.Now()
	var due []storage.WorkerSeen
	w.mu.Lock()
	for key, s := range w.seen {
		if s.heard.After(s.noted) && now.Sub(s.noted) >= age {
			due = append(due, key)
		}
	}
	w.mu.Unlock()
	if len(due) == 0 {
		return nil
	}
	if err := w.engine.store.SeeWorkers(ctx, due); err != nil {
		return err
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, key := range due {
		if s := w.seen[key]; s != nil {
			s.noted = now
		}
	}
	return nil
}

// takeBack gives what workers hold to others: no attempt is counted, and what they answer is not stored any more.
func (w *workers) takeBack(ctx context.Context, workerIDs []string) error {
	e := w.engine
	tokens, err := e.store.LeasesOf(ctx, workerIDs, takenBack)
	if err != nil {
		return err
	}
	for _, t := range tokens {
		l, err := e.heldLease(ctx, t)
		if errors.Is(err, process.ErrFenced) {
			continue // it was quicker
		}
		if err != nil {
			return err
		}
		e.log.Info("lease taken back from a worker that was stopped", "namespace", t.Key.Namespace, "process_id", t.Key.ProcessID, "worker_id", l.WorkerID)
		e.release(l)
		e.leased.drop(t)
	}
	return nil
}

// WorkerDirective is what a worker is told that has just polled or beaten.
func (e *Engine) WorkerDirective(ctx context.Context, workerID string) progressorv1.WorkerDirective {
	order, err := e.workers.command(ctx, workerID)
	if err != nil { // what it asked for is done: it hears of this the next time
		order = e.workers.lastCommand(workerID)
	}
	return directiveOf(order)
}

func directiveOf(order storage.WorkerCommand) progressorv1.WorkerDirective {
	switch order {
	case storage.WorkerQuiet:
		return progressorv1.WorkerDirective_WORKER_DIRECTIVE_QUIET
	case storage.WorkerStop:
		return progressorv1.WorkerDirective_WORKER_DIRECTIVE_STOP
	}
	return progressorv1.WorkerDirective_WORKER_DIRECTIVE_CONTINUE
}

// StopWorker tells a worker to take nothing new, or to end too; or takes that back.
func (e *Engine) StopWorker(ctx context.Context, r *progressorv1.StopWorkerRequest, by process.Actor) (*progressorv1.Worker, error) {
	if _, err := e.namespace(ctx, r.GetNamespace()); err != nil {
		return nil, err
	}
	order, grace := storage.WorkerStop, defaultStopGrace
	switch r.GetDirective() {
	case progressorv1.WorkerDirective_WORKER_DIRECTIVE_QUIET:
		order = storage.WorkerQuiet
	case progressorv1.WorkerDirective_WORKER_DIRECTIVE_CONTINUE:
		order = storage.WorkerGoesOn
	}
	if r.GetGrace() != nil {
		if order != storage.WorkerStop {
			return nil, &process.InvalidError{Field: "grace", Message: "only the directive STOP has one"}
		}
		grace = r.GetGrace().AsDuration()
	}
	if err := e.workers.note(ctx, 0); err != nil {
		return nil, err
	}
	if err := e.store.SetWorkerCommand(ctx, r.GetNamespace(), r.GetWorkerId(), order, grace, r.GetReason(), by); err != nil {
		return nil, err
	}
	if _, err := e.workers.look(ctx); err != nil {
		return nil, err
	}
	list, err := e.store.ListWorkers(ctx, r.GetNamespace(), "", r.GetWorkerId(), 1)
	if err != nil || len(list) == 0 {
		return nil, cmp.Or(err, process.ErrWorkerNotFound)
	}
	return workerMessage(&list[0]), nil
}

// The number of workers on a page.
const (
	defaultWorkers = 100
	maxWorkers     = 1000
)

// ListWorkers lists the workers of a namespace that were heard of within a day, by their ids.
func (e *Engine) ListWorkers(ctx context.Context, r *progressorv1.ListWorkersRequest) (list []*progressorv1.Worker, next string, err error) {
	share := e.shareOf(r.GetNamespace())
	if err := e.admit(share); err != nil {
		return nil, "", err
	}
	defer e.leave(share)
	if _, err := e.namespace(ctx, r.GetNamespace()); err != nil {
		return nil, "", err
	}
	after, err := base64.RawURLEncoding.Strict().DecodeString(r.GetPageToken())
	if err != nil || !utf8.Valid(after) || slices.Contains(after, 0) {
		return nil, "", &process.InvalidError{Field: "page_token", Message: "it is no token that a list of workers gave"}
	}
	if err := e.workers.note(ctx, 0); err != nil {
		return nil, "", err
	}
	size := defaultWorkers
	if r.GetPageSize() > 0 {
		size = min(int(r.GetPageSize()), maxWorkers)
	}
	all, err := e.store.ListWorkers(ctx, r.GetNamespace(), string(after), "", size+1)
	if err != nil {
		return nil, "", err
	}
	if len(all) > size {
		all = all[:size]
		next = base64.RawURLEncoding.EncodeToString([]byte(all[size-1].WorkerID))
	}
	for n := range all {
		list = append(list, workerMessage(&all[n]))
	}
	return list, next, nil
}

func workerMessage(w *storage.Worker) *progressorv1.Worker {
	return &progressorv1.Worker{
		WorkerId: w.WorkerID, Namespaces: w.Namespaces, Leases: w.Leases, LastSeenTime: timestamppb.New(w.LastSeenTime), Directive: directiveOf(w.Command),
	}
}

package engine

import (
	"context"
	"time"

	"github.com/progressor-engine/progressor/storage"
)

// namespaceRemover deletes namespaces whose deletion was requested, in batches. Usually one node
// does this. If that node dies, another one takes over and finds fewer rows. It does no harm if
// several nodes delete the same namespace at the same time.
type namespaceRemover struct {
	engine *Engine
	passes int
	// rows contains the start of the next batch of each namespace. It is lost if the node dies.
	rows map[string]*removal
}

// removal is the progress of a node in one namespace.
type removal struct {
	requested time.Time
	after     string // the last process that was removed
	rows      storage.DeletionProgress
	found     bool // the current round has found something
}

func newNamespaceRemover(e *Engine) *namespaceRemover {
	return &namespaceRemover{engine: e, rows: map[string]*removal{}}
}

// removalTurn is how long a node deletes rows of one namespace before it turns to the next.
const removalTurn = 500 * time.Millisecond

// Run deletes until ctx is cancelled.
func (r *namespaceRemover) Run(ctx context.Context) error {
	return Every(ctx, time.Second, func() {
		for more := true; more && ctx.Err() == nil; {
			more = r.runOnce(ctx)
		}
	})
}

// runOnce deletes some rows of each namespace. more is true if further rows can be deleted now.
func (r *namespaceRemover) runOnce(ctx context.Context) (more bool) {
	e := r.engine
	r.passes++
	if !e.isConnected() || !e.peers.isResponsibleFor("namespaces") && r.passes%backupFactor != 0 {
		return false
	}
	all := e.registry.all()
	for name := range r.rows {
		if ns, known := all[name]; !known || !ns.deletion.at.Equal(r.rows[name].requested) {
			delete(r.rows, name)
		}
	}
	for name, ns := range all {
		if !ns.deletion.requested() || ctx.Err() != nil {
			continue
		}
		again, err := r.turn(ctx, ns)
		if err != nil && ctx.Err() == nil {
			e.log.Warn("cannot delete a namespace, will retry", "namespace", name, "error", err)
		}
		more = more || again && err == nil
	}
	return more
}

// turn deletes rows of a namespace for removalTurn. It deletes the namespace when a round through
// all tables has found nothing.
func (r *namespaceRemover) turn(ctx context.Context, ns *namespace) (more bool, err error) {
	e := r.engine
	nodes, err := e.store.UnawareNodes(ctx, ns.deletion.at)
	if err != nil || nodes > 0 {
		return false, err
	}
	if kept, err := r.keep(ctx, ns); kept || err != nil {
		return false, err
	}
	progress := r.rows[ns.name]
	if progress == nil {
		progress = &removal{requested: ns.deletion.at}
		r.rows[ns.name] = progress
	}
	for began := time.Now(); time.Since(began) < removalTurn; {
		ended, err := r.step(ctx, ns.name, progress)
		switch {
		case err != nil:
			return false, err
		case ended && !progress.found:
			return false, r.finish(ctx, ns)
		case ended:
			progress.found = false
		}
	}
	return true, nil
}

// keep cancels the deletion of a namespace that was empty when its deletion was requested, if a
// request has stored data before all nodes knew of the deletion.
func (r *namespaceRemover) keep(ctx context.Context, ns *namespace) (kept bool, err error) {
	e := r.engine
	if ns.deletion.data == storage.DeletesData {
		return false, nil
	}
	counts, err := e.store.CountData(ctx, ns.name, countedLeft, storage.CountsIndexed)
	held := storage.HasData(counts)
	if err != nil || len(held) == 0 {
		return false, err
	}
	e.log.Warn("the namespace was not deleted: requests stored data before all nodes knew of the deletion",
		"namespace", ns.name, "data", listCounts(held))
	if err := e.store.CancelDeletion(ctx, ns.name); err != nil {
		return false, err
	}
	row, err := e.store.GetNamespace(ctx, ns.name)
	if err == nil {
		e.takeOver(row)
	}
	return true, err
}

// step deletes one batch. ended is true if all tables have been read.
func (r *namespaceRemover) step(ctx context.Context, name string, p *removal) (ended bool, err error) {
	store := r.engine.store
	if p.rows == (storage.DeletionProgress{}) { // each round begins with the processes
		last, err := store.RemoveSomeProcesses(ctx, name, p.after)
		if err != nil || last != "" || p.after != "" { // after the last process, the search for processes starts again
			p.after, p.found = last, true
			return false, err
		}
		if found, err := store.DropStarts(ctx, name); err != nil || found {
			p.found = true
			return false, err
		}
	}
	deleted, ended, err := store.DeleteRows(ctx, name, &p.rows)
	p.found = p.found || deleted > 0
	return ended, err
}

// finish deletes the row of a namespace.
func (r *namespaceRemover) finish(ctx context.Context, ns *namespace) error {
	e := r.engine
	if err := e.store.DeleteNamespace(ctx, ns.name, ns.deletion.at); err != nil {
		return err
	}
	delete(r.rows, ns.name)
	e.log.Info("namespace deleted", "namespace", ns.name, "took", time.Since(ns.deletion.seen).Round(time.Millisecond))
	_, err := e.reloadNamespaces(ctx)
	return err
}

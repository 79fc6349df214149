package engine

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	"google.golang.org/protobuf/types/known/timestamppb"

	"github.com/progressor-engine/progressor/process"
	progressorv1 "github.com/progressor-engine/progressor/proto/progressor/v1"
	"github.com/progressor-engine/progressor/storage"
)

// deletion is the request to delete a namespace, as known to this node. It is zero if there is
// none.
type deletion struct {
	at   time.Time // when it was requested, by the database clock
	data storage.Deletion
	seen time.Time // when this node learned of it
}

func deletionOf(row storage.Namespace) deletion {
	if row.DeletionRequestedTime == nil {
		return deletion{}
	}
	d := deletion{at: *row.DeletionRequestedTime, seen: time.Now()}
	if row.DeletesData {
		d.data = storage.DeletesData
	}
	return d
}

func (d deletion) requested() bool { return !d.at.IsZero() }

// matches reports whether the deletion in the row is the same request.
func (d deletion) matches(row storage.Namespace) bool {
	other := deletionOf(row)
	return d.at.Equal(other.at) && d.data == other.data
}

const (
	// deletionPause is the minimum time after which a node acknowledges a deletion that it has
	// learned of. During this time, the node rejects requests for the namespace.
	deletionPause = 500 * time.Millisecond
	// deletionWait is the maximum time that a node waits for requests that it accepted before it
	// learned of the deletion. The statements of a request take less time. Only requests that wait
	// for an event take longer.
	deletionWait = 10 * time.Second
	// countedLeft and countedAll are the maximum counts for each kind of data.
	countedLeft = 10_000
	countedAll  = 1_000_000
)

// settled reports whether requests for a namespace that is being deleted can no longer store
// anything.
func (ns *namespace) settled() bool {
	known := time.Since(ns.deletion.seen)
	used := ns.shares.requests.used.Load() + ns.shares.polls.used.Load()
	return known >= deletionPause && used == 0 || known >= deletionWait
}

// knownDeletions are the deletions that this node has acknowledged in its row.
type knownDeletions struct {
	mu     sync.Mutex
	nodeID int64
	times  []time.Time
}

// acknowledgeDeletions records the deletions that this node knows. Nothing is deleted until all
// nodes know of the deletion. acknowledgeDeletions also cancels the attempts and ends the waits in
// these namespaces.
func (e *Engine) acknowledgeDeletions(ctx context.Context) error {
	var times []time.Time
	for name, ns := range e.registry.all() {
		if !ns.deletion.requested() {
			continue
		}
		if ns.deletion.data == storage.DeletesData {
			e.attempts.cancelNamespace(name, process.ErrNamespaceDeleting)
			e.waiters.cancelNamespace(name)
		}
		if ns.settled() {
			times = append(times, ns.deletion.at)
		}
	}
	k := &e.deletions
	k.mu.Lock()
	defer k.mu.Unlock()
	slices.SortFunc(times, time.Time.Compare)
	if node := e.store.NodeID(); k.nodeID != node {
		k.nodeID, k.times = node, nil // the new row has no acknowledgements
	}
	if slices.EqualFunc(k.times, times, time.Time.Equal) {
		return nil
	}
	if err := e.store.AcknowledgeDeletions(ctx, times); err != nil {
		return err
	}
	k.times = times
	return nil
}

// DeleteNamespace requests the deletion of a namespace, or only counts its data.
func (e *Engine) DeleteNamespace(
	ctx context.Context, r *progressorv1.DeleteNamespaceRequest, by ...process.Actor,
) (*progressorv1.DeleteNamespaceResponse, error) {
	name, of := r.GetNamespace(), storage.DeletesEmpty
	if r.GetWithData() {
		of = storage.DeletesData
	}
	row, err := e.store.GetNamespace(ctx, name)
	if err != nil {
		return nil, fmt.Errorf("namespace %q: %w", name, err)
	}
	counts, err := e.store.CountData(ctx, name, countedAll, storage.CountsAll)
	if err != nil {
		return nil, err
	}
	if !r.GetDryRun() {
		if err := e.deletable(name, of, counts); err != nil && row.DeletionRequestedTime == nil {
			return nil, err
		}
		if row, err = e.store.RequestDeletion(ctx, name, of, by...); err != nil {
			return nil, fmt.Errorf("namespace %q: %w", name, err)
		}
		e.takeOver(row)
	}
	m, err := e.namespaceMessage(ctx, row)
	return &progressorv1.DeleteNamespaceResponse{Namespace: m, Counts: countMessages(counts)}, err
}

// deletable returns an error if a namespace must not be deleted.
func (e *Engine) deletable(name string, of storage.Deletion, counts []storage.KindCount) error {
	if slices.Contains(e.cfg.FileNamespaces, name) {
		return &process.NamespaceInUseError{Namespace: name,
			Reason: "it is in the configuration file of this node, which would create it again: " +
				"remove it there, and restart the nodes first"}
	}
	if held := storage.HasData(counts); of == storage.DeletesEmpty && len(held) > 0 {
		return &process.NamespaceInUseError{Namespace: name,
			Reason: "it has " + listCounts(held) + ": remove them first, or delete it with its data (with_data)"}
	}
	return nil
}

// listCounts returns counts as text, such as "2 processes RUNNING, 1 templates".
func listCounts(counts []storage.KindCount) string {
	parts := make([]string, len(counts))
	for n, c := range counts {
		more := ""
		if c.OrMore {
			more = " or more"
		}
		parts[n] = strings.TrimSpace(fmt.Sprintf("%d%s %s %s", c.N, more, strings.ReplaceAll(c.Kind, "_", " "),
			c.Status))
	}
	return strings.Join(parts, ", ")
}

func countMessages(counts []storage.KindCount) []*progressorv1.DataCount {
	list := make([]*progressorv1.DataCount, len(counts))
	for n, c := range counts {
		list[n] = &progressorv1.DataCount{Kind: c.Kind, Status: c.Status, Count: c.N, OrMore: c.OrMore}
	}
	return list
}

// deletionMessage returns the progress of the deletion of a namespace, or nil if it is not being
// deleted.
func (e *Engine) deletionMessage(ctx context.Context, row storage.Namespace) (*progressorv1.NamespaceDeletion, error) {
	if row.DeletionRequestedTime == nil {
		return nil, nil
	}
	nodes, err := e.store.UnawareNodes(ctx, *row.DeletionRequestedTime)
	if err != nil {
		return nil, err
	}
	left, err := e.store.CountData(ctx, row.Namespace, countedLeft, storage.CountsIndexed)
	return &progressorv1.NamespaceDeletion{
		RequestedTime: timestamppb.New(*row.DeletionRequestedTime), WithData: row.DeletesData,
		WaitingForNodes: int32(nodes), Left: countMessages(left),
	}, err
}

// dropNamespaces removes deleted namespaces from memory. rows contains all namespaces that exist.
// The caller holds the lock of the registry.
func (e *Engine) dropNamespaces(rows []storage.Namespace) {
	next := maps.Clone(e.registry.all())
	for _, row := range rows {
		delete(next, row.Namespace)
	}
	dropped := slices.Collect(maps.Values(next))
	if len(dropped) == 0 {
		return
	}
	next = maps.Clone(e.registry.all())
	for _, ns := range dropped {
		delete(next, ns.name)
		closeIdle(ns.processor)
	}
	e.registry.byName.Store(&next)
	for _, ns := range dropped {
		e.labels.drop(ns.name)
	}
}

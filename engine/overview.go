package engine

import (
	"context"
	"time"

	"google.golang.org/protobuf/types/known/durationpb"

	progressorv1 "github.com/progressor-engine/progressor/proto/progressor/v1"
	"github.com/progressor-engine/progressor/storage"
)

const (
	// maxWaitingCounted is the maximum count of waiting tasks of each kind and namespace in an
	// overview.
	maxWaitingCounted = 10_000
	// maxOverviewNamespaces limits the number of namespaces in an overview, each of about 300 bytes.
	maxOverviewNamespaces = 10_000
	// workerAlive is how recently a worker must have been seen to be in an overview. It is longer
	// than an idle poll.
	workerAlive = 30 * time.Second
	// workerPolls is how recently a worker must have been seen that may still be in a poll. The
	// longest poll takes 60 s, and last_seen_time is updated every 5 s.
	workerPolls = 70 * time.Second
)

// GetOverview summarizes a namespace, or all namespaces if it is "", and the nodes.
func (e *Engine) GetOverview(ctx context.Context, namespace string) (*progressorv1.GetOverviewResponse, error) {
	share := e.shareOf(namespace)
	if err := e.admit(share); err != nil {
		return nil, err
	}
	defer e.leave(share)
	names, err := e.namesOf(ctx, namespace)
	if err != nil {
		return nil, err
	}
	waiting, err := e.store.CountWaiting(ctx, names, maxWaitingCounted)
	if err != nil {
		return nil, err
	}
	load, err := e.store.NodesLoad(ctx, e.cfg.ZombieAfter)
	if err != nil {
		return nil, err
	}
	nodes, err := e.ListNodes(ctx)
	if err != nil {
		return nil, err
	}
	overview := &progressorv1.GetOverviewResponse{
		CountByStatus: namedCounts(nil), TasksPerSecond: load.TasksPerSecond, Nodes: nodes,
		WaitingByWhat: map[string]int64{
			"time": waiting.Time, "place": waiting.Place, "process": waiting.Process, "operator": waiting.Operator, "constraint": waiting.Bound,
		},
		TimerLatenessP99: known(load.TimerLatenessP99), Samples: e.sampleHistory.all(),
	}
	p50, p99 := e.minuteStats.processing(time.Now())
	overview.ProcessingP50, overview.ProcessingP99 = known(p50), known(p99)
	overview.Namespaces, err = e.overviewOf(ctx, names)
	oldest := time.Duration(0)
	for _, ns := range overview.GetNamespaces() {
		for status, count := range ns.GetCountByStatus() {
			overview.CountByStatus[status] += count
		}
		if namespace != "" || !ns.GetPaused() { // a paused namespace is not expected to run tasks
			oldest = max(oldest, ns.GetOldestRunnableAge().AsDuration())
		}
	}
	overview.OldestRunnableAge = durationpb.New(oldest)
	overview.Namespaces = overview.GetNamespaces()[:min(len(overview.GetNamespaces()), maxOverviewNamespaces)]
	return overview, err
}

// known converts a duration to a message, or nil if it was not measured.
func known(d time.Duration) *durationpb.Duration {
	if d <= 0 {
		return nil
	}
	return durationpb.New(d)
}

// overviewOf summarizes each of the named namespaces.
func (e *Engine) overviewOf(ctx context.Context, names []string) ([]*progressorv1.NamespaceOverview, error) {
	counts, err := e.store.CountNamespaces(ctx, names)
	if err != nil {
		return nil, err
	}
	depths, err := e.store.QueueDepths(ctx, names, depthLimit)
	if err != nil {
		return nil, err
	}
	workers, err := e.store.CountWorkers(ctx, names, workerAlive)
	if err != nil {
		return nil, err
	}
	depth := map[string]storage.Depth{}
	for _, d := range depths {
		depth[d.Namespace] = d
	}
	all := e.registry.all()
	list := make([]*progressorv1.NamespaceOverview, len(names))
	for n, name := range names {
		d := depth[name]
		list[n] = &progressorv1.NamespaceOverview{
			Namespace: name, Paused: all[name] != nil && all[name].paused, CountByStatus: namedCounts(counts[name]),
			Runnable: d.Waiting, OldestRunnableAge: durationpb.New(d.Oldest), Workers: workers[name],
		}
	}
	return list, nil
}

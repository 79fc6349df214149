package insight

import (
	"context"
	"time"

	"google.golang.org/protobuf/types/known/durationpb"

	progressorv1 "github.com/progressor-engine/progressor/proto/progressor/v1"
	"github.com/progressor-engine/progressor/storage/insight"
	"github.com/progressor-engine/progressor/storage/jobs"
)

const (
	// maxWaitingCounted is the maximum count of waiting tasks of each kind and namespace in an
	// overview, and of runs and waits.
	maxWaitingCounted = 10_000
	// maxOverviewNamespaces limits the number of namespaces in an overview. Each takes about 300
	// bytes.
	maxOverviewNamespaces = 10_000
	// workerAlive is the maximum time since a worker in an overview was last seen. It is longer
	// than an idle poll.
	workerAlive = 30 * time.Second
	// workerPolls is the maximum time since a worker that may still be polling was last seen. The
	// longest poll takes 60 s, and last_seen_time is updated every 5 s.
	workerPolls = 70 * time.Second
)

// GetOverview summarizes a namespace, or all namespaces if namespace is "", and the nodes. age
// limits the age of the samples that it returns.
func (i *Insight) GetOverview(
	ctx context.Context, namespace string, age time.Duration,
) (*progressorv1.GetOverviewResponse, error) {
	names, leave, err := i.engine.Enter(ctx, namespace)
	if err != nil {
		return nil, err
	}
	defer leave()
	waiting, err := insight.CountWaiting(ctx, i.store, names, maxWaitingCounted)
	if err != nil {
		return nil, err
	}
	load, err := i.store.NodesLoad(ctx, i.engine.Config().ZombieAfter)
	if err != nil {
		return nil, err
	}
	nodes, err := i.ListNodes(ctx)
	if err != nil {
		return nil, err
	}
	overview := &progressorv1.GetOverviewResponse{
		CountByStatus: namedCounts(nil), InternalByStatus: namedCounts(nil),
		TasksPerSecond: load.TasksPerSecond, Nodes: nodes,
		WaitingByWhat: map[string]int64{
			"time": waiting.Time, "place": waiting.Place, "process": waiting.Process, "operator": waiting.Operator,
			"constraint": waiting.Bound,
		},
		TimerLatenessP99: known(load.TimerLatenessP99), Samples: i.samples.since(time.Now(), age),
	}
	node := i.engine.NodeState()
	overview.ProcessingP50, overview.ProcessingP99 = known(node.ProcessingP50), known(node.ProcessingP99)
	if overview.Namespaces, err = i.overviewOf(ctx, names); err != nil {
		return nil, err
	}
	failing, err := insight.CountFailingCrons(ctx, i.store, names)
	if err != nil {
		return nil, err
	}
	if err := i.countWork(ctx, names, overview.GetNamespaces()); err != nil {
		return nil, err
	}
	oldest := time.Duration(0)
	for _, ns := range overview.GetNamespaces() {
		ns.FailingCrons = failing[ns.GetNamespace()]
		overview.FailingCrons += ns.GetFailingCrons()
		for status, count := range ns.GetCountByStatus() {
			overview.CountByStatus[status] += count
			overview.InternalByStatus[status] += ns.GetInternalByStatus()[status]
		}
		overview.InternalMore = overview.GetInternalMore() || ns.GetInternalMore()
		if namespace != "" || !ns.GetPaused() { // a paused namespace is not expected to run tasks
			oldest = max(oldest, ns.GetOldestRunnableAge().AsDuration())
		}
	}
	overview.OldestRunnableAge = durationpb.New(oldest)
	overview.Namespaces = overview.GetNamespaces()[:min(len(overview.GetNamespaces()), maxOverviewNamespaces)]
	return overview, nil
}

// known converts a duration to a message. It returns nil if the duration was not measured.
func known(d time.Duration) *durationpb.Duration {
	if d <= 0 {
		return nil
	}
	return durationpb.New(d)
}

// overviewOf summarizes each of the named namespaces, without failing crons, jobs, runs and waits.
func (i *Insight) overviewOf(ctx context.Context, names []string) ([]*progressorv1.NamespaceOverview, error) {
	counts, err := insight.CountByOwner(ctx, i.store, names)
	if err != nil {
		return nil, err
	}
	depths, err := insight.QueueDepths(ctx, i.store, names, depthLimit)
	if err != nil {
		return nil, err
	}
	workers, err := insight.CountWorkers(ctx, i.store, names, workerAlive)
	if err != nil {
		return nil, err
	}
	depth := map[string]insight.Depth{}
	for _, d := range depths {
		depth[d.Namespace] = d
	}
	list := make([]*progressorv1.NamespaceOverview, len(names))
	for n, name := range names {
		d := depth[name]
		list[n] = &progressorv1.NamespaceOverview{
			Namespace: name, Paused: i.engine.IsPaused(name), CountByStatus: namedCounts(counts[name].All),
			InternalByStatus: namedCounts(counts[name].Internal), InternalMore: counts[name].More,
			Runnable: d.Waiting, OldestRunnableAge: durationpb.New(d.Oldest), Workers: workers[name],
		}
	}
	return list, nil
}

// countWork sets the numbers of jobs, runs and open waits in list, which contains the overviews of
// the named namespaces in the same order.
func (i *Insight) countWork(ctx context.Context, names []string, list []*progressorv1.NamespaceOverview) error {
	counts, err := jobs.Count(ctx, i.store, names)
	if err != nil {
		return err
	}
	runs, err := insight.CountRuns(ctx, i.store, names, maxWaitingCounted)
	if err != nil {
		return err
	}
	waits, err := insight.CountOpenWaits(ctx, i.store, names, maxWaitingCounted)
	if err != nil {
		return err
	}
	states := map[string]map[string]int64{}
	for _, c := range counts {
		if states[c.Namespace] == nil {
			states[c.Namespace] = map[string]int64{}
		}
		for state, n := range c.ByState {
			states[c.Namespace][state] += n
		}
	}
	for n, name := range names {
		list[n].JobsByState, list[n].RunsByStatus, list[n].OpenWaits = states[name], runs[name], waits[name]
	}
	return nil
}

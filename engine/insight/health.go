package insight

import (
	"context"
	"errors"
	"fmt"
	"time"

	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/progressor-engine/progressor/engine"
	"github.com/progressor-engine/progressor/internal/durations"
	"github.com/progressor-engine/progressor/processor"
	progressorv1 "github.com/progressor-engine/progressor/proto/progressor/v1"
	"github.com/progressor-engine/progressor/storage/insight"
	"github.com/progressor-engine/progressor/wire"
)

const (
	// healthyWait is how long a task may wait for a slot or a worker in a healthy namespace.
	healthyWait = 10 * time.Second
	// freshError is how long a process in ERROR counts as a problem of its namespace.
	freshError = 5 * time.Minute
	// maxHealthNamespaces is the maximum number of namespaces in a response. Each takes at most 6
	// KiB.
	maxHealthNamespaces = 1000
	// reachTimeout limits the connection that a health request opens.
	reachTimeout = 3 * time.Second
)

// reacher is a processor that can check whether it is reachable without sending a request.
type reacher interface {
	Reach(ctx context.Context) error
}

// NamespaceHealth reports whether the tasks of a namespace run, as this node sees it. If namespace
// is "", it reports on at most maxHealthNamespaces namespaces that the client may see, and does not
// connect to their processors.
func (i *Insight) NamespaceHealth(ctx context.Context, namespace string) ([]*progressorv1.NamespaceHealth, error) {
	names, leave, err := i.engine.Enter(ctx, namespace)
	if err != nil {
		return nil, err
	}
	defer leave()
	names = names[:min(len(names), maxHealthNamespaces)]
	overviews, err := i.overviewOf(ctx, names)
	if err != nil {
		return nil, err
	}
	ages, err := insight.NewestErrors(ctx, i.store, names)
	if err != nil {
		return nil, err
	}
	list := make([]*progressorv1.NamespaceHealth, 0, len(overviews))
	for _, o := range overviews {
		ns, err := i.engine.NamespaceState(ctx, o.GetNamespace())
		if err != nil {
			return nil, err
		}
		h := healthOf(o)
		if age, ok := ages[o.GetNamespace()]; ok {
			h.NewestErrorAge = durationpb.New(age)
		}
		unreachable := errNotTried
		if namespace != "" {
			unreachable = i.reach(ctx, ns.Processor)
		}
		h.Problems = append(i.obstacles(&ns, h, unreachable), symptoms(&ns, h)...)
		h.Status = worst(h.GetProblems())
		list = append(list, h)
	}
	return list, nil
}

func healthOf(o *progressorv1.NamespaceOverview) *progressorv1.NamespaceHealth {
	return &progressorv1.NamespaceHealth{
		Namespace: o.GetNamespace(), Paused: o.GetPaused(), Workers: o.GetWorkers(),
		Runnable: o.GetRunnable(), OldestRunnableAge: o.GetOldestRunnableAge(),
		ProcessesInError: o.GetCountByStatus()["error"],
	}
}

// worst returns the status that follows from the problems of a namespace.
func worst(problems []*progressorv1.HealthProblem) progressorv1.HealthStatus {
	status := progressorv1.HealthStatus_HEALTH_STATUS_OK
	for _, p := range problems {
		status = max(status, p.GetStatus())
	}
	return status
}

// errNotTried is the result of reach if no connection was opened.
var errNotTried = errors.New("no connection was opened")

// reach opens a connection to the processor of a namespace. It returns an error if the processor
// does not accept the connection. It returns errNotTried if it opens no connection, because the
// processor is not called over the network or this node runs no tasks.
func (i *Insight) reach(ctx context.Context, p processor.Processor) error {
	r, ok := p.(reacher)
	if !ok || i.engine.RequestsOnly() {
		return errNotTried
	}
	ctx, cancel := context.WithTimeout(ctx, reachTimeout)
	defer cancel()
	return r.Reach(ctx)
}

// The statuses of problems.
const (
	degraded = progressorv1.HealthStatus_HEALTH_STATUS_DEGRADED
	down     = progressorv1.HealthStatus_HEALTH_STATUS_DOWN
)

// obstacles returns the reasons why no task of a namespace starts. unreachable is the result of
// reach.
func (i *Insight) obstacles(
	ns *engine.NamespaceState, h *progressorv1.NamespaceHealth, unreachable error,
) (problems []*progressorv1.HealthProblem) {
	if h.GetPaused() {
		problems = append(problems, &progressorv1.HealthProblem{
			Kind: progressorv1.HealthProblem_KIND_PAUSED, Status: down,
			Detail: "the namespace is paused: requests wait", Next: "progressor namespace resume " + h.GetNamespace(),
		})
	}
	node := i.engine.NodeState()
	if !node.TasksRun {
		problems = append(problems, &progressorv1.HealthProblem{
			Kind: progressorv1.HealthProblem_KIND_NO_NODE, Status: down,
			Detail: "no node that is alive runs tasks", Next: "start one: progressor serve",
		})
	}
	if i.engine.RequestsOnly() {
		return problems // only nodes that run tasks need the processor
	}
	here := &progressorv1.HealthProblem{Kind: progressorv1.HealthProblem_KIND_UNREACHABLE, Status: down}
	if node.Others > 0 { // they may have the processor, or may reach it
		here.Status = degraded
	}
	switch {
	case ns.Unservable != nil:
		here.Kind, here.Detail = progressorv1.HealthProblem_KIND_UNSERVABLE, cut(ns.Unservable.Error())
		here.Next = "change the processor (progressor namespace get " + h.GetNamespace() +
			"), or start a program that has it"
	case unreachable != nil && !errors.Is(unreachable, errNotTried):
		here.Detail = cut(unreachable.Error())
		here.Next = "start the processor, or correct its URL: progressor namespace get " + h.GetNamespace()
	case unreachable != nil && ns.Away:
		here.Detail = "the last task of this node did not reach the processor"
		here.Next = "check the connection: progressor namespace health " + h.GetNamespace()
	default:
		return problems
	}
	return append(problems, here)
}

// symptoms returns the problems of a namespace whose tasks wait or fail.
func symptoms(ns *engine.NamespaceState, h *progressorv1.NamespaceHealth) (problems []*progressorv1.HealthProblem) {
	if ns.Lease > 0 && h.GetWorkers() == 0 {
		problems = append(problems, &progressorv1.HealthProblem{
			Kind: progressorv1.HealthProblem_KIND_NO_WORKERS, Status: down,
			Detail: "no worker has polled in the last " + durations.Exact(workerAlive),
			Next:   "start a worker: progressor worker run --namespace " + h.GetNamespace(),
		})
	}
	if ns.Paused {
		return problems // its tasks are expected to wait
	}
	if age := h.GetOldestRunnableAge().AsDuration(); age > healthyWait {
		problems = append(problems, &progressorv1.HealthProblem{
			Kind: progressorv1.HealthProblem_KIND_BEHIND, Status: degraded,
			Detail: fmt.Sprintf("tasks wait to run (%d), the oldest for %s",
				h.GetRunnable(), durations.Exact(age.Truncate(time.Second))),
			Next: "add workers, nodes or max_running, or make the processor faster",
		})
	}
	if ns.Lease == 0 && h.GetRunnable() >= int64(ns.MaxBacklog) {
		problems = append(problems, &progressorv1.HealthProblem{
			Kind: progressorv1.HealthProblem_KIND_BACKLOG_FULL, Status: degraded,
			Detail: fmt.Sprintf("requests are rejected: max_backlog (%d) tasks wait", ns.MaxBacklog),
			Next:   "add nodes or max_running, make the processor faster, or raise max_backlog",
		})
	}
	if h.GetNewestErrorAge() != nil && h.GetNewestErrorAge().AsDuration() < freshError {
		problems = append(problems, &progressorv1.HealthProblem{
			Kind: progressorv1.HealthProblem_KIND_ERRORS, Status: degraded,
			Detail: fmt.Sprintf("a process has failed in the last %s; %d are in ERROR",
				durations.Exact(freshError), h.GetProcessesInError()),
			Next: "progressor errors " + h.GetNamespace(),
		})
	}
	return problems
}

// maxDetail is the maximum length of a problem's detail in bytes.
const maxDetail = 4096

// cut returns the beginning of a text, without characters that the API does not allow.
func cut(text string) string { return wire.Plain(text[:min(len(text), maxDetail)]) }

package engine

import (
	"context"
	"errors"
	"fmt"
	"time"

	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/progressor-engine/progressor/internal/durations"
	progressorv1 "github.com/progressor-engine/progressor/proto/progressor/v1"
)

const (
	// healthyWait is how long a task may wait for a slot or a worker in a healthy namespace.
	healthyWait = 10 * time.Second
	// freshError is how long a process in ERROR is a problem of its namespace.
	freshError = 5 * time.Minute
	// maxHealthNamespaces is the number of namespaces in a response, each of at most 6 KiB.
	maxHealthNamespaces = 1000
	// reachTimeout limits the connection that a health request opens.
	reachTimeout = 3 * time.Second
)

// reacher is a processor that can check whether it is reachable without sending a request.
type reacher interface {
	Reach(ctx context.Context) error
}

// NamespaceHealth reports whether the tasks of a namespace run, as this node sees it. An empty name
// means all namespaces, without a connection to their processors.
func (e *Engine) NamespaceHealth(ctx context.Context, namespace string) ([]*progressorv1.NamespaceHealth, error) {
	share := e.shareOf(namespace)
	if err := e.admit(share); err != nil {
		return nil, err
	}
	defer e.leave(share)
	names, err := e.namesOf(ctx, namespace)
	if err != nil {
		return nil, err
	}
	names = names[:min(len(names), maxHealthNamespaces)]
	overviews, err := e.overviewOf(ctx, names)
	if err != nil {
		return nil, err
	}
	ages, err := e.store.NewestErrors(ctx, names)
	if err != nil {
		return nil, err
	}
	all := e.registry.all()
	list := make([]*progressorv1.NamespaceHealth, 0, len(overviews))
	for _, o := range overviews {
		ns, ok := all[o.GetNamespace()]
		if !ok {
			continue
		}
		h := healthOf(o)
		if age, ok := ages[ns.name]; ok {
			h.NewestErrorAge = durationpb.New(age)
		}
		unreachable := errNotTried
		if namespace != "" {
			unreachable = e.reach(ctx, ns)
		}
		h.Problems = append(e.obstacles(ns, h, unreachable), symptoms(ns, h)...)
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
// does not accept it, and errNotTried if the processor is not reached by connections.
func (e *Engine) reach(ctx context.Context, ns *namespace) error {
	p, ok := ns.processor.(reacher)
	if !ok || e.cfg.RequestsOnly {
		return errNotTried
	}
	ctx, cancel := context.WithTimeout(ctx, reachTimeout)
	defer cancel()
	return p.Reach(ctx)
}

// The statuses of problems.
const (
	degraded = progressorv1.HealthStatus_HEALTH_STATUS_DEGRADED
	down     = progressorv1.HealthStatus_HEALTH_STATUS_DOWN
)

// obstacles returns the reasons why no task of a namespace starts. unreachable is the result of
// reach.
func (e *Engine) obstacles(
	ns *namespace, h *progressorv1.NamespaceHealth, unreachable error,
) (problems []*progressorv1.HealthProblem) {
	if h.GetPaused() {
		problems = append(problems, &progressorv1.HealthProblem{
			Kind: progressorv1.HealthProblem_KIND_PAUSED, Status: down,
			Detail: "the namespace is paused: requests wait", Next: "progressor namespace resume " + ns.name,
		})
	}
	if !e.tasksRun() {
		problems = append(problems, &progressorv1.HealthProblem{
			Kind: progressorv1.HealthProblem_KIND_NO_NODE, Status: down,
			Detail: "no node that is alive runs tasks", Next: "start one: progressor serve",
		})
	}
	if e.cfg.RequestsOnly {
		return problems // only nodes that run tasks need the processor
	}
	here := &progressorv1.HealthProblem{Kind: progressorv1.HealthProblem_KIND_UNREACHABLE, Status: down}
	if e.peers.others() > 0 { // they may have the processor, or reach it
		here.Status = degraded
	}
	switch {
	case ns.unservable != nil:
		here.Kind, here.Detail = progressorv1.HealthProblem_KIND_UNSERVABLE, cut(ns.unservable.Error())
		here.Next = "change the processor (progressor namespace get " + ns.name + "), or start a program that has it"
	case unreachable != nil && !errors.Is(unreachable, errNotTried):
		here.Detail = cut(unreachable.Error())
		here.Next = "start the processor, or correct its URL: progressor namespace get " + ns.name
	case unreachable != nil && ns.away.Load():
		here.Detail = "the last task of this node did not reach the processor"
		here.Next = "check the connection: progressor namespace health " + ns.name
	default:
		return problems
	}
	return append(problems, here)
}

// symptoms returns what shows that tasks of a namespace wait or fail.
func symptoms(ns *namespace, h *progressorv1.NamespaceHealth) (problems []*progressorv1.HealthProblem) {
	if ns.lease > 0 && h.GetWorkers() == 0 {
		problems = append(problems, &progressorv1.HealthProblem{
			Kind: progressorv1.HealthProblem_KIND_NO_WORKERS, Status: down,
			Detail: "no worker has polled in the last " + durations.Exact(workerAlive),
			Next:   "start a worker: progressor worker run --namespace " + ns.name,
		})
	}
	if ns.paused {
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
	if ns.lease == 0 && h.GetRunnable() >= int64(ns.maxBacklog) {
		problems = append(problems, &progressorv1.HealthProblem{
			Kind: progressorv1.HealthProblem_KIND_BACKLOG_FULL, Status: degraded,
			Detail: fmt.Sprintf("requests are rejected: max_backlog tasks wait, %d", ns.maxBacklog),
			Next:   "add nodes or max_running, make the processor faster, or raise max_backlog",
		})
	}
	if h.GetNewestErrorAge() != nil && h.GetNewestErrorAge().AsDuration() < freshError {
		problems = append(problems, &progressorv1.HealthProblem{
			Kind: progressorv1.HealthProblem_KIND_ERRORS, Status: degraded,
			Detail: fmt.Sprintf("a process has failed in the last %s; %d are in ERROR",
				durations.Exact(freshError), h.GetProcessesInError()),
			Next: "progressor errors " + ns.name,
		})
	}
	return problems
}

// tasksRun reports whether a live node runs tasks.
func (e *Engine) tasksRun() bool {
	return !e.cfg.RequestsOnly && e.takesTasks() || e.peers.others() > 0
}

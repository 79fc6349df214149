package insight

import (
	"context"
	"fmt"

	"google.golang.org/protobuf/types/known/durationpb"
	"google.golang.org/protobuf/types/known/timestamppb"

	"github.com/progressor-engine/progressor/engine"
	"github.com/progressor-engine/progressor/explain"
	"github.com/progressor-engine/progressor/process"
	progressorv1 "github.com/progressor-engine/progressor/proto/progressor/v1"
	"github.com/progressor-engine/progressor/storage"
	"github.com/progressor-engine/progressor/storage/insight"
	"github.com/progressor-engine/progressor/storage/pull"
	"github.com/progressor-engine/progressor/wire"
)

// ExplainProcess reports how long a process spent in each state, what it waits for, what comes
// next, and what would make it continue. It describes a durable function by its journal.
func (i *Insight) ExplainProcess(ctx context.Context, key process.Key) (*progressorv1.ExplainProcessResponse, error) {
	return i.explainProcess(ctx, insight.ExplainedRequest{Key: key, Journal: true})
}

// ExplainWithoutPayloads is ExplainProcess for a client that may not see payloads. It does not read
// the journal.
func (i *Insight) ExplainWithoutPayloads(
	ctx context.Context, key process.Key,
) (*progressorv1.ExplainProcessResponse, error) {
	return i.explainProcess(ctx, insight.ExplainedRequest{Key: key})
}

func (i *Insight) explainProcess(
	ctx context.Context, request insight.ExplainedRequest,
) (*progressorv1.ExplainProcessResponse, error) {
	key := request.Key
	_, leave, err := i.engine.Enter(ctx, key.Namespace)
	if err != nil {
		return nil, err
	}
	defer leave()
	ns, err := i.engine.NamespaceState(ctx, key.Namespace)
	if err != nil {
		return nil, err
	}
	request.ZombieAfter, request.Policy = i.engine.Config().ZombieAfter, ns.Zombie
	read, err := insight.ReadExplained(ctx, i.store, request)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", key, err)
	}
	p, err := wire.Process(&read.Process, nil, read.Timers, nil)
	if err != nil {
		return nil, err
	}
	state := &read.State
	if err := i.explainKind(ctx, &ns, p, state); err != nil {
		return nil, fmt.Errorf("explain %s: %w", key, err)
	}
	said := explain.Explain(*state)
	response := &progressorv1.ExplainProcessResponse{
		Process: p, TimeByWhat: map[string]*durationpb.Duration{}, WaitsFor: wire.WaitsFor(said.WaitsFor),
		WaitsForDetail: said.Detail, Next: said.Next, Unblock: said.Unblock,
	}
	for _, s := range said.Spans {
		span := &progressorv1.Span{What: s.What, TaskId: s.TaskID, FromTime: timestamppb.New(s.From), Detail: s.Detail}
		if !s.To.IsZero() {
			span.ToTime = timestamppb.New(s.To)
		}
		response.Spans = append(response.Spans, span)
	}
	for what, d := range said.TimeByWhat {
		response.TimeByWhat[what] = durationpb.New(d)
	}
	if !said.NextTime.IsZero() {
		response.NextTime = timestamppb.New(said.NextTime)
	}
	return response, nil
}

// explainKind adds facts that this node knows about a process to its state. They come from its
// namespace, its workers and its kind.
func (i *Insight) explainKind(
	ctx context.Context, ns *engine.NamespaceState, p *progressorv1.Process, state *explain.State,
) error {
	n := &state.Namespace
	n.Paused, n.MaxRunning, n.MaxAttempts, n.Away = ns.Paused, ns.MaxRunning, ns.MaxAttempts, ns.Away
	n.StepTimeout = ns.StepTimeout
	key := process.Key{Namespace: p.GetNamespace(), ProcessID: p.GetProcessId()}
	if r := state.Running; r != nil && r.NodeID == i.store.NodeID() {
		r.FailedTries, r.Cause = i.engine.FailedTries(storage.TaskRef{Key: key, TaskID: r.ID})
	}
	kind := i.engine.RegisteredKinds()[p.GetKind()]
	if kind.Processor == nil {
		n.Pulled = ns.Lease > 0
		if ns.Unservable != nil {
			n.Unservable = ns.Unservable.Error()
		}
	}
	if n.Pulled && !n.Paused && state.Running == nil && len(state.Waiting) > 0 {
		if err := i.addWorkers(ctx, key.Namespace, state); err != nil {
			return err
		}
	}
	if kind.Explain == nil {
		return nil
	}
	return kind.Explain(ctx, p, state)
}

// maxWorkers is the maximum number of workers in an explanation.
const maxWorkers = 1000

// addWorkers adds the workers of a namespace that were seen within a day.
func (i *Insight) addWorkers(ctx context.Context, namespace string, state *explain.State) error {
	if err := i.engine.RecordWorkers(ctx); err != nil {
		return err
	}
	workers, more, err := pull.ListWorkers(ctx, i.store, namespace, "", "", maxWorkers+1)
	if err != nil {
		return err
	}
	state.Namespace.More = more || len(workers) > maxWorkers
	for _, w := range workers[:min(len(workers), maxWorkers)] {
		state.Namespace.Workers = append(state.Namespace.Workers, explain.Worker{
			ID: w.WorkerID, Command: string(w.Command), Seen: w.LastSeenTime, Leases: w.Leases,
			Alive: state.Now.Sub(w.LastSeenTime) < workerPolls,
		})
	}
	return nil
}

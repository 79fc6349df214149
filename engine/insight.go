package engine

import (
	"context"
	"fmt"
	"strconv"

	"google.golang.org/protobuf/types/known/durationpb"
	"google.golang.org/protobuf/types/known/timestamppb"

	"github.com/progressor-engine/progressor/explain"
	"github.com/progressor-engine/progressor/process"
	progressorv1 "github.com/progressor-engine/progressor/proto/progressor/v1"
	"github.com/progressor-engine/progressor/storage"
	"github.com/progressor-engine/progressor/wire"
)

// ExplainProcess reports how long a process spent in each state, what it waits for, what comes next
// and what would let it continue.
func (e *Engine) ExplainProcess(ctx context.Context, key process.Key) (*progressorv1.ExplainProcessResponse, error) {
	share := e.shareOf(key.Namespace)
	if err := e.admit(share); err != nil {
		return nil, err
	}
	defer e.leave(share)
	ns, err := e.namespace(ctx, key.Namespace)
	if err != nil {
		return nil, err
	}
	read, err := e.store.ReadExplained(ctx, key, e.cfg.ZombieAfter, ns.zombie)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", key, err)
	}
	p, err := wire.Process(&read.Process, nil, read.Timers, nil)
	if err != nil {
		return nil, err
	}
	state := &read.State
	if err := e.explainKind(ctx, ns, p, state); err != nil {
		return nil, fmt.Errorf("explain %s: %w", key, err)
	}
	said := explain.Explain(*state)
	response := &progressorv1.ExplainProcessResponse{
		Process: p, TimeByWhat: map[string]*durationpb.Duration{}, WaitsFor: wire.WaitsFor(said.WaitsFor), WaitsForDetail: said.Detail, Next: said.Next, Unblock: said.Unblock,
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

// explainKind adds what this node knows to the state of a process: from its namespace, its workers
// and its kind.
func (e *Engine) explainKind(ctx context.Context, ns *namespace, p *progressorv1.Process, state *explain.State) error {
	n := &state.Namespace
	n.Paused, n.MaxRunning, n.MaxAttempts, n.Away = ns.paused, ns.slots.size(), ns.retry.MaxAttempts, ns.away.Load()
	if r := state.Running; r != nil && r.NodeID == e.store.NodeID() {
		r.FailedTries, r.Cause = e.attempts.failedTriesOf(storage.TaskRef{Key: process.Key{Namespace: ns.name, ProcessID: p.GetProcessId()}, TaskID: r.ID})
	}
	kind := e.kinds[p.GetKind()]
	if kind.Processor == nil {
		n.Pulled = ns.pulled()
		if ns.unservable != nil {
			n.Unservable = ns.unservable.Error()
		}
	}
	if n.Pulled && state.Running == nil && len(state.Waiting) > 0 {
		if err := e.workers.note(ctx, 0); err != nil {
			return err
		}
		workers, more, err := e.store.ListWorkers(ctx, ns.name, "", "", maxWorkers+1)
		if err != nil {
			return err
		}
		n.More = more || len(workers) > maxWorkers
		workers = workers[:min(len(workers), maxWorkers)]
		for _, w := range workers {
			n.Workers = append(n.Workers, explain.Worker{
				ID: w.WorkerID, Told: string(w.Command), Seen: w.LastSeenTime, Leases: w.Leases, Alive: state.Now.Sub(w.LastSeenTime) < workerPolls,
			})
		}
	}
	if kind.Explain == nil {
		return nil
	}
	return kind.Explain(ctx, p, state)
}

// ListNodes lists the nodes in the database, including nodes that died within the last hour. A
// draining node also answers.
func (e *Engine) ListNodes(ctx context.Context) ([]*progressorv1.Node, error) {
	rows, err := e.store.ListNodes(ctx)
	if err != nil {
		return nil, err
	}
	nodes := make([]*progressorv1.Node, len(rows))
	for n := range rows {
		nodes[n] = wire.Node(&rows[n])
	}
	return nodes, nil
}

// DrainNode requests that a node stops taking new tasks and finishes the running ones. The request
// is stored in the row of the node, which reads it with its next heartbeat. The node keeps running
// until it is stopped.
func (e *Engine) DrainNode(ctx context.Context, nodeID string, by process.Actor) (*progressorv1.Node, error) {
	id, err := strconv.ParseInt(nodeID, 10, 64)
	if err != nil {
		return nil, &process.InvalidError{Field: "node_id", Message: "must be a node ID as in ListNodes"}
	}
	row, err := e.store.DrainNode(ctx, id, by)
	if err != nil {
		return nil, fmt.Errorf("node %d: %w", id, err)
	}
	if id == e.store.NodeID() {
		e.beginDrain()
	}
	return wire.Node(&row), nil
}

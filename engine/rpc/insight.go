package rpc

import (
	"context"

	"github.com/progressor-engine/progressor/engine"
	"github.com/progressor-engine/progressor/engine/insight"
	progressorv1 "github.com/progressor-engine/progressor/proto/progressor/v1"
)

// insights serves InsightService.
type insights struct {
	engine  *engine.Engine
	insight *insight.Insight
}

// ExplainProcess reports how a process has spent its time, what it waits for, and what comes next.
func (s *insights) ExplainProcess(
	ctx context.Context, r *progressorv1.ExplainProcessRequest,
) (*progressorv1.ExplainProcessResponse, error) {
	key := keyOf(r)
	if !showsPayloads(ctx, key) {
		return s.insight.ExplainWithoutPayloads(ctx, key)
	}
	return s.insight.ExplainProcess(ctx, key)
}

// ListNodes lists the nodes.
func (s *insights) ListNodes(
	ctx context.Context, _ *progressorv1.ListNodesRequest,
) (*progressorv1.ListNodesResponse, error) {
	nodes, err := s.insight.ListNodes(ctx)
	return &progressorv1.ListNodesResponse{Nodes: nodes}, err
}

// DrainNode requests that a node takes no new tasks and finishes the running ones.
func (s *insights) DrainNode(
	ctx context.Context, r *progressorv1.DrainNodeRequest,
) (*progressorv1.DrainNodeResponse, error) {
	node, err := s.engine.DrainNode(ctx, r.GetNodeId(), actorOf(ctx))
	return &progressorv1.DrainNodeResponse{Node: node}, err
}

// ListErrors groups the processes in ERROR by their errors.
func (s *insights) ListErrors(
	ctx context.Context, r *progressorv1.ListErrorsRequest,
) (*progressorv1.ListErrorsResponse, error) {
	groups, next, err := s.insight.ListErrors(ctx, r.GetNamespace(), int(r.GetPageSize()), r.GetPageToken())
	return &progressorv1.ListErrorsResponse{Groups: groups, NextPageToken: next}, err
}

// GetOverview summarizes one or all namespaces, and the nodes.
func (s *insights) GetOverview(
	ctx context.Context, r *progressorv1.GetOverviewRequest,
) (*progressorv1.GetOverviewResponse, error) {
	overview, err := s.insight.GetOverview(ctx, r.GetNamespace(), r.GetSamplesAge().AsDuration())
	if err != nil || mayEverywhere(ctx, progressorv1.Permission_PERMISSION_NAMESPACE_READ) {
		return overview, err
	}
	// These fields cover all namespaces.
	overview.Nodes, overview.Samples, overview.TasksPerSecond, overview.TimerLatenessP99 = nil, nil, 0, nil
	overview.ProcessingP50, overview.ProcessingP99 = nil, nil
	return overview, nil
}

// ListAudit lists audit entries.
func (s *insights) ListAudit(
	ctx context.Context, r *progressorv1.ListAuditRequest,
) (*progressorv1.ListAuditResponse, error) {
	entries, next, err := s.insight.ListAudit(ctx, r)
	return &progressorv1.ListAuditResponse{Entries: entries, NextPageToken: next}, err
}

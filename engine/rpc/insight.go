package rpc

import (
	"context"

	"github.com/progressor-engine/progressor/engine"
	progressorv1 "github.com/progressor-engine/progressor/proto/progressor/v1"
	"github.com/progressor-engine/progressor/proto/progressor/v1/progressorv1connect"
)

// insights serves InsightService.
type insights struct {
	progressorv1connect.UnimplementedInsightServiceHandler
	engine *engine.Engine
}

// ExplainProcess says where a process's time went, what it waits for, and what comes next.
func (s *insights) ExplainProcess(ctx context.Context, r *progressorv1.ExplainProcessRequest) (*progressorv1.ExplainProcessResponse, error) {
	return s.engine.ExplainProcess(ctx, keyOf(r))
}

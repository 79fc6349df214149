package engine

import (
	"context"
	"fmt"

	"google.golang.org/protobuf/types/known/durationpb"
	"google.golang.org/protobuf/types/known/timestamppb"

	"github.com/progressor-engine/progressor/explain"
	"github.com/progressor-engine/progressor/process"
	progressorv1 "github.com/progressor-engine/progressor/proto/progressor/v1"
	"github.com/progressor-engine/progressor/wire"
)

// ExplainProcess says where the time of a process went, what it waits for, what comes next and what would let it go on.
func (e *Engine) ExplainProcess(ctx context.Context, key process.Key) (*progressorv1.ExplainProcessResponse, error) {
	if err := e.admit(); err != nil {
		return nil, err
	}
	defer e.leave()
	ns, err := e.namespace(ctx, key.Namespace)
	if err != nil {
		return nil, err
	}
	read, err := e.store.ReadExplained(ctx, key, e.cfg.ZombieAfter)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", key, err)
	}
	state := read.State
	state.Namespace.Paused, state.Namespace.MaxRunning, state.Namespace.MaxAttempts = ns.paused, ns.places.size(), ns.retry.MaxAttempts
	said := explain.Explain(state)
	response := &progressorv1.ExplainProcessResponse{
		TimeByWhat: map[string]*durationpb.Duration{}, WaitsFor: wire.WaitsFor(said.WaitsFor), WaitsForDetail: said.Detail, Next: said.Next, Unblock: said.Unblock,
	}
	if response.Process, err = wire.Process(&read.Process, nil, read.Timers, nil); err != nil {
		return nil, err
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

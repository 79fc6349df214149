package sinks

import (
	"context"
	"fmt"

	"google.golang.org/protobuf/types/known/timestamppb"

	"github.com/progressor-engine/progressor/explain"
	progressorv1 "github.com/progressor-engine/progressor/proto/progressor/v1"
	"github.com/progressor-engine/progressor/storage/changes"
)

// Explain returns why a sink does not deliver, what comes next and what would unblock it.
func (s *Sinks) Explain(
	ctx context.Context, r *progressorv1.ExplainSinkRequest,
) (*progressorv1.ExplainSinkResponse, error) {
	if err := s.engine.CheckNamespace(ctx, r.GetNamespace()); err != nil {
		return nil, err
	}
	k := changes.SinkKey{Namespace: r.GetNamespace(), SinkID: r.GetSinkId()}
	row, state, err := changes.ExplainSink(ctx, s.store, k, s.engine.Config().ZombieAfter)
	if err != nil {
		return nil, fmt.Errorf("sink %s/%s: %w", k.Namespace, k.SinkID, err)
	}
	m, err := messageOf(row)
	if err != nil {
		return nil, err
	}
	state.Webhook = m.GetWebhook() != nil
	state.DeadLetters.Count, state.DeadLetters.Retries = row.StoredDeadLetters, row.Retries
	if row.StoredDeadLetters > 0 {
		letters, err := changes.DeadLetters(ctx, s.store, k)
		if err != nil {
			return nil, err
		}
		if len(letters) > 0 {
			d := &letters[0]
			state.DeadLetters.Newest = explain.DeadLetter{ChangeID: d.ChangeID, ProcessID: d.ProcessID, Error: d.Error}
		}
	}
	said := explain.Sink(state)
	response := &progressorv1.ExplainSinkResponse{Sink: m, Detail: said.Detail, Next: said.Next, Unblock: said.Unblock}
	if !said.NextTime.IsZero() {
		response.NextTime = timestamppb.New(said.NextTime)
	}
	return response, nil
}

package rpc

import (
	"context"

	"github.com/progressor-engine/progressor/engine/bulk"
	progressorv1 "github.com/progressor-engine/progressor/proto/progressor/v1"
)

// bulks serves BulkService.
type bulks struct {
	bulks *bulk.Bulks
}

// StartBulk starts a bulk that applies a verb to all processes that match a filter, or counts them.
func (s *bulks) StartBulk(
	ctx context.Context, r *progressorv1.StartBulkRequest,
) (*progressorv1.StartBulkResponse, error) {
	b, err := s.bulks.Start(ctx, r, actorOf(ctx))
	return &progressorv1.StartBulkResponse{Bulk: b}, err
}

// GetBulk returns the progress of a bulk, with its newest failures.
func (s *bulks) GetBulk(ctx context.Context, r *progressorv1.GetBulkRequest) (*progressorv1.GetBulkResponse, error) {
	b, err := s.bulks.Get(ctx, r.GetNamespace(), r.GetBulkId())
	return &progressorv1.GetBulkResponse{Bulk: b}, err
}

// ListBulks returns a page of the bulks of a namespace, or of all namespaces.
func (s *bulks) ListBulks(
	ctx context.Context, r *progressorv1.ListBulksRequest,
) (*progressorv1.ListBulksResponse, error) {
	list, next, err := s.bulks.List(ctx, r.GetNamespace(), r.GetPageSize(), r.GetPageToken())
	return &progressorv1.ListBulksResponse{Bulks: list, NextPageToken: next}, err
}

// CancelBulk cancels a bulk.
func (s *bulks) CancelBulk(
	ctx context.Context, r *progressorv1.CancelBulkRequest,
) (*progressorv1.CancelBulkResponse, error) {
	b, err := s.bulks.Cancel(ctx, r.GetNamespace(), r.GetBulkId(), actorOf(ctx))
	return &progressorv1.CancelBulkResponse{Bulk: b}, err
}

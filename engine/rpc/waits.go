package rpc

import (
	"cmp"
	"context"
	"errors"
	"strings"

	"google.golang.org/protobuf/proto"

	"github.com/progressor-engine/progressor/process"
	progressorv1 "github.com/progressor-engine/progressor/proto/progressor/v1"
	"github.com/progressor-engine/progressor/storage/search"
)

const (
	// maxWaitNamespaces limits the namespaces that a page of listAllWaits reads.
	maxWaitNamespaces = 100
	// maxWaitBytes limits the size of a page of listAllWaits. The page ends after the namespace
	// that exceeds it. The part of that namespace has a limit of its own.
	maxWaitBytes = 4 << 20
)

// ListOpenWaits returns a page of open waits. Answerable reports whether the client may answer a
// wait. Without a namespace, it lists the waits of all visible namespaces, in the order of their
// names.
func (s *flowService) ListOpenWaits(
	ctx context.Context, r *progressorv1.ListOpenWaitsRequest,
) (*progressorv1.ListOpenWaitsResponse, error) {
	if r.GetNamespace() == "" {
		return s.listAllWaits(ctx, r)
	}
	list, next, err := s.flows.ListOpenWaits(asAssignee(ctx, r.GetNamespace()), r)
	if p := principalOf(ctx); p != nil && !p.Can(progressorv1.Permission_PERMISSION_WAIT_ANSWER, r.GetNamespace()) {
		for _, wait := range list {
			wait.Answerable = false
		}
		if r.GetAnswerable() {
			list, next = nil, ""
		}
	}
	return &progressorv1.ListOpenWaitsResponse{Waits: list, NextPageToken: next}, err
}

// listAllWaits lists the waits of all visible namespaces. Its page token consists of the name of
// the next namespace, a space, and a page token for the waits of this namespace. The page token for
// the first page is empty.
func (s *flowService) listAllWaits(
	ctx context.Context, r *progressorv1.ListOpenWaitsRequest,
) (*progressorv1.ListOpenWaitsResponse, error) {
	first, token, found := strings.Cut(r.GetPageToken(), " ")
	if r.GetPageToken() != "" && !found {
		return nil, process.InvalidPageToken()
	}
	if err := search.CheckWaits(r.GetFilter()); err != nil {
		return nil, err
	}
	names, err := s.flows.WaitingNamespaces(ctx)
	if err != nil {
		return nil, err
	}
	all, size := &progressorv1.ListOpenWaitsResponse{}, cmp.Or(int(r.GetPageSize()), search.DefaultPageSize)
	reads, bytes := 0, 0
	for _, name := range names {
		if name < first {
			continue
		}
		if reads == maxWaitNamespaces || len(all.GetWaits()) >= size || bytes > maxWaitBytes {
			all.NextPageToken = name + " "
			return all, nil
		}
		part := proto.CloneOf(r)
		part.Namespace, part.PageSize, part.PageToken = name, int32(size-len(all.GetWaits())), ""
		if name == first {
			part.PageToken = token
		}
		page, err := s.ListOpenWaits(ctx, part)
		if errors.Is(err, process.ErrNamespaceNotFound) {
			continue // it was deleted in the meantime
		}
		if err != nil {
			return nil, err
		}
		reads, bytes = reads+1, bytes+proto.Size(page)
		all.Waits = append(all.GetWaits(), page.GetWaits()...)
		if page.GetNextPageToken() != "" {
			all.NextPageToken = name + " " + page.GetNextPageToken()
			return all, nil
		}
	}
	return all, nil
}

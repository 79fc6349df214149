package rpc

import (
	"context"

	"github.com/progressor-engine/progressor/engine"
	"github.com/progressor-engine/progressor/engine/insight"
	progressorv1 "github.com/progressor-engine/progressor/proto/progressor/v1"
)

// namespaces serves NamespaceService.
type namespaces struct {
	engine  *engine.Engine
	insight *insight.Insight
}

// PutNamespace creates a namespace or replaces its settings.
func (s *namespaces) PutNamespace(
	ctx context.Context, r *progressorv1.PutNamespaceRequest,
) (*progressorv1.PutNamespaceResponse, error) {
	if err := s.engine.CheckSecrets(ctx, r.GetNamespace()); err != nil {
		return nil, err
	}
	ns, err := s.engine.PutNamespace(ctx, r.GetNamespace(), actorOf(ctx))
	return &progressorv1.PutNamespaceResponse{Namespace: ns}, err
}

// GetNamespace returns a namespace.
func (s *namespaces) GetNamespace(
	ctx context.Context, r *progressorv1.GetNamespaceRequest,
) (*progressorv1.GetNamespaceResponse, error) {
	ns, err := s.engine.GetNamespace(ctx, r.GetNamespace())
	return &progressorv1.GetNamespaceResponse{Namespace: ns}, err
}

// ListNamespaces returns a page of the namespaces.
func (s *namespaces) ListNamespaces(
	ctx context.Context, r *progressorv1.ListNamespacesRequest,
) (*progressorv1.ListNamespacesResponse, error) {
	list, next, err := s.engine.ListNamespaces(ctx, r)
	return &progressorv1.ListNamespacesResponse{Namespaces: list, NextPageToken: next}, err
}

// GetNamespaceHealth reports whether the tasks of namespaces run.
func (s *namespaces) GetNamespaceHealth(
	ctx context.Context, r *progressorv1.GetNamespaceHealthRequest,
) (*progressorv1.GetNamespaceHealthResponse, error) {
	list, err := s.insight.NamespaceHealth(ctx, r.GetNamespace())
	return &progressorv1.GetNamespaceHealthResponse{Namespaces: list}, err
}

// PauseNamespace pauses a namespace.
func (s *namespaces) PauseNamespace(
	ctx context.Context, r *progressorv1.PauseNamespaceRequest,
) (*progressorv1.PauseNamespaceResponse, error) {
	ns, err := s.engine.SetNamespacePaused(ctx, r.GetNamespace(), true, actorOf(ctx))
	return &progressorv1.PauseNamespaceResponse{Namespace: ns}, err
}

// ResumeNamespace resumes a namespace.
func (s *namespaces) ResumeNamespace(
	ctx context.Context, r *progressorv1.ResumeNamespaceRequest,
) (*progressorv1.ResumeNamespaceResponse, error) {
	ns, err := s.engine.SetNamespacePaused(ctx, r.GetNamespace(), false, actorOf(ctx))
	return &progressorv1.ResumeNamespaceResponse{Namespace: ns}, err
}

// DeleteNamespace requests the deletion of a namespace, or counts its data.
func (s *namespaces) DeleteNamespace(
	ctx context.Context, r *progressorv1.DeleteNamespaceRequest,
) (*progressorv1.DeleteNamespaceResponse, error) {
	return s.engine.DeleteNamespace(ctx, r, actorOf(ctx))
}

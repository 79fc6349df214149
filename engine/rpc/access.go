package rpc

import (
	"context"
	"errors"

	"connectrpc.com/connect"

	"github.com/progressor-engine/progressor/engine/auth"
	progressorv1 "github.com/progressor-engine/progressor/proto/progressor/v1"
)

// accessService serves AccessService.
type accessService struct{ access *auth.Access }

// checkAuthenticated returns an error if the engine does not authenticate its clients. Without this
// check, anyone who can connect could create a key that other engines accept.
func checkAuthenticated(ctx context.Context) error {
	if principalOf(ctx) != nil {
		return nil
	}
	err := connect.NewError(connect.CodeFailedPrecondition, errors.New(
		"the engine does not authenticate its clients (--auth.mode none), so they cannot change keys, grants and "+
			"logins: use the commands progressor key, grant and console-login with --db.dsn, or start the engine "+
			"with --auth.mode local"))
	addDetail(err, &progressorv1.ErrorDetail{})
	return err
}

// CreateKey creates a key.
func (s *accessService) CreateKey(
	ctx context.Context, r *progressorv1.CreateKeyRequest,
) (*progressorv1.CreateKeyResponse, error) {
	if err := checkAuthenticated(ctx); err != nil {
		return nil, err
	}
	return s.access.CreateKey(ctx, r, actorOf(ctx))
}

// ListKeys returns a page of the keys.
func (s *accessService) ListKeys(
	ctx context.Context, r *progressorv1.ListKeysRequest,
) (*progressorv1.ListKeysResponse, error) {
	return s.access.ListKeys(ctx, r)
}

// RotateKey replaces a key.
func (s *accessService) RotateKey(
	ctx context.Context, r *progressorv1.RotateKeyRequest,
) (*progressorv1.RotateKeyResponse, error) {
	if err := checkAuthenticated(ctx); err != nil {
		return nil, err
	}
	return s.access.RotateKey(ctx, r, actorOf(ctx))
}

// RevokeKey revokes a key.
func (s *accessService) RevokeKey(
	ctx context.Context, r *progressorv1.RevokeKeyRequest,
) (*progressorv1.RevokeKeyResponse, error) {
	if err := checkAuthenticated(ctx); err != nil {
		return nil, err
	}
	key, err := s.access.RevokeKey(ctx, r.GetKeyId(), actorOf(ctx))
	return &progressorv1.RevokeKeyResponse{Key: key}, err
}

// AddGrant gives a role to a client.
func (s *accessService) AddGrant(
	ctx context.Context, r *progressorv1.AddGrantRequest,
) (*progressorv1.AddGrantResponse, error) {
	if err := checkAuthenticated(ctx); err != nil {
		return nil, err
	}
	added, err := s.access.AddGrant(ctx, r.GetGrant(), actorOf(ctx))
	return &progressorv1.AddGrantResponse{Added: added}, err
}

// ListGrants returns a page of the grants.
func (s *accessService) ListGrants(
	ctx context.Context, r *progressorv1.ListGrantsRequest,
) (*progressorv1.ListGrantsResponse, error) {
	return s.access.ListGrants(ctx, r)
}

// RemoveGrant takes a role away from a client.
func (s *accessService) RemoveGrant(
	ctx context.Context, r *progressorv1.RemoveGrantRequest,
) (*progressorv1.RemoveGrantResponse, error) {
	if err := checkAuthenticated(ctx); err != nil {
		return nil, err
	}
	return &progressorv1.RemoveGrantResponse{}, s.access.RemoveGrant(ctx, r.GetGrant(), actorOf(ctx))
}

// ListConsoleLogins returns a page of the logins to the console.
func (s *accessService) ListConsoleLogins(
	ctx context.Context, r *progressorv1.ListConsoleLoginsRequest,
) (*progressorv1.ListConsoleLoginsResponse, error) {
	return s.access.ListLogins(ctx, r)
}

// EndConsoleLogins ends one login, or all logins of a user.
func (s *accessService) EndConsoleLogins(
	ctx context.Context, r *progressorv1.EndConsoleLoginsRequest,
) (*progressorv1.EndConsoleLoginsResponse, error) {
	if err := checkAuthenticated(ctx); err != nil {
		return nil, err
	}
	ended, err := s.access.EndLogins(ctx, r, actorOf(ctx))
	return &progressorv1.EndConsoleLoginsResponse{Ended: int32(ended)}, err
}

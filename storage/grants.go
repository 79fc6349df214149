package storage

import (
	"context"
	"errors"

	"github.com/jackc/pgx/v5"

	"github.com/progressor-engine/progressor/process"
	"github.com/progressor-engine/progressor/storage/internal/dbsqlc"
)

// Grant is a role of a principal in some namespaces.
type Grant = dbsqlc.Grant

// PrincipalGrants are the grants of principals: the roles and, in the same order, their namespace
// patterns.
type PrincipalGrants = dbsqlc.ReadGrantsRow

// GrantKey identifies a grant.
type GrantKey struct{ Principal, Role, Namespaces string }

func (g GrantKey) subject() string { return g.Principal + " " + g.Role + " " + g.Namespaces }

// json returns the grant for the audit.
func (g GrantKey) json() []byte {
	return ConfigJSON(map[string]string{"principal": g.Principal, "role": g.Role, "namespaces": g.Namespaces})
}

// ReadGrants returns the grants of principals, such as a user and the groups of the user.
func (s *Store) ReadGrants(ctx context.Context, principals []string) (PrincipalGrants, error) {
	row, err := s.q.ReadGrants(ctx, s.general, principals)
	return row, mapped("read grants", err)
}

// AddGrant gives a role to a principal. keyID is the ID of its key, or "" if the principal is not a
// key. added is false if the principal already has the role. It returns process.ErrKeyNotFound if
// the key does not exist or is revoked.
func (a Access) AddGrant(ctx context.Context, keyID string, g GrantKey, by process.Actor) (added bool, err error) {
	err = a.change(ctx, "add a grant", func(tx pgx.Tx) error {
		if keyID != "" {
			found, err := dbsqlc.New().KeyExists(ctx, tx, keyID)
			switch {
			case err != nil:
				return err
			case !found:
				return process.ErrKeyNotFound
			}
		}
		added, err = addGrant(ctx, tx, g, by)
		return err
	})
	return added, err
}

func addGrant(ctx context.Context, tx pgx.Tx, g GrantKey, by process.Actor) (added bool, err error) {
	_, err = dbsqlc.New().AddGrant(ctx, tx, dbsqlc.AddGrantParams{
		Principal: g.Principal, Role: g.Role, Namespaces: g.Namespaces, CreatedBy: by.Name,
	})
	switch {
	case errors.Is(err, pgx.ErrNoRows):
		return false, nil
	case err != nil:
		return false, err
	}
	return true, auditAccess(ctx, tx, "AddGrant", g.subject(), ConfigChange{After: g.json()}, by)
}

// RemoveGrant removes a role from a principal. It returns process.ErrGrantNotFound if the principal
// does not have the role.
func (a Access) RemoveGrant(ctx context.Context, g GrantKey, by process.Actor) error {
	err := a.change(ctx, "remove a grant", func(tx pgx.Tx) error {
		if _, err := dbsqlc.New().RemoveGrant(ctx, tx, dbsqlc.RemoveGrantParams(g)); err != nil {
			return err
		}
		return auditAccess(ctx, tx, "RemoveGrant", g.subject(), ConfigChange{Before: g.json()}, by)
	})
	return noRow(err, process.ErrGrantNotFound)
}

// GrantQuery selects grants.
type GrantQuery struct {
	After     GrantKey // the last grant of the previous page, or empty
	Principal string   // only grants of this principal, or "" for all
	Limit     int
}

// ListGrants returns grants, sorted by principal.
func (a Access) ListGrants(ctx context.Context, q GrantQuery) ([]Grant, error) {
	rows, err := dbsqlc.New().ListGrants(ctx, a.db, dbsqlc.ListGrantsParams{
		Principal: q.Principal, AfterPrincipal: q.After.Principal, AfterRole: q.After.Role,
		AfterNamespaces: q.After.Namespaces, Lim: int32(q.Limit),
	})
	return rows, mapped("list grants", err)
}

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

// MaxListedGrants is the maximum number of grants that ListGrants returns.
const MaxListedGrants = 10_000

// ReadGrants returns the grants of principals, such as a user and its groups. There may be none.
func (s *Store) ReadGrants(ctx context.Context, principals []string) (PrincipalGrants, error) {
	row, err := s.q.ReadGrants(ctx, s.general, principals)
	return row, mapped("read grants", err)
}

// AddGrant gives a role to a principal. keyID is the ID of its key, or "" for a principal without
// one. added is false if the principal already has the role. It returns process.ErrKeyNotFound if
// there is no such valid key. It writes to audit.
func AddGrant(ctx context.Context, conn *pgx.Conn, keyID string, g GrantKey) (added bool, err error) {
	err = pgx.BeginFunc(ctx, conn, func(tx pgx.Tx) (err error) {
		if keyID != "" {
			found, err := dbsqlc.New().KeyExists(ctx, tx, keyID)
			switch {
			case err != nil:
				return err
			case !found:
				return process.ErrKeyNotFound
			}
		}
		added, err = addGrant(ctx, tx, g)
		return err
	})
	return added, mapped("add a grant", err)
}

func addGrant(ctx context.Context, tx pgx.Tx, g GrantKey) (added bool, err error) {
	_, err = dbsqlc.New().AddGrant(ctx, tx, dbsqlc.AddGrantParams(g))
	switch {
	case errors.Is(err, pgx.ErrNoRows):
		return false, nil
	case err != nil:
		return false, err
	}
	return true, auditAccess(ctx, tx, "AddGrant", g.subject(), ConfigChange{After: g.json()})
}

// RemoveGrant takes a role away. removed is false if the principal does not have it. It writes to
// audit.
func RemoveGrant(ctx context.Context, conn *pgx.Conn, g GrantKey) (removed bool, err error) {
	err = pgx.BeginFunc(ctx, conn, func(tx pgx.Tx) error {
		_, err := dbsqlc.New().RemoveGrant(ctx, tx, dbsqlc.RemoveGrantParams(g))
		switch {
		case errors.Is(err, pgx.ErrNoRows):
			return nil
		case err != nil:
			return err
		}
		removed = true
		return auditAccess(ctx, tx, "RemoveGrant", g.subject(), ConfigChange{Before: g.json()})
	})
	return removed, mapped("remove a grant", err)
}

// ListGrants returns the grants of a principal, or of all principals if principal is "".
func ListGrants(ctx context.Context, conn *pgx.Conn, principal string) ([]Grant, error) {
	rows, err := dbsqlc.New().ListGrants(ctx, conn, dbsqlc.ListGrantsParams{
		Principal: principal, Lim: MaxListedGrants,
	})
	return rows, mapped("list grants", err)
}

package storage

import (
	"context"

	"github.com/jackc/pgx/v5"

	"github.com/progressor-engine/progressor/process"
)

// Access manages the keys of clients, their grants, and the logins of users to the console. Each
// change adds an audit entry. If the Actor is zero, the entry names the role of the connection.
type Access struct {
	db    DB
	write func(context.Context, func(*pgx.Conn) error) error
}

// Access returns the keys, grants and logins of the database.
func (s *Store) Access() Access { return Access{s.general, s.write} }

// AccessOf returns the keys, grants and logins in the database to which conn is connected.
func AccessOf(conn *pgx.Conn) Access {
	return Access{conn, func(_ context.Context, write func(*pgx.Conn) error) error { return write(conn) }}
}

// change runs a change in a transaction.
func (a Access) change(ctx context.Context, what string, change func(pgx.Tx) error) error {
	err := a.write(ctx, func(conn *pgx.Conn) error { return pgx.BeginFunc(ctx, conn, change) })
	return mapped(what, err)
}

// auditAccess records a change of keys, grants, logins or secrets.
func auditAccess(
	ctx context.Context, tx pgx.Tx, method, subject string, change ConfigChange, by process.Actor,
) error {
	if by == (process.Actor{}) {
		var role string
		if err := tx.QueryRow(ctx, "SELECT session_user::text").Scan(&role); err != nil {
			return err
		}
		by.Name = "pg:" + role
	}
	return change.Audit(ctx, tx, method, "", subject, []process.Actor{by})
}

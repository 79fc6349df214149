package storage

import (
	"context"
	"errors"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/progressor-engine/progressor/process"
	"github.com/progressor-engine/progressor/storage/internal/dbsqlc"
)

// APIKey is a key of a client. The token itself is not stored.
type APIKey = dbsqlc.ApiKey

// KeyState is what an engine must know to check a token.
type KeyState = dbsqlc.ReadKeyRow

// MaxListedKeys is how many keys ListKeys returns at most.
const MaxListedKeys = 10_000

// ReadKey returns the state of a key, or process.ErrKeyNotFound.
func (s *Store) ReadKey(ctx context.Context, keyID string) (KeyState, error) {
	row, err := s.q.ReadKey(ctx, s.general, keyID)
	return row, noRow(mapped("read a key", err), process.ErrKeyNotFound)
}

// CreateKey stores a key by its hash. ttl 0 means that it does not expire. It writes to audit.
func CreateKey(
	ctx context.Context, conn *pgx.Conn, keyID, name string, hash []byte, ttl time.Duration,
) (APIKey, error) {
	var row APIKey
	arg := dbsqlc.CreateKeyParams{KeyID: keyID, Name: name, SecretHash: hash}
	if us := ttl.Microseconds(); us > 0 {
		arg.TtlUs = &us
	}
	err := pgx.BeginFunc(ctx, conn, func(tx pgx.Tx) (err error) {
		if row, err = dbsqlc.New().CreateKey(ctx, tx, arg); err != nil {
			return err
		}
		return auditKey(ctx, tx, "CreateKey", row)
	})
	return row, mapped("create a key", err)
}

// ListKeys returns all keys, the newest first.
func ListKeys(ctx context.Context, conn *pgx.Conn) ([]APIKey, error) {
	rows, err := dbsqlc.New().ListKeys(ctx, conn, MaxListedKeys)
	return rows, mapped("list keys", err)
}

// RevokeKey revokes a key. It returns process.ErrKeyNotFound if there is no such valid key. It
// writes to audit.
func RevokeKey(ctx context.Context, conn *pgx.Conn, keyID string) (APIKey, error) {
	var row APIKey
	err := pgx.BeginFunc(ctx, conn, func(tx pgx.Tx) (err error) {
		if row, err = dbsqlc.New().RevokeKey(ctx, tx, keyID); err != nil {
			return err
		}
		return auditKey(ctx, tx, "RevokeKey", row)
	})
	if errors.Is(err, pgx.ErrNoRows) {
		return row, process.ErrKeyNotFound
	}
	return row, mapped("revoke a key", err)
}

// auditKey records a command on a key by the role of the connection.
func auditKey(ctx context.Context, tx pgx.Tx, method string, key APIKey) error {
	var role string
	if err := tx.QueryRow(ctx, "SELECT session_user::text").Scan(&role); err != nil {
		return err
	}
	return AuditCommand(ctx, tx, method, "", key.KeyID, []process.Actor{{Name: "pg:" + role}})
}

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

// KeyState is the data that an engine needs to check a token.
type KeyState = dbsqlc.ReadKeyRow

// MaxListedKeys is the maximum number of keys that ListKeys returns.
const MaxListedKeys = 10_000

// ReadKey returns the state of a key, or process.ErrKeyNotFound.
func (s *Store) ReadKey(ctx context.Context, keyID string) (KeyState, error) {
	row, err := s.q.ReadKey(ctx, s.general, keyID)
	return row, noRow(mapped("read a key", err), process.ErrKeyNotFound)
}

// NewKey is a key to be created.
type NewKey struct {
	KeyID, Name string
	Hash        []byte
	TTL         time.Duration // 0 if it does not expire
	Grants      []GrantKey    // grants of the key
}

// CreateKey stores a key with its grants. It writes to audit.
func CreateKey(ctx context.Context, conn *pgx.Conn, k NewKey) (APIKey, error) {
	var row APIKey
	arg := dbsqlc.CreateKeyParams{KeyID: k.KeyID, Name: k.Name, SecretHash: k.Hash}
	if us := k.TTL.Microseconds(); us > 0 {
		arg.TtlUs = &us
	}
	err := pgx.BeginFunc(ctx, conn, func(tx pgx.Tx) (err error) {
		if row, err = dbsqlc.New().CreateKey(ctx, tx, arg); err != nil {
			return err
		}
		if err := auditAccess(ctx, tx, "CreateKey", row.KeyID, ConfigChange{After: keyJSON(&row)}); err != nil {
			return err
		}
		for _, g := range k.Grants {
			if _, err := addGrant(ctx, tx, g); err != nil {
				return err
			}
		}
		return nil
	})
	return row, mapped("create a key", err)
}

// ListKeys returns all keys, newest first.
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
		return auditAccess(ctx, tx, "RevokeKey", row.KeyID, ConfigChange{Before: keyJSON(&row)})
	})
	if errors.Is(err, pgx.ErrNoRows) {
		return row, process.ErrKeyNotFound
	}
	return row, mapped("revoke a key", err)
}

// keyJSON returns the JSON of a key for the audit, without the hash of its token.
func keyJSON(k *APIKey) []byte {
	fields := map[string]any{"name": k.Name}
	if k.ExpireTime != nil {
		fields["expireTime"] = k.ExpireTime.UTC().Format(time.RFC3339Nano)
	}
	return ConfigJSON(fields)
}

// auditAccess records a command on a key or a grant by the role of the connection.
func auditAccess(ctx context.Context, tx pgx.Tx, method, subject string, change ConfigChange) error {
	var role string
	if err := tx.QueryRow(ctx, "SELECT session_user::text").Scan(&role); err != nil {
		return err
	}
	return change.Audit(ctx, tx, method, "", subject, []process.Actor{{Name: "pg:" + role}})
}

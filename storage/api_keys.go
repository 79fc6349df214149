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

// ReadKey returns the state of a key, or process.ErrKeyNotFound if it does not exist.
func (s *Store) ReadKey(ctx context.Context, keyID string) (KeyState, error) {
	row, err := s.q.ReadKey(ctx, s.general, keyID)
	return row, noRow(mapped("read a key", err), process.ErrKeyNotFound)
}

// NoteKeyUse records the time at which a key was used, at most once a minute.
func (s *Store) NoteKeyUse(ctx context.Context, keyID string) error {
	return mapped("note the use of a key", s.q.NoteKeyUse(ctx, s.general, keyID))
}

// NewKey is a key to be created.
type NewKey struct {
	KeyID, Name string
	Hash        []byte
	TTL         time.Duration // 0 if it does not expire
	Grants      []GrantKey    // grants of the key
}

// CreateKey stores a key with its grants.
func (a Access) CreateKey(ctx context.Context, k NewKey, by process.Actor) error {
	return a.change(ctx, "create a key", func(tx pgx.Tx) error { return createKey(ctx, tx, k, by) })
}

func createKey(ctx context.Context, tx pgx.Tx, k NewKey, by process.Actor) error {
	arg := dbsqlc.CreateKeyParams{KeyID: k.KeyID, Name: k.Name, SecretHash: k.Hash, CreatedBy: by.Name}
	if us := k.TTL.Microseconds(); us > 0 {
		arg.TtlUs = &us
	}
	row, err := dbsqlc.New().CreateKey(ctx, tx, arg)
	if err != nil {
		return err
	}
	if err := auditAccess(ctx, tx, "CreateKey", row.KeyID, ConfigChange{After: keyJSON(&row)}, by); err != nil {
		return err
	}
	for _, g := range k.Grants {
		if _, err := addGrant(ctx, tx, g, by); err != nil {
			return err
		}
	}
	return nil
}

// MaxListedRoles is the maximum number of roles that ListKeys returns for a key.
const MaxListedRoles = 20

// ListedKey is a key in a list, with its first roles.
type ListedKey = dbsqlc.ListKeysRow

// KeyQuery selects keys.
type KeyQuery struct {
	AfterID   string // the last key of the previous page, or ""
	KeyID     string // only this key, or "" for all
	Name      string // only keys with this name, or "" for all
	ValidOnly bool   // omit revoked and expired keys
	Limit     int
}

// ListKeys returns keys, newest first.
func (a Access) ListKeys(ctx context.Context, q KeyQuery) ([]ListedKey, error) {
	rows, err := dbsqlc.New().ListKeys(ctx, a.db, dbsqlc.ListKeysParams{
		MaxRoles: MaxListedRoles, AfterID: q.AfterID, ValidOnly: q.ValidOnly, Named: q.Name, OnlyID: q.KeyID,
		Lim: int32(q.Limit),
	})
	return rows, mapped("list keys", err)
}

// RevokeKey revokes a key. It returns process.ErrKeyNotFound if the key does not exist or is
// revoked.
func (a Access) RevokeKey(ctx context.Context, keyID string, by process.Actor) (row APIKey, err error) {
	err = a.change(ctx, "revoke a key", func(tx pgx.Tx) (err error) {
		if row, err = dbsqlc.New().RevokeKey(ctx, tx, keyID); err != nil {
			return err
		}
		return auditAccess(ctx, tx, "RevokeKey", row.KeyID, ConfigChange{Before: keyJSON(&row)}, by)
	})
	return row, noRow(err, process.ErrKeyNotFound)
}

// Rotation replaces a key.
type Rotation struct {
	KeyID   string // the old key
	NewID   string
	Hash    []byte
	TTL     time.Duration // lifetime of the new key; 0 means the same lifetime as the old key
	Overlap time.Duration // how long the old key stays valid; 0 revokes it
}

// RotateKey replaces a valid key with a new one that has the same name and grants. The old key
// stays valid for the overlap. It returns process.ErrKeyNotFound if there is no such valid key, and
// *process.KeyReplacedError if the key was rotated before.
func (a Access) RotateKey(ctx context.Context, r Rotation, by process.Actor) (old APIKey, err error) {
	err = a.change(ctx, "rotate a key", func(tx pgx.Tx) error {
		before, err := dbsqlc.New().LockValidKey(ctx, tx, r.KeyID)
		switch {
		case err != nil:
			return err
		case before.ReplacedBy != nil:
			return &process.KeyReplacedError{KeyID: r.KeyID, By: *before.ReplacedBy}
		}
		k := NewKey{KeyID: r.NewID, Name: before.Name, Hash: r.Hash, TTL: r.TTL}
		if before.ExpireTime != nil && k.TTL == 0 {
			k.TTL = before.ExpireTime.Sub(before.CreatedTime)
		}
		if k.Grants, err = grantsFor(ctx, tx, r.KeyID, r.NewID); err != nil {
			return err
		}
		if err := createKey(ctx, tx, k, by); err != nil {
			return err
		}
		old, err = dbsqlc.New().ReplaceKey(ctx, tx, dbsqlc.ReplaceKeyParams{
			KeyID: r.KeyID, ReplacedBy: &r.NewID, OverlapUs: r.Overlap.Microseconds(),
		})
		if err != nil {
			return err
		}
		change := ConfigChange{Before: keyJSON(&before), After: keyJSON(&old)}
		return auditAccess(ctx, tx, "RotateKey", r.KeyID, change, by)
	})
	return old, noRow(err, process.ErrKeyNotFound)
}

// grantsFor returns copies of the grants of a key for another key.
func grantsFor(ctx context.Context, tx pgx.Tx, keyID, newID string) ([]GrantKey, error) {
	const prefix = "key:"
	rows, err := dbsqlc.New().ReadGrants(ctx, tx, []string{prefix + keyID})
	if err != nil {
		return nil, err
	}
	if len(rows.Roles) != len(rows.Patterns) {
		return nil, errors.New("a key does not have as many roles as namespaces")
	}
	grants := make([]GrantKey, len(rows.Roles))
	for n := range grants {
		grants[n] = GrantKey{Principal: prefix + newID, Role: rows.Roles[n], Namespaces: rows.Patterns[n]}
	}
	return grants, nil
}

// keyJSON returns the JSON of a key for the audit, without the hash of its token.
func keyJSON(k *APIKey) []byte {
	fields := map[string]any{"name": k.Name}
	if k.ExpireTime != nil {
		fields["expireTime"] = k.ExpireTime.UTC().Format(time.RFC3339Nano)
	}
	if k.ReplacedBy != nil {
		fields["replacedBy"] = *k.ReplacedBy
	}
	return ConfigJSON(fields)
}

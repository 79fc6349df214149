package storage

import (
	"context"
	"crypto/rand"
	"errors"

	"github.com/jackc/pgx/v5"

	"github.com/progressor-engine/progressor/process"
	"github.com/progressor-engine/progressor/storage/internal/dbsqlc"
)

// SealKeyBytes is the size of a key that encrypts secrets.
const SealKeyBytes = 32

// Secret is the encrypted value of a secret, for the namespaces that match a pattern.
type Secret = dbsqlc.ReadSecretsRow

// ListedSecret is a secret without its value.
type ListedSecret = dbsqlc.ListSecretsRow

// EncryptedObject is a namespace, cron or sink with a value that a key has encrypted.
type EncryptedObject = dbsqlc.ListEncryptedRow

// EncryptedHeader is a header of a namespace or cron, or a field of a sink, with a value that a key
// has encrypted.
type EncryptedHeader = dbsqlc.ListEncryptedHeadersRow

// MaxListedSecrets is the maximum number of secrets that List returns, and of rows that
// ListEncrypted and ListEncryptedHeaders return.
const MaxListedSecrets = 10_000

// SecretKey identifies a secret.
type SecretKey struct{ Name, Namespaces string }

func (k SecretKey) subject() string { return k.Name + " " + k.Namespaces }

// Secrets reads secrets, and the key in the database that encrypts them.
type Secrets struct{ db DB }

// Secrets returns the secrets of the database.
func (s *Store) Secrets() Secrets { return Secrets{s.general} }

// SecretsOf returns the secrets in the database to which conn is connected.
func SecretsOf(conn *pgx.Conn) Secrets { return Secrets{conn} }

// Key returns the key in the database that encrypts secrets, or nil if there is none.
func (s Secrets) Key(ctx context.Context) ([]byte, error) {
	key, err := dbsqlc.New().ReadSealKey(ctx, s.db)
	if errors.Is(err, pgx.ErrNoRows) {
		return nil, nil
	}
	return key, mapped("read the key of secrets", err)
}

// CreateKey is like Key, but creates the key if there is none.
func (s Secrets) CreateKey(ctx context.Context) ([]byte, error) {
	key, err := s.Key(ctx)
	if err != nil || key != nil {
		return key, err
	}
	created := make([]byte, SealKeyBytes)
	_, _ = rand.Read(created) // never fails
	if err := dbsqlc.New().AddSealKey(ctx, s.db, created); err != nil {
		return nil, mapped("create the key of secrets", err)
	}
	return s.Key(ctx) // another node may have stored its key first
}

// Read returns the secrets with a name.
func (s Secrets) Read(ctx context.Context, name string) ([]Secret, error) {
	rows, err := dbsqlc.New().ReadSecrets(ctx, s.db, name)
	return rows, mapped("read a secret", err)
}

// List returns the secrets without their values, by name.
func (s Secrets) List(ctx context.Context) ([]ListedSecret, error) {
	rows, err := dbsqlc.New().ListSecrets(ctx, s.db, MaxListedSecrets)
	return rows, mapped("list secrets", err)
}

// ListEncrypted returns the namespaces, crons and sinks that contain encrypted values, and the keys
// that encrypted them.
func (s Secrets) ListEncrypted(ctx context.Context) ([]EncryptedObject, error) {
	rows, err := dbsqlc.New().ListEncrypted(ctx, s.db, MaxListedSecrets)
	return rows, mapped("list encrypted values", err)
}

// ListEncryptedHeaders returns the headers of namespaces and crons and the fields of sinks whose
// values are encrypted, with the keys that encrypted them.
func (s Secrets) ListEncryptedHeaders(ctx context.Context) ([]EncryptedHeader, error) {
	rows, err := dbsqlc.New().ListEncryptedHeaders(ctx, s.db, MaxListedSecrets)
	return rows, mapped("list encrypted headers", err)
}

// PutSecret creates or replaces a secret. value is encrypted. PutSecret adds an audit entry.
func PutSecret(ctx context.Context, conn *pgx.Conn, k SecretKey, value string) error {
	err := pgx.BeginFunc(ctx, conn, func(tx pgx.Tx) error {
		arg := dbsqlc.PutSecretParams{Name: k.Name, Namespaces: k.Namespaces, Value: value}
		if err := dbsqlc.New().PutSecret(ctx, tx, arg); err != nil {
			return err
		}
		return auditAccess(ctx, tx, "PutSecret", k.subject(), ConfigChange{}, process.Actor{})
	})
	return mapped("put a secret", err)
}

// RemoveSecret deletes a secret. removed is false if there is none. RemoveSecret adds an audit
// entry if it deletes the secret.
func RemoveSecret(ctx context.Context, conn *pgx.Conn, k SecretKey) (removed bool, err error) {
	err = pgx.BeginFunc(ctx, conn, func(tx pgx.Tx) error {
		n, err := dbsqlc.New().RemoveSecret(ctx, tx, dbsqlc.RemoveSecretParams(k))
		if err != nil || n == 0 {
			return err
		}
		removed = true
		return auditAccess(ctx, tx, "RemoveSecret", k.subject(), ConfigChange{}, process.Actor{})
	})
	return removed, mapped("remove a secret", err)
}

package storage

import (
	"context"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/progressor-engine/progressor/process"
	"github.com/progressor-engine/progressor/storage/internal/dbsqlc"
)

// MaxLogins limits the logins of a user to the console. Another login ends the oldest one.
const MaxLogins = 20

// NewLogin is a login of a user to the console.
type NewLogin struct {
	LoginID   string
	Hash      []byte   // SHA-256 of the cookie
	Principal string   // user:ISSUER#NAME
	Groups    []string // group:NAME
	Lifetime  time.Duration

	// FormerID and FormerHash identify the login that this one replaces in its browser, if any.
	FormerID   string
	FormerHash []byte
}

// LoginState is the data that an engine needs to check the cookie of a login.
type LoginState struct {
	Hash      []byte
	Principal string
	Groups    []string
	Left      time.Duration // how long the login is still valid; 0 or less if it has ended
}

// CreateLogin stores a login. It writes to audit, also a Logout for each login that ends: the
// former one of the browser, and the oldest ones of the user.
func (s *Store) CreateLogin(ctx context.Context, l NewLogin, by process.Actor) error {
	n := note{method: "Login", subject: l.LoginID}
	err := s.audited(ctx, n, []process.Actor{by}, func(db DB) error {
		ended, err := s.q.CreateLogin(ctx, db, dbsqlc.CreateLoginParams{
			LoginID: l.LoginID, SecretHash: l.Hash, Principal: l.Principal,
			GroupNames: append([]string{}, l.Groups...), // not NULL
			LifetimeUs: l.Lifetime.Microseconds(), Keep: MaxLogins - 1, FormerID: l.FormerID, FormerHash: l.FormerHash,
		})
		if err != nil {
			return err
		}
		for _, id := range ended {
			if err := AuditCommand(ctx, db, "Logout", "", id, []process.Actor{by}); err != nil {
				return err
			}
		}
		return nil
	})
	return mapped("create a login", err)
}

// ReadLogin returns a login, or process.ErrKeyNotFound. If hash is the hash of its cookie, the
// login counts as used. Logins end if they are not used for some time. The caller must compare the
// hashes.
func (s *Store) ReadLogin(
	ctx context.Context, loginID string, hash []byte, idle time.Duration,
) (LoginState, error) {
	row, err := s.q.ReadLogin(ctx, s.general, dbsqlc.ReadLoginParams{
		LoginID: loginID, SecretHash: hash, IdleUs: idle.Microseconds(),
	})
	if err != nil {
		return LoginState{}, noRow(mapped("read a login", err), process.ErrKeyNotFound)
	}
	return LoginState{
		Hash: row.SecretHash, Principal: row.Principal, Groups: row.GroupNames,
		Left: time.Duration(row.LeftUs) * time.Microsecond,
	}, nil
}

// DeleteLogin ends a login. It returns process.ErrKeyNotFound if there is no such login. It writes
// to audit.
func (s *Store) DeleteLogin(ctx context.Context, loginID string, by process.Actor) error {
	n := note{method: "Logout", subject: loginID}
	err := s.audited(ctx, n, []process.Actor{by}, func(db DB) error {
		_, err := s.q.DeleteLogin(ctx, db, loginID)
		return err
	})
	return noRow(mapped("delete a login", err), process.ErrKeyNotFound)
}

// ForgetLogins deletes logins that have expired. It reports whether there may be more.
func (s *Store) ForgetLogins(ctx context.Context) (more bool, err error) {
	n, err := s.q.ForgetLogins(ctx, s.kept, forgetBatch)
	return n >= forgetBatch, mapped("delete expired logins", err)
}

// Login is a login that has not expired.
type Login = dbsqlc.ListLoginsRow

// MaxListedLogins is the maximum number of logins that ListLogins returns.
const MaxListedLogins = 10_000

// ListLogins returns the logins of a user, or of all users if principal is "", newest first.
func ListLogins(ctx context.Context, conn *pgx.Conn, principal string) ([]Login, error) {
	rows, err := dbsqlc.New().ListLogins(ctx, conn, dbsqlc.ListLoginsParams{Principal: principal, Lim: MaxListedLogins})
	return rows, mapped("list logins", err)
}

// EndLogins ends all logins of a user, and returns how many there were. It writes to audit.
func EndLogins(ctx context.Context, conn *pgx.Conn, principal string) (ended int, err error) {
	err = pgx.BeginFunc(ctx, conn, func(tx pgx.Tx) error {
		ids, err := dbsqlc.New().EndLogins(ctx, tx, principal)
		if err != nil {
			return err
		}
		for _, id := range ids {
			if err := auditAccess(ctx, tx, "Logout", id, ConfigChange{}); err != nil {
				return err
			}
		}
		ended = len(ids)
		return nil
	})
	return ended, mapped("end logins", err)
}

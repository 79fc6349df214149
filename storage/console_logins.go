package storage

import (
	"context"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/progressor-engine/progressor/process"
	"github.com/progressor-engine/progressor/storage/internal/dbsqlc"
)

// MaxLogins is the maximum number of console logins of a user. Another login ends the oldest one.
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

// CreateLogin stores a login. It adds audit entries, including a Logout for each login that ends:
// the former login of the browser, and the oldest logins of the user.
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

// ReadLogin returns a login, or process.ErrKeyNotFound if it does not exist. If hash is the hash of
// the cookie, ReadLogin records that the login was used, because unused logins expire. It does not
// record this if the recorded time is recent enough. The caller must compare the hashes.
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

// DeleteLogin ends a login. It returns process.ErrKeyNotFound if there is no such login. It adds an
// audit entry.
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

// LoginQuery selects logins.
type LoginQuery struct {
	AfterTime time.Time // with AfterID, the last login of the previous page; or zero
	AfterID   string
	Principal string // only logins of this user, or "" for all
	Limit     int
}

// ListLogins returns logins, newest first.
func (a Access) ListLogins(ctx context.Context, q LoginQuery) ([]Login, error) {
	arg := dbsqlc.ListLoginsParams{
		Principal: q.Principal, AfterID: q.AfterID, Lim: int32(q.Limit),
	}
	if !q.AfterTime.IsZero() {
		arg.AfterTime = &q.AfterTime
	}
	rows, err := dbsqlc.New().ListLogins(ctx, a.db, arg)
	return rows, mapped("list logins", err)
}

// EndLogins ends all logins of a user, and returns how many there were.
func (a Access) EndLogins(ctx context.Context, principal string, by process.Actor) (ended int, err error) {
	err = a.change(ctx, "end logins", func(tx pgx.Tx) error {
		ids, err := dbsqlc.New().EndLogins(ctx, tx, principal)
		if err != nil {
			return err
		}
		for _, id := range ids {
			if err := auditAccess(ctx, tx, "Logout", id, ConfigChange{}, by); err != nil {
				return err
			}
		}
		ended = len(ids)
		return nil
	})
	return ended, err
}

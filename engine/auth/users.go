package auth

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"time"

	"golang.org/x/time/rate"

	"github.com/progressor-engine/progressor/engine/auth/oidc"
	"github.com/progressor-engine/progressor/process"
)

const (
	// maxJWT is the maximum size of a JSON Web Token in bytes.
	maxJWT = 16 << 10
	// tokenTime is how long a node accepts a verified token without verifying it again. It limits
	// how long a token is accepted after its issuer has removed the key that signed it.
	tokenTime = 5 * time.Minute
	// verifyRate and verifyBurst limit how many tokens that are not cached a node verifies per
	// second for one address. With ES256, verifying a token takes 0.12 ms, and finding a cached one
	// takes 1 µs (BenchmarkUser).
	verifyRate, verifyBurst = 100, 1000
	// suspectRate is the number of such tokens that a node verifies per second for all addresses
	// with too many failures together.
	suspectRate = 1000
	// rejectionRate limits the rejected tokens that are logged per second.
	rejectionRate = 5
)

// The errors of JSON Web Tokens.
var (
	ErrTooLong  = fmt.Errorf("the token is too long: a JSON Web Token may have at most %d bytes", maxJWT)
	ErrRejected = errors.New("the token is not valid: no configured issuer has signed it (the log of the " +
		"engine has the reason)")
	ErrIssuer = errors.New("the issuer of the token cannot be reached, so the token cannot be checked: try again")
)

// users verifies the tokens of users.
type users struct {
	issuers  *oidc.Issuers
	log      *slog.Logger
	verifies *budget       // verifications of each address
	suspects *rate.Limiter // verifications of addresses that have too many failures
	logged   *rate.Limiter
	tokens   *cache[[sha256.Size]byte, *verified] // by the SHA-256 of the token
}

// verified is a token that was verified.
type verified struct {
	identity string
	expires  time.Time
	until    time.Time // when to verify it again
}

// Accept makes the Authenticator accept tokens of the issuers. Call it before the first request.
func (a *Authenticator) Accept(issuers *oidc.Issuers, log *slog.Logger) {
	a.users = &users{
		issuers: issuers, log: log, verifies: newBudget(verifyRate, verifyBurst),
		suspects: rate.NewLimiter(suspectRate, suspectRate), logged: rate.NewLimiter(rejectionRate, rejectionRate),
		tokens: newCache[[sha256.Size]byte](func(v *verified) bool { return !a.now().Before(v.until) }),
	}
}

// Run keeps the keys of the issuers up to date until ctx ends. Without issuers, it returns
// immediately.
func (a *Authenticator) Run(ctx context.Context) {
	if a != nil && a.users != nil {
		a.users.issuers.Run(ctx)
	}
}

// isJWT reports whether a token looks like a JSON Web Token: it has three parts, and begins with
// the base64 of {".
func isJWT(token string) bool {
	return strings.HasPrefix(token, "eyJ") && strings.Count(token, ".") == 2
}

// authenticateUser is Authenticate for a JSON Web Token.
func (a *Authenticator) authenticateUser(ctx context.Context, token, address string) (*Principal, error) {
	const scheme = "oidc"
	if len(token) > maxJWT {
		return nil, a.fail(ctx, scheme, ErrTooLong, address)
	}
	v, err := a.verify(ctx, token, address)
	if err != nil {
		return nil, a.fail(ctx, scheme, err, address)
	}
	e, err := a.known(ctx, v.identity)
	if err != nil {
		return nil, a.fail(ctx, scheme, err, address)
	}
	a.ok[scheme].Inc()
	return e.state.Load().principal.withToken(token, v.expires), nil
}

// verify returns the identity in a token. It also verifies tokens of an address that has too many
// failures, because clients with valid tokens may share the address. Failures of one address do not
// use up the limits of other addresses.
func (a *Authenticator) verify(ctx context.Context, token, address string) (*verified, error) {
	u, hash := a.users, sha256.Sum256([]byte(token))
	if v := u.find(hash, a.now()); v != nil {
		return v, nil
	}
	if !u.verifies.take(address) {
		return nil, ErrBusy
	}
	issuer, err := u.issuers.Find(token)
	if err != nil {
		return nil, u.rejected(ctx, err, "address", address)
	}
	if !a.failed.left(address) && !u.suspects.Allow() {
		return nil, ErrBusy
	}
	who, err := issuer.Verify(ctx, token)
	if err != nil {
		return nil, u.rejected(ctx, err, "address", address)
	}
	return a.store(hash, who), nil
}

// verifyAgain returns an error if the token of a principal is no longer valid. The limits of
// verify, which are for new tokens, do not apply.
func (a *Authenticator) verifyAgain(ctx context.Context, p *Principal) error {
	u, hash := a.users, sha256.Sum256([]byte(p.token))
	if u.find(hash, a.now()) != nil {
		return nil
	}
	issuer, err := u.issuers.Find(p.token)
	if err != nil {
		return u.rejected(ctx, err, "principal", p.Name)
	}
	who, err := issuer.Verify(ctx, p.token)
	if err != nil {
		return u.rejected(ctx, err, "principal", p.Name)
	}
	a.store(hash, who)
	return nil
}

// find returns a token that was verified, or nil if it must be verified now.
func (u *users) find(hash [sha256.Size]byte, now time.Time) *verified {
	v, ok := u.tokens.load(hash)
	if !ok || now.Before(v.until) {
		return v
	}
	u.tokens.remove(hash, v)
	return nil
}

// store caches a verified token.
func (a *Authenticator) store(hash [sha256.Size]byte, who oidc.Identity) *verified {
	v := &verified{identity: strings.Join(namesOf(who), "\n"), expires: who.Expires, until: a.now().Add(tokenTime)}
	if v.expires.Before(v.until) {
		v.until = v.expires
	}
	if e, ok := a.cachedUsers.load(v.identity); ok { // share the text with other tokens of the user
		v.identity = e.state.Load().principal.identity
	}
	return a.users.tokens.add(hash, v)
}

// namesOf returns the principal names of a user: the user's own name, and those of the user's
// groups.
func namesOf(who oidc.Identity) []string {
	names := []string{userPrefix + who.User}
	for _, group := range who.Groups {
		names = append(names, groupPrefix+group)
	}
	return names
}

// rejected logs why a token is not accepted, with an attribute that identifies the client, and
// returns the error for the client. Only clients with a token that its issuer has signed see the
// reason.
func (u *users) rejected(ctx context.Context, err error, key, value string) error {
	if errors.Is(err, oidc.ErrUnreachable) {
		return errors.Join(process.ErrUnavailable, ErrIssuer)
	}
	if u.logged.Allow() {
		u.log.WarnContext(ctx, "a token was rejected", "reason", fmt.Sprintf("%.500s", err), key, value)
	}
	if claim, ok := errors.AsType[*oidc.ClaimError](err); ok {
		return fmt.Errorf("the token is not valid: %w", claim)
	}
	return ErrRejected
}

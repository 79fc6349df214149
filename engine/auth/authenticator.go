package auth

import (
	"context"
	"crypto/sha256"
	"crypto/subtle"
	"errors"
	"strings"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"golang.org/x/time/rate"

	"github.com/progressor-engine/progressor/process"
	"github.com/progressor-engine/progressor/storage"
)

const (
	// CacheTime is how long a node uses the state and the grants of a key before it reads them
	// again. Every node rejects a revoked key after that time.
	CacheTime = 10 * time.Second
	// staleTime is how long a node uses a cached state while the database cannot be read.
	staleTime = time.Minute
	// refreshWait is how long a request waits for a read that another request has started.
	refreshWait = time.Second
	// readTimeout is how long a read may take.
	readTimeout = 5 * time.Second
	// noteTimeout is how long a request waits until the use of its key is recorded.
	noteTimeout = time.Second
	// unknownRate is the maximum number of uncached IDs that a node looks up in the database per
	// second.
	unknownRate = 200
	// lookupRate is the maximum number of these lookups per second for an address with too many
	// failures.
	lookupRate = 10
)

// The errors of Authenticate.
var (
	ErrMissing   = errors.New("the request has no token: send the header Authorization: Bearer TOKEN")
	ErrMalformed = errors.New("the header Authorization must be Bearer and one token, such as pgr_ID_SECRET")
	ErrInvalid   = errors.New("the token is not valid: it is unknown, revoked or expired")
	ErrLimited   = errors.New("too many failed authentications from this address: wait a second")
	ErrBusy      = errors.New("too many new tokens from this address, or at this node: wait a second")
	ErrTwo       = errors.New("the request has a token, and the client has a certificate with a URI: use only one")
	ErrCookie    = errors.New("the cookie of a login is accepted only for a POST with JSON from the console")
	ErrTwoLogins = errors.New("the request has the cookie of a login, and a token or a certificate: use only one")
	ErrLogin     = errors.New("the login has ended: log in again")
)

// Keys reads keys, and the grants of principals without a key. It also records the use of keys.
type Keys interface {
	ReadKey(ctx context.Context, keyID string) (storage.KeyState, error)
	NoteKeyUse(ctx context.Context, keyID string) error
	ReadGrants(ctx context.Context, principals []string) (storage.PrincipalGrants, error)
}

// Authenticator checks tokens. It is safe for concurrent use.
type Authenticator struct {
	keys    Keys
	root    *entry // nil without a root key
	now     func() time.Time
	unknown *rate.Limiter // reads of IDs that are not cached
	lookups *budget       // reads of uncached IDs for addresses that have too many failures
	failed  *failures
	total   *prometheus.CounterVec
	ok      map[string]prometheus.Counter // successes by scheme
	users   *users                        // nil without issuers
	logins  *logins                       // nil without logins to the console

	cachedKeys  *cache[string, *entry] // by the identity of the principal, or by its login
	cachedUsers *cache[string, *entry] // principals that are not keys, including certificates
}

// entry is a cached principal.
type entry struct {
	state   atomic.Pointer[state]
	reading chan struct{} // holds an element while a request reads the state
}

func newEntry(s *state) *entry {
	e := &entry{reading: make(chan struct{}, 1)}
	e.state.Store(s)
	return e
}

// state is the stored state of a principal.
type state struct {
	hash      [sha256.Size]byte // hash of the token; zero for certificates
	principal *Principal
	valid     bool
	read      time.Time
	noted     atomic.Bool // the database knows that the key was used recently
}

// New returns an Authenticator for the keys. root is the token of the root key, or "" for none.
// registerer may be nil.
func New(keys Keys, root string, registerer prometheus.Registerer) *Authenticator {
	a := &Authenticator{
		keys: keys, now: time.Now, unknown: rate.NewLimiter(unknownRate, unknownRate),
		lookups: newBudget(lookupRate, lookupRate), failed: newFailures(),
		total: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "progressor_auth_total",
			Help: "Authentications by scheme (key, root, cert, oidc, login, none, other) and outcome (ok, " +
				"missing, malformed, invalid, limited, unavailable).",
		}, []string{"scheme", "outcome"}),
		ok: map[string]prometheus.Counter{},
	}
	isOld := func(e *entry) bool { return a.now().Sub(e.state.Load().read) > staleTime }
	a.cachedKeys, a.cachedUsers = newCache[string](isOld), newCache[string](isOld)
	for _, scheme := range []string{"key", "root", "cert", "oidc", "login"} {
		a.ok[scheme] = a.total.WithLabelValues(scheme, "ok")
	}
	for _, outcome := range []string{"invalid", "malformed", "limited", "unavailable"} {
		for _, scheme := range []string{"key", "cert", "oidc", "login"} {
			a.total.WithLabelValues(scheme, outcome)
		}
	}
	a.total.WithLabelValues("other", "malformed")
	a.total.WithLabelValues("other", "limited")
	a.total.WithLabelValues("none", "missing")
	if root != "" {
		principal := NewPrincipal(rootID, []Grant{{RoleRoot, Everywhere}})
		a.root = newEntry(&state{hash: Hash(root), principal: principal, valid: true})
	}
	if registerer != nil {
		registerer.MustRegister(a.total)
	}
	return a
}

// Authenticate returns the principal of a request with these Authorization headers from an address.
// It returns one of the errors above, ErrTooLong or ErrRejected for a JSON Web Token, or
// process.ErrUnavailable if the database cannot be read.
// An address may fail at most 10 times per second. Within this limit, each rejection is delayed by
// the same time, so that the time does not reveal the reason. Beyond the limit, Authenticate
// returns ErrLimited for rejected tokens, but still ErrMissing for requests without a token.
func (a *Authenticator) Authenticate(ctx context.Context, headers []string, address string) (*Principal, error) {
	token, err := tokenIn(headers)
	if err != nil {
		scheme := "other"
		if errors.Is(err, ErrMissing) {
			scheme = "none"
		}
		return nil, a.fail(ctx, scheme, err, address)
	}
	if a.users != nil && isJWT(token) {
		return a.authenticateUser(ctx, token, address)
	}
	id, ok := idOf(token)
	if !ok {
		return nil, a.fail(ctx, "other", ErrMalformed, address)
	}
	e, err := a.entry(ctx, id, address)
	if err != nil {
		return nil, a.fail(ctx, "key", err, address)
	}
	s := e.state.Load()
	hash := Hash(token)
	if subtle.ConstantTimeCompare(hash[:], s.hash[:]) != 1 || !s.valid {
		return nil, a.fail(ctx, "key", ErrInvalid, address)
	}
	if e == a.root {
		a.ok["root"].Inc()
		return s.principal, nil
	}
	a.noteUse(ctx, id, s)
	a.ok["key"].Inc()
	return s.principal, nil
}

// noteUse records the use of a key in the database, at most once for each state that was read. It
// ignores errors, because the time of the last use is only informative.
func (a *Authenticator) noteUse(ctx context.Context, id string, s *state) {
	if !s.noted.CompareAndSwap(false, true) {
		return
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), noteTimeout)
	defer cancel()
	_ = a.keys.NoteKeyUse(ctx, id)
}

// AuthenticateCertificate is like Authenticate, for a request on a connection whose client has
// presented a certificate with this URI. The listener has verified the certificate.
func (a *Authenticator) AuthenticateCertificate(
	ctx context.Context, uri string, headers []string, address string,
) (*Principal, error) {
	if _, err := tokenIn(headers); !errors.Is(err, ErrMissing) {
		return nil, a.fail(ctx, "cert", ErrTwo, address)
	}
	e, err := a.known(ctx, certificatePrefix+uri)
	if err != nil {
		return nil, a.fail(ctx, "cert", err, address)
	}
	a.ok["cert"].Inc()
	return e.state.Load().principal, nil
}

// Current returns the authenticated principal p with its current grants. Current returns ErrInvalid
// if the key of p was revoked, or if the key or token of p has expired. It returns ErrLogin if the
// login of p has ended, and ErrRejected if the issuer has removed the key that signed the token of
// p. It returns process.ErrUnavailable if the database or the keys of the issuer cannot be read.
func (a *Authenticator) Current(ctx context.Context, p *Principal) (*Principal, error) {
	if p.Name == rootID {
		return p, nil
	}
	identity := p.identity
	if p.HasLogin() {
		identity = p.login
	} else if p.expired(a.now()) {
		return nil, ErrInvalid
	}
	if p.token != "" {
		if err := a.verifyAgain(ctx, p); err != nil {
			return nil, err
		}
	}
	e, err := a.known(ctx, identity)
	if err != nil {
		return nil, err
	}
	s := e.state.Load()
	if p.HasLogin() && (!s.valid || s.principal.expired(a.now())) {
		return nil, ErrLogin
	}
	if !s.valid {
		return nil, ErrInvalid
	}
	return s.principal.withToken(p.token, p.expires), nil
}

// tokenIn returns the token in the Authorization headers of a request.
func tokenIn(headers []string) (string, error) {
	if len(headers) == 0 || len(headers) == 1 && headers[0] == "" {
		return "", ErrMissing
	}
	scheme, token, ok := strings.Cut(headers[0], " ")
	if len(headers) > 1 || !ok || !strings.EqualFold(scheme, "Bearer") {
		return "", ErrMalformed
	}
	return strings.TrimSpace(token), nil
}

// entry returns the entry of a key, with a state that is recent enough.
func (a *Authenticator) entry(ctx context.Context, id, address string) (*entry, error) {
	if id == rootID {
		if a.root == nil {
			return nil, ErrInvalid
		}
		return a.root, nil
	}
	return a.lookUp(ctx, keyPrefix+id, address)
}

// lookUp is like known, but limits the reads of identities that are not cached.
func (a *Authenticator) lookUp(ctx context.Context, identity, address string) (*entry, error) {
	if _, ok := a.cachedKeys.load(identity); !ok {
		if err := a.limitReads(address); err != nil {
			return nil, err
		}
	}
	return a.known(ctx, identity)
}

// limitReads limits the reads of keys that are not cached, because clients can send random IDs. It
// returns an error if the node has reached its limit, or if the address has too many failures and
// has reached its own limit. Only reads count: a failure that needs no read, such as a request
// without a token, does not.
func (a *Authenticator) limitReads(address string) error {
	switch {
	case !a.failed.left(address) && !a.lookups.take(address):
		return ErrLimited
	case !a.unknown.Allow():
		return ErrBusy
	}
	return nil
}

// known returns the cached entry of a principal, by its identity or login. It reads the state if
// the cached state is missing or older than CacheTime.
func (a *Authenticator) known(ctx context.Context, identity string) (*entry, error) {
	cached := a.cachedUsers
	if strings.HasPrefix(identity, keyPrefix) || strings.HasPrefix(identity, cachedLogin) {
		cached = a.cachedKeys
	}
	if e, ok := cached.load(identity); ok {
		if a.now().Sub(e.state.Load().read) < CacheTime {
			return e, nil
		}
		return e, a.refresh(ctx, identity, e)
	}
	s, err := a.read(ctx, identity)
	if err != nil {
		return nil, err
	}
	return cached.add(identity, newEntry(s)), nil
}

// refresh reads the state of a cached principal again. Concurrent requests wait for the same read.
// While the old state is not older than staleTime, they wait at most refreshWait and then use that
// state, and an error of the read is ignored.
func (a *Authenticator) refresh(ctx context.Context, identity string, e *entry) error {
	age := a.now().Sub(e.state.Load().read)
	var old <-chan time.Time // when to use the old state
	if age <= staleTime {
		old = time.After(refreshWait)
	}
	select {
	case e.reading <- struct{}{}:
	case <-old:
		return nil
	case <-ctx.Done():
		return errors.Join(process.ErrUnavailable, ctx.Err())
	}
	defer func() { <-e.reading }()
	if age = a.now().Sub(e.state.Load().read); age < CacheTime { // another request has read it
		return nil
	}
	s, err := a.read(ctx, identity)
	switch {
	case err == nil:
		e.state.Store(s)
	case errors.Is(err, ErrInvalid):
		e.state.Store(&state{read: a.now()}) // the row was deleted
	case age > staleTime:
		return err
	}
	return nil
}

func (a *Authenticator) read(ctx context.Context, identity string) (*state, error) {
	ctx, cancel := context.WithTimeout(ctx, readTimeout)
	defer cancel()
	if id, ok := strings.CutPrefix(identity, cachedLogin); ok {
		return a.readLogin(ctx, id)
	}
	id, ok := strings.CutPrefix(identity, keyPrefix)
	if !ok {
		return a.readGrants(ctx, identity)
	}
	row, err := a.keys.ReadKey(ctx, id)
	switch {
	case errors.Is(err, process.ErrKeyNotFound):
		return nil, ErrInvalid
	case err != nil:
		return nil, errors.Join(process.ErrUnavailable, err)
	case len(row.SecretHash) != sha256.Size:
		return nil, ErrInvalid
	}
	s := &state{
		hash:      [sha256.Size]byte(row.SecretHash),
		principal: NewPrincipal(identity, grantsOf(row.Roles, row.Patterns)).withKeyName(row.Name),
		valid:     !row.Revoked && !row.Expired, read: a.now(),
	}
	s.noted.Store(row.Used)
	return s, nil
}

// readGrants reads the grants of a principal without a key, and of its groups.
func (a *Authenticator) readGrants(ctx context.Context, identity string) (*state, error) {
	row, err := a.keys.ReadGrants(ctx, strings.Split(identity, "\n"))
	if err != nil {
		return nil, errors.Join(process.ErrUnavailable, err)
	}
	return &state{
		principal: NewPrincipal(identity, grantsOf(row.Roles, row.Patterns)), valid: true, read: a.now(),
	}, nil
}

func grantsOf(roles, patterns []string) []Grant {
	grants := make([]Grant, min(len(roles), len(patterns)))
	for n := range grants {
		grants[n] = Grant{roles[n], patterns[n]}
	}
	return grants
}

// fail counts a failure and delays its answer.
func (a *Authenticator) fail(ctx context.Context, scheme string, err error, address string) error {
	switch {
	case errors.Is(err, process.ErrUnavailable):
		a.total.WithLabelValues(scheme, "unavailable").Inc()
		if errors.Is(err, ErrNoAnswer) { // anyone can send an invented login code
			a.failed.take(address)
			a.failed.delay(ctx)
		}
		return err
	case errors.Is(err, ErrLimited), errors.Is(err, ErrBusy), errors.Is(err, ErrManyLogins),
		errors.Is(err, ErrManyOfUser):
		a.total.WithLabelValues(scheme, "limited").Inc()
		return err
	}
	left, outcome := a.failed.take(address), "invalid"
	switch {
	case errors.Is(err, ErrLogin): // a browser must learn that its user has to log in
	case errors.Is(err, ErrMissing): // likewise
		outcome = "missing"
	case !left:
		a.total.WithLabelValues(scheme, "limited").Inc()
		return ErrLimited
	case errors.Is(err, ErrMalformed), errors.Is(err, ErrTwo), errors.Is(err, ErrTooLong), errors.Is(err, ErrCookie),
		errors.Is(err, ErrTwoLogins):
		outcome = "malformed"
	}
	a.total.WithLabelValues(scheme, outcome).Inc()
	if left {
		a.failed.delay(ctx)
	}
	return err
}

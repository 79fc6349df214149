package auth

import (
	"context"
	"crypto/subtle"
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"net/url"
	"regexp"
	"slices"
	"strings"
	"time"

	"golang.org/x/time/rate"

	"github.com/progressor-engine/progressor/engine/auth/oidc"
	"github.com/progressor-engine/progressor/internal/requestid"
	"github.com/progressor-engine/progressor/process"
	"github.com/progressor-engine/progressor/storage"
)

const (
	// CallbackPath is the path to which issuers send browsers back. If the issuer has a name, a
	// slash and the name follow.
	CallbackPath = "/login/callback"
	// AttemptTime is how long a browser may take from the beginning of a login to its end.
	AttemptTime = 10 * time.Minute
	// maxAttempt is the maximum size of the cookie that contains an attempt, in bytes. maxPage is
	// the maximum size of a console page's path.
	maxAttempt, maxPage = 3000, 1000
	// attemptSkew is the maximum difference between the clocks of two nodes.
	attemptSkew = time.Minute
	// maxExchanges is the maximum number of concurrent exchanges of codes for tokens on a node.
	// exchangeRate is the number of exchanges per second of one address, and exchangeBurst the
	// number that it may begin at once. An exchange takes at most 10 s, so one address has at most
	// 30 concurrent exchanges, and some always remain for other addresses.
	maxExchanges                = 32
	exchangeRate, exchangeBurst = 2, 10
	// maxHourly is the maximum number of logins of a user that a node accepts per hour. The number
	// is limited because each login adds an entry to the audit.
	maxHourly = 20
)

// ErrPage is returned if a login must not lead to the requested page.
var ErrPage = fmt.Errorf("to: must be a page of the console of at most %d bytes, such as /processes?ns=shop", maxPage)

// ErrNoLogins is returned if an issuer has no logins to the console.
var ErrNoLogins = errors.New("issuer: users cannot log in to this console with this issuer")

// ErrNoAnswer is returned if the issuer of a login does not respond.
var ErrNoAnswer = errors.New("the issuer cannot be reached, so users cannot log in: try again")

// ErrManyLogins is returned if the engine has reached a limit on logins.
var ErrManyLogins = errors.New("too many logins from this address, or at this node: reload this page in a few seconds")

// ErrManyOfUser is returned if the same user logs in too often.
var ErrManyOfUser = fmt.Errorf("you have logged in more than %d times within an hour: wait a few minutes", maxHourly)

// ErrHasCertificate is returned if a browser has a client certificate with a URI. The engine would
// reject its requests after a login, because they would have two principals.
var ErrHasCertificate = errors.New("the browser has a client certificate with a URI, which the engine uses in place " +
	"of a login: use a browser without it to log in")

// ErrFailed is returned if a login failed for a reason that the user must not see.
var ErrFailed = errors.New("the login has failed (the log of the engine has the reason)")

// pageRule matches the pages of the console, which follow the # in its URL.
var pageRule = regexp.MustCompile(`^/([a-z]+(\?[[:graph:]]*)?)?$`)

// LoginStore stores logins.
type LoginStore interface {
	CreateLogin(ctx context.Context, l storage.NewLogin, by process.Actor) error
	ReadLogin(ctx context.Context, loginID string, hash []byte, idle time.Duration) (storage.LoginState, error)
	DeleteLogin(ctx context.Context, loginID string, by process.Actor) error
}

// Console configures how users log in to the console.
type Console struct {
	URL      string        // URL of the console for browsers, without a final slash
	Lifetime time.Duration // how long a login is valid
	Idle     time.Duration // how long an unused login stays valid
}

// LoginOption is an issuer at which users can log in to the console.
type LoginOption struct {
	Name string `json:"name"` // "" for the only issuer
	Host string `json:"host"`
}

// logins are the logins to the console.
type logins struct {
	Console
	store  LoginStore
	log    *slog.Logger
	logged *rate.Limiter  // limits the log entries about failed logins
	origin string         // origin of the console
	byName []*oidc.Issuer // issuers with logins

	exchanges *budget           // exchanges of codes of each address
	slots     chan struct{}     // contains an element for each exchange in progress
	hourly    *limiters[string] // logins of each user
}

// AcceptLogins lets the users of the issuers log in to the console. Call it after Accept and before
// the first request.
func (a *Authenticator) AcceptLogins(store LoginStore, console Console, log *slog.Logger) error {
	u, err := url.Parse(console.URL)
	if err != nil {
		return err
	}
	a.logins = &logins{
		Console: console, store: store, log: log, logged: a.users.logged,
		origin: originOf(u), byName: a.users.issuers.Logins(),
		exchanges: newBudget(exchangeRate, exchangeBurst), slots: make(chan struct{}, maxExchanges),
		hourly: newLimiters[string](rate.Every(time.Hour/maxHourly), maxHourly),
	}
	return nil
}

// originOf returns the origin of a URL as browsers write it in the header Origin.
func originOf(u *url.URL) string {
	host := strings.ToLower(u.Host)
	if standard := map[string]string{"https": "443", "http": "80"}[u.Scheme]; u.Port() == standard {
		host = strings.TrimSuffix(host, ":"+standard)
	}
	return u.Scheme + "://" + host
}

// Origin returns the origin of the console pages, or "" if users cannot log in to it. a may be nil.
func (a *Authenticator) Origin() string {
	if a == nil || a.logins == nil {
		return ""
	}
	return a.logins.origin
}

// Lifetime returns how long a login is valid.
func (a *Authenticator) Lifetime() time.Duration { return a.logins.Lifetime }

// Options returns the URL of the console, and the issuers at which users can log in to it. a may be
// nil.
func (a *Authenticator) Options() (console string, options []LoginOption) {
	if a.Origin() == "" {
		return "", nil
	}
	for _, issuer := range a.logins.byName {
		u, err := url.Parse(issuer.URL())
		if err != nil { // never happens, because the configuration was checked
			continue
		}
		options = append(options, LoginOption{issuer.Name(), u.Host})
	}
	return a.logins.URL, options
}

// attempt is the data about a login in progress. Only the browser stores it, in a cookie.
type attempt struct {
	oidc.Attempt
	Page  string `json:"p"` // page of the console to which the login leads
	Begun int64  `json:"t"` // Unix time in seconds
}

// BeginLogin begins a login at the issuer with the given name. page is the page of the console that
// the browser shows after the login. BeginLogin returns the URL of the issuer, to which the browser
// must go, and the data that the browser must keep in a cookie until the issuer sends it back.
func (a *Authenticator) BeginLogin(ctx context.Context, name, page, address string) (to, kept string, err error) {
	issuer, redirect, err := a.logins.find(name)
	switch {
	case err != nil:
		return "", "", err
	case len(page) > maxPage || !pageRule.MatchString(page):
		return "", "", ErrPage
	}
	// Begin does not read the database, and limits its own reads of the discovery document.
	// Therefore, BeginLogin does not count against the limit on reads of keys.
	to, begun, err := issuer.Begin(ctx, redirect)
	if err != nil {
		return "", "", a.fail(ctx, "login", a.logins.failed(ctx, err, address), address)
	}
	text, err := json.Marshal(attempt{begun, page, a.now().Unix()})
	return to, base64.RawURLEncoding.EncodeToString(text), err
}

// FinishLogin completes a login that BeginLogin has begun, when the issuer has sent the browser
// back. kept is the data from the cookie of the browser. answer contains the parameters that the
// issuer has added to the URL. former is the token of the previous login of the browser, or "".
// FinishLogin ends that login. It returns the token of the new login, for a cookie, and the URL of
// the console page that the browser shows next.
func (a *Authenticator) FinishLogin(
	ctx context.Context, name, kept string, answer url.Values, former, address string,
) (token, page string, err error) {
	issuer, redirect, err := a.logins.find(name)
	if err != nil {
		return "", "", err
	}
	begun, ok := attemptIn(kept, a.now())
	if !ok || issuer.Check(begun.Attempt, answer) != nil {
		return "", "", a.fail(ctx, "login", oidc.ErrState, address)
	}
	who, err := a.finish(ctx, issuer, redirect, begun.Attempt, answer, address)
	if err != nil {
		return "", "", a.fail(ctx, "login", err, address)
	}
	names := namesOf(who)
	if !a.logins.hourly.limiter(names[0]).Allow() {
		return "", "", a.fail(ctx, "login", ErrManyOfUser, address)
	}
	token, err = a.createLogin(ctx, names, former, address)
	if err != nil {
		err = a.logins.failed(ctx, errors.Join(process.ErrUnavailable, err), address)
		return "", "", a.fail(ctx, "login", err, address)
	}
	a.ok["login"].Inc()
	return token, a.logins.URL + "/#" + begun.Page, nil
}

// actorOf returns the actor of an audit entry: the user who logs in or out.
func actorOf(ctx context.Context, name, address string) process.Actor {
	return process.Actor{Name: name, Source: address, RequestID: requestid.Of(ctx)}
}

// createLogin stores a login and returns its token. names are the principals of the login: the
// user, followed by the groups of the user. createLogin also ends the login with the token former.
func (a *Authenticator) createLogin(ctx context.Context, names []string, former, address string) (string, error) {
	id := newID()
	token := secretToken(loginPrefix, id)
	hash := Hash(token)
	l := storage.NewLogin{
		LoginID: id, Hash: hash[:], Principal: names[0], Groups: names[1:], Lifetime: a.logins.Lifetime,
	}
	create := func() error {
		return a.logins.store.CreateLogin(ctx, l, actorOf(ctx, names[0], address))
	}
	formerID, ok := idIn(loginPrefix, former)
	if !ok {
		return token, create()
	}
	hash = Hash(former)
	l.FormerID, l.FormerHash = formerID, hash[:]
	if e, ok := a.cachedKeys.load(loginIdentity(formerID, former)); ok {
		return token, a.end(ctx, e, create)
	}
	return token, create()
}

// loginIdentity returns the key of a login in the cache of keys. It contains a hash of the token,
// so a client that knows only the ID of a login cannot use the cached login.
func loginIdentity(id, token string) string {
	hash := Hash(token)
	return cachedLogin + id + "." + hex.EncodeToString(hash[:])
}

// attemptIn returns the attempt in a cookie. ok is false if the cookie is invalid or too old.
func attemptIn(kept string, now time.Time) (begun attempt, ok bool) {
	text, err := base64.RawURLEncoding.DecodeString(kept)
	if err != nil || len(kept) > maxAttempt || json.Unmarshal(text, &begun) != nil {
		return attempt{}, false
	}
	age := now.Sub(time.Unix(begun.Begun, 0))
	return begun, age <= AttemptTime && age >= -attemptSkew && pageRule.MatchString(begun.Page)
}

// finish exchanges the code in the answer of an issuer for a token, and returns the user that the
// token names. The user may see its errors. Anyone can forge an attempt and its answer, so finish
// limits the requests to the issuer. These limits are separate from the limits on reads of keys, so
// that requests with wrong keys do not block logins, and logins do not block other clients.
func (a *Authenticator) finish(
	ctx context.Context, issuer *oidc.Issuer, redirect string, begun oidc.Attempt, answer url.Values, address string,
) (oidc.Identity, error) {
	if !a.logins.exchanges.take(address) {
		return oidc.Identity{}, ErrManyLogins
	}
	select {
	case a.logins.slots <- struct{}{}:
		defer func() { <-a.logins.slots }()
	default:
		return oidc.Identity{}, ErrManyLogins
	}
	who, err := issuer.Finish(ctx, redirect, begun, answer)
	if err != nil {
		err = a.logins.failed(ctx, err, address)
	}
	return who, err
}

// AuthenticateLogin is like Authenticate, for a request with the token of a login.
func (a *Authenticator) AuthenticateLogin(ctx context.Context, token, address string) (*Principal, error) {
	_, p, err := a.login(ctx, token, address)
	if err != nil {
		return nil, a.fail(ctx, "login", err, address)
	}
	a.ok["login"].Inc()
	return p, nil
}

// login returns the cache entry of the login with the given token, and its principal. It reads the
// login from the database if necessary.
func (a *Authenticator) login(ctx context.Context, token, address string) (*entry, *Principal, error) {
	id, ok := idIn(loginPrefix, token)
	if !ok {
		return nil, nil, ErrLogin
	}
	e, err := a.lookUp(ctx, loginIdentity(id, token), address)
	switch {
	case errors.Is(err, ErrInvalid):
		return nil, nil, ErrLogin
	case err != nil:
		return nil, nil, err
	}
	s := e.state.Load()
	if !s.valid || s.principal.expired(a.now()) {
		return nil, nil, ErrLogin
	}
	return e, s.principal, nil
}

// RejectLogin counts a request for which a login must not be used, and delays its answer. It
// returns err, or ErrLimited.
func (a *Authenticator) RejectLogin(ctx context.Context, err error, address string) error {
	return a.fail(ctx, "login", err, address)
}

// EndLogin ends the login with a token. Other nodes may still accept the login for up to CacheTime.
func (a *Authenticator) EndLogin(ctx context.Context, token, address string) error {
	e, p, err := a.login(ctx, token, address)
	if err != nil {
		return a.fail(ctx, "login", err, address)
	}
	a.ok["login"].Inc()
	id, _ := idIn(loginPrefix, token)
	return a.end(ctx, e, func() error {
		err := a.logins.store.DeleteLogin(ctx, id, actorOf(ctx, p.Name, address))
		if err != nil && !errors.Is(err, process.ErrKeyNotFound) { // another request may have ended it
			return errors.Join(process.ErrUnavailable, err)
		}
		return nil
	})
}

// end ends a login. It calls remove, which deletes the login from the database, and then marks the
// cache entry e as invalid. Until then, it prevents other requests from reading the login, because
// they could store the old state in the cache after the deletion.
func (a *Authenticator) end(ctx context.Context, e *entry, remove func() error) error {
	select {
	case e.reading <- struct{}{}:
	case <-ctx.Done():
		return errors.Join(process.ErrUnavailable, ctx.Err())
	}
	defer func() { <-e.reading }()
	if err := remove(); err != nil {
		return err
	}
	e.state.Store(&state{read: a.now()})
	return nil
}

// readLogin reads a login, and the grants of its user and groups. identity is the identity of the
// login without its prefix.
func (a *Authenticator) readLogin(ctx context.Context, identity string) (*state, error) {
	id, text, _ := strings.Cut(identity, ".")
	hash, err := hex.DecodeString(text)
	if err != nil {
		return nil, ErrInvalid
	}
	row, err := a.logins.store.ReadLogin(ctx, id, hash, a.logins.Idle)
	switch {
	case errors.Is(err, process.ErrKeyNotFound):
		return nil, ErrInvalid
	case err != nil:
		return nil, errors.Join(process.ErrUnavailable, err)
	case subtle.ConstantTimeCompare(hash, row.Hash) != 1 || !a.logins.accept(row):
		return nil, ErrInvalid
	}
	granted, err := a.readGrants(ctx, strings.Join(append([]string{row.Principal}, row.Groups...), "\n"))
	if err != nil {
		return nil, err
	}
	p := *granted.principal
	p.login, p.expires = cachedLogin+identity, a.now().Add(row.Left)
	return &state{principal: &p, valid: true, read: a.now()}, nil
}

// accept reports whether the issuer of a login still supports logins to the console and the groups
// of the login still have the group prefix of that issuer. Groups with another prefix may now
// belong to another issuer.
func (l *logins) accept(row storage.LoginState) bool {
	url, _, _ := strings.Cut(strings.TrimPrefix(row.Principal, userPrefix), "#")
	return slices.ContainsFunc(l.byName, func(i *oidc.Issuer) bool {
		return i.URL() == url && !slices.ContainsFunc(row.Groups, func(group string) bool {
			return !strings.HasPrefix(group, groupPrefix+i.GroupPrefix())
		})
	})
}

// find returns the issuer with the given name, and the URL to which the issuer sends browsers back.
func (l *logins) find(name string) (*oidc.Issuer, string, error) {
	n := -1
	if l != nil {
		n = slices.IndexFunc(l.byName, func(i *oidc.Issuer) bool { return i.Name() == name })
	}
	if n < 0 {
		return nil, "", ErrNoLogins
	}
	redirect := l.URL + CallbackPath
	if name != "" {
		redirect += "/" + name
	}
	return l.byName[n], redirect, nil
}

// failed logs why a login has failed, and returns the error that the user sees.
func (l *logins) failed(ctx context.Context, err error, address string) error {
	if l.logged.Allow() {
		l.log.WarnContext(ctx, "a login to the console has failed", "reason", fmt.Sprintf("%.500s", err),
			"address", address)
	}
	if errors.Is(err, oidc.ErrUnreachable) {
		return errors.Join(process.ErrUnavailable, ErrNoAnswer)
	}
	for _, shown := range []error{oidc.ErrState, process.ErrUnavailable} {
		if errors.Is(err, shown) {
			return shown
		}
	}
	if shown, ok := errors.AsType[*oidc.LoginError](err); ok {
		return shown
	}
	if claim, ok := errors.AsType[*oidc.ClaimError](err); ok {
		return fmt.Errorf("the token of the issuer is not valid: %w", claim)
	}
	return ErrFailed
}

package auth

import (
	"bytes"
	"context"
	"encoding/base64"
	"errors"
	"log/slog"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	dto "github.com/prometheus/client_model/go"

	"github.com/progressor-engine/progressor/engine/auth/oidc"
	"github.com/progressor-engine/progressor/internal/testissuer"
	"github.com/progressor-engine/progressor/process"
	"github.com/progressor-engine/progressor/storage"
)

// consoleURL is the URL of the console in the tests.
const consoleURL = "https://progressor.example.com/p"

// loginTable is a table of logins in memory.
type loginTable struct {
	mu    sync.Mutex
	rows  map[string]storage.NewLogin
	left  time.Duration // how long a login is valid after each read
	reads int
	err   error
	audit []string

	reading  func() // called by a read after it has read the row
	deleting func() // called by a deletion before it deletes the row
}

func (t *loginTable) CreateLogin(_ context.Context, l storage.NewLogin, by process.Actor) error {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.err != nil {
		return t.err
	}
	if former, ok := t.rows[l.FormerID]; ok && bytes.Equal(former.Hash, l.FormerHash) {
		delete(t.rows, l.FormerID)
	}
	t.rows[l.LoginID] = l
	t.audit = append(t.audit, "Login "+by.Name+" "+by.Source)
	return nil
}

func (t *loginTable) ReadLogin(_ context.Context, id string, _ []byte, _ time.Duration) (storage.LoginState, error) {
	t.mu.Lock()
	t.reads++
	row, ok := t.rows[id]
	err := t.err
	t.mu.Unlock()
	if t.reading != nil {
		t.reading()
	}
	switch {
	case err != nil:
		return storage.LoginState{}, err
	case !ok:
		return storage.LoginState{}, process.ErrKeyNotFound
	}
	return storage.LoginState{Hash: row.Hash, Principal: row.Principal, Groups: row.Groups, Left: t.left}, nil
}

func (t *loginTable) DeleteLogin(_ context.Context, id string, by process.Actor) error {
	if t.deleting != nil {
		t.deleting()
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	if _, ok := t.rows[id]; !ok {
		return process.ErrKeyNotFound
	}
	delete(t.rows, id)
	t.audit = append(t.audit, "Logout "+by.Name+" "+by.Source)
	return nil
}

func (t *loginTable) set(change func(*loginTable)) {
	t.mu.Lock()
	defer t.mu.Unlock()
	change(t)
}

// loginSite has everything that the tests of logins need.
type loginSite struct {
	*Authenticator
	keys   *table
	rows   *loginTable
	at     *clock
	issuer *testissuer.Issuer
	log    *bytes.Buffer
}

func newLoginSite(t *testing.T) *loginSite {
	t.Helper()
	s := &loginSite{
		issuer: testissuer.New(t), log: &bytes.Buffer{},
		rows: &loginTable{rows: map[string]storage.NewLogin{}, left: time.Hour},
	}
	s.Authenticator, s.keys, s.at = newTest(t, "")
	s.failed.rate, s.failed.burst = 1e9, 1e6
	log := slog.New(slog.NewTextHandler(s.log, nil))
	issuers, err := oidc.New([]oidc.Config{{
		Issuer: s.issuer.URL, Audience: "api", GroupsClaim: "groups", NameClaim: "sub", ClientID: testissuer.Audience,
		Scopes: "openid",
	}}, log, prometheus.NewRegistry())
	if err != nil {
		t.Fatal(err)
	}
	s.Accept(issuers, log)
	console := Console{URL: consoleURL, Lifetime: 12 * time.Hour, Idle: time.Hour}
	if err := s.AcceptLogins(s.rows, console, log); err != nil {
		t.Fatal(err)
	}
	return s
}

// begin begins a login that leads to a page. It returns the data that the browser keeps, and the
// answer of the issuer.
func (s *loginSite) begin(t *testing.T, page string) (kept string, answer url.Values) {
	t.Helper()
	to, kept, err := s.BeginLogin(t.Context(), "", page, address)
	if err != nil {
		t.Fatal(err)
	}
	request, err := http.NewRequestWithContext(t.Context(), http.MethodGet, to, http.NoBody)
	if err != nil {
		t.Fatal(err)
	}
	response, err := http.DefaultTransport.RoundTrip(request)
	if err != nil {
		t.Fatal(err)
	}
	defer response.Body.Close()
	back, err := response.Location()
	if err != nil || !strings.HasPrefix(back.String(), consoleURL+CallbackPath+"?") {
		t.Fatalf("%s, %v", back, err)
	}
	return kept, back.Query()
}

// login logs a user in, and returns the token of the cookie.
func (s *loginSite) login(t *testing.T) string {
	t.Helper()
	kept, answer := s.begin(t, "/")
	token, page, err := s.FinishLogin(t.Context(), "", kept, answer, "", address)
	if err != nil || page != consoleURL+"/#/" {
		t.Fatalf("%s, %v", page, err)
	}
	return token
}

// count returns how many authentications by logins had an outcome.
func (s *loginSite) count(t *testing.T, outcome string) float64 {
	t.Helper()
	var m dto.Metric
	if err := s.total.WithLabelValues("login", outcome).Write(&m); err != nil {
		t.Fatal(err)
	}
	return m.GetCounter().GetValue()
}

// A login has the grants of its user and groups, and is valid until the logout. Wrong tokens are
// rejected.
func TestLogins(t *testing.T) {
	t.Parallel()
	s := newLoginSite(t)
	s.issuer.LogIn(map[string]any{"groups": []string{"support"}})
	name := "user:" + s.issuer.URL + "#alice"
	s.keys.grant(name, "viewer", "a")
	s.keys.grant("group:support", "support", "shop/*")
	token := s.login(t)
	p, err := s.AuthenticateLogin(t.Context(), token, address)
	if err != nil || p.Name != name || !p.HasLogin() ||
		!slices.Equal(p.Grants(), []string{"support shop/*", "viewer a"}) ||
		!slices.Equal(p.Groups(), []string{"group:support"}) {
		t.Fatalf("%+v, %v", p, err)
	}
	for _, row := range s.rows.rows {
		if hash := Hash(token); !bytes.Equal(row.Hash, hash[:]) || row.Lifetime != 12*time.Hour {
			t.Errorf("%+v", row)
		}
	}
	for name, wrong := range map[string]string{
		"another secret": loginPrefix + strings.Split(token, "_")[1] + secretOf(tokenOf("x")), "a key": tokenOf("x"),
		"empty": "", "no login": secretToken(loginPrefix, newID()), "cut": token[:len(token)-1],
	} {
		if p, err := s.AuthenticateLogin(t.Context(), wrong, address); !errors.Is(err, ErrLogin) {
			t.Errorf("%s: %v, %v", name, p, err)
		}
	}
	if p, err := ask(t, s.Authenticator, token); !errors.Is(err, ErrMalformed) {
		t.Errorf("as a bearer token: %v, %v", p, err)
	}
	if p, err := s.Current(t.Context(), p); err != nil || p.Name != name {
		t.Errorf("a stream: %v, %v", p, err)
	}
	if err := s.EndLogin(t.Context(), token, address); err != nil {
		t.Error(err)
	}
	if p, err := s.AuthenticateLogin(t.Context(), token, address); !errors.Is(err, ErrLogin) {
		t.Errorf("after the logout: %v, %v", p, err)
	}
	if p, err := s.Current(t.Context(), p); !errors.Is(err, ErrLogin) {
		t.Errorf("a stream after the logout: %v, %v", p, err)
	}
	if want := []string{"Login " + name + " " + address, "Logout " + name + " " + address}; !slices.Equal(s.rows.audit,
		want) {
		t.Errorf("audit: %v", s.rows.audit)
	}
	if ok, bad := s.count(t, "ok"), s.count(t, "invalid"); ok != 3 || bad != 6 {
		t.Errorf("%v successes, %v failures", ok, bad)
	}
}

// A login expires on time even if it is cached. A login also ends when its row is deleted, when its
// issuer has no logins any more, or when its groups may be those of another issuer.
func TestLoginsEnd(t *testing.T) {
	t.Parallel()
	for name, end := range map[string]func(*loginSite){
		"expired": func(s *loginSite) { s.at.now = s.at.now.Add(5 * time.Second) },
		"not used": func(s *loginSite) {
			s.rows.set(func(r *loginTable) { r.left = -time.Second })
			s.at.now = s.at.now.Add(CacheTime)
		},
		"deleted": func(s *loginSite) {
			s.rows.set(func(r *loginTable) { clear(r.rows) })
			s.at.now = s.at.now.Add(CacheTime)
		},
		"the groups may be those of another issuer": func(s *loginSite) {
			issuers, err := oidc.New([]oidc.Config{{
				Issuer: s.issuer.URL, Audience: "api", GroupsClaim: "groups", NameClaim: "sub", GroupPrefix: "staff:",
				ClientID: testissuer.Audience, Scopes: "openid",
			}}, slog.New(slog.DiscardHandler), prometheus.NewRegistry())
			if err != nil {
				t.Fatal(err)
			}
			s.logins.byName = issuers.Logins()
			s.at.now = s.at.now.Add(CacheTime)
		},
		"the issuer has no logins": func(s *loginSite) {
			s.logins.byName = nil
			s.at.now = s.at.now.Add(CacheTime)
		},
	} {
		s := newLoginSite(t)
		if name == "expired" {
			s.rows.left = 5 * time.Second
		}
		s.issuer.LogIn(map[string]any{"groups": []string{"staff:a", "partners:a"}})
		token := s.login(t)
		p, err := s.AuthenticateLogin(t.Context(), token, address)
		if err != nil {
			t.Fatal(err)
		}
		end(s)
		if p, err := s.AuthenticateLogin(t.Context(), token, address); !errors.Is(err, ErrLogin) {
			t.Errorf("%s: %v, %v", name, p, err)
		}
		if p, err := s.Current(t.Context(), p); !errors.Is(err, ErrLogin) {
			t.Errorf("%s: a stream: %v, %v", name, p, err)
		}
	}
}

// A request that read a login before its logout does not make the login valid again.
func TestLogoutDuringARead(t *testing.T) {
	t.Parallel()
	s := newLoginSite(t)
	token := s.login(t)
	if _, err := s.AuthenticateLogin(t.Context(), token, address); err != nil {
		t.Fatal(err)
	}
	read, deleted, done := make(chan struct{}), make(chan struct{}), make(chan struct{})
	s.rows.deleting = func() {
		s.at.now = s.at.now.Add(CacheTime)
		s.rows.reading = func() {
			close(read)
			<-deleted
		}
		go func() {
			defer close(done)
			_, _ = s.AuthenticateLogin(t.Context(), token, address) // any result is correct during the logout
		}()
		select { // the request reads the database, or uses the state from before the logout
		case <-read:
		case <-done:
		}
	}
	if err := s.EndLogin(t.Context(), token, address); err != nil {
		t.Fatal(err)
	}
	close(deleted)
	<-done
	if p, err := s.AuthenticateLogin(t.Context(), token, address); !errors.Is(err, ErrLogin) {
		t.Errorf("after the logout: %v, %v", p, err)
	}
}

// A login replaces the previous login of the browser, even on an engine that has cached that login.
// A client that knows only the ID of a login cannot replace it.
func TestLoginsInOneBrowser(t *testing.T) {
	t.Parallel()
	s := newLoginSite(t)
	former, other := s.login(t), s.login(t)
	for _, token := range []string{former, other} {
		if _, err := s.AuthenticateLogin(t.Context(), token, address); err != nil {
			t.Fatal(err)
		}
	}
	forged := loginPrefix + strings.Split(other, "_")[1] + secretOf(tokenOf("x"))
	for _, token := range []string{former, forged, "", "x"} {
		kept, answer := s.begin(t, "/")
		if _, _, err := s.FinishLogin(t.Context(), "", kept, answer, token, address); err != nil {
			t.Fatal(err)
		}
	}
	if len(s.rows.rows) != 5 {
		t.Errorf("%d logins", len(s.rows.rows))
	}
	if p, err := s.AuthenticateLogin(t.Context(), former, address); !errors.Is(err, ErrLogin) {
		t.Errorf("the former login: %v, %v", p, err)
	}
	if _, err := s.AuthenticateLogin(t.Context(), other, address); err != nil {
		t.Errorf("the login of another browser: %v", err)
	}
}

// A login that is used stays valid, and the database is read only every 10 s. While the database is
// down, a login that was read in the last minute is valid.
func TestLoginsAreCached(t *testing.T) {
	t.Parallel()
	s := newLoginSite(t)
	s.rows.left = time.Minute
	token := s.login(t)
	for range 20 {
		p, err := s.AuthenticateLogin(t.Context(), token, address)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := s.Current(t.Context(), p); err != nil {
			t.Fatal(err)
		}
		s.at.now = s.at.now.Add(CacheTime)
	}
	if s.rows.reads != 20 {
		t.Errorf("%d reads", s.rows.reads)
	}
	s.rows.set(func(r *loginTable) { r.err = errors.New("down") })
	if _, err := s.AuthenticateLogin(t.Context(), token, address); err != nil {
		t.Errorf("while the database is down: %v", err)
	}
	s.at.now = s.at.now.Add(staleTime)
	if _, err := s.AuthenticateLogin(t.Context(), token, address); !errors.Is(err, process.ErrUnavailable) {
		t.Errorf("while the database is down for a long time: %v", err)
	}
}

// A login leads to a page of the console, and never to another site.
func TestPagesOfLogins(t *testing.T) {
	t.Parallel()
	s := newLoginSite(t)
	for _, page := range []string{"/", "/processes?ns=shop/tea&filter=status+%3D+ERROR", "/overview"} {
		kept, answer := s.begin(t, page)
		_, to, err := s.FinishLogin(t.Context(), "", kept, answer, "", address)
		if err != nil || to != consoleURL+"/#"+page {
			t.Errorf("%s: %s, %v", page, to, err)
		}
	}
	for _, page := range []string{
		"", "https://evil.example", "//evil.example", `/\evil.example`, "/%2f/evil.example", "javascript:alert(1)", ".",
		"/a\r\nSet-Cookie: a=b", "@evil.example", "/../x", "/a#b\n", "/a?b c", "/" + strings.Repeat("a", maxPage),
	} {
		if to, _, err := s.BeginLogin(t.Context(), "", page, address); !errors.Is(err, ErrPage) {
			t.Errorf("%q: %s, %v", page, to, err)
		}
	}
	kept, answer := s.begin(t, "/")
	text, err := base64.RawURLEncoding.DecodeString(kept)
	if err != nil {
		t.Fatal(err)
	}
	changed := base64.RawURLEncoding.EncodeToString(bytes.Replace(text, []byte(`"p":"/"`), []byte(`"p":"//a"`), 1))
	if _, to, err := s.FinishLogin(t.Context(), "", changed, answer, "", address); !errors.Is(err, oidc.ErrState) {
		t.Errorf("a changed cookie: %s, %v", to, err)
	}
}

// The user sees the reason if the issuer or a check rejects a login. Failed logins and the errors
// of the database are logged.
func TestFailedLogins(t *testing.T) {
	t.Parallel()
	s := newLoginSite(t)
	finish := func(name, kept string, answer url.Values) error {
		_, _, err := s.FinishLogin(t.Context(), name, kept, answer, "", address)
		return err
	}
	for _, kept := range []string{"", "!", "bm8", strings.Repeat("a", maxAttempt+1)} {
		if err := finish("", kept, nil); !errors.Is(err, oidc.ErrState) {
			t.Errorf("the browser keeps %.10q: %v", kept, err)
		}
	}
	kept, answer := s.begin(t, "/")
	if err := finish("other", kept, answer); !errors.Is(err, ErrNoLogins) {
		t.Errorf("the page of another issuer: %v", err)
	}
	if _, _, err := s.BeginLogin(t.Context(), "other", "/", address); !errors.Is(err, ErrNoLogins) {
		t.Errorf("another issuer: %v", err)
	}
	if _, _, err := (&Authenticator{}).BeginLogin(t.Context(), "", "/", address); !errors.Is(err, ErrNoLogins) {
		t.Errorf("no issuer: %v", err)
	}
	answer.Set("state", "another")
	if err := finish("", kept, answer); !errors.Is(err, oidc.ErrState) {
		t.Errorf("another state: %v", err)
	}
	kept, denied := s.begin(t, "/")
	denied.Set("error", "access_denied")
	if err := finish("", kept, denied); err == nil || !strings.Contains(err.Error(), "access_denied") {
		t.Errorf("denied: %v", err)
	}
	s.issuer.LogIn(map[string]any{"nonce": "another"})
	kept, answer = s.begin(t, "/")
	if err := finish("", kept, answer); err == nil || !strings.Contains(err.Error(), `claim "nonce": must be`) {
		t.Errorf("another nonce: %v", err)
	}
	s.issuer.LogIn(nil)
	kept, answer = s.begin(t, "/")
	s.rows.set(func(r *loginTable) { r.err = errors.New("no more space") })
	if err := finish("", kept, answer); !errors.Is(err, process.ErrUnavailable) ||
		!strings.Contains(s.log.String(), "no more space") {
		t.Errorf("the database is down: %v, log: %s", err, s.log)
	}
	kept, answer = s.begin(t, "/")
	s.issuer.SetDown(true)
	if err := finish("", kept, answer); !errors.Is(err, process.ErrUnavailable) || !errors.Is(err, ErrNoAnswer) {
		t.Errorf("the issuer is down: %v", err)
	}
	if !strings.Contains(s.log.String(), "a login to the console has failed") || len(s.rows.rows) != 0 {
		t.Errorf("%d logins, log: %s", len(s.rows.rows), s.log)
	}
}

// originOf returns the origin of a URL as browsers write it: in lower case and without the default
// port.
func TestOrigins(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]string{
		"https://Progressor.example.com/p": "https://progressor.example.com", "https://a:443": "https://a",
		"https://a:8443": "https://a:8443", "http://127.0.0.1:80": "http://127.0.0.1",
		"http://[::1]:8080": "http://[::1]:8080",
	} {
		u, err := url.Parse(text)
		if err != nil {
			t.Fatal(err)
		}
		if got := originOf(u); got != want {
			t.Errorf("%s: %s, want %s", text, got, want)
		}
	}
	if origin := (*Authenticator)(nil).Origin(); origin != "" {
		t.Errorf("an engine without authentication: %s", origin)
	}
	if console, options := newLoginSite(t).Options(); console != consoleURL || len(options) != 1 {
		t.Errorf("%s, %v", console, options)
	}
}

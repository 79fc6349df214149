package rpc

import (
	"bytes"
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"io"
	"log/slog"
	"net/http"
	"net/http/cookiejar"
	"net/http/httptest"
	"net/url"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/progressor-engine/progressor/engine/auth"
	"github.com/progressor-engine/progressor/engine/auth/oidc"
	"github.com/progressor-engine/progressor/internal/testca"
	"github.com/progressor-engine/progressor/internal/testissuer"
	"github.com/progressor-engine/progressor/process"
	"github.com/progressor-engine/progressor/storage"
)

// loginTable is an auth.LoginStore in memory.
type loginTable struct {
	mu   sync.Mutex
	rows map[string]storage.NewLogin // by the ID of the login
	left time.Duration               // how long every login remains valid
}

func (t *loginTable) CreateLogin(_ context.Context, l storage.NewLogin, _ process.Actor) error {
	t.mu.Lock()
	defer t.mu.Unlock()
	if former, ok := t.rows[l.FormerID]; ok && bytes.Equal(former.Hash, l.FormerHash) {
		delete(t.rows, l.FormerID)
	}
	t.rows[l.LoginID] = l
	return nil
}

func (t *loginTable) ReadLogin(_ context.Context, id string, _ []byte, _ time.Duration) (storage.LoginState, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	row, ok := t.rows[id]
	if !ok {
		return storage.LoginState{}, process.ErrKeyNotFound
	}
	return storage.LoginState{Hash: row.Hash, Principal: row.Principal, Groups: row.Groups, Left: t.left}, nil
}

func (t *loginTable) DeleteLogin(_ context.Context, id string, _ process.Actor) error {
	t.mu.Lock()
	defer t.mu.Unlock()
	delete(t.rows, id)
	return nil
}

// loginSite is a server with TLS, and with a console to which users can log in.
type loginSite struct {
	url     string
	key     *oneKey
	token   string // token of key
	rows    *loginTable
	issuers []*testissuer.Issuer
	server  *httptest.Server
}

// newLoginSite starts a server whose console has an issuer for each name. The user of each issuer
// is alice, with the role support.
func newLoginSite(t testing.TB, mode Console, names ...string) *loginSite {
	t.Helper()
	id, token := auth.NewToken()
	s := &loginSite{
		key: &oneKey{id: id, hash: auth.Hash(token), grants: map[string]string{}}, token: token,
		rows: &loginTable{rows: map[string]storage.NewLogin{}, left: time.Hour},
	}
	var configs []oidc.Config
	for _, name := range names {
		issuer := testissuer.New(t)
		s.issuers = append(s.issuers, issuer)
		s.key.grants["user:"+issuer.URL+"#alice"] = "support"
		configs = append(configs, oidc.Config{
			Issuer: issuer.URL, Audience: "api", GroupsClaim: "groups", NameClaim: "sub", GroupPrefix: name + ":",
			Name: name, ClientID: testissuer.Audience, Scopes: "openid",
		})
	}
	log := slog.New(slog.DiscardHandler)
	issuers, err := oidc.New(configs, log, prometheus.NewRegistry())
	if err != nil {
		t.Fatal(err)
	}
	clients := auth.New(s.key, "", prometheus.NewRegistry())
	clients.Accept(issuers, log)
	s.server = httptest.NewUnstartedServer(nil)
	s.url = "https://" + s.server.Listener.Addr().String()
	console := auth.Console{URL: s.url, Lifetime: 12 * time.Hour, Idle: time.Hour}
	if err := clients.AcceptLogins(s.rows, console, log); err != nil {
		t.Fatal(err)
	}
	h, err := newHandler(Config{Auth: clients, Console: mode}, scripted(echo()), func() error { return nil })
	if err != nil {
		t.Fatal(err)
	}
	s.server.Config.Handler = h
	s.server.StartTLS()
	t.Cleanup(s.server.Close)
	return s
}

// browser is a client that keeps cookies and follows redirects, like a browser.
type browser struct {
	t      testing.TB
	site   *loginSite
	client *http.Client
}

func (s *loginSite) browser(t testing.TB) *browser {
	t.Helper()
	jar, err := cookiejar.New(nil)
	if err != nil {
		t.Fatal(err)
	}
	return &browser{t, s, &http.Client{Transport: s.server.Client().Transport, Jar: jar}}
}

// visit requests a URL and follows redirects. It returns the last response and its body.
func (b *browser) visit(to string) (*http.Response, string) {
	b.t.Helper()
	request, err := http.NewRequestWithContext(b.t.Context(), http.MethodGet, to, http.NoBody)
	if err != nil {
		b.t.Fatal(err)
	}
	request.Header.Set("Accept", "text/html")
	return b.send(request)
}

// post sends a POST request with the headers that a browser sends for the console. headers replaces
// some of them. A nil value removes a header.
func (b *browser) post(path string, headers http.Header) (*http.Response, string) {
	b.t.Helper()
	request, err := http.NewRequestWithContext(b.t.Context(), http.MethodPost, b.site.url+path, strings.NewReader("{}"))
	if err != nil {
		b.t.Fatal(err)
	}
	request.Header = http.Header{
		"Content-Type": {"application/json"}, "Origin": {b.site.url}, "Sec-Fetch-Site": {"same-origin"},
	}
	for name, values := range headers {
		request.Header[name] = values
	}
	return b.send(request)
}

func (b *browser) send(request *http.Request) (*http.Response, string) {
	b.t.Helper()
	response, err := b.client.Do(request)
	if err != nil {
		b.t.Fatal(err)
	}
	defer response.Body.Close()
	body, err := io.ReadAll(response.Body)
	if err != nil {
		b.t.Fatal(err)
	}
	return response, string(body)
}

// cookie returns the value of a cookie, or "".
func (b *browser) cookie(name string) string {
	b.t.Helper()
	u, err := url.Parse(b.site.url)
	if err != nil {
		b.t.Fatal(err)
	}
	for _, c := range b.client.Jar.Cookies(u) {
		if c.Name == name {
			return c.Value
		}
	}
	return ""
}

// whoamiPath is the page from which the console reads the identity of its user.
const whoamiPath = "/whoami"

// A user logs in, is identified by the cookie, and logs out. After the login, the browser is at the
// page that it requested.
func TestConsoleLogin(t *testing.T) {
	t.Parallel()
	s := newLoginSite(t, ConsoleReadOnly, "staff")
	s.issuers[0].LogIn(map[string]any{"groups": []string{"support"}})
	b := s.browser(t)
	if answer, body := b.visit(s.url + "/login/options"); !strings.Contains(body, `"name":"staff"`) ||
		!strings.Contains(body, s.url) || answer.Header.Get("Content-Type") != "application/json" {
		t.Errorf("options: %s", body)
	}
	if answer, body := b.post(whoamiPath, nil); answer.StatusCode != http.StatusUnauthorized {
		t.Errorf("before the login: %s %s", answer.Status, body)
	}
	answer, _ := b.visit(s.url + "/login?to=" + url.QueryEscape("/processes?ns=shop"))
	if got := answer.Request.URL; got.Host != strings.TrimPrefix(s.url, "https://") || got.Path != "/" ||
		got.Fragment != "/processes?ns=shop" || answer.StatusCode != http.StatusOK {
		t.Fatalf("after the login: %s %s", answer.Status, got)
	}
	if b.cookie(attemptCookie) != "" {
		t.Error("the browser still has the cookie of the attempt after the login")
	}
	answer, body := b.post(whoamiPath, nil)
	var who identity
	if err := json.Unmarshal([]byte(body), &who); err != nil || answer.Header.Get("Cache-Control") != "no-store" {
		t.Fatalf("%s: %v", body, err)
	}
	if who.Principal != "user:"+s.issuers[0].URL+"#alice" || !who.Login ||
		!slices.Equal(who.Groups, []string{"group:staff:support"}) || len(who.Grants) != 1 ||
		who.Grants[0].Namespaces != "*" || !slices.Contains(who.Grants[0].Permissions, "process.operate") ||
		slices.Contains(who.Grants[0].Permissions, "payload.read") {
		t.Errorf("%s", body)
	}
	const list = "/progressor.v1.NamespaceService/ListNamespaces"
	for _, kind := range []string{"application/json", "application/json; charset=utf-8"} {
		answer, body := b.post(list, http.Header{"Content-Type": {kind}})
		if answer.StatusCode == http.StatusUnauthorized {
			t.Errorf("%s: %s %s", kind, answer.Status, body)
		}
	}
	token := b.cookie(loginCookie)
	if answer, body := b.post("/logout", nil); answer.StatusCode != http.StatusOK || b.cookie(loginCookie) != "" {
		t.Errorf("logout: %s %s", answer.Status, body)
	}
	if answer, body := b.post(whoamiPath, http.Header{"Cookie": {loginCookie + "=" + token}}); answer.StatusCode !=
		http.StatusUnauthorized || !strings.Contains(body, "the login has ended") {
		t.Errorf("a copy of the cookie after the logout: %s %s", answer.Status, body)
	}
	if answer, body := b.post("/logout", nil); answer.StatusCode != http.StatusOK {
		t.Errorf("logout again: %s %s", answer.Status, body)
	}
}

// The attributes of login cookies hide the cookies from scripts. They prevent other sites from
// setting the cookies, and from making browsers send them with POST requests. Browsers must not
// cache the responses of a login.
func TestCookiesOfLogins(t *testing.T) {
	t.Parallel()
	s := newLoginSite(t, ConsoleFull, "staff")
	b := s.browser(t)
	b.client.CheckRedirect = func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }
	begun, _ := b.visit(s.url + "/login")
	answered, _ := b.visit(begun.Header.Get("Location"))
	ended, _ := b.visit(answered.Header.Get("Location"))
	for _, answer := range []*http.Response{begun, ended} {
		if answer.Header.Get("Cache-Control") != "no-store" || answer.Header.Get("Referrer-Policy") != "no-referrer" ||
			answer.StatusCode != http.StatusSeeOther {
			t.Errorf("%s %v", answer.Status, answer.Header)
		}
		for _, c := range answer.Cookies() {
			if !c.Secure || !c.HttpOnly || c.SameSite != http.SameSiteLaxMode || c.Path != "/" || c.Domain != "" ||
				!strings.HasPrefix(c.Name, "__Host-") {
				t.Errorf("%+v", c)
			}
		}
	}
	cookies := ended.Cookies()
	if len(cookies) != 2 || cookies[0].MaxAge >= 0 || cookies[1].Name != loginCookie || cookies[1].MaxAge != 12*3600 {
		t.Errorf("%v", cookies)
	}
}

// The cookie of a login authenticates a request only if its headers show that the console has sent
// it.
func TestCookieOfOthers(t *testing.T) {
	t.Parallel()
	s := newLoginSite(t, ConsoleFull, "staff")
	b := s.browser(t)
	b.visit(s.url + "/login")
	if answer, body := b.post(whoamiPath, nil); answer.StatusCode != http.StatusOK {
		t.Fatalf("%s %s", answer.Status, body)
	}
	token := b.cookie(loginCookie)
	for name, headers := range map[string]http.Header{
		"no Origin":                 {"Origin": nil},
		"neither header":            {"Origin": nil, "Sec-Fetch-Site": nil},
		"a null Origin":             {"Origin": {"null"}, "Sec-Fetch-Site": nil},
		"another site":              {"Origin": {"https://evil.example"}, "Sec-Fetch-Site": {"cross-site"}},
		"another site, old browser": {"Origin": {"https://evil.example"}, "Sec-Fetch-Site": nil},
		"contradictory headers":     {"Origin": {"https://evil.example"}},
		"another port":              {"Origin": {"https://127.0.0.1:1"}},
		"another scheme":            {"Origin": {strings.Replace(s.url, "https", "http", 1)}},
		"two origins":               {"Origin": {s.url, "https://evil.example"}},
		"a subdomain":               {"Sec-Fetch-Site": {"same-site"}},
		"a URL typed by the user":   {"Sec-Fetch-Site": {"none"}},
		"a form":                    {"Content-Type": {"application/x-www-form-urlencoded"}},
		"plain text":                {"Content-Type": {"text/plain"}},
		"protobuf":                  {"Content-Type": {"application/proto"}},
		"no Content-Type":           {"Content-Type": nil},
		"a bearer token":            {"Authorization": {"Bearer " + s.token}},
		"an empty Authorization":    {"Authorization": {""}},
		"two login cookies":         {"Cookie": {loginCookie + "=" + token}},
		"a cookie with a key":       {"Cookie": {loginCookie + "=" + s.token}},
	} {
		one := b
		if name == "a cookie with a key" { // the only cookie of another browser
			one = s.browser(t)
		}
		for _, path := range []string{whoamiPath, "/progressor.v1.NamespaceService/ListNamespaces"} {
			answer, body := one.post(path, headers)
			if answer.StatusCode != http.StatusUnauthorized && answer.StatusCode != http.StatusForbidden &&
				answer.StatusCode != http.StatusTooManyRequests {
				t.Errorf("%s: %s: %s %s", name, path, answer.Status, body)
			}
		}
		if headers["Authorization"] != nil { // see TestLogoutWithAnotherIdentity
			continue
		}
		if answer, body := one.post("/logout", headers); answer.StatusCode == http.StatusOK &&
			name != "a cookie with a key" {
			t.Errorf("%s: logout: %s %s", name, answer.Status, body)
		}
	}
	request := whoamiRequest(t)
	request.Host = localhost
	request.Header = http.Header{
		"Cookie": {loginCookie + "=" + token}, "Origin": {s.url}, "Content-Type": {"application/json"},
	}
	w := httptest.NewRecorder()
	s.server.Config.Handler.ServeHTTP(w, request)
	if w.Code != http.StatusUnauthorized || !strings.Contains(w.Body.String(), "POST with JSON") {
		t.Errorf("GET: %d %s", w.Code, w.Body)
	}
	if answer, body := b.post(whoamiPath, nil); answer.StatusCode != http.StatusOK {
		t.Errorf("a correct request after the rejected ones: %s %s", answer.Status, body)
	}
}

// A request with a client certificate and the cookie of a login is rejected, because it would have
// two principals.
func TestCookieAndCertificate(t *testing.T) {
	t.Parallel()
	s := newLoginSite(t, ConsoleFull, "staff")
	request := whoamiRequest(t)
	request.Method, request.Host = http.MethodPost, localhost
	request.Header = http.Header{
		"Cookie": {loginCookie + "=a"}, "Origin": {s.url}, "Content-Type": {"application/json"},
		"Sec-Fetch-Site": {"same-origin"},
	}
	leaf := testca.New(t).Issue(time.Hour, billing).Leaf
	request.TLS = &tls.ConnectionState{
		PeerCertificates: []*x509.Certificate{leaf}, VerifiedChains: [][]*x509.Certificate{{leaf}},
	}
	w := httptest.NewRecorder()
	s.server.Config.Handler.ServeHTTP(w, request)
	if w.Code != http.StatusUnauthorized || !strings.Contains(w.Body.String(), "use only one") {
		t.Errorf("%d %s", w.Code, w.Body)
	}
}

// The cookie of an expired login does not authenticate requests. Requests that need no
// authentication succeed with it, and a logout deletes it.
func TestExpiredLogin(t *testing.T) {
	t.Parallel()
	s := newLoginSite(t, ConsoleFull, "staff")
	s.rows.left = -time.Second
	b := s.browser(t)
	b.visit(s.url + "/login")
	answer, body := b.post(whoamiPath, nil)
	if answer.StatusCode != http.StatusUnauthorized || !strings.Contains(body, "the login has ended: log in again") {
		t.Errorf("%s %s", answer.Status, body)
	}
	if answer, body := b.visit(s.url + "/livez"); answer.StatusCode != http.StatusOK {
		t.Errorf("a page without authentication: %s %s", answer.Status, body)
	}
	if answer, _ := b.post("/logout", nil); answer.StatusCode != http.StatusOK || b.cookie(loginCookie) != "" {
		t.Errorf("logout: %s", answer.Status)
	}
}

// If there are several issuers, /login shows a page on which the user chooses one. A login that
// would lead to another site is rejected.
func TestPagesOfTheLogin(t *testing.T) {
	t.Parallel()
	s := newLoginSite(t, ConsoleFull, "staff", "partners")
	b := s.browser(t)
	answer, body := b.visit(s.url + "/login?to=" + url.QueryEscape(`/jobs?ns=a"><script>`))
	if strings.Contains(body, "<script>") || strings.Count(body, "<li>") != 2 ||
		!strings.Contains(body, s.url+"/login?issuer=partners&amp;to=%2fjobs") ||
		!strings.Contains(answer.Header.Get("Content-Security-Policy"), "default-src 'none'") {
		t.Errorf("the choice: %s", body)
	}
	for _, to := range []string{
		"https://evil.example", "//evil.example", `/\evil.example`, "javascript:alert(1)", "/a\r\nSet-Cookie: x=y",
	} {
		answer, body := b.visit(s.url + "/login?issuer=staff&to=" + url.QueryEscape(to))
		if answer.StatusCode != http.StatusBadRequest || !strings.Contains(body, "to: must be a page of the console") {
			t.Errorf("%q: %s %s", to, answer.Status, body)
		}
	}
	if answer, body := b.visit(s.url + "/login?issuer=none"); answer.StatusCode != http.StatusNotFound {
		t.Errorf("an unknown issuer: %s %s", answer.Status, body)
	}
	s.issuers[0].SetDown(true)
	if answer, body := b.visit(s.url + "/login?issuer=staff"); answer.StatusCode != http.StatusServiceUnavailable ||
		!strings.Contains(body, "cannot be reached") {
		t.Errorf("the issuer is down: %s %s", answer.Status, body)
	}
}

// The header Host of a request does not change the address to which the issuer sends the browser
// back.
func TestHostOfALogin(t *testing.T) {
	t.Parallel()
	s := newLoginSite(t, ConsoleFull, "staff")
	request := httptest.NewRequest(http.MethodGet, "/login", http.NoBody)
	request.Host = "203.0.113.7"
	request.Header.Set("X-Forwarded-Host", "evil.example")
	w := httptest.NewRecorder()
	s.server.Config.Handler.ServeHTTP(w, request)
	to, err := url.Parse(w.Header().Get("Location"))
	if err != nil || to.Query().Get("redirect_uri") != s.url+"/login/callback/staff" {
		t.Errorf("%d %s, %v", w.Code, to, err)
	}
}

// If no issuer supports logins, /login/options returns no issuers, the other login pages do not
// exist, and login cookies are ignored.
func TestConsoleWithoutLogins(t *testing.T) {
	t.Parallel()
	open := newStub(t, Config{})
	if _, body := asked(t, http.MethodGet, open.url+"/login/options"); body != `{"issuers":[],"url":""}`+"\n" {
		t.Errorf("options: %s", body)
	}
	for _, path := range []string{"/login", "/login/callback", "/login/callback/a"} {
		if answer, body := asked(t, http.MethodGet, open.url+path); answer.StatusCode != http.StatusNotFound {
			t.Errorf("%s: %s %s", path, answer.Status, body)
		}
	}
	json := []string{"Content-Type", "application/json"}
	_, body := asked(t, http.MethodPost, open.url+whoamiPath, json...)
	const want = `{"principal":"","login":false,"groups":[],"grants":[{"namespaces":"*","permissions":["`
	if !strings.HasPrefix(body, want) {
		t.Errorf("who: %s", body)
	}
	url, token, _, _ := newPrivateSite(t)
	answer, body := asked(t, http.MethodPost, url+whoamiPath, append(json, "Authorization", "Bearer "+token, "Cookie",
		loginCookie+"=a")...)
	if answer.StatusCode != http.StatusOK || !strings.Contains(body, `"login":false`) {
		t.Errorf("a token: %s %s", answer.Status, body)
	}
}

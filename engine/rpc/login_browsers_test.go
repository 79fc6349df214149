package rpc

import (
	"crypto/tls"
	"crypto/x509"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/progressor-engine/progressor/internal/testca"
)

// An answer of an issuer logs in only the browser that has begun the login, and only once.
func TestAnswersInOtherBrowsers(t *testing.T) {
	t.Parallel()
	s := newLoginSite(t, ConsoleFull, "staff", "partners")
	b, victim := s.browser(t), s.browser(t)
	last := func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }
	b.client.CheckRedirect, victim.client.CheckRedirect = last, last
	begun, _ := b.visit(s.url + "/login?issuer=staff")
	kept := b.cookie(attemptCookie)
	answered, _ := b.visit(begun.Header.Get("Location"))
	callback := answered.Header.Get("Location")
	fails := func(name string, one *browser, to, cookie string) {
		t.Helper()
		request, err := http.NewRequestWithContext(t.Context(), http.MethodGet, to, http.NoBody)
		if err != nil {
			t.Fatal(err)
		}
		if cookie != "" {
			request.Header.Set("Cookie", attemptCookie+"="+cookie)
		}
		answer, body := one.send(request)
		if answer.StatusCode != http.StatusForbidden || one.cookie(loginCookie) != "" ||
			!strings.Contains(body, "Log in again: "+s.url+"/login") {
			t.Errorf("%s: %s %s", name, answer.Status, body)
		}
	}
	fails("a browser that has begun no login", victim, callback, "")
	victim.visit(s.url + "/login?issuer=staff")
	fails("a browser that has begun another login", victim, callback, "")
	fails("the page of another issuer", victim, strings.Replace(callback, "/staff?", "/partners?", 1), kept)
	fails("another issuer names itself", victim, strings.Replace(callback, url.QueryEscape(s.issuers[0].URL),
		url.QueryEscape(s.issuers[1].URL), 1), kept)
	if len(s.issuers[0].Exchanges())+len(s.issuers[1].Exchanges()) != 0 {
		t.Error("an issuer gets the code of another browser")
	}
	if answer, body := b.visit(callback); answer.StatusCode != http.StatusSeeOther || b.cookie(loginCookie) == "" {
		t.Fatalf("the unmodified response: %s %s", answer.Status, body)
	}
	fails("the same answer again", s.browser(t), callback, "")
	fails("the same answer again with its cookie", s.browser(t), callback, kept)
}

// If another tab has begun a second login, the first one fails, and the second one does not.
func TestLoginsInTwoTabs(t *testing.T) {
	t.Parallel()
	s := newLoginSite(t, ConsoleFull, "staff")
	b := s.browser(t)
	b.client.CheckRedirect = func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }
	var callbacks []string
	for range 2 {
		begun, _ := b.visit(s.url + "/login")
		answered, _ := b.visit(begun.Header.Get("Location"))
		callbacks = append(callbacks, answered.Header.Get("Location"))
	}
	if answer, body := b.visit(callbacks[0]); answer.StatusCode != http.StatusForbidden {
		t.Errorf("the first tab: %s %s", answer.Status, body)
	}
	if answer, body := b.visit(callbacks[1]); answer.StatusCode != http.StatusSeeOther || b.cookie(loginCookie) == "" {
		t.Errorf("the second tab: %s %s", answer.Status, body)
	}
}

// A browser that logs in again has one login.
func TestLoginAgain(t *testing.T) {
	t.Parallel()
	s := newLoginSite(t, ConsoleFull, "staff")
	b := s.browser(t)
	b.visit(s.url + "/login")
	token := b.cookie(loginCookie)
	b.visit(s.url + "/login")
	if b.cookie(loginCookie) == token || len(s.rows.rows) != 1 {
		t.Errorf("%d logins", len(s.rows.rows))
	}
}

// withCertificate adds a client certificate with a URI to a request.
func withCertificate(t *testing.T, r *http.Request) *http.Request {
	t.Helper()
	leaf := testca.New(t).Issue(time.Hour, billing).Leaf
	r.TLS = &tls.ConnectionState{
		PeerCertificates: []*x509.Certificate{leaf}, VerifiedChains: [][]*x509.Certificate{{leaf}},
	}
	return r
}

// A logout works even if the browser also has a token or a certificate.
func TestLogoutWithAnotherIdentity(t *testing.T) {
	t.Parallel()
	s := newLoginSite(t, ConsoleFull, "staff")
	for name, change := range map[string]func(*http.Request){
		"token":       func(r *http.Request) { r.Header.Set("Authorization", "Bearer "+s.token) },
		"certificate": func(r *http.Request) { withCertificate(t, r) },
	} {
		b := s.browser(t)
		b.visit(s.url + "/login")
		logout := func(origin string) int {
			r := httptest.NewRequest(http.MethodPost, "/logout", strings.NewReader("{}"))
			r.Host = strings.TrimPrefix(s.url, "https://")
			r.Header = http.Header{
				"Cookie": {loginCookie + "=" + b.cookie(loginCookie)}, "Origin": {origin},
				"Content-Type": {"application/json"},
			}
			change(r)
			w := httptest.NewRecorder()
			s.server.Config.Handler.ServeHTTP(w, r)
			return w.Code
		}
		if code := logout("https://evil.example"); code == http.StatusOK || len(s.rows.rows) != 1 {
			t.Errorf("%s: another page: %d, %d logins", name, code, len(s.rows.rows))
		}
		if code := logout(s.url); code != http.StatusOK || len(s.rows.rows) != 0 {
			t.Errorf("%s: %d, %d logins", name, code, len(s.rows.rows))
		}
	}
}

// A browser with a certificate begins no login, because its requests would be rejected.
func TestLoginWithCertificate(t *testing.T) {
	t.Parallel()
	s := newLoginSite(t, ConsoleFull, "staff")
	r := withCertificate(t, httptest.NewRequest(http.MethodGet, "/login", http.NoBody))
	r.Host = localhost
	w := httptest.NewRecorder()
	s.server.Config.Handler.ServeHTTP(w, r)
	if w.Code != http.StatusForbidden || !strings.Contains(w.Body.String(), "client certificate") ||
		len(w.Result().Cookies()) != 0 {
		t.Errorf("%d %s", w.Code, w.Body)
	}
}

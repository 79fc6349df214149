package login

import (
	"context"
	"errors"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/coreos/go-oidc/v3/oidc"

	"github.com/progressor-engine/progressor/internal/testissuer"
)

// Redirects are not followed. A redirect could lead to another server or to a server without TLS.
// That server would get the refresh token, or could name other addresses.
func TestRedirectsOfAnIssuer(t *testing.T) {
	t.Parallel()
	other := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		t.Errorf("another server gets %s %s with the refresh token %q", r.Method, r.URL, r.FormValue("refresh_token"))
	}))
	t.Cleanup(other.Close)
	redirected := make(chan string, 1)
	issuer := issuerBehind(t, func(w http.ResponseWriter, r *http.Request, next http.Handler) {
		select {
		case path := <-redirected:
			if r.URL.Path == path {
				http.Redirect(w, r, other.URL+path, http.StatusTemporaryRedirect)
				return
			}
			redirected <- path
		default:
		}
		next.ServeHTTP(w, r)
	})
	f := logIn(t, issuer, -time.Minute)
	for _, path := range []string{"/token", "/.well-known/openid-configuration"} {
		redirected <- path
		if _, err := f.Source(engine)(t.Context()); !errors.Is(err, errRedirect) {
			t.Errorf("%s is redirected: %v", path, err)
		}
	}
	l, _, err := f.Get(engine)
	if err != nil {
		t.Fatal(err)
	}
	redirected <- "/revoke"
	if _, err := l.Revoke(t.Context()); !errors.Is(err, errRedirect) {
		t.Errorf("/revoke is redirected: %v", err)
	}
}

// If the answer of an issuer cannot be used, the error shows the beginning of the answer, without
// control characters.
func TestAnswersOfAnIssuer(t *testing.T) {
	t.Parallel()
	name := strings.Repeat("x", 2000)
	long := "\x1b[31m" + name
	for what, c := range map[string]struct {
		status int
		body   string
		want   string
	}{
		"an error":       {http.StatusInternalServerError, long, "500 Internal Server Error: "},
		"another issuer": {http.StatusOK, `{"issuer":"https://` + name + `"}`, "belongs to another issuer"},
		"no JSON":        {http.StatusOK, long, "it has no discovery document"},
		"wrong type":     {http.StatusOK, `{"issuer":"URL","revocation_endpoint":[]}`, "it has no discovery document"},
		"too large":      {http.StatusOK, strings.Repeat(" ", maxBody+1), "request body too large"},
	} {
		server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			w.WriteHeader(c.status)
			_, _ = w.Write([]byte(strings.ReplaceAll(c.body, "URL", "http://"+r.Host)))
		}))
		_, err := Issuer{URL: server.URL, ClientID: testissuer.Audience}.Begin(t.Context())
		server.Close()
		if err == nil || !strings.Contains(err.Error(), c.want) || len(err.Error()) > 500 ||
			strings.ContainsRune(err.Error(), '\x1b') {
			t.Errorf("%s: %v", what, err)
		}
	}
}

// If the CA of an issuer is unknown, the error names the flag that sets the CA.
func TestUnknownAuthorityOfAnIssuer(t *testing.T) {
	t.Parallel()
	server := httptest.NewTLSServer(http.NotFoundHandler())
	t.Cleanup(server.Close)
	_, err := Issuer{URL: server.URL, ClientID: testissuer.Audience}.Begin(t.Context())
	if err == nil || !strings.Contains(err.Error(), "--issuer-ca-file") {
		t.Error(err)
	}
}

// begin starts a login whose user has accepted, with one second between two requests.
func begin(t *testing.T, issuer *testissuer.Issuer) (Issuer, *Code) {
	t.Helper()
	i := Issuer{URL: issuer.URL, ClientID: testissuer.Audience}
	code, err := i.Begin(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	issuer.Accept(nil, time.Hour)
	return i, code
}

// A user can interrupt the requests that begin a login. They end at once.
func TestBeginIsInterrupted(t *testing.T) {
	t.Parallel()
	for _, path := range []string{"/.well-known/openid-configuration", "/device"} {
		ctx, cancel := context.WithCancel(t.Context())
		issuer := issuerBehind(t, func(w http.ResponseWriter, r *http.Request, next http.Handler) {
			if r.URL.Path != path {
				next.ServeHTTP(w, r)
				return
			}
			_ = r.ParseForm() // reads the body, so that the server notices the end of the connection
			cancel()
			<-r.Context().Done()
		})
		began := time.Now()
		_, err := Issuer{URL: issuer.URL, ClientID: testissuer.Audience}.Begin(ctx)
		if took := time.Since(began); !errors.Is(err, context.Canceled) || took > requestTimeout/2 {
			t.Errorf("%s: %v after %s", path, err, took)
		}
	}
}

// A request for the token that times out does not end the login. An expired code does.
func TestSlowIssuer(t *testing.T) {
	t.Parallel()
	var requests atomic.Int32
	issuer := issuerBehind(t, func(w http.ResponseWriter, r *http.Request, next http.Handler) {
		if r.URL.Path == "/token" && requests.Add(1) == 1 {
			_ = r.ParseForm() // reads the body, so that the server notices the end of the connection
			<-r.Context().Done()
			return
		}
		next.ServeHTTP(w, r)
	})
	impatient := oidc.ClientContext(t.Context(), &http.Client{Timeout: time.Second})
	i, code := begin(t, issuer)
	if l, err := i.wait(impatient, code); err != nil || l.Token == "" || requests.Load() < 2 {
		t.Errorf("a slow request: %v after %d requests", err, requests.Load())
	}
	i, code = begin(t, issuer)
	code.Expires = time.Now()
	code.auth.Expiry = code.Expires
	if _, err := i.wait(impatient, code); err == nil || !strings.Contains(err.Error(), "the code has expired") {
		t.Errorf("an expired code: %v", err)
	}
	ctx, cancel := context.WithCancel(impatient)
	cancel()
	if _, err := i.wait(ctx, code); !errors.Is(err, context.Canceled) {
		t.Errorf("interrupted: %v", err)
	}
}

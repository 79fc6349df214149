package login

import (
	"context"
	"encoding/json"
	"errors"
	"maps"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/progressor-engine/progressor/internal/testissuer"
)

const engine = "http://127.0.0.1:8080"

// issuerBehind serves an issuer behind a handler of the test.
func issuerBehind(
	t *testing.T, serve func(w http.ResponseWriter, r *http.Request, next http.Handler),
) *testissuer.Issuer {
	t.Helper()
	issuer := testissuer.Unstarted(t)
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		serve(w, r, issuer)
	}))
	t.Cleanup(server.Close)
	issuer.URL = server.URL
	return issuer
}

// isRefresh reports whether a request uses a refresh token to get a new token.
func isRefresh(r *http.Request) bool { return r.FormValue("grant_type") == "refresh_token" }

// logIn returns a file with a login for engine whose token expires after a time.
func logIn(t *testing.T, issuer *testissuer.Issuer, lifetime time.Duration) File {
	t.Helper()
	i := Issuer{URL: issuer.URL, ClientID: testissuer.Audience}
	code, err := i.Begin(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	issuer.Accept(nil, lifetime)
	l, err := i.Wait(t.Context(), code)
	if err != nil {
		t.Fatal(err)
	}
	f := File(filepath.Join(t.TempDir(), "logins.json"))
	if err := f.Put(t.Context(), engine, l); err != nil {
		t.Fatal(err)
	}
	return f
}

// A new refresh token is stored even if the request that needs it ends in the meantime.
func TestRefreshOutlivesItsRequest(t *testing.T) {
	t.Parallel()
	ctx, cancel := context.WithCancel(t.Context())
	issuer := issuerBehind(t, func(w http.ResponseWriter, r *http.Request, next http.Handler) {
		if !isRefresh(r) {
			next.ServeHTTP(w, r)
			return
		}
		answer := httptest.NewRecorder()
		next.ServeHTTP(answer, r) // from now on, only the new refresh token is valid
		cancel()
		maps.Copy(w.Header(), answer.Header())
		_, _ = w.Write(answer.Body.Bytes())
	})
	f := logIn(t, issuer, -time.Minute)
	_, _ = f.Source(engine)(ctx) // its error does not matter
	if _, err := f.Source(engine)(t.Context()); err != nil || issuer.Refreshes() != 2 {
		t.Errorf("the next refresh: %v after %d refreshes", err, issuer.Refreshes())
	}
}

// An issuer may omit the ID token when it refreshes a login. The new refresh token is stored
// anyway.
func TestRefreshWithoutIDToken(t *testing.T) {
	t.Parallel()
	issuer := issuerBehind(t, func(w http.ResponseWriter, r *http.Request, next http.Handler) {
		if !isRefresh(r) {
			next.ServeHTTP(w, r)
			return
		}
		answer := httptest.NewRecorder()
		next.ServeHTTP(answer, r)
		var document map[string]any
		if err := json.Unmarshal(answer.Body.Bytes(), &document); err != nil {
			t.Error(err)
		}
		delete(document, "id_token")
		w.Header().Set("Content-Type", "application/json")
		w.WriteHeader(answer.Code)
		if err := json.NewEncoder(w).Encode(document); err != nil {
			t.Error(err)
		}
	})
	f := logIn(t, issuer, -time.Minute)
	for n := 1; n <= 2; n++ {
		_, err := f.Source(engine)(t.Context())
		if err == nil || !strings.Contains(err.Error(), "its ID token is missing in the answer") {
			t.Errorf("refresh %d: %v", n, err)
		}
		if issuer.Refreshes() != n {
			t.Errorf("refreshed %d times, want %d", issuer.Refreshes(), n)
		}
	}
}

// wantEnd requests a token with a context that ends, and fails the test if the request does not end
// then.
func wantEnd(t *testing.T, token func(context.Context) (string, error)) {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() {
		_, err := token(ctx)
		done <- err
	}()
	cancel()
	select {
	case err := <-done:
		if !errors.Is(err, context.Canceled) {
			t.Error(err)
		}
	case <-time.After(20 * time.Second):
		t.Error("the request continues after the end of its context")
	}
}

// While another command refreshes a login, a request waits no longer than its context.
func TestWaitForAnotherCommand(t *testing.T) {
	t.Parallel()
	f := logIn(t, testissuer.New(t), -time.Minute)
	lock, err := os.OpenFile(string(f)+".lock", os.O_RDWR, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer lock.Close()
	if err := syscall.Flock(int(lock.Fd()), syscall.LOCK_EX); err != nil {
		t.Fatal(err)
	}
	wantEnd(t, f.Source(engine))
}

// While another request refreshes a login, a request waits no longer than its context.
func TestWaitForAnotherRequest(t *testing.T) {
	t.Parallel()
	asked, answer := make(chan struct{}), make(chan struct{})
	issuer := issuerBehind(t, func(w http.ResponseWriter, r *http.Request, next http.Handler) {
		if isRefresh(r) {
			close(asked)
			<-answer
		}
		next.ServeHTTP(w, r)
	})
	token := logIn(t, issuer, -time.Minute).Source(engine)
	first := make(chan error, 1)
	go func() {
		_, err := token(t.Context())
		first <- err
	}()
	<-asked
	wantEnd(t, token)
	close(answer)
	if err := <-first; err != nil {
		t.Errorf("the request that refreshes: %v", err)
	}
}

// If a token cannot be refreshed, it is used until it expires.
func TestTokenWithoutRefresh(t *testing.T) {
	t.Parallel()
	issuer := testissuer.New(t)
	for lifetime, works := range map[time.Duration]bool{margin - time.Second: true, -time.Second: false} {
		issuer.SetDown(false)
		f := logIn(t, issuer, lifetime)
		issuer.SetDown(true)
		token, err := f.Source(engine)(t.Context())
		if (err == nil) != works || (token != "") != works {
			t.Errorf("a token that expires in %s: %q, %v", lifetime, token, err)
		}
	}
}

// If another command logs out while a request waits to refresh the login, the error reports this.
func TestLogoutBeforeRefresh(t *testing.T) {
	t.Parallel()
	f := logIn(t, testissuer.New(t), margin-time.Second)
	lock, err := os.OpenFile(string(f)+".lock", os.O_RDWR, 0)
	if err != nil {
		t.Fatal(err)
	}
	if err := syscall.Flock(int(lock.Fd()), syscall.LOCK_EX); err != nil {
		t.Fatal(err)
	}
	s := &source{file: f, engine: engine}
	done := make(chan error, 1)
	go func() {
		_, err := s.refresh(t.Context())
		done <- err
	}()
	if err := f.write(logins{}); err != nil { // like logout, which holds the lock
		t.Error(err)
	}
	if err := lock.Close(); err != nil {
		t.Error(err)
	}
	if err := <-done; !errors.Is(err, errLoggedOut) {
		t.Error(err)
	}
}

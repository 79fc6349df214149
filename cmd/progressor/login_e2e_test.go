package main

import (
	"encoding/pem"
	"errors"
	"fmt"
	"net/http/httptest"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/progressor-engine/progressor/cmd/progressor/internal/cli"
	"github.com/progressor-engine/progressor/cmd/progressor/internal/cli/clitest"
	"github.com/progressor-engine/progressor/internal/testissuer"
	"github.com/progressor-engine/progressor/storage/storagetest"
)

// loginSite is an engine that accepts the tokens of an issuer, and a user without a token.
type loginSite struct {
	issuer *testissuer.Issuer
	user   clitest.Program
	file   string // logins of the user
	args   []string
}

func newLoginSite(t *testing.T) *loginSite {
	t.Helper()
	issuer := testissuer.New(t)
	d := background(t, nil, "serve", "--listen", "127.0.0.1:0", "--db.dsn", storagetest.DSN(t),
		"--auth.oidc.issuer", issuer.URL, "--auth.oidc.audience", testissuer.Audience)
	s := &loginSite{issuer: issuer, user: d.Client, file: filepath.Join(t.TempDir(), "config", "logins.json")}
	s.user.Env = map[string]string{"PROGRESSOR_ADDRESS": d.URL, "PROGRESSOR_LOGIN_FILE": s.file}
	s.args = []string{"login", "--issuer", issuer.URL, "--client-id", testissuer.Audience}
	return s
}

// login runs progressor login, and calls answer when the command has printed the code.
func (s *loginSite) login(t *testing.T, answer func()) (output string, code int) {
	t.Helper()
	shown, wait := s.user.Start(t, s.args...)
	clitest.Eventually(t, "the code is shown", func() error {
		want := s.issuer.URL + `/enter and enter the code "WDJB-MJHT" within `
		if text := shown.String(); !strings.Contains(text, want) {
			return errors.New(text)
		}
		return nil
	})
	answer()
	code = wait()
	return shown.String(), code
}

// refreshToken returns the refresh token in the file.
func (s *loginSite) refreshToken(t *testing.T) string {
	t.Helper()
	text, err := os.ReadFile(s.file)
	if err != nil {
		t.Fatal(err)
	}
	found := regexp.MustCompile(`"refresh_token": "(\w+)"`).FindSubmatch(text)
	if found == nil {
		t.Fatalf("no refresh token in %s", text)
	}
	return string(found[1])
}

// TestLogin follows the steps of a user: login, a command, a refreshed token, and logout.
func TestLogin(t *testing.T) {
	t.Parallel()
	s := newLoginSite(t)
	principal := "user:" + s.issuer.URL + "#alice"
	if r := s.user.Run(t, "whoami"); r.Code == cli.ExitOK || !strings.Contains(r.Stderr, "the request has no token") {
		t.Fatalf("without a login: %+v", r)
	}
	out, code := s.login(t, func() { s.issuer.Accept(map[string]any{"groups": []string{"a"}}, time.Hour) })
	if code != cli.ExitOK || !strings.HasSuffix(out, principal+"\ngroup:a\n") || strings.Contains(out, "eyJ") {
		t.Fatalf("login: %d, %s", code, out)
	}
	for path, mode := range map[string]os.FileMode{s.file: 0o600, filepath.Dir(s.file): 0o700} {
		if info, err := os.Stat(path); err != nil || info.Mode().Perm() != mode {
			t.Errorf("%s: %v, %v", path, info.Mode(), err)
		}
	}
	if out := s.user.OK(t, "whoami"); out != principal+"\ngroup:a\n" || s.issuer.Refreshes() != 0 {
		t.Errorf("whoami: %s", out)
	}
	// A command that calls an API method also sends the token.
	if r := s.user.Run(t, "namespace", "put", "x", "--builtin", "echo"); !strings.Contains(r.Stderr, principal+
		" does not have it") {
		t.Errorf("%+v", r)
	}
	if r := s.user.Run(t, "whoami", "--token", "pgr_x"); r.Code == cli.ExitOK {
		t.Errorf("with another token: %+v", r)
	}
	// The issuer fails the test if it gets the token.
	if r := s.user.Run(t, "whoami", "--address", s.issuer.URL); r.Code == cli.ExitOK {
		t.Errorf("with the address of another server: %+v", r)
	}
	refresh := s.refreshToken(t)
	s.user.OK(t, "logout")
	if got := s.issuer.Revoked(); !slices.Equal(got, []string{refresh}) {
		t.Errorf("logout revokes %q, want the refresh token %q", got, refresh)
	}
	if text, err := os.ReadFile(s.file); err != nil || strings.Contains(string(text), "eyJ") {
		t.Errorf("after logout: %s, %v", text, err)
	}
	if r := s.user.Run(t, "whoami"); !strings.Contains(r.Stderr, "the request has no token") {
		t.Errorf("after logout: %+v", r)
	}
	if r := s.user.Run(t, "logout"); r.Code != cli.ExitNotFound {
		t.Errorf("logout without a login: %+v", r)
	}
}

// A token that expires soon is refreshed only once, even if many commands run at the same time.
func TestLoginIsRefreshed(t *testing.T) {
	t.Parallel()
	s := newLoginSite(t)
	out, code := s.login(t, func() { s.issuer.Accept(nil, 10*time.Second) })
	if code != cli.ExitOK {
		t.Fatalf("login: %d, %s", code, out)
	}
	before := s.issuer.Refreshes() // login has used the token, which expires soon
	s.issuer.Accept(nil, time.Hour)
	var all sync.WaitGroup
	for range 8 {
		all.Go(func() { s.user.OK(t, "whoami") })
	}
	all.Wait()
	if n := s.issuer.Refreshes() - before; n != 1 {
		t.Errorf("refreshed %d times", n)
	}
	last, before := s.refreshToken(t), s.issuer.Refreshes()
	if out, code := s.login(t, func() { s.issuer.Accept(nil, 2*time.Second) }); code != cli.ExitOK {
		t.Fatalf("login: %d, %s", code, out)
	}
	if got := s.issuer.Revoked(); !slices.Equal(got, []string{last}) || s.issuer.Refreshes() == before {
		t.Errorf("another login revokes %q, want only the last refresh token, %q", got, last)
	}
	s.issuer.Deny("invalid_grant")
	clitest.Eventually(t, "the token has expired, and the refresh is denied", func() error {
		r := s.user.Run(t, "whoami")
		if r.Code == cli.ExitOK || !strings.Contains(r.Stderr, `does not refresh the login: "invalid_grant`) ||
			!strings.Contains(r.Stderr, "run progressor login") {
			return fmt.Errorf("%+v", r)
		}
		return nil
	})
}

// A login that fails stores nothing, and reports the reason.
func TestLoginFails(t *testing.T) {
	t.Parallel()
	s := newLoginSite(t)
	out, code := s.login(t, func() { s.issuer.Deny("access_denied") })
	if code == cli.ExitOK || !strings.Contains(out, `rejects the login: "access_denied: the answer of the test"`) {
		t.Errorf("denied: %d, %s", code, out)
	}
	s.args = append(s.args, "--token-type", "access")
	out, code = s.login(t, func() { s.issuer.Accept(nil, time.Hour) })
	if code == cli.ExitOK || !strings.Contains(out, "its access token must be a JSON Web Token") {
		t.Errorf("an opaque access token: %d, %s", code, out)
	}
	if revoked := s.issuer.Revoked(); len(revoked) != 1 || revoked[0] == "" {
		t.Errorf("the refresh token of a failed login: revoked %q", revoked)
	}
	s.issuer.Change(func(d map[string]any) { delete(d, "revocation_endpoint") })
	out, code = s.login(t, func() { s.issuer.Accept(nil, time.Hour) })
	if code == cli.ExitOK || !strings.Contains(out, "cannot revoke tokens (it has no revocation_endpoint)") {
		t.Errorf("an issuer without revocation: %d, %s", code, out)
	}
	if _, err := os.Stat(s.file); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("the file was written: %v", err)
	}
	for _, c := range []struct {
		args string
		want string
	}{
		{"login", "--issuer: must be an https URL"},
		{"login --issuer http://login.example.com --client-id a", "--issuer: must be an https URL"},
		{"login --issuer https://login.example.com", "--client-id: is required"},
		{"login --issuer https://login.example.com --client-id a --token-type x", "--token-type"},
		{"login --issuer https://login.example.com --client-id a --address engine.example.com:8080",
			"--address: must be an https URL, because"},
		{"login --issuer https://login.example.com --client-id a --address http://192.0.2.1:8080",
			"(got http://192.0.2.1:8080); in a network that you trust, add --allow-http"},
	} {
		r := s.user.Run(t, strings.Fields(c.args)...)
		if r.Code != cli.ExitUsage || !strings.Contains(r.Stderr, c.want) {
			t.Errorf("%s: %+v", c.args, r)
		}
	}
	s.issuer.Change(func(d map[string]any) { delete(d, "device_authorization_endpoint") })
	for _, more := range []string{"", " --address http://192.0.2.1:8080 --allow-http", " --address https://192.0.2.1"} {
		r := s.user.Run(t, append(slices.Clone(s.args), strings.Fields(more)...)...)
		if !strings.Contains(r.Stderr, "does not support the device flow") {
			t.Errorf("login%s: %+v", more, r)
		}
	}
	s.issuer.Change(func(d map[string]any) { d["token_endpoint"] = "http://login.example.com/token" })
	if r := s.user.Run(t, s.args...); !strings.Contains(r.Stderr, "token_endpoint must be an https URL") {
		t.Errorf("%+v", r)
	}
	if err := os.MkdirAll(filepath.Dir(s.file), 0o700); err != nil {
		t.Fatal(err)
	}
	for text, want := range map[string]string{"{": "delete the file and log in again", "{}": "chmod 600"} {
		mode := os.FileMode(0o600)
		if text == "{}" {
			mode = 0o640
		}
		if err := errors.Join(os.WriteFile(s.file, []byte(text), mode), os.Chmod(s.file, mode)); err != nil {
			t.Fatal(err)
		}
		for _, command := range []string{"whoami", "logout", "node list"} {
			r := s.user.Run(t, strings.Fields(command)...)
			if r.Code == cli.ExitOK || !strings.Contains(r.Stderr, want) {
				t.Errorf("%s with %s: %+v", command, text, r)
			}
		}
	}
}

// Logout deletes the tokens even if the issuer does not revoke them, and reports this.
func TestLogoutWithoutRevocation(t *testing.T) {
	t.Parallel()
	s := newLoginSite(t)
	for _, c := range []struct {
		name string
		fail func()
		code int
		want string
	}{
		{"the issuer is down", func() { s.issuer.SetDown(true) }, cli.ExitFailed,
			"a copy of the refresh token may still work"},
		{"no endpoint", func() {
			s.issuer.Change(func(d map[string]any) { delete(d, "revocation_endpoint") })
		}, cli.ExitOK, "cannot revoke tokens (it has no revocation_endpoint)"},
	} {
		s.issuer.SetDown(false)
		if out, code := s.login(t, func() { s.issuer.Accept(nil, time.Hour) }); code != cli.ExitOK {
			t.Fatalf("%s: login: %d, %s", c.name, code, out)
		}
		c.fail()
		if r := s.user.Run(t, "logout"); r.Code != c.code || !strings.Contains(r.Stderr, c.want) {
			t.Errorf("%s: %+v", c.name, r)
		}
		if text, err := os.ReadFile(s.file); err != nil || strings.Contains(string(text), "token") {
			t.Errorf("%s: after logout: %s, %v", c.name, text, err)
		}
	}
	if len(s.issuer.Revoked()) != 0 {
		t.Errorf("revoked: %q", s.issuer.Revoked())
	}
}

// A login stores the absolute path of the authorities of its issuer, so that commands in other
// directories also find them.
func TestLoginWithAuthorities(t *testing.T) {
	t.Parallel()
	issuer := testissuer.Unstarted(t)
	server := httptest.NewTLSServer(issuer)
	t.Cleanup(server.Close)
	issuer.URL = server.URL
	dir := t.TempDir()
	authorities := filepath.Join(dir, "ca.crt")
	text := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: server.Certificate().Raw})
	if err := os.WriteFile(authorities, text, 0o600); err != nil {
		t.Fatal(err)
	}
	here, err := os.Getwd()
	if err != nil {
		t.Fatal(err)
	}
	relative, err := filepath.Rel(here, authorities)
	if err != nil {
		t.Fatal(err)
	}
	s := &loginSite{
		issuer: issuer, file: filepath.Join(dir, "logins.json"),
		args: []string{"login", "--issuer", issuer.URL, "--client-id", testissuer.Audience,
			"--issuer-ca-file", relative},
	}
	s.user = clitest.Program{Commands: newCommands, Env: map[string]string{
		"PROGRESSOR_ADDRESS": "http://127.0.0.1:1", "PROGRESSOR_LOGIN_FILE": s.file}}
	out, code := s.login(t, func() { issuer.Accept(nil, time.Hour) })
	if code != cli.ExitUnavailable || !strings.Contains(out, "the login is stored, but") {
		t.Fatalf("login without an engine: %d, %s", code, out)
	}
	stored, err := os.ReadFile(s.file)
	if err != nil || !strings.Contains(string(stored), `"ca_file": "`+authorities+`"`) {
		t.Errorf("%s, %v", stored, err)
	}
}

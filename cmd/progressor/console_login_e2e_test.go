package main

import (
	"crypto/tls"
	"crypto/x509"
	"errors"
	"io"
	"net/http"
	"net/http/cookiejar"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/progressor-engine/progressor/cmd/progressor/internal/cli"
	"github.com/progressor-engine/progressor/cmd/progressor/internal/cli/clitest"
	"github.com/progressor-engine/progressor/internal/testca"
	"github.com/progressor-engine/progressor/internal/testissuer"
	"github.com/progressor-engine/progressor/storage/storagetest"
)

// TestConsoleLogin follows the steps of an operator and of a user. The operator configures an
// engine with TLS and a client at an issuer. The user logs in to the console with a browser and
// logs out. The audit shows the login and the logout.
func TestConsoleLogin(t *testing.T) {
	t.Parallel()
	dsn, dir, issuer := storagetest.DSN(t), t.TempDir(), testissuer.New(t)
	file := func(name string) string { return filepath.Join(dir, name) }
	authority := testca.New(t)
	authority.Write(authority.Issue(time.Hour), file("tls.crt"), file("tls.key"))
	authority.WriteAuthority(file("ca.crt"))
	if err := os.WriteFile(file("secret"), []byte("s3cret\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	issuer.Protect("s3cret", false)
	issuer.LogIn(map[string]any{"groups": []string{"support"}})
	d := background(t, nil, "serve", "--listen", "127.0.0.1:0", "--db.dsn", dsn,
		"--tls.cert-file", file("tls.crt"), "--tls.key-file", file("tls.key"),
		"--auth.oidc.issuer", issuer.URL, "--auth.oidc.audience", "api",
		"--auth.oidc.client-id", testissuer.Audience, "--auth.oidc.client-secret-file", file("secret"))
	program := clitest.Program{Commands: newCommands}
	program.OK(t, "grant", "add", "group:support", "admin", "*", "--db.dsn", dsn)
	jar, err := cookiejar.New(nil)
	if err != nil {
		t.Fatal(err)
	}
	roots := x509.NewCertPool()
	roots.AddCert(authority.Certificate)
	transport := &http.Transport{TLSClientConfig: &tls.Config{RootCAs: roots, MinVersion: tls.VersionTLS12}}
	t.Cleanup(transport.CloseIdleConnections)
	browser := &http.Client{Transport: transport, Jar: jar}
	send := func(method, path string) (*http.Response, string) {
		t.Helper()
		request, err := http.NewRequestWithContext(t.Context(), method, d.URL+path, strings.NewReader("{}"))
		if err != nil {
			t.Fatal(err)
		}
		request.Header = http.Header{
			"Accept": {"text/html"}, "Content-Type": {"application/json"}, "Origin": {d.URL},
		}
		response, err := browser.Do(request)
		if err != nil {
			t.Fatal(err)
		}
		defer response.Body.Close()
		body, err := io.ReadAll(response.Body)
		if err != nil {
			t.Fatal(err)
		}
		return response, string(body)
	}
	if answer, body := send(http.MethodGet, "/login?to=/namespaces"); answer.StatusCode != http.StatusOK ||
		answer.Request.URL.String() != d.URL+"/#/namespaces" || !strings.Contains(body, "<title>") {
		t.Fatalf("login: %s %s", answer.Request.URL, body)
	}
	principal := "user:" + issuer.URL + "#alice"
	want := `"principal":"` + principal + `","login":true`
	if _, body := send(http.MethodPost, "/whoami"); !strings.Contains(body, want) {
		t.Errorf("whoami: %s", body)
	}
	const list = "/progressor.v1.InsightService/ListAudit"
	answer, body := send(http.MethodPost, list)
	if answer.StatusCode != http.StatusOK || !strings.Contains(body, "Login") {
		t.Errorf("%s %s", answer.Status, body)
	}
	clitest.WantLines(t, program.OK(t, "console-login", "list", "--db.dsn", dsn), principal)
	if out := program.OK(t, "console-login", "list", principal, "-o", "json", "--db.dsn", dsn); strings.Count(out,
		`"user": "`+principal) != 1 {
		t.Errorf("console-login list: %s", out)
	}
	if answer, body := send(http.MethodPost, "/logout"); answer.StatusCode != http.StatusOK {
		t.Errorf("logout: %s %s", answer.Status, body)
	}
	if answer, body := send(http.MethodPost, list); answer.StatusCode != http.StatusUnauthorized {
		t.Errorf("after the logout: %s %s", answer.Status, body)
	}
	send(http.MethodGet, "/login")
	for _, want := range []string{"ended 1 login of ", "ended 0 logins of "} {
		if out := program.OK(t, "console-login", "end", principal, "--db.dsn", dsn); out != want+principal+"\n" {
			t.Errorf("console-login end: %s", out)
		}
	}
	clitest.Eventually(t, "the login has ended", func() error {
		if answer, body := send(http.MethodPost, "/whoami"); answer.StatusCode != http.StatusUnauthorized {
			return errors.New(body)
		}
		return nil
	})
	for _, name := range []string{"alice", "group:support", "user:", "user:https://a"} {
		r := program.Run(t, "console-login", "end", name, "--db.dsn", dsn)
		if r.Code != cli.ExitUsage || !strings.Contains(r.Stderr, "USER: must be user:ISSUER#NAME") {
			t.Errorf("%s: %+v", name, r)
		}
	}
	pool := storagetest.Connect(t, dsn)
	var audit string
	err = pool.QueryRow(t.Context(), `SELECT string_agg(method || ' ' || replace(actor, session_user, 'ROLE'), ' '
		ORDER BY audit_id) FROM progressor.audit WHERE method IN ('Login', 'Logout')
		  AND (source LIKE '127.0.0.1:%' OR actor LIKE 'pg:%')`).Scan(&audit)
	if err != nil {
		t.Fatal(err)
	}
	if audit != "Login "+principal+" Logout "+principal+" Login "+principal+" Logout pg:ROLE" {
		t.Errorf("audit: %s", audit)
	}
}

// Invalid settings for logins to the console are rejected with an error that names the flag.
func TestWrongConsoleLogins(t *testing.T) {
	t.Parallel()
	program := clitest.Program{Commands: newCommands}
	const login = "--auth.oidc.issuer https://login.example.com --auth.oidc.audience a --auth.oidc.client-id c "
	for _, c := range []struct{ args, want string }{
		{"--auth.console.url https://a.example.com", "--auth.console.url: is used only with --auth.oidc.client-id"},
		{"--auth.console.lifetime 1m", "--auth.console.lifetime: must be 5m0s to 720h0m0s (got 1m0s)"},
		{"--auth.console.lifetime 721h", "--auth.console.lifetime: must be 5m0s to 720h0m0s"},
		{"--auth.console.idle 4m", "--auth.console.idle: must be at least 5m0s"},
		{"--auth.oidc.client-id c", "--auth.oidc.issuer: is required with"},
		{"--auth.oidc.client-secret-file /none", "--auth.oidc.issuer: is required with"},
		{"--auth.oidc.file /none --auth.oidc.client-id c", "--auth.oidc.file: cannot be used with"},
		{login + "--console off", "--auth.oidc.client-id: is not used with --console off"},
		{login + "--auth.oidc.client-secret-file /none", "--auth.oidc.client-secret-file: open /none"},
		{login + "--auth.oidc.scopes profile", "--auth.oidc.scopes: must have"},
		{login + "--listen 0.0.0.0:8080", "--auth.console.url: is required"},
		{login + "--listen :8080", "--auth.console.url: is required"},
		{login + "--listen [::]:8080", "--auth.console.url: is required"},
		{login + "--listen 10.0.0.5:8080", "--auth.console.url: must be the https URL"},
		{login + "--auth.console.url http://a.example.com", "--auth.console.url: must be the https URL"},
		{login + "--auth.console.url https://a.example.com?x", "--auth.console.url: must be the https URL"},
		{login + "--auth.console.url https://u:p@a.example.com", "--auth.console.url: must be the https URL"},
		{login + "--auth.console.url ftp://a.example.com", "--auth.console.url: must be the https URL"},
	} {
		args := append([]string{"config", "check", "--db.dsn", "postgres://localhost/x"}, strings.Fields(c.args)...)
		if r := program.Run(t, args...); r.Code != cli.ExitUsage || !strings.Contains(r.Stderr, c.want) {
			t.Errorf("%s: %+v", c.args, r)
		}
	}
	for _, args := range []string{
		login, login + "--listen localhost:8080", login + "--listen 10.0.0.5:8080 --auth.console.url https://a.example.com/p/",
		login + "--auth.console.url http://127.0.0.1:8081",
	} {
		r := program.Run(t, append([]string{"config", "check", "--db.dsn", "postgres://localhost/x"},
			strings.Fields(args)...)...)
		warned := strings.Contains(r.Stderr, "--auth.console.url: has the path /p/, so other pages of a.example.com")
		if r.Code != 0 || warned != strings.Contains(args, "/p/") {
			t.Errorf("%s: %+v", args, r)
		}
	}
}

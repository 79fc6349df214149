package main

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"connectrpc.com/connect"

	"github.com/progressor-engine/progressor/client"
	"github.com/progressor-engine/progressor/cmd/progressor/internal/cli"
	"github.com/progressor-engine/progressor/cmd/progressor/internal/cli/clitest"
	"github.com/progressor-engine/progressor/internal/testissuer"
	progressorv1 "github.com/progressor-engine/progressor/proto/progressor/v1"
	"github.com/progressor-engine/progressor/storage/storagetest"
)

// user returns a command line with a token of an issuer.
func user(d *clitest.Daemon, token string) clitest.Program {
	p := d.Client
	p.Env = map[string]string{"PROGRESSOR_ADDRESS": d.URL, "PROGRESSOR_TOKEN": token}
	return p
}

// TestOIDC follows the steps of an operator: an engine that accepts the tokens of an issuer, a
// grant for a group, a grant for a user, and the removal of the grant for the group.
func TestOIDC(t *testing.T) {
	t.Parallel()
	dsn, issuer, program := storagetest.DSN(t), testissuer.New(t), clitest.Program{Commands: newCommands}
	d := background(t, nil, "serve", "--listen", "127.0.0.1:0", "--db.dsn", dsn,
		"--auth.oidc.issuer", issuer.URL, "--auth.oidc.audience", testissuer.Audience)
	if r := d.Client.Run(t, "namespace", "list"); !strings.Contains(r.Stderr, "the request has no token") {
		t.Fatalf("on loopback, without a token: %+v", r) // auto requires a token with an issuer
	}
	principal := "user:" + issuer.URL + "#alice"
	alice := user(d, issuer.Token(map[string]any{"groups": []string{"shop admins", "all"}}))
	bob := user(d, issuer.Token(map[string]any{"sub": "bob"}))
	if out := alice.OK(t, "whoami"); out != principal+"\ngroup:all\ngroup:shop admins\n" {
		t.Errorf("whoami without grants: %q", out)
	}
	out := program.OK(t, "grant", "add", "group:shop admins", "admin", "shop/*", "--db.dsn", dsn)
	if out != "group:shop admins now has the role admin in shop/*\n" {
		t.Errorf("grant add: %q", out)
	}
	program.OK(t, "grant", "add", principal, "viewer", "billing", "--db.dsn", dsn)
	clitest.WantLines(t, program.OK(t, "grant", "list", principal, "--db.dsn", dsn), principal+" viewer billing")
	clitest.Eventually(t, "the grants are known", func() error {
		want := principal + "\nadmin shop/*\nviewer billing\ngroup:all\ngroup:shop admins\n"
		if got := alice.OK(t, "whoami"); got != want {
			return errors.New(got)
		}
		return nil
	})
	if out := alice.OK(t, "whoami", "-o", "json"); !strings.Contains(out, `"groups": [`) ||
		!strings.Contains(out, `"principal": "`+principal) {
		t.Errorf("whoami: %s", out)
	}
	alice.OK(t, "namespace", "put", "shop/tea", "--builtin", "echo", "--changes", "lifecycle")
	if audit := alice.OK(t, "audit", "shop/tea", "-o", "json"); !strings.Contains(audit, principal) {
		t.Errorf("the audit does not show the user: %s", audit)
	}
	for _, c := range []struct {
		p    clitest.Program
		want string
	}{{bob, "user:" + issuer.URL + "#bob does not have it"}, {alice, principal + " does not have it"}} {
		if r := c.p.Run(t, "namespace", "put", "orders", "--builtin", "echo"); !strings.Contains(r.Stderr, c.want) {
			t.Errorf("%+v", r)
		}
	}
	stream, err := client.New(d.URL, client.WithToken(alice.Env["PROGRESSOR_TOKEN"])).Change.WatchChanges(t.Context(),
		&progressorv1.WatchChangesRequest{Namespace: "shop/tea"})
	if err != nil {
		t.Fatal(err)
	}
	defer stream.Close()
	program.OK(t, "grant", "remove", "group:shop admins", "admin", "shop/*", "--db.dsn", dsn)
	for stream.Receive() {
	}
	if err := stream.Err(); connect.CodeOf(err) != connect.CodePermissionDenied {
		t.Errorf("a stream without the grant: %v", err)
	}
	expired := user(d, issuer.Token(map[string]any{"exp": 1}))
	if r := expired.Run(t, "whoami"); r.Code == cli.ExitOK || !strings.Contains(r.Stderr, "token is expired") {
		t.Errorf("an expired token: %+v", r)
	}
	issuer.SetDown(true)
	foreign := testissuer.Sign(t, testissuer.NewKey(t, "new"), issuer.Claims(nil))
	if r := user(d, foreign).Run(t, "whoami"); !strings.Contains(r.Stderr, "the issuer of the token cannot be") {
		t.Errorf("the issuer is down: %+v", r)
	}
	_, err = client.New(d.URL, client.WithToken(foreign), client.WithRetry(client.Retry{})).Namespace.ListNamespaces(
		t.Context(), &progressorv1.ListNamespacesRequest{})
	if connect.CodeOf(err) != connect.CodeUnavailable || !strings.Contains(err.Error(), "the issuer of the token") {
		t.Errorf("the issuer is down: %v", err)
	}
}

// An engine starts, and is ready, while its issuers cannot be reached.
func TestStartWithoutIssuer(t *testing.T) {
	t.Parallel()
	dsn := storagetest.DSN(t)
	file := filepath.Join(t.TempDir(), "issuers.yaml")
	text := "issuers:\n  - {issuer: 'http://127.0.0.1:1', audience: a, group_prefix: 'a:'}\n" +
		"  - {issuer: 'http://127.0.0.1:2', audience: b, group_prefix: 'b:', name_claim: email}\n"
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	d := background(t, nil, "serve", "--listen", "127.0.0.1:0", "--db.dsn", dsn, "--auth.oidc.file", file)
	_, token := newKey(t, dsn, "root", "root")
	out := user(d, token).OK(t, "namespace", "list", "-o", "json")
	if !strings.Contains(out, "namespaces") {
		t.Errorf("with a key: %s", out)
	}
}

// Invalid settings of issuers are rejected with an error that names the flag.
func TestWrongIssuers(t *testing.T) {
	t.Parallel()
	program := clitest.Program{Commands: newCommands}
	const issuer = "--auth.oidc.issuer https://login.example.com "
	for _, c := range []struct{ args, file, want string }{
		{"--auth.oidc.issuer http://login.example.com --auth.oidc.audience a", "", "--auth.oidc.issuer: must be the https"},
		{issuer, "", "--auth.oidc.audience: is required with --auth.oidc.issuer"},
		{issuer + "--auth.oidc.audience a --auth.oidc.groups-claim=", "", "--auth.oidc.groups-claim: must have"},
		{issuer + "--auth.oidc.audience a --auth.oidc.ca-file /none", "", "--auth.oidc.ca-file: open /none"},
		{issuer + "--auth.oidc.audience a --auth.mode none", "", "--auth.oidc: is not used with --auth.mode none"},
		{"--auth.oidc.audience a", "", "--auth.oidc.issuer: is required with --auth.oidc.audience"},
		{"--auth.oidc.ca-file /none", "", "--auth.oidc.issuer: is required with"},
		{"--auth.oidc.file /none", "", "--auth.oidc.file: open /none"},
		{issuer, "issuers: []", "--auth.oidc.file: cannot be used with --auth.oidc.issuer"},
		{"", "issuers: []", "issuers: must have 1 to 16 elements (got 0)"},
		{"", "", "issuers: must have 1 to 16 elements (got 0)"},
		{"", "issuers: [{url: a}]", "field url not found"},
		{"", "issuers: [{issuer: a}]", "issuer: must be the https URL"},
		{"", "issuers: [{audience: a}]", "issuer: is required"},
		{"", "issuers: [{issuer: 'https://a', audience: a}, {issuer: 'https://b', audience: b}]",
			"issuers[0].group_prefix: with several issuers, each must have its own"},
	} {
		args := append([]string{"config", "check", "--db.dsn", "postgres://localhost/x"}, strings.Fields(c.args)...)
		if c.file != "" || c.args == "" {
			args = append(args, "--auth.oidc.file", clitest.WriteConfig(t, c.file))
		}
		if r := program.Run(t, args...); r.Code != cli.ExitUsage || !strings.Contains(r.Stderr, c.want) {
			t.Errorf("%s %s: %+v", c.args, c.file, r)
		}
	}
	dsn := storagetest.DSN(t)
	program.OK(t, "migrate", "up", "--db.dsn", dsn)
	for _, principal := range []string{
		"user:alice", "user:https://a#", "user:https://a#b c", "group:", "group:a\nb", "user:ftp://a#b",
	} {
		r := program.Run(t, "grant", "add", principal, "viewer", "a", "--db.dsn", dsn)
		if r.Code != cli.ExitUsage || !strings.Contains(r.Stderr, "user:ISSUER#NAME") {
			t.Errorf("%q: %+v", principal, r)
		}
	}
	longest := "user:https://" + strings.Repeat("a", 240-len("https://")) + "#" + strings.Repeat("b", 255)
	for _, principal := range []string{longest, "group:" + strings.Repeat("ä", 128), "user:https://a#b#c"} {
		program.OK(t, "grant", "add", principal, "viewer", "a", "--db.dsn", dsn)
	}
}

// The file of issuers in docs/security.md is valid, except for its path of authorities.
func TestDocumentedIssuers(t *testing.T) {
	t.Parallel()
	_, file, _ := strings.Cut(readPage(t, "docs/security.md"), "```yaml\nissuers:\n")
	file, _, ok := strings.Cut(file, "```\n")
	if !ok {
		t.Fatal("docs/security.md has no file of issuers")
	}
	var lines []string
	for line := range strings.Lines("issuers:\n" + file) {
		if !strings.Contains(line, "ca_file: ") {
			lines = append(lines, line)
		}
	}
	clitest.Program{Commands: newCommands}.OK(t, "config", "check", "--db.dsn", "postgres://localhost/x",
		"--auth.oidc.file", clitest.WriteConfig(t, strings.Join(lines, "")))
}

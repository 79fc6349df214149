package main

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/progressor-engine/progressor/client"
	"github.com/progressor-engine/progressor/cmd/progressor/internal/cli"
	"github.com/progressor-engine/progressor/cmd/progressor/internal/cli/clitest"
	"github.com/progressor-engine/progressor/internal/testca"
	progressorv1 "github.com/progressor-engine/progressor/proto/progressor/v1"
	"github.com/progressor-engine/progressor/storage/storagetest"
)

// newKey creates a key with a role in some namespaces and returns its ID and its token.
func newKey(t *testing.T, dsn, name, role string, namespaces ...string) (id, token string) {
	t.Helper()
	var key struct{ ID, Token string }
	args := []string{"key", "create", "--name", name, "--role", role, "--db.dsn", dsn, "-o", "json"}
	if role != "root" {
		args = append(args, "--namespaces", strings.Join(namespaces, ","))
	}
	out := clitest.Program{Commands: newCommands}.OK(t, args...)
	if err := json.Unmarshal([]byte(out), &key); err != nil {
		t.Fatal(err)
	}
	return key.ID, key.Token
}

// TestCertificates follows the steps of an operator who configures an engine with TLS and a client
// with a certificate instead of a key.
func TestCertificates(t *testing.T) {
	t.Parallel()
	dsn, dir := storagetest.DSN(t), t.TempDir()
	file := func(name string) string { return filepath.Join(dir, name) }
	servers, clients := testca.New(t), testca.New(t)
	servers.Write(servers.Issue(time.Hour), file("tls.crt"), file("tls.key"))
	servers.WriteAuthority(file("ca.crt"))
	clients.WriteAuthority(file("clients.crt"))
	clients.Write(clients.Issue(time.Hour, "spiffe://example.org/billing"), file("billing.crt"), file("billing.key"))
	d := background(t, nil, "serve", "--listen", "127.0.0.1:0", "--auth.mode", "required", "--db.dsn", dsn,
		"--tls.cert-file", file("tls.crt"), "--tls.key-file", file("tls.key"),
		"--tls.client-ca-file", file("clients.crt"))
	if !strings.HasPrefix(d.URL, "https://") {
		t.Fatalf("the engine is ready at %s", d.URL)
	}
	if r := d.Client.Run(t, "whoami"); r.Code == cli.ExitOK {
		t.Errorf("a client that does not trust the CA: %+v", r)
	}
	anonymous, billing := d.Client, d.Client
	anonymous.Env = map[string]string{"PROGRESSOR_ADDRESS": d.URL, "PROGRESSOR_TLS_CA_FILE": file("ca.crt")}
	billing.Env = map[string]string{
		"PROGRESSOR_ADDRESS": d.URL, "PROGRESSOR_TLS_CA_FILE": file("ca.crt"),
		"PROGRESSOR_TLS_CLIENT_CERT_FILE": file("billing.crt"), "PROGRESSOR_TLS_CLIENT_KEY_FILE": file("billing.key"),
	}
	if r := anonymous.Run(t, "namespace", "list"); !strings.Contains(r.Stderr, "the request has no token") {
		t.Errorf("without a certificate: %+v", r)
	}
	const principal = "cert:spiffe://example.org/billing"
	if out := billing.OK(t, "whoami"); out != principal+"\n" {
		t.Errorf("whoami without grants: %q", out)
	}
	program := clitest.Program{Commands: newCommands}
	out := program.OK(t, "grant", "add", principal, "admin", "billing/*", "--db.dsn", dsn)
	if out != principal+" now has the role admin in billing/*\n" {
		t.Errorf("grant add: %q", out)
	}
	clitest.Eventually(t, "the grant is known", func() error {
		if billing.OK(t, "whoami") != principal+"\nadmin billing/*\n" {
			return os.ErrInvalid
		}
		return nil
	})
	billing.OK(t, "namespace", "put", "billing/eu", "--builtin", "echo")
	if r := billing.Run(t, "namespace", "put", "orders", "--builtin", "echo"); r.Code == cli.ExitOK {
		t.Errorf("another namespace: %+v", r)
	}
	if audit := billing.OK(t, "audit", "billing/eu", "-o", "json"); !strings.Contains(audit, principal) {
		t.Errorf("the audit does not show the client: %s", audit)
	}
	for _, tt := range []struct{ args, contains string }{
		{"grant add cert:billing admin *", "<principal>: must be key:ID"},
		{"grant add cert: admin *", "<principal>: must be key:ID"},
		{"serve --tls.cert-file a", "--tls.key-file: is required with --tls.cert-file"},
		{"serve --tls.key-file a", "--tls.cert-file: is required with --tls.key-file"},
		{"serve --auth.oidc.issuer https://login.example.com", "--auth.oidc.audience: is required with"},
		{"serve --tls.client-ca-file a", "--tls.cert-file: is required with --tls.client-ca-file"},
		{"serve --tls.cert-file a --tls.key-file a --tls.client-auth required", "--tls.client-ca-file: is required"},
		{"whoami --tls.client-cert-file a", "--tls.client-cert-file, --tls.client-key-file: set both"},
		{"whoami --tls.ca-file " + file("tls.key"), "must contain certificates in PEM"},
		{"whoami --tls.client-cert-file a --tls.client-key-file b", "--tls.client-key-file: open a"},
	} {
		args := strings.Fields(tt.args)
		if args[0] != "whoami" {
			args = append(args, "--db.dsn", dsn)
		}
		r := program.Run(t, args...)
		if r.Code != cli.ExitUsage || !strings.Contains(r.Stderr, tt.contains) {
			t.Errorf("%s: %+v", tt.args, r)
		}
	}
}

// TestKeys follows the steps of an operator who configures an engine that requires keys. The
// operator creates a key for a client and a second key for a rotation, and revokes the first key.
func TestKeys(t *testing.T) {
	t.Parallel()
	dsn := storagetest.DSN(t)
	d := background(t, nil, "serve", "--listen", "127.0.0.1:0", "--auth.mode", "required", "--db.dsn", dsn)
	if r := d.Client.Run(t, "namespace", "list"); r.Code == cli.ExitOK ||
		!strings.Contains(r.Stderr, "the request has no token") {
		t.Fatalf("without a token: %+v", r)
	}
	firstID, first := newKey(t, dsn, "billing", "root")
	secondID, second := newKey(t, dsn, "billing, rotated", "admin", "*")
	with := func(token string) clitest.Program {
		p := d.Client
		p.Env = map[string]string{"PROGRESSOR_ADDRESS": d.URL, "PROGRESSOR_TOKEN": token}
		return p
	}
	with(first).OK(t, "namespace", "put", "orders", "--builtin", "orders")
	if out := with(second).OK(t, "whoami"); out != "key:"+secondID+"\nadmin *\n" {
		t.Errorf("whoami: %q", out)
	}
	file := filepath.Join(t.TempDir(), "token")
	if err := os.WriteFile(file, []byte(second+"\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	d.Client.OK(t, "namespace", "pause", "orders", "--token-file", file)
	audit := with(second).OK(t, "audit", "orders", "-o", "json")
	if !strings.Contains(audit, "key:"+firstID) || !strings.Contains(audit, "key:"+secondID) {
		t.Errorf("the audit does not show the keys: %s", audit)
	}
	program := clitest.Program{Commands: newCommands}
	program.OK(t, "key", "revoke", firstID, "--db.dsn", dsn)
	list := program.OK(t, "key", "list", "--db.dsn", dsn)
	clitest.WantLines(t, list, firstID+" billing revoked", secondID+" billing, rotated valid")
	if strings.Contains(list, first) || strings.Contains(list, strings.TrimPrefix(second, "pgr_"+secondID+"_")) {
		t.Errorf("the list shows a secret: %s", list)
	}
	clitest.Eventually(t, "the revoked key is rejected", func() error {
		if r := with(first).Run(t, "namespace", "list"); !strings.Contains(r.Stderr, "the token is not valid") {
			return &cli.CodedError{Err: os.ErrInvalid}
		}
		return nil
	})
	with(second).OK(t, "namespace", "list")
	if r := program.Run(t, "key", "revoke", firstID, "--db.dsn", dsn); r.Code != cli.ExitNotFound {
		t.Errorf("revoked twice: %+v", r)
	}
	if r := d.Client.Run(t, "namespace", "list", "--token", "a", "--token-file", "b"); r.Code != cli.ExitUsage {
		t.Errorf("two tokens: %+v", r)
	}
}

// The Go client sends a token, or the token in a file, with unary methods and streams. If the file
// is missing, the error names the token file.
func TestGoClientWithToken(t *testing.T) {
	t.Parallel()
	dsn := storagetest.DSN(t)
	d := background(t, nil, "serve", "--listen", "127.0.0.1:0", "--auth.mode", "required", "--db.dsn", dsn)
	_, token := newKey(t, dsn, "go", "root")
	for name, option := range map[string]client.Option{
		"token": client.WithToken(token), "file": client.WithTokenFile(clitest.WriteConfig(t, token+"\n")),
	} {
		c := client.New(d.URL, option)
		if _, err := c.Namespace.ListNamespaces(t.Context(), &progressorv1.ListNamespacesRequest{}); err != nil {
			t.Errorf("%s: %v", name, err)
		}
		request := &progressorv1.WatchChangesRequest{Namespace: "none", Stop: true}
		stream, err := c.Change.WatchChanges(t.Context(), request)
		if err != nil {
			t.Fatal(err)
		}
		for stream.Receive() {
		}
		if err := stream.Err(); err == nil || strings.Contains(err.Error(), "token") {
			t.Errorf("%s, stream: %v", name, err)
		}
		_ = stream.Close()
	}
	none := client.WithTokenFile(filepath.Join(t.TempDir(), "none"))
	missing := client.New(d.URL, none, client.WithRetry(client.Retry{}))
	_, err := missing.Namespace.ListNamespaces(t.Context(), &progressorv1.ListNamespacesRequest{})
	if err == nil || !strings.Contains(err.Error(), "token file") {
		t.Errorf("a missing file: %v", err)
	}
}

// With auth.mode local, the root key in the file works, and only the owner can read the file.
func TestLocalMode(t *testing.T) {
	t.Parallel()
	file := filepath.Join(t.TempDir(), "data", "token")
	d := background(t, nil, "serve", "--listen", "127.0.0.1:0", "--auth.mode", "local", "--auth.key-file", file,
		"--db.dsn", storagetest.DSN(t))
	if info, err := os.Stat(file); err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("%v, %v", info, err)
	}
	out := d.Client.OK(t, "whoami", "--token-file", file, "-o", "json")
	if !strings.Contains(out, `"principal": "root"`) || !strings.Contains(out, `"root *"`) {
		t.Errorf("whoami: %s", out)
	}
	if r := d.Client.Run(t, "whoami"); r.Code == cli.ExitOK || !strings.Contains(r.Stderr, "no token") {
		t.Errorf("without a token: %+v", r)
	}
}

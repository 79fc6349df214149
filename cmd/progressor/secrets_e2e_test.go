package main

import (
	"context"
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/proto"

	"github.com/progressor-engine/progressor/client"
	"github.com/progressor-engine/progressor/cmd/progressor/internal/cli"
	"github.com/progressor-engine/progressor/cmd/progressor/internal/cli/clitest"
	progressorv1 "github.com/progressor-engine/progressor/proto/progressor/v1"
	"github.com/progressor-engine/progressor/storage/storagetest"
)

// callee is a processor and a target of crons. It keeps the headers of the last request to each
// path.
type callee struct {
	*httptest.Server
	mu   sync.Mutex
	last map[string]http.Header
}

func newCallee(t *testing.T) *callee {
	t.Helper()
	c := &callee{last: map[string]http.Header{}}
	c.Server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		c.mu.Lock()
		c.last[r.URL.Path] = r.Header.Clone()
		c.mu.Unlock()
		w.Header().Set("Content-Type", "application/json")
		_, _ = io.WriteString(w, `{"result":{}}`)
	}))
	t.Cleanup(c.Close)
	return c
}

// got returns an error unless the last request to a path had these headers.
func (c *callee) got(path, authorization, key string) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if h := c.last[path]; h.Get("Authorization") != authorization || h.Get("X-Key") != key {
		return fmt.Errorf("%s got the headers %v", path, h)
	}
	return nil
}

// The values of headers and of a secret, in the clear.
const (
	firstToken  = "hunter2-token-1"
	secondToken = "hunter2-token-2"
	headerKey   = "hunter2-key"
)

// putSecret stores a secret. The value is read from standard input.
func putSecret(t *testing.T, dsn, name, namespaces, value string, args ...string) clitest.Result {
	t.Helper()
	p := clitest.Program{Commands: newCommands, Stdin: value + "\n"}
	return p.Run(t, append([]string{"secret", "put", name, "--namespaces", namespaces, "--db.dsn", dsn}, args...)...)
}

// TestSecrets looks for the values of headers in all data that clients with keys can read, in the
// database and in the log. The requests to the processor and of the cron contain these values. A
// rotated secret is used without another put.
func TestSecrets(t *testing.T) {
	t.Parallel()
	dsn, to := storagetest.DSN(t), newCallee(t)
	d := background(t, nil, "serve", "--listen", "127.0.0.1:0", "--auth.mode", "required", "--log.level", "debug",
		"--db.dsn", dsn)
	s := &tenants{d, dsn}
	_, rootToken := newKey(t, dsn, "root", "root")
	root := s.with(rootToken)
	headers := []string{"--header", "authorization=Bearer ${secret:token}", "--header", "x-key=" + headerKey}
	namespace := slices.Concat([]string{"namespace", "put", "shop", "--connect-url", to.URL + "/processor",
		"--encoding", "json", "--changes", "lifecycle,event"}, headers)
	cronArgs := slices.Concat([]string{"shop", "play", "@yearly", "--http", to.URL + "/cron"}, headers)
	if r := root.Run(t, namespace...); r.Code != cli.ExitUsage ||
		!strings.Contains(r.Stderr, "there is no secret token for namespace shop: create it with progressor secret") {
		t.Errorf("a missing secret: %+v", r)
	}
	if r := putSecret(t, dsn, "token", "sho*", firstToken); r.Stdout !=
		"stored secret token for sho*, encrypted with the key in the database\n" {
		t.Fatalf("%+v", r)
	}
	root.OK(t, namespace...)
	root.OK(t, "start", "shop", "order-1")
	if err := to.got("/processor", "Bearer "+firstToken, headerKey); err != nil {
		t.Error(err)
	}
	root.OK(t, slices.Concat([]string{"cron", "create"}, cronArgs)...)
	root.OK(t, slices.Concat([]string{"cron", "update"}, cronArgs, []string{"--timeout", "7s"})...)
	root.OK(t, "cron", "trigger", "shop", "play")
	clitest.Eventually(t, "the cron sends a request", func() error {
		return to.got("/cron", "Bearer "+firstToken, headerKey)
	})
	s.checkAllReads(t, rootToken)

	if r := putSecret(t, dsn, "token", "sho*", secondToken); r.Code != cli.ExitOK {
		t.Fatalf("%+v", r)
	}
	clitest.Eventually(t, "the rotated secret is used", func() error {
		root.OK(t, "call", "shop", "order-1")
		return to.got("/processor", "Bearer "+secondToken, headerKey)
	})
	root.OK(t, "cron", "update", "shop", "play", "--timeout", "8s")
	root.OK(t, "cron", "trigger", "shop", "play")
	clitest.Eventually(t, "the cron uses the rotated secret", func() error {
		return to.got("/cron", "Bearer "+secondToken, headerKey)
	})
	s.putAgain(t, root, to)
	program := clitest.Program{Commands: newCommands}
	clitest.WantLines(t, program.OK(t, "secret", "list", "--db.dsn", dsn), "token sho* database")
	program.OK(t, "secret", "remove", "token", "--namespaces", "sho*", "--db.dsn", dsn)
	if r := program.Run(t, "secret", "remove", "token", "--namespaces", "sho*", "--db.dsn", dsn); r.Code !=
		cli.ExitNotFound {
		t.Errorf("removed twice: %+v", r)
	}
	d.Stop(t)
	noSecrets(t, "the log", d.Log.String())
}

// putAgain puts a configuration that a client has read. Masked headers keep their values only for
// the same host.
func (s *tenants) putAgain(t *testing.T, root clitest.Program, to *callee) {
	t.Helper()
	put := func(url string) clitest.Result {
		return root.Run(t, "namespace", "put", "shop", "--connect-url", url+"/processor", "--encoding", "json",
			"--header", "authorization=Bearer ${secret:token}", "--header", "x-key=REDACTED")
	}
	if r := put(to.URL); r.Code != cli.ExitOK {
		t.Errorf("%+v", r)
	}
	root.OK(t, "call", "shop", "order-1")
	if err := to.got("/processor", "Bearer "+secondToken, headerKey); err != nil {
		t.Errorf("after a put of masked headers: %v", err)
	}
	if r := put("http://192.0.2.1"); r.Code != cli.ExitUsage ||
		!strings.Contains(r.Stderr, "REDACTED keeps the stored value only for the same hosts") {
		t.Errorf("masked headers for another host: %+v", r)
	}
	r := root.Run(t, "cron", "update", "shop", "play", "--http", "http://192.0.2.1/", "--header", "x-key=REDACTED")
	if r.Code == cli.ExitOK || !strings.Contains(r.Stderr, "REDACTED keeps the stored value only for the same hosts") {
		t.Errorf("masked headers of a cron for another host: %+v", r)
	}
}

// checkAllReads reads all objects as root, viewer, author and admin, and all tables as their owner.
func (s *tenants) checkAllReads(t *testing.T, rootToken string) {
	t.Helper()
	tokens := map[string]string{"root": rootToken}
	for _, role := range []string{"viewer", "author", "admin"} {
		_, tokens[role] = newKey(t, s.dsn, role, role, "*")
	}
	for role, token := range tokens {
		shown := 0
		for name, read := range secretReads(t.Context(), client.New(s.URL, client.WithToken(token))) {
			response, err := read()
			if err != nil {
				if role != "root" && role != "admin" && strings.Contains(err.Error(), "needs the permission") {
					continue
				}
				t.Errorf("%s as %s: %v", name, role, err)
				continue
			}
			text := protojson.Format(response)
			shown += strings.Count(text, "REDACTED")
			noSecrets(t, name+" as "+role, text)
			if strings.Contains(text, "${sealed:") {
				t.Errorf("%s as %s shows an encrypted value: %s", name, role, text)
			}
		}
		if (shown > 0) == (role == "viewer") {
			t.Errorf("%s sees %d masked headers", role, shown)
		}
	}
	noSecretsStored(t, storagetest.Connect(t, s.dsn))
}

// noSecretsStored searches all tables and views as their owner.
func noSecretsStored(t *testing.T, owner *pgxpool.Pool) {
	t.Helper()
	rows := 0
	for _, relation := range strings.Fields(one(t, owner, `SELECT string_agg(c.relname, ' ') FROM pg_class c
		WHERE c.relnamespace = 'progressor'::regnamespace AND c.relkind IN ('r', 'v', 'p', 'm')`)) {
		text := one(t, owner, strings.Replace(`SELECT coalesce(string_agg(x::text, E'\n'), '') FROM RELATION x`,
			"RELATION", pgx.Identifier{relation}.Sanitize(), 1))
		noSecrets(t, relation, text)
		rows += strings.Count(text, "\n")
	}
	if rows < 20 {
		t.Errorf("the tables have only %d rows", rows)
	}
}

// secretReads are methods whose responses could contain headers.
func secretReads(ctx context.Context, c *client.Client) map[string]func() (proto.Message, error) {
	all := lists(ctx, c)
	all["GetNamespace"] = func() (proto.Message, error) {
		return c.Namespace.GetNamespace(ctx, &progressorv1.GetNamespaceRequest{Namespace: "shop"})
	}
	all["GetCron"] = func() (proto.Message, error) {
		return c.Cron.GetCron(ctx, &progressorv1.GetCronRequest{Namespace: "shop", CronId: "play"})
	}
	all["ListCrons"] = func() (proto.Message, error) {
		return c.Cron.ListCrons(ctx, &progressorv1.ListCronsRequest{Namespace: "shop"})
	}
	all["ListFires"] = func() (proto.Message, error) {
		return c.Cron.ListFires(ctx, &progressorv1.ListFiresRequest{Namespace: "shop", CronId: "play"})
	}
	for _, id := range []string{"~cron/play", "order-1"} {
		all["GetProcess "+id] = func() (proto.Message, error) {
			return c.Process.GetProcess(ctx, &progressorv1.GetProcessRequest{Namespace: "shop", ProcessId: id})
		}
		all["TraceProcess "+id] = func() (proto.Message, error) {
			return c.Process.TraceProcess(ctx, &progressorv1.TraceProcessRequest{Namespace: "shop", ProcessId: id})
		}
	}
	return all
}

// one returns the only value of a query.
func one(t *testing.T, db *pgxpool.Pool, sql string) (value string) {
	t.Helper()
	if err := db.QueryRow(t.Context(), sql).Scan(&value); err != nil {
		t.Fatalf("%s: %v", sql, err)
	}
	return value
}

// noSecrets looks for the values in plain text, in hexadecimal and in base64.
func noSecrets(t *testing.T, where, text string) {
	t.Helper()
	const part = "hunter2-"
	encoded := []string{part, hex.EncodeToString([]byte(part))}
	for shift := range 3 {
		whole := base64.RawStdEncoding.EncodeToString([]byte("xx"[:shift] + part))
		encoded = append(encoded, whole[(shift*8+5)/6:(shift+len(part))*8/6])
	}
	for _, e := range encoded {
		if at := strings.Index(text, e); at >= 0 {
			t.Errorf("%s has a value as %s: %.200s", where, e, text[max(0, at-100):])
		}
	}
}

// writeKeys writes a file of master keys.
func writeKeys(t *testing.T, keys ...string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "keys")
	var text strings.Builder
	for _, key := range keys {
		text.WriteString(base64.StdEncoding.EncodeToString([]byte(strings.Repeat(key, 32))) + "\n")
	}
	if err := os.WriteFile(path, []byte(text.String()), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

// With a master key, the values are encrypted with that key. Without it, or with another key,
// requests fail with an error that names the flag, and no secret can be stored with the wrong key.
func TestMasterKey(t *testing.T) {
	t.Parallel()
	dsn, to, file := storagetest.DSN(t), newCallee(t), writeKeys(t, "a")
	args := []string{"serve", "--listen", "127.0.0.1:0", "--db.dsn", dsn}
	d := background(t, map[string]string{"PROGRESSOR_SECRETS_MASTER_KEY_FILE": file}, args...)
	r := putSecret(t, dsn, "token", "*", firstToken, "--secrets.master-key-file", file, "-o", "json")
	if r.Code != cli.ExitOK || strings.Contains(r.Stdout, `"key": "database"`) {
		t.Fatalf("%+v", r)
	}
	d.Client.OK(t, "namespace", "put", "shop", "--connect-url", to.URL+"/processor", "--encoding", "json", "--header",
		"authorization=Bearer ${secret:token}", "--header", "x-key="+headerKey)
	for _, id := range []string{"order-1", "none", "another"} {
		d.Client.OK(t, "start", "shop", id)
	}
	if err := to.got("/processor", "Bearer "+firstToken, headerKey); err != nil {
		t.Error(err)
	}
	d.Stop(t)
	for name, c := range map[string]struct {
		file []string
		want string
	}{
		"none":    {nil, "--secrets.master-key-file"},
		"another": {[]string{"--secrets.master-key-file", writeKeys(t, "b")}, "--secrets.master-key-file"},
	} {
		d := background(t, nil, append(args, c.file...)...)
		if text := d.Log.String(); !strings.Contains(text, "requests that use a secret will fail") ||
			!strings.Contains(text, c.want) {
			t.Errorf("%s: the log is %s", name, text)
		}
		d.Client.OK(t, "call", "shop", name, "--accepted")
		clitest.Eventually(t, "the error names the flag", func() error {
			out := d.Client.OK(t, "explain", "shop", name, "-o", "json")
			if !strings.Contains(out, c.want) {
				return errors.New(out)
			}
			return nil
		})
		r := putSecret(t, dsn, "other", "*", "x", c.file...)
		if r.Code != cli.ExitConflict || !strings.Contains(r.Stderr, "secret token for *: it was encrypted with the "+
			"master key") || !strings.Contains(r.Stderr, "Next: use the --secrets.master-key-file of the engines") {
			t.Errorf("%s: %+v", name, r)
		}
		d.Stop(t)
	}
	d = background(t, nil, append(args, "--secrets.master-key-file", writeKeys(t, "b", "a"))...)
	d.Client.OK(t, "call", "shop", "order-1") // the old key is still in the file
	d.Stop(t)
}

// While a master key is replaced, a list shows what must be put again.
func TestReplaceMasterKey(t *testing.T) {
	t.Parallel()
	dsn, to := storagetest.DSN(t), newCallee(t)
	args := []string{"serve", "--listen", "127.0.0.1:0", "--db.dsn", dsn, "--secrets.master-key-file"}
	put := func(d *clitest.Daemon, file, verb string) {
		t.Helper()
		if r := putSecret(t, dsn, "token", "*", firstToken, "--secrets.master-key-file", file); r.Code != cli.ExitOK {
			t.Fatalf("%+v", r)
		}
		d.Client.OK(t, "namespace", "put", "tea", "--pull") // has no encrypted value
		header := []string{"--header", "x-key=" + headerKey}
		d.Client.OK(t, slices.Concat([]string{"namespace", "put", "shop", "--connect-url", to.URL, "--changes",
			"event"}, header)...)
		d.Client.OK(t, slices.Concat([]string{"cron", verb, "shop", "play", "@yearly", "--http", to.URL}, header)...)
		sink := d.Client
		sink.Stdin = "webhook: {url: " + to.URL + ", secrets: [whsec_c2VjcmV0LWtleS1mb3ItdGhlLWV4YW1wbGU=]}"
		sink.OK(t, "sink", "put", "shop", "hook", "-f", "-")
	}
	program := clitest.Program{Commands: newCommands}
	list := func(key string, more ...string) string {
		t.Helper()
		list := []string{"secret", "list", "--all", "--key", key, "--db.dsn", dsn}
		return program.OK(t, append(list, more...)...)
	}
	file := writeKeys(t, "a")
	d := background(t, nil, append(args, file)...)
	put(d, file, "create")
	d.Stop(t)

	file = writeKeys(t, "b", "a")
	d = background(t, nil, append(args, file)...)
	var all struct {
		Secrets   []struct{ Key string }
		Encrypted []struct{ Kind, Namespace, Name, Key string }
	}
	if err := json.Unmarshal([]byte(list("", "-o", "json")), &all); err != nil || len(all.Secrets) != 1 {
		t.Fatalf("%+v: %v", all, err)
	}
	old := all.Secrets[0].Key
	want := fmt.Sprintf("[{cron shop play %[1]s} {namespace shop  %[1]s} {sink shop hook %[1]s}]", old)
	if got := fmt.Sprint(all.Encrypted); got != want {
		t.Errorf("listed %s, want %s", got, want)
	}
	clitest.WantLines(t, list(old), "secret token * "+old, "cron play shop", "namespace shop", "sink hook shop")
	put(d, file, "update")
	if got := list(old); got != "none\n" {
		t.Errorf("after the puts: %s", got)
	}
	d.Stop(t)
}

// At startup, a node logs the headers and the keys of sinks that it cannot decrypt: at most 20, and
// the number of all.
func TestUndecryptableHeaders(t *testing.T) {
	t.Parallel()
	dsn, to := storagetest.DSN(t), newCallee(t)
	args := []string{"serve", "--listen", "127.0.0.1:0", "--db.dsn", dsn, "--secrets.master-key-file"}
	file := writeKeys(t, "a")
	d := background(t, nil, append(args, file)...)
	long := "x-" + strings.Repeat("long-", 10) + "name"
	d.Client.OK(t, "namespace", "put", "shop", "--connect-url", to.URL, "--changes", "event", "--header", "x-key=k")
	d.Client.OK(t, "cron", "create", "shop", "play", "@yearly", "--http", to.URL, "--header", "authorization=a",
		"--header", long+"=b")
	sink := d.Client
	sink.Stdin = "webhook: {url: " + to.URL + ", secrets: [whsec_c2VjcmV0LWtleS1mb3ItdGhlLWV4YW1wbGU=]}"
	sink.OK(t, "sink", "put", "shop", "hook", "-f", "-")
	zoo := []string{"namespace", "put", "zoo", "--connect-url", to.URL}
	for n := range 20 {
		zoo = append(zoo, "--header", fmt.Sprintf("x-%02d=v", n))
	}
	d.Client.OK(t, zoo...)
	d.Stop(t)

	const message, more = "a header cannot be decrypted", `"count":24,"logged":20`
	d = background(t, nil, append(args, writeKeys(t, "b"))...)
	clitest.Eventually(t, "the log counts what the node cannot decrypt", func() error {
		if text := d.Log.String(); !strings.Contains(text, more) {
			return errors.New(text)
		}
		return nil
	})
	text := d.Log.String()
	for _, want := range []string{
		`"namespace":"shop","kind":"namespace","name":"","header":"x-key","cause":"it was encrypted with the master`,
		`"namespace":"shop","kind":"cron","name":"play","header":"authorization"`,
		`"namespace":"shop","kind":"cron","name":"play","header":"` + long + `"`,
		`"namespace":"shop","kind":"sink","name":"hook","header":"secrets"`,
		`"namespace":"zoo","kind":"namespace","name":"","header":"x-15"`,
		"add that key to the file of --secrets.master-key-file, or put the value again",
	} {
		if !strings.Contains(text, want) {
			t.Errorf("no %s in the log:\n%s", want, text)
		}
	}
	if n := strings.Count(text, message); n != 20 {
		t.Errorf("%d headers are in the log:\n%s", n, text)
	}
	d.Stop(t)

	d = background(t, nil, append(args, file)...)
	d.Client.OK(t, "namespace", "list")
	d.Stop(t)
	if text := d.Log.String(); strings.Contains(text, message) {
		t.Errorf("the log with the key: %s", text)
	}
}

// Invalid values and files are rejected with an error that describes what is valid.
func TestWrongSecrets(t *testing.T) {
	t.Parallel()
	dsn, program := storagetest.DSN(t), clitest.Program{Commands: newCommands}
	program.OK(t, "migrate", "up", "--db.dsn", dsn)
	open := writeKeys(t, "a")
	if err := os.Chmod(open, 0o644); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		args, value, want string
	}{
		{"token", "x", "--namespaces"},
		{"a/b --namespaces *", "x", "<name>: must be 1 to 64 characters of a-z"},
		{"token --namespaces *b", "x", `--namespaces: must be NAME, PREFIX* or *, such as shop/* (got "*b")`},
		{"token --namespaces *", "", "--value-file: must have 1 to 8192 bytes (got 0)"},
		{"token --namespaces *", "hunter2-a\nhunter2-b\n", "--value-file: must not contain control characters"},
		{"token --namespaces * --value-file /does/not/exist", "", "--value-file: open /does/not/exist"},
		{"token --namespaces * --secrets.master-key-file /does/not/exist", "x",
			"--secrets.master-key-file: stat /does/not/exist"},
		{"token --namespaces * --secrets.master-key-file " + open, "x", "run chmod 600 " + open},
	} {
		p := program
		p.Stdin = c.value
		r := p.Run(t, append([]string{"secret", "put", "--db.dsn", dsn}, strings.Fields(c.args)...)...)
		if r.Code != cli.ExitUsage || !strings.Contains(r.Stderr, c.want) {
			t.Errorf("%s: %+v", c.args, r)
		}
		noSecrets(t, c.args, r.Stdout+r.Stderr)
	}
	p := program
	p.Interactive = true
	if r := p.Run(t, "secret", "put", "token", "--namespaces", "*", "--db.dsn", dsn); r.Code != cli.ExitUsage ||
		!strings.Contains(r.Stderr, "--value-file: is required on a terminal") {
		t.Errorf("on a terminal: %+v", r)
	}
	r := program.Run(t, "serve", "--listen", "127.0.0.1:0", "--db.dsn", dsn, "--secrets.master-key-file", open)
	if r.Code != cli.ExitUsage ||
		!strings.Contains(r.Stderr, "--secrets.master-key-file: "+open+": other users must have") {
		t.Errorf("serve: %+v", r)
	}
	clitest.WantLines(t, program.OK(t, "secret", "list", "--db.dsn", dsn), "none")
	if out := program.OK(t, "secret", "list", "--db.dsn", dsn, "-o", "json"); !strings.Contains(out, `"secrets": []`) {
		t.Errorf("no secrets: %s", out)
	}
}

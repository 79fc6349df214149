package main

import (
	"context"
	"errors"
	"net/http"
	"strings"
	"testing"

	"connectrpc.com/connect"
	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/proto"

	"github.com/progressor-engine/progressor/client"
	"github.com/progressor-engine/progressor/cmd/progressor/internal/cli"
	"github.com/progressor-engine/progressor/cmd/progressor/internal/cli/clitest"
	progressorv1 "github.com/progressor-engine/progressor/proto/progressor/v1"
	"github.com/progressor-engine/progressor/storage/storagetest"
)

// tenants is an engine that requires keys, with two namespaces that have the same content.
type tenants struct {
	*clitest.Daemon
	dsn string
}

func newTenants(t *testing.T) *tenants {
	t.Helper()
	dsn := storagetest.DSN(t)
	d := background(t, nil, "serve", "--listen", "127.0.0.1:0", "--auth.mode", "required", "--db.dsn", dsn)
	s := &tenants{d, dsn}
	_, token := newKey(t, dsn, "root", "root")
	root := s.with(token)
	for _, ns := range []string{"shop/orders", "billing"} {
		root.OK(t, "namespace", "put", ns, "--builtin", "orders", "--changes", "lifecycle")
		root.OK(t, "start", ns, "ok", "--args", `{"order":"A-7","items":[{"sku":"tea","quantity":1}]}`)
		root.OK(t, "start", ns, "bad", "--args", `{"order":"A-8","items":[{"sku":"broken","quantity":1}]}`)
		if r := root.Run(t, "call", ns, "bad", "--args", `{"pay":100}`); r.Code != cli.ExitTaskFailed {
			t.Fatalf("%+v", r)
		}
		root.OK(t, "bulk", "start", "suspend", ns, `process_id = "none"`)
		root.OK(t, "sink", "put", ns, "-f", clitest.WriteConfig(t,
			"sink_id: hook\nkinds: [lifecycle]\nwebhook: {url: 'http://192.0.2.1/hook'}\n"))
	}
	return s
}

// with returns a command line with a token.
func (s *tenants) with(token string) clitest.Program {
	p := s.Client
	p.Env = map[string]string{"PROGRESSOR_ADDRESS": s.URL, "PROGRESSOR_TOKEN": token}
	return p
}

// lists returns the methods whose requests may cover all namespaces.
func lists(ctx context.Context, c *client.Client) map[string]func() (proto.Message, error) {
	return map[string]func() (proto.Message, error){
		"ListNamespaces": func() (proto.Message, error) {
			return c.Namespace.ListNamespaces(ctx, &progressorv1.ListNamespacesRequest{})
		},
		"GetNamespaceHealth": func() (proto.Message, error) {
			return c.Namespace.GetNamespaceHealth(ctx, &progressorv1.GetNamespaceHealthRequest{})
		},
		"GetOverview": func() (proto.Message, error) {
			return c.Insight.GetOverview(ctx, &progressorv1.GetOverviewRequest{})
		},
		"ListErrors": func() (proto.Message, error) {
			return c.Insight.ListErrors(ctx, &progressorv1.ListErrorsRequest{})
		},
		"ListAudit": func() (proto.Message, error) {
			return c.Insight.ListAudit(ctx, &progressorv1.ListAuditRequest{})
		},
		"ListBulks": func() (proto.Message, error) {
			return c.Bulk.ListBulks(ctx, &progressorv1.ListBulksRequest{})
		},
		"ListSinks": func() (proto.Message, error) {
			return c.Change.ListSinks(ctx, &progressorv1.ListSinksRequest{})
		},
		"ListOpenWaits": func() (proto.Message, error) {
			return c.Flow.ListOpenWaits(ctx, &progressorv1.ListOpenWaitsRequest{})
		},
		"ListNextCrons": func() (proto.Message, error) {
			return c.Cron.ListNextCrons(ctx, &progressorv1.ListNextCronsRequest{})
		},
	}
}

// Lists over all namespaces contain only the namespaces that a client may see.
func TestListsShowWhatClientsMaySee(t *testing.T) {
	t.Parallel()
	s := newTenants(t)
	_, rootToken := newKey(t, s.dsn, "root", "root")
	for _, ns := range []string{"shop/orders", "billing"} {
		s.with(rootToken).OK(t, "template", "put", ns, "-f", clitest.TemplateFile(t, "ask.json",
			`{"type": "ask", "steps": [{"step_id": "ask", "wait": {"kind": "KIND_HUMAN"}}]}`))
		s.with(rootToken).OK(t, "run", "start", ns, "ask", "--id", "asks")
		s.with(rootToken).OK(t, "cron", "create", ns, "yearly", "@yearly", "--start-process")
	}
	_, all := newKey(t, s.dsn, "all", "admin", "*")
	_, some := newKey(t, s.dsn, "some", "admin", "shop/*,none")
	_, none := newKey(t, s.dsn, "none", "admin", "none")
	for token, want := range map[string]struct{ shop, billing bool }{
		all: {true, true}, some: {true, false}, none: {false, false},
	} {
		c := client.New(s.URL, client.WithToken(token))
		for name, list := range lists(t.Context(), c) {
			response, err := list()
			if err != nil {
				t.Errorf("%s: %v", name, err)
				continue
			}
			text := protojson.Format(response)
			if strings.Contains(text, "shop/orders") != want.shop || strings.Contains(text, "billing") != want.billing {
				t.Errorf("%s shows %v %v: %s", name, want.shop, want.billing, text)
			}
		}
		counts, err := c.Insight.CountProcesses(t.Context(), &progressorv1.CountProcessesRequest{})
		inError := int64(0)
		for _, visible := range []bool{want.shop, want.billing} {
			if visible {
				inError++
			}
		}
		if err != nil || counts.GetCountByStatus()["error"] != inError {
			t.Errorf("counts %v, %v; want %d in ERROR", counts, err, inError)
		}
		overview, err := c.Insight.GetOverview(t.Context(), &progressorv1.GetOverviewRequest{})
		if err != nil || (len(overview.GetNodes()) > 0) != (token == all) ||
			overview.GetCountByStatus()["error"] != inError {
			t.Errorf("overview %v, %v", overview, err)
		}
	}
}

// TestRoles follows the steps of an operator with two teams. A request that a client may not send
// fails with an error that names the missing permission. After a grant, the request succeeds. When
// the grant is removed, the streams of the client end.
func TestRoles(t *testing.T) {
	t.Parallel()
	s, program := newTenants(t), clitest.Program{Commands: newCommands}
	id, token := newKey(t, s.dsn, "support", "support", "shop/*")
	support := s.with(token)
	if out := support.OK(t, "whoami"); out != "key:"+id+"\nsupport shop/*\n" {
		t.Errorf("whoami: %q", out)
	}
	if out := support.OK(t, "get", "shop/orders", "ok", "-o", "json"); strings.Contains(out, "auxState") ||
		!strings.Contains(out, `"processId": "ok"`) {
		t.Errorf("support sees %s", out)
	}
	support.OK(t, "suspend", "shop/orders", "ok")
	for _, c := range []struct {
		args []string
		want string
	}{
		{[]string{"get", "billing", "ok"}, "GetProcess needs the permission process.read in namespace billing"},
		{[]string{"get", "absent", "ok"}, "GetProcess needs the permission process.read in namespace absent"},
		{[]string{"call", "shop/orders", "ok", "--args", "{}"},
			"Call needs the permission process.call in namespace shop/orders, and key:" + id +
				" does not have it (roles with it: client, author, admin, root)"},
		{[]string{"node", "list"}, "ListNodes needs the permission namespace.read in all namespaces"},
	} {
		if r := support.Run(t, c.args...); r.Code == cli.ExitOK || !strings.Contains(r.Stderr, c.want) {
			t.Errorf("%q: %+v", c.args, r)
		}
	}
	request, err := http.NewRequestWithContext(t.Context(), http.MethodGet, s.URL+"/metrics", nil)
	if err != nil {
		t.Fatal(err)
	}
	request.Header.Set("Authorization", "Bearer "+token)
	response, err := http.DefaultClient.Do(request)
	if err != nil {
		t.Fatal(err)
	}
	if _ = response.Body.Close(); response.StatusCode != http.StatusForbidden {
		t.Errorf("/metrics: %s", response.Status)
	}
	program.OK(t, "grant", "add", "key:"+id, "viewer", "billing", "--db.dsn", s.dsn)
	clitest.WantLines(t, program.OK(t, "grant", "list", "key:"+id, "--db.dsn", s.dsn),
		"key:"+id+" support shop/*", "key:"+id+" viewer billing")
	clitest.Eventually(t, "the grant has an effect", func() error {
		if r := support.Run(t, "get", "billing", "ok"); r.Code != cli.ExitOK {
			return errors.New(r.Stderr)
		}
		return nil
	})
	c := client.New(s.URL, client.WithToken(token))
	stream, err := c.Change.WatchChanges(t.Context(), &progressorv1.WatchChangesRequest{Namespace: "billing"})
	if err != nil {
		t.Fatal(err)
	}
	defer stream.Close()
	if !stream.Receive() {
		t.Fatal(stream.Err())
	}
	program.OK(t, "grant", "remove", "key:"+id, "viewer", "billing", "--db.dsn", s.dsn)
	for stream.Receive() {
	}
	if err := stream.Err(); connect.CodeOf(err) != connect.CodePermissionDenied {
		t.Errorf("the stream ended with %v", err)
	}
	if r := program.Run(t, "grant", "remove", "key:"+id, "viewer", "billing", "--db.dsn", s.dsn); r.Code !=
		cli.ExitNotFound {
		t.Errorf("removed twice: %+v", r)
	}
}

// A worker stops in all of its namespaces, so the client that stops it must have the permission to
// operate all of them.
func TestStopWorkerOfOthers(t *testing.T) {
	t.Parallel()
	s := newTenants(t)
	_, all := newKey(t, s.dsn, "all", "root")
	_, some := newKey(t, s.dsn, "some", "support", "shop/*")
	root, support := client.New(s.URL, client.WithToken(all)), client.New(s.URL, client.WithToken(some))
	for _, name := range []string{"shop/work", "work"} {
		s.with(all).OK(t, "namespace", "put", name, "--pull")
	}
	for id, namespaces := range map[string][]string{"own": {"shop/work"}, "both": {"work", "shop/work"}} {
		_, err := root.Worker.Poll(t.Context(), &progressorv1.PollRequest{
			Namespaces: namespaces, WorkerId: id})
		if err != nil {
			t.Fatal(err)
		}
	}
	stop := func(c *client.Client, id string) error {
		_, err := c.Worker.StopWorker(t.Context(),
			&progressorv1.StopWorkerRequest{Namespace: "shop/work", WorkerId: id})
		return err
	}
	err := stop(support, "both")
	if connect.CodeOf(err) != connect.CodePermissionDenied ||
		!strings.Contains(err.Error(), "process.operate in all namespaces of the worker") ||
		strings.Contains(err.Error(), "namespace work") {
		t.Errorf("the worker of others: %v", err)
	}
	if err := stop(support, "own"); err != nil {
		t.Errorf("the client's own worker: %v", err)
	}
	if err := stop(root, "both"); err != nil {
		t.Errorf("as root: %v", err)
	}
	if err := stop(support, "absent"); connect.CodeOf(err) != connect.CodeNotFound {
		t.Errorf("an absent worker: %v", err)
	}
}

// Invalid grants are rejected with an error that describes what is valid.
func TestWrongGrants(t *testing.T) {
	t.Parallel()
	dsn, program := storagetest.DSN(t), clitest.Program{Commands: newCommands}
	program.OK(t, "migrate", "up", "--db.dsn", dsn)
	for _, c := range []struct {
		args string
		code int
		want string
	}{
		{"key create --name a", cli.ExitUsage, "--role"},
		{"key create --name a --role owner --namespaces a", cli.ExitUsage,
			"--role: must be one of viewer, support, client, worker, author, admin, root (got \"owner\")"},
		{"key create --name a --role client", cli.ExitUsage, "--namespaces: is required for the role client"},
		{"key create --name a --role client --namespaces a,*b", cli.ExitUsage,
			"--namespaces: must be NAME, PREFIX* or *, such as shop/* (got \"*b\")"},
		{"key create --name a --role root --namespaces a", cli.ExitUsage, "--namespaces: must be * for the role root"},
		{"key create --name a --role root --expires 0s", cli.ExitUsage, "--expires: must be at least 1s (got 0s)"},
		{"key create --name a --role root --expires=-1h", cli.ExitUsage, "--expires: must be at least 1s (got -1h"},
		{"grant add abc viewer a", cli.ExitUsage, "<principal>: must be key:ID"},
		{"grant add key:abc owner a", cli.ExitUsage, "role: must be one of"},
		{"grant add key:abc viewer a", cli.ExitNotFound, `there is no valid key "abc"`},
		{"grant list abc", cli.ExitUsage, "<principal>: must be key:ID"},
		{"grant remove key:abc viewer a", cli.ExitNotFound, "key:abc does not have the role"},
	} {
		r := program.Run(t, append(strings.Fields(c.args), "--db.dsn", dsn)...)
		if r.Code != c.code || !strings.Contains(r.Stderr, c.want) {
			t.Errorf("%s: %+v", c.args, r)
		}
	}
	id, _ := newKey(t, dsn, "a", "root")
	for _, want := range []string{"now has the role viewer in a", "already has the role viewer in a"} {
		out := program.OK(t, "grant", "add", "key:"+id, "viewer", "a", "--db.dsn", dsn)
		if !strings.Contains(out, want) {
			t.Errorf("%q, want %q", out, want)
		}
	}
}

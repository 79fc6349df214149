package main

import (
	"errors"
	"strings"
	"testing"

	"github.com/progressor-engine/progressor/cmd/progressor/internal/cli"
	"github.com/progressor-engine/progressor/cmd/progressor/internal/cli/clitest"
)

// If a wait has assignees, only an assignee or an operator may answer it.
func TestAssigneesOfKeys(t *testing.T) {
	t.Parallel()
	s := newTenants(t)
	_, rootToken := newKey(t, s.dsn, "root", "root")
	bossID, boss := newKey(t, s.dsn, "boss", "client", "shop/orders")
	otherID, other := newKey(t, s.dsn, "other", "client", "shop/orders")
	_, support := newKey(t, s.dsn, "support", "support", "shop/orders")
	_, viewer := newKey(t, s.dsn, "viewer", "viewer", "shop/orders")
	root := s.with(rootToken)
	root.OK(t, "template", "put", "shop/orders", "-f", clitest.TemplateFile(t, "sign.json", `{"type": "sign",
		"steps": [{"step_id": "sign", "wait": {"kind": "KIND_HUMAN", "assignees": ["sales", "key:`+bossID+`"]}}]}`))
	for run, token := range map[string]string{"by-boss": boss, "by-support": support} {
		root.OK(t, "run", "start", "shop/orders", "sign", "--id", run)
		r := s.with(other).Run(t, "run", "complete", "shop/orders", run, "sign", "--result", "1")
		if r.Code == cli.ExitOK ||
			!strings.Contains(r.Stderr, "<step>: key:"+otherID+" is not an assignee of the wait") {
			t.Errorf("%s: another client: %+v", run, r)
		}
		for client, listed := range map[string]bool{token: true, other: false, viewer: false} {
			for flag, want := range map[string]bool{"--all": true, "--answerable": listed} {
				out := s.with(client).OK(t, "run", "waits", "shop/orders", flag, "--run", run)
				if strings.Contains(out, run) != want {
					t.Errorf("%s: run waits %s: %s", run, flag, out)
				}
			}
		}
		if out := s.with(token).OK(t, "run", "waits", "--answerable", "--all", "--page-size", "1"); !strings.Contains(
			out, "shop/orders/"+run) {
			t.Errorf("%s: run waits of all namespaces: %s", run, out)
		}
		s.with(token).OK(t, "run", "complete", "shop/orders", run, "sign", "--result", "1")
		if out := root.OK(t, "run", "get", "shop/orders", run); !strings.Contains(out, "SUCCEEDED") {
			t.Errorf("%s: %s", run, out)
		}
	}
}

// The list of the waits of all namespaces is returned in pages. With --answerable, it contains only
// waits that the client may answer: a role in one namespace does not apply to another one. The list
// shows who has taken a wait.
func TestWaitsOfAllNamespaces(t *testing.T) {
	t.Parallel()
	s := newTenants(t)
	_, rootToken := newKey(t, s.dsn, "root", "root")
	bossID, boss := newKey(t, s.dsn, "boss", "client", "shop/orders")
	root := s.with(rootToken)
	for _, ns := range []string{"billing", "shop/orders"} {
		root.OK(t, "template", "put", ns, "-f", clitest.TemplateFile(t, "sign.json", `{"type": "sign",
			"steps": [{"step_id": "sign", "wait": {"kind": "KIND_HUMAN", "assignees": ["key:`+bossID+`"]}}]}`))
		for _, run := range []string{"one", "two"} {
			root.OK(t, "run", "start", ns, "sign", "--id", run)
		}
	}
	for _, pageSize := range []string{"1", "3", "10"} {
		out := root.OK(t, "run", "waits", "--all", "--page-size", pageSize)
		clitest.WantLines(t, out, "billing/one", "billing/two", "shop/orders/one", "shop/orders/two")
	}
	if r := root.Run(t, "run", "waits", "--page-token", "x"); !strings.Contains(r.Stderr, "page_token") {
		t.Errorf("an invalid page token: %+v", r)
	}
	root.OK(t, "grant", "add", "key:"+bossID, "viewer", "billing", "--db.dsn", s.dsn)
	clitest.Eventually(t, "the grant takes effect", func() error {
		if out := s.with(boss).OK(t, "run", "waits", "--all"); !strings.Contains(out, "billing/one") {
			return errors.New(out)
		}
		return nil
	})
	if out := s.with(boss).OK(t, "run", "waits", "--answerable", "--all"); strings.Contains(out, "billing") ||
		!strings.Contains(out, "shop/orders/two") {
		t.Errorf("a viewer of billing may answer: %s", out)
	}
	s.with(boss).OK(t, "run", "report", "shop/orders", "two", "sign", "--worker-id", "ann")
	clitest.WantLines(t, root.OK(t, "run", "waits", "shop/orders", "--run", "two"), "taken by ann")
	s.with(boss).OK(t, "run", "complete", "shop/orders", "two", "sign", "--result", "1")
	if out := root.OK(t, "run", "get", "shop/orders", "two", "-o", "json"); !strings.Contains(out,
		`"workerId": "key:`+bossID+`"`) {
		t.Errorf("the output does not show who answered: %s", out)
	}
}

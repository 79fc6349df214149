package main

import (
	"strings"
	"testing"

	"github.com/progressor-engine/progressor/cmd/progressor/internal/cli"
	"github.com/progressor-engine/progressor/cmd/progressor/internal/cli/clitest"
)

// A wait with assignees is answered by one of them, or by an operator.
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
			!strings.Contains(r.Stderr, "step_id: key:"+otherID+" is not an assignee of the wait") {
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
		s.with(token).OK(t, "run", "complete", "shop/orders", run, "sign", "--result", "1")
		if out := root.OK(t, "run", "get", "shop/orders", run); !strings.Contains(out, "SUCCEEDED") {
			t.Errorf("%s: %s", run, out)
		}
	}
}

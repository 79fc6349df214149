package main

import (
	"strings"
	"testing"

	"github.com/progressor-engine/progressor/cmd/progressor/internal/cli"
	"github.com/progressor-engine/progressor/cmd/progressor/internal/cli/clitest"
	"github.com/progressor-engine/progressor/storage/storagetest"
)

// The audit shows the commands of operators, the newest first. It can be filtered and read in
// pages.
func TestAuditOnTheEngine(t *testing.T) {
	t.Parallel()
	d := background(t, map[string]string{"PROGRESSOR_DB_DSN": storagetest.DSN(t)}, "serve", "--listen", "127.0.0.1:0")
	p := d.Client
	clitest.WantLines(t, p.OK(t, "audit"), "none")
	p.OK(t, "namespace", "put", "echo", "--builtin", "echo")
	p.OK(t, "start", "echo", "e-1")
	p.OK(t, "cancel", "echo", "e-1", "--reason", "not wanted")
	p.OK(t, "remove", "echo", "e-1")
	out := p.OK(t, "audit", "echo")
	clitest.WantLines(t, out, "TIME  METHOD", "RemoveProcess", "CancelProcess", "127.0.0.1:", "not wanted",
		"PutNamespace")
	if strings.Index(out, "RemoveProcess") > strings.Index(out, "PutNamespace") {
		t.Errorf("want the newest entry first:\n%s", out)
	}
	if out := p.OK(t, "audit", "--filter", "method = CancelProcess"); strings.Contains(out, "RemoveProcess") ||
		!strings.Contains(out, "e-1") {
		t.Errorf("filtered:\n%s", out)
	}
	clitest.WantLines(t, p.OK(t, "audit", "--page-size", "1"), "more: --page-token ")
	clitest.WantLines(t, p.OK(t, "audit", "--page-size", "1", "--all"), "PutNamespace")
	if r := p.Run(t, "audit", "--filter", "who = ada"); r.Code != cli.ExitUsage ||
		!strings.Contains(r.Stderr, "filter") {
		t.Errorf("%+v", r)
	}
	d.Stop(t)
}

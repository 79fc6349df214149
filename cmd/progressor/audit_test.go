package main

import (
	"strings"
	"testing"

	"github.com/progressor-engine/progressor/storage/storagetest"
)

func TestAuditOnTheEngine(t *testing.T) {
	d := background(t, map[string]string{"PROGRESSOR_DB_DSN": storagetest.DSN(t)}, "serve", "--listen", "127.0.0.1:0")
	p := d.client
	wantLines(t, p.ok(t, "audit"), "none")
	p.ok(t, "namespace", "put", "echo", "--builtin", "echo")
	p.ok(t, "start", "echo", "e-1")
	p.ok(t, "cancel", "echo", "e-1", "--reason", "not wanted")
	p.ok(t, "remove", "echo", "e-1")
	out := p.ok(t, "audit", "echo")
	wantLines(t, out, "TIME  METHOD", "RemoveProcess", "CancelProcess", "127.0.0.1:", "not wanted", "PutNamespace")
	if strings.Index(out, "RemoveProcess") > strings.Index(out, "PutNamespace") {
		t.Errorf("the newest comes first:\n%s", out)
	}
	if out := p.ok(t, "audit", "--filter", "method = CancelProcess"); strings.Contains(out, "RemoveProcess") || !strings.Contains(out, "e-1") {
		t.Errorf("filtered:\n%s", out)
	}
	wantLines(t, p.ok(t, "audit", "--page-size", "1"), "more: --page-token ")
	wantLines(t, p.ok(t, "audit", "--page-size", "1", "--all"), "PutNamespace")
	if r := p.run(t, "audit", "--filter", "who = ada"); r.code != exitUsage || !strings.Contains(r.stderr, "filter") {
		t.Errorf("%+v", r)
	}
	d.stop(t)
}

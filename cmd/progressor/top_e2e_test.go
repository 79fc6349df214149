package main

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/progressor-engine/progressor/cmd/progressor/internal/cli"
	"github.com/progressor-engine/progressor/cmd/progressor/internal/cli/clitest"
	"github.com/progressor-engine/progressor/storage/storagetest"
)

func TestTop(t *testing.T) {
	t.Parallel()
	d := background(t, map[string]string{"PROGRESSOR_DB_DSN": storagetest.DSN(t)}, "serve", "--listen", "127.0.0.1:0",
		"--engine.address", "here:1")
	p := d.Client
	p.OK(t, "namespace", "put", "demo", "--builtin", "orders")
	p.OK(t, "put", "demo", "o-2", "--status", "error", "--detail", "moved")
	out := p.OK(t, "top", "--count", "2", "--interval", "200ms")
	clitest.WantLines(t, out, "processes  error 1", "NAMESPACE  PROCESSES  INTERNAL  RUNNABLE", "demo  error 1  0  0",
		"ERRORS  NAMESPACE  REASON", "1  demo", "moved", "here:1")
	if n := strings.Count(out, "tasks per second"); n != 2 {
		t.Errorf("%d updates, want 2:\n%s", n, out)
	}
	lines := strings.Split(strings.TrimSpace(
		p.OK(t, "top", "demo", "--count", "2", "--interval", "200ms", "-o", "json")), "\n")
	if len(lines) != 2 || !json.Valid([]byte(lines[0])) || !json.Valid([]byte(lines[1])) {
		t.Errorf("want two lines of JSON: %q", lines)
	}
	for _, args := range [][]string{{"--interval", "1ms"}, {"--count", "-1"}} {
		if r := p.Run(t, append([]string{"top"}, args...)...); r.Code != cli.ExitUsage ||
			!strings.Contains(r.Stderr, args[0]+": must be") {
			t.Errorf("%v: %+v", args, r)
		}
	}
	if r := p.Run(t, "top", "nowhere"); r.Code != cli.ExitNotFound {
		t.Errorf("%+v", r)
	}
	d.Stop(t)
}

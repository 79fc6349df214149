package main

import (
	"encoding/json"
	"testing"

	"github.com/progressor-engine/progressor/cmd/progressor/internal/cli"
	"github.com/progressor-engine/progressor/cmd/progressor/internal/cli/clitest"
	"github.com/progressor-engine/progressor/storage/storagetest"
)

func TestOverviewOnTheEngine(t *testing.T) {
	t.Parallel()
	d := background(t, map[string]string{"PROGRESSOR_DB_DSN": storagetest.DSN(t)}, "serve", "--listen", "127.0.0.1:0",
		"--engine.address", "here:1")
	p := d.Client
	clitest.WantLines(t, p.OK(t, "overview"), "processes  none", "tasks waiting for  none", "here:1")
	p.OK(t, "namespace", "put", "demo", "--builtin", "orders")
	p.OK(t, "start", "demo", "o-1", "--args", `{"order":"A-8","items":[{"sku":"tea"}]}`)
	p.OK(t, "put", "demo", "o-2", "--status", "error", "--detail", "moved")
	for _, args := range [][]string{{"overview"}, {"overview", "demo"}} {
		clitest.WantLines(t, p.OK(t, args...), "processes  error 1, running 1", "tasks waiting for  time 1",
			"oldest runnable task  0s", "NODE  ADDRESS")
	}
	if out := p.OK(t, "overview", "-o", "json"); !json.Valid([]byte(out)) {
		t.Errorf("not JSON: %s", out)
	}
	if r := p.Run(t, "overview", "nowhere"); r.Code != cli.ExitNotFound {
		t.Errorf("%+v", r)
	}
	d.Stop(t)
}

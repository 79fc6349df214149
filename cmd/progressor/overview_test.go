package main

import (
	"encoding/json"
	"testing"

	"github.com/progressor-engine/progressor/storage/storagetest"
)

func TestOverviewOnTheEngine(t *testing.T) {
	d := background(t, map[string]string{"PROGRESSOR_DB_DSN": storagetest.DSN(t)}, "serve", "--listen", "127.0.0.1:0", "--engine.address", "here:1")
	p := d.client
	wantLines(t, p.ok(t, "overview"), "processes  none", "tasks waiting for  none", "here:1")
	p.ok(t, "namespace", "put", "demo", "--builtin", "orders")
	p.ok(t, "start", "demo", "o-1", "--args", `{"order":"A-8","items":[{"sku":"tea"}]}`)
	p.ok(t, "put", "demo", "o-2", "--status", "error", "--detail", "moved")
	for _, args := range [][]string{{"overview"}, {"overview", "demo"}} {
		wantLines(t, p.ok(t, args...), "processes  error 1, running 1", "tasks waiting for  time 1", "oldest runnable task  0s", "NODE  ADDRESS")
	}
	if out := p.ok(t, "overview", "-o", "json"); !json.Valid([]byte(out)) {
		t.Errorf("not JSON: %s", out)
	}
	if r := p.run(t, "overview", "nowhere"); r.code != exitNotFound {
		t.Errorf("%+v", r)
	}
	d.stop(t)
}

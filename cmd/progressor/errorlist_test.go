package main

import (
	"strings"
	"testing"

	"github.com/progressor-engine/progressor/storage/storagetest"
)

// Two orders that failed alike are one line, and its filter lists both.
func TestErrorsOnTheEngine(t *testing.T) {
	d := background(t, map[string]string{"PROGRESSOR_DB_DSN": storagetest.DSN(t)}, "serve", "--listen", "127.0.0.1:0")
	p := d.client
	p.ok(t, "namespace", "put", "demo", "--builtin", "orders")
	wantLines(t, p.ok(t, "errors", "demo"), "none")
	for _, id := range []string{"A-8", "A-9"} {
		p.ok(t, "start", "demo", id, "--args", `{"order":"`+id+`","items":[{"sku":"broken"}]}`)
		if r := p.run(t, "call", "demo", id, "--args", `{"pay":100}`); r.code != exitTaskFailed {
			t.Fatalf("%+v", r)
		}
	}
	p.ok(t, "put", "demo", "moved", "--status", "error", "--detail", "moved")
	out := p.ok(t, "errors")
	wantLines(t, out, "COUNT  OF         NAMESPACE  REASON        FIRST", "2  processes  demo       broken_goods  ", "order A-9: the goods broke while they were packed", "1  ", "moved")
	_, rest, _ := strings.Cut(out, "they were packed")
	filter, _, _ := strings.Cut(strings.TrimSpace(rest), "\n")
	if list := p.ok(t, "list", "demo", "--filter", filter); !strings.Contains(list, "A-8") || !strings.Contains(list, "A-9") || strings.Contains(list, "moved") {
		t.Errorf("%s lists\n%s", filter, list)
	}
	out = p.ok(t, "errors", "demo", "--page-size", "1")
	wantLines(t, out, "more: --page-token ")
	wantLines(t, p.ok(t, "errors", "demo", "--page-size", "1", "--all"), "broken_goods", "moved")
	if r := p.run(t, "errors", "nowhere"); r.code != exitNotFound {
		t.Errorf("%+v", r)
	}
	d.stop(t)
}

package main

import (
	"strings"
	"testing"

	"github.com/progressor-engine/progressor/cmd/progressor/internal/cli"
	"github.com/progressor-engine/progressor/cmd/progressor/internal/cli/clitest"
	"github.com/progressor-engine/progressor/storage/storagetest"
)

// Two orders with the same error form one row of the output. The filter of that row finds both
// orders.
func TestErrorsOnTheEngine(t *testing.T) {
	t.Parallel()
	d := background(t, map[string]string{"PROGRESSOR_DB_DSN": storagetest.DSN(t)}, "serve", "--listen", "127.0.0.1:0")
	p := d.Client
	p.OK(t, "namespace", "put", "demo", "--builtin", "orders")
	clitest.WantLines(t, p.OK(t, "errors", "demo"), "none")
	for _, id := range []string{"A-8", "A-9"} {
		p.OK(t, "start", "demo", id, "--args", `{"order":"`+id+`","items":[{"sku":"broken"}]}`)
		if r := p.Run(t, "call", "demo", id, "--args", `{"pay":100}`); r.Code != cli.ExitTaskFailed {
			t.Fatalf("%+v", r)
		}
	}
	p.OK(t, "put", "demo", "moved", "--status", "error", "--detail", "moved")
	out := p.OK(t, "errors")
	clitest.WantLines(t, out, "COUNT  OF         NAMESPACE  REASON        FIRST",
		"2  processes  demo       broken_goods  ", "order A-9: the goods broke while they were packed", "1  ", "moved")
	_, rest, _ := strings.Cut(out, "they were packed")
	filter, _, _ := strings.Cut(strings.TrimSpace(rest), "\n")
	if list := p.OK(t, "list", "demo", "--filter", filter); !strings.Contains(list, "A-8") ||
		!strings.Contains(list, "A-9") || strings.Contains(list, "moved") {
		t.Errorf("%s lists\n%s", filter, list)
	}
	out = p.OK(t, "errors", "demo", "--page-size", "1")
	clitest.WantLines(t, out, "more: --page-token ")
	clitest.WantLines(t, p.OK(t, "errors", "demo", "--page-size", "1", "--all"), "broken_goods", "moved")
	if r := p.Run(t, "errors", "nowhere"); r.Code != cli.ExitNotFound {
		t.Errorf("%+v", r)
	}
	d.Stop(t)
}

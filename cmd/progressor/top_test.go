package main

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/progressor-engine/progressor/storage/storagetest"
)

func TestTop(t *testing.T) {
	d := background(t, map[string]string{"PROGRESSOR_DB_DSN": storagetest.DSN(t)}, "serve", "--listen", "127.0.0.1:0", "--engine.address", "here:1")
	p := d.client
	p.ok(t, "namespace", "put", "demo", "--builtin", "orders")
	p.ok(t, "put", "demo", "o-2", "--status", "error", "--detail", "moved")
	out := p.ok(t, "top", "--count", "2", "--interval", "200ms")
	wantLines(t, out, "processes  error 1", "NAMESPACE  PROCESSES  RUNNABLE", "demo  error 1  0", "ERRORS  NAMESPACE  REASON", "1  demo", "moved", "here:1")
	if n := strings.Count(out, "tasks per second"); n != 2 {
		t.Errorf("%d looks, want 2:\n%s", n, out)
	}
	lines := strings.Split(strings.TrimSpace(p.ok(t, "top", "demo", "--count", "2", "--interval", "200ms", "-o", "json")), "\n")
	if len(lines) != 2 || !json.Valid([]byte(lines[0])) || !json.Valid([]byte(lines[1])) {
		t.Errorf("want two lines of JSON: %q", lines)
	}
	for _, args := range [][]string{{"--interval", "1ms"}, {"--count", "-1"}} {
		if r := p.run(t, append([]string{"top"}, args...)...); r.code != exitUsage || !strings.Contains(r.stderr, args[0]+": must be") {
			t.Errorf("%v: %+v", args, r)
		}
	}
	if r := p.run(t, "top", "nowhere"); r.code != exitNotFound {
		t.Errorf("%+v", r)
	}
	d.stop(t)
}

func TestSparkline(t *testing.T) {
	long := make([]float64, 100)
	long[99] = 7
	for _, c := range []struct {
		values []float64
		want   string
	}{
		{nil, ""},
		{[]float64{0, 0}, ""},
		{[]float64{0, 1, 2, 4}, "▁▃▅█"},
		{long, strings.Repeat("▁", 59) + "█"},
	} {
		if got := sparkline(c.values); got != c.want {
			t.Errorf("%v: %s, want %s", c.values, got, c.want)
		}
	}
}

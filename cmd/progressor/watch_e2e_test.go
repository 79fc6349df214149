package main

import (
	"strings"
	"testing"

	"github.com/progressor-engine/progressor/cmd/progressor/internal/cli"
	"github.com/progressor-engine/progressor/cmd/progressor/internal/cli/clitest"
	"github.com/progressor-engine/progressor/storage/storagetest"
)

// A watch follows a process on a real engine, and ends with it.
func TestWatchOnTheEngine(t *testing.T) {
	d := background(t, map[string]string{"PROGRESSOR_DB_DSN": storagetest.DSN(t)}, "serve", "--listen", "127.0.0.1:0")
	d.Client.OK(t, "namespace", "put", "demo", "--builtin", "orders")
	d.Client.OK(t, "start", "demo", "order-1", "--args", `{"order":"A-8","items":[{"sku":"tea"}],"pay_within":"200ms"}`)
	out := d.Client.OK(t, "watch", "demo", "order-1")
	clitest.WantLines(t, out, "event 1  task 1", "RUNNING", "event 2  task 2", "COMPLETED")
	if r := d.Client.Run(t, "watch", "demo", "nobody"); r.Code != cli.ExitNotFound || !strings.Contains(r.Stderr, "process_not_found") {
		t.Errorf("%+v", r)
	}
	d.Stop(t)
}

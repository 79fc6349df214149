package main

import (
	"errors"
	"strings"
	"testing"

	"github.com/progressor-engine/progressor/cmd/progressor/internal/cli"
	"github.com/progressor-engine/progressor/cmd/progressor/internal/cli/clitest"
	"github.com/progressor-engine/progressor/storage/storagetest"
)

// A watch follows a process on a real engine, and ends with it.
func TestWatchOnTheEngine(t *testing.T) {
	t.Parallel()
	d := background(t, map[string]string{"PROGRESSOR_DB_DSN": storagetest.DSN(t)}, "serve", "--listen", "127.0.0.1:0")
	d.Client.OK(t, "namespace", "put", "demo", "--builtin", "orders")
	d.Client.OK(t, "start", "demo", "order-1", "--args", `{"order":"A-8","items":[{"sku":"tea"}]}`)
	output, wait := d.Client.Start(t, "watch", "demo", "order-1")
	clitest.Eventually(t, "the watch prints the status", func() error {
		if !strings.Contains(output.String(), "RUNNING") {
			return errors.New(output.String())
		}
		return nil
	})
	d.Client.OK(t, "call", "demo", "order-1", "--args", `{"pay":100}`)
	if code := wait(); code != cli.ExitOK {
		t.Errorf("watch: code %d", code)
	}
	clitest.WantLines(t, output.String(), "event 1  task 1", "RUNNING", "event 2  task 3", "event 3  task 4",
		"COMPLETED")
	if r := d.Client.Run(t, "watch", "demo", "nobody"); r.Code != cli.ExitNotFound ||
		!strings.Contains(r.Stderr, "process_not_found") {
		t.Errorf("%+v", r)
	}
	d.Stop(t)
}

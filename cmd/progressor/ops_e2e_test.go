package main

import (
	"errors"
	"fmt"
	"net"
	"net/http"
	"strings"
	"syscall"
	"testing"

	"github.com/progressor-engine/progressor/cmd/progressor/internal/cli"
	"github.com/progressor-engine/progressor/cmd/progressor/internal/cli/clitest"
	"github.com/progressor-engine/progressor/storage/storagetest"
)

// freeAddress returns an address on which no program listens.
func freeAddress(t *testing.T) string {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer listener.Close()
	return listener.Addr().String()
}

// The listener for probes and scrapers needs no credentials, and serves nothing else. It also shows
// that the node is stopping.
func TestOpsListener(t *testing.T) {
	t.Parallel()
	ops := freeAddress(t)
	d := clitest.Start(t, newCommands, map[string]string{"PROGRESSOR_DB_DSN": storagetest.DSN(t)}, "serve",
		"--listen", "127.0.0.1:0", "--ops.listen", ops, "--auth.mode", "required", "--engine.linger", "10s",
		"--log.format", "json", "--log.requests", "errors")
	for path, want := range map[string]int{
		"/livez": http.StatusOK, "/readyz": http.StatusOK, "/metrics": http.StatusOK,
		"/": http.StatusNotFound, "/whoami": http.StatusNotFound, "/openapi.yaml": http.StatusNotFound,
		"/progressor.v1.NamespaceService/ListNamespaces": http.StatusNotFound,
	} {
		if status, _ := clitest.Fetch(t, "http://"+ops+path); status != want {
			t.Errorf("%s: %d, want %d", path, status, want)
		}
	}
	clitest.Eventually(t, "the failed request is logged", func() error {
		log := d.Log.String()
		if !strings.Contains(log, `"method":"GET /whoami","code":"","status":404`) ||
			strings.Contains(log, "GET /livez") {
			return errors.New(log)
		}
		return nil
	})
	if _, body := clitest.Fetch(t, "http://"+ops+"/metrics"); !strings.Contains(body, "progressor_flush_duration_seconds") {
		t.Error("/metrics has no progressor_flush_duration_seconds")
	}
	if status, _ := clitest.Fetch(t, d.URL+"/metrics"); status != http.StatusUnauthorized {
		t.Errorf("/metrics of the API without a token: %d", status)
	}
	for _, address := range []string{d.URL, "http://" + ops} {
		if out := d.Client.OK(t, "health", "--address", address); out != "ok\n" {
			t.Errorf("health at %s: %q", address, out)
		}
	}
	d.Signals <- syscall.SIGTERM
	clitest.Eventually(t, "not ready", func() error {
		r := d.Client.Run(t, "health", "--address", "http://"+ops)
		if r.Code != cli.ExitUnavailable || !strings.Contains(r.Stderr, "not ready: stopping") {
			return fmt.Errorf("code %d: %s", r.Code, r.Stderr)
		}
		return nil
	})
	d.Client.OK(t, "health", "--live", "--address", "http://"+ops)
	if code := d.Await(t); code != cli.ExitOK {
		t.Errorf("code %d", code)
	}
	if r := d.Client.Run(t, "health", "--address", "http://"+ops); r.Code != cli.ExitUnavailable {
		t.Errorf("health of a node that has ended: code %d: %s", r.Code, r.Stderr)
	}
}

func TestOpsListenerRefuses(t *testing.T) {
	t.Parallel()
	for address, want := range map[string]string{
		"127.0.0.1:8123": "--ops.listen: must not be the address of --listen", "9090": "--ops.listen: ",
	} {
		r := clitest.Program{Commands: newCommands}.Run(t, "serve", "--db.dsn", "host=x",
			"--listen", "127.0.0.1:8123", "--ops.listen", address)
		if r.Code != cli.ExitUsage || !strings.Contains(r.Stderr, want) {
			t.Errorf("%s: code %d: %s, want %s", address, r.Code, r.Stderr, want)
		}
	}
}

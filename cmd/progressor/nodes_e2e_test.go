package main

import (
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/progressor-engine/progressor/cmd/progressor/internal/cli"
	"github.com/progressor-engine/progressor/cmd/progressor/internal/cli/clitest"
	"github.com/progressor-engine/progressor/storage/storagetest"
)

// The list of nodes shows which engine only accepts requests and runs no tasks.
func TestRequestsOnlyNode(t *testing.T) {
	t.Parallel()
	env := map[string]string{"PROGRESSOR_DB_DSN": storagetest.DSN(t)}
	front := background(t, env, "serve", "--listen", "127.0.0.1:0", "--engine.requests-only")
	if code, body := clitest.Fetch(t, front.URL+"/readyz"); code != http.StatusOK ||
		!strings.Contains(body, "runs no tasks") {
		t.Errorf("/readyz: %d %s", code, body)
	}
	clitest.WantLines(t, front.Client.OK(t, "node", "list"), "requests only")
	clitest.WantLines(t, front.Client.OK(t, "doctor", "--db.dsn", env["PROGRESSOR_DB_DSN"]), "requests only")
	front.Stop(t)
}

// One of two engines is drained by a request to the other one. The drained engine becomes unready,
// but still answers requests.
func TestNodesOnTheEngine(t *testing.T) {
	t.Parallel()
	env := map[string]string{"PROGRESSOR_DB_DSN": storagetest.DSN(t), "PROGRESSOR_ENGINE_ZOMBIE_AFTER": "1s"}
	one := background(t, env, "serve", "--listen", "127.0.0.1:0", "--engine.address", "one:1")
	two := background(t, env, "serve", "--listen", "127.0.0.1:0", "--engine.address", "two:1")
	out := two.Client.OK(t, "node", "list")
	clitest.WantLines(t, out, "NODE  ADDRESS  VERSION", "one:1", "two:1")
	number, _, _ := strings.Cut(strings.TrimSpace(strings.SplitN(out, "\n", 3)[1]), " ")
	clitest.WantLines(t, two.Client.OK(t, "node", "drain", number), "one:1", "draining")
	unready := func() bool {
		code, body := clitest.Fetch(t, one.URL+"/readyz")
		return code == http.StatusServiceUnavailable && strings.Contains(body, "draining")
	}
	end, look := time.After(clitest.DaemonWait), time.NewTicker(20*time.Millisecond)
	defer look.Stop()
	for !unready() {
		select {
		case <-look.C:
		case <-end:
			t.Fatal("the engine did not drain")
		}
	}
	clitest.WantLines(t, one.Client.OK(t, "node", "list"), "two:1") // an engine that is draining answers requests
	if code, _ := clitest.Fetch(t, two.URL+"/readyz"); code != http.StatusOK {
		t.Errorf("the other engine: %d", code)
	}
	if r := two.Client.Run(t, "node", "drain", "99"); r.Code != cli.ExitNotFound ||
		!strings.Contains(r.Stderr, "node not found") {
		t.Errorf("%+v", r)
	}
	if r := two.Client.Run(t, "node", "drain", "x"); r.Code != cli.ExitUsage ||
		!strings.Contains(r.Stderr, "<node>: must be the ID of a node") {
		t.Errorf("%+v", r)
	}
	one.Stop(t)
	two.Stop(t)
}

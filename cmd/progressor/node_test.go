package main

import (
	"net/http"
	"strings"
	"testing"
	"time"

	"google.golang.org/protobuf/types/known/timestamppb"

	progressorv1 "github.com/progressor-engine/progressor/proto/progressor/v1"
	"github.com/progressor-engine/progressor/storage/storagetest"
)

// A node is silent ten seconds after its last heartbeat, relative to the newest heartbeat, even if
// it was told to drain. The local clock does not matter.
func TestNodeStates(t *testing.T) {
	beat := func(id string, second int64, draining bool) *progressorv1.Node {
		return &progressorv1.Node{NodeId: id, BeatTime: &timestamppb.Timestamp{Seconds: second}, Draining: draining}
	}
	var b strings.Builder
	front := beat("5", 95, false)
	front.RequestsOnly = true
	if err := printNodes(&b, []*progressorv1.Node{
		beat("1", 89, false), beat("2", 88, true), beat("3", 90, true), beat("4", 100, false), front,
	}); err != nil {
		t.Fatal(err)
	}
	var states []string
	for _, line := range strings.Split(strings.TrimSpace(b.String()), "\n") {
		words := strings.Fields(line)
		states = append(states, words[len(words)-1])
	}
	if got := strings.Join(states, " "); got != "STATE silent silent draining alive only" {
		t.Errorf("%s", b.String())
	}
}

// An engine for requests only is listed as such.
func TestRequestsOnlyNode(t *testing.T) {
	env := map[string]string{"PROGRESSOR_DB_DSN": storagetest.DSN(t)}
	front := background(t, env, "serve", "--listen", "127.0.0.1:0", "--engine.requests-only")
	if code, body := fetch(t, front.url+"/readyz"); code != http.StatusOK || !strings.Contains(body, "runs no tasks") {
		t.Errorf("/readyz: %d %s", code, body)
	}
	wantLines(t, front.client.ok(t, "node", "list"), "requests only")
	wantLines(t, front.client.ok(t, "doctor", "--db.dsn", env["PROGRESSOR_DB_DSN"]), "requests only")
	front.stop(t)
}

// One of two engines is drained by a request to the other one. It becomes unready, and its list
// shows that.
func TestNodesOnTheEngine(t *testing.T) {
	env := map[string]string{"PROGRESSOR_DB_DSN": storagetest.DSN(t), "PROGRESSOR_ENGINE_ZOMBIE_AFTER": "1s"}
	one := background(t, env, "serve", "--listen", "127.0.0.1:0", "--engine.address", "one:1")
	two := background(t, env, "serve", "--listen", "127.0.0.1:0", "--engine.address", "two:1")
	out := two.client.ok(t, "node", "list")
	wantLines(t, out, "NODE  ADDRESS  VERSION", "one:1", "two:1")
	number, _, _ := strings.Cut(strings.TrimSpace(strings.SplitN(out, "\n", 3)[1]), " ")
	wantLines(t, two.client.ok(t, "node", "drain", number), "one:1", "draining")
	unready := func() bool {
		code, body := fetch(t, one.url+"/readyz")
		return code == http.StatusServiceUnavailable && strings.Contains(body, "draining")
	}
	end, look := time.After(daemonWait), time.NewTicker(20*time.Millisecond)
	defer look.Stop()
	for !unready() {
		select {
		case <-look.C:
		case <-end:
			t.Fatal("it does not drain")
		}
	}
	wantLines(t, one.client.ok(t, "node", "list"), "two:1") // an engine that is draining answers requests
	if code, _ := fetch(t, two.url+"/readyz"); code != http.StatusOK {
		t.Errorf("the other one: %d", code)
	}
	if r := two.client.run(t, "node", "drain", "99"); r.code != exitNotFound || !strings.Contains(r.stderr, "node not found") {
		t.Errorf("%+v", r)
	}
	if r := two.client.run(t, "node", "drain", "x"); r.code != exitUsage || !strings.Contains(r.stderr, "node_id") {
		t.Errorf("%+v", r)
	}
	one.stop(t)
	two.stop(t)
}

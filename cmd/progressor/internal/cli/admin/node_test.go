package admin

import (
	"strings"
	"testing"

	"google.golang.org/protobuf/types/known/timestamppb"

	progressorv1 "github.com/progressor-engine/progressor/proto/progressor/v1"
)

// A node is silent if its last heartbeat is more than ten seconds older than the newest heartbeat
// of all nodes, even if the node is draining. The local clock does not matter.
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

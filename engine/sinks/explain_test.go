package sinks_test

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/progressor-engine/progressor/process"
	progressorv1 "github.com/progressor-engine/progressor/proto/progressor/v1"
)

// An explanation shows which node delivers, which changes wait, why the target fails, what it has
// rejected, and how to continue.
func TestExplain(t *testing.T) {
	t.Parallel()
	s, n, r := newSink(t)
	node := fmt.Sprintf("Node %d", n.Store.NodeID())
	explains := func(what string, wanted ...string) {
		t.Helper()
		text := ""
		defer func() {
			if t.Failed() {
				t.Log(text)
			}
		}()
		eventually(t, what, func() bool {
			e, err := n.Explain(t.Context(), &progressorv1.ExplainSinkRequest{Namespace: "ns", SinkId: "s"})
			if err != nil {
				t.Fatal(err)
			}
			text = strings.Join([]string{e.GetDetail(), e.GetNext(), e.GetUnblock()}, "\n")
			for _, w := range wanted {
				if !strings.Contains(text, w) {
					return false
				}
			}
			return !strings.Contains(text, secret)
		})
	}
	explains("the sink delivers", node, "delivers for sink s, and has delivered all changes")
	r.reacts(func(c *progressorv1.Change) reaction {
		if c.GetProcessId() == "bad" {
			return 413
		}
		return 500
	})
	n.begin(t, "a")
	explains("the sink fails", "deliveries of sink s failed, the newest at", "no a",
		"2 changes wait. The oldest was recorded", "If the oldest change is not delivered by",
		"To repeat the delivery at once, run progressor sink resume ns s.")
	n.pause(t)
	explains("the sink is paused", "Sink s is paused. 2 changes wait", "To resume it, run progressor sink resume ns s.")
	s.exec(`INSERT INTO change_drops (namespace, lane, seq, "time") SELECT namespace, lane, max(seq), now() FROM changes
		GROUP BY namespace, lane`)
	s.exec(`DELETE FROM changes`)
	n.resume(t)
	explains("the sink is broken", "The engine gave up on sink s", "changes were deleted before they were delivered",
		"To continue with the oldest change that is left, run progressor sink rewind ns s 1970-01-01. Then run")
	if _, err := n.Rewind(t.Context(), &progressorv1.RewindSinkRequest{
		Namespace: "ns", SinkId: "s", ToTime: beginning,
	}); err != nil {
		t.Fatal(err)
	}
	n.resume(t)
	n.begin(t, "bad")
	explains("the sink has dead letters", "2 changes became dead letters. The newest is change", "of bad: ",
		"when the target accepts them, run progressor sink retry ns s --all.")
	_, err := n.Explain(t.Context(), &progressorv1.ExplainSinkRequest{Namespace: "ns", SinkId: "nothing"})
	if !errors.Is(err, process.ErrSinkNotFound) {
		t.Errorf("a sink that does not exist: %v", err)
	}
}

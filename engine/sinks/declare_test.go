package sinks_test

import (
	"errors"
	"fmt"
	"testing"

	"google.golang.org/protobuf/proto"

	"github.com/progressor-engine/progressor/engine/enginetest"
	"github.com/progressor-engine/progressor/process"
	progressorv1 "github.com/progressor-engine/progressor/proto/progressor/v1"
)

// A sink that is declared again with the same settings is not changed. Other settings or secrets
// replace those of the sink. A paused sink stays paused.
func TestDeclare(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	n := s.start()
	r := newReceiver(t)
	m := sinkTo(r)
	puts := func() string {
		n := enginetest.Count(t, s.db, "SELECT count(*) FROM audit WHERE method = 'PutSink'")
		return fmt.Sprintf("%d of revision %d", n, enginetest.Count(t, s.db, "SELECT max(revision) FROM sinks"))
	}
	declare := func(what, wanted string, change func(*progressorv1.Sink)) {
		t.Helper()
		m = proto.CloneOf(m)
		change(m)
		if err := n.Declare(t.Context(), m, kim); err != nil {
			t.Fatalf("%s: %v", what, err)
		}
		want(t, what, puts(), wanted)
	}
	declare("a new sink", "1 of revision 1", func(*progressorv1.Sink) {})
	declare("the same", "1 of revision 1", func(*progressorv1.Sink) {})
	declare("without secrets", "1 of revision 1", func(m *progressorv1.Sink) { m.GetWebhook().Secrets = nil })
	n.begin(t, "a")
	n.drains(t)
	want(t, "delivered", r.text(), "a created, a stored 1")
	n.pause(t)
	declare("another filter", "2 of revision 2", func(m *progressorv1.Sink) { m.Filter = `change.type == "stored"` })
	declare("another key", "3 of revision 3", func(m *progressorv1.Sink) {
		m.GetWebhook().Secrets = []string{"whsec_b3RoZXItc2VjcmV0LWtleS1mb3ItdGhlLXRlc3RzLTE="}
	})
	declare("the same again", "3 of revision 3", func(*progressorv1.Sink) {})
	declare("unsigned", "4 of revision 4", func(m *progressorv1.Sink) {
		m.GetWebhook().Secrets, m.GetWebhook().Unsigned = nil, true
	})
	declare("unsigned again", "4 of revision 4", func(*progressorv1.Sink) {})
	if status := n.status(t); status.GetState() != paused || status.GetDeliveredChanges() != 2 {
		t.Errorf("a paused sink became %v", status)
	}
	m.Namespace = "nowhere"
	if err := n.Declare(t.Context(), m, kim); !errors.Is(err, process.ErrNamespaceNotFound) {
		t.Errorf("in a namespace that does not exist: %v", err)
	}
}

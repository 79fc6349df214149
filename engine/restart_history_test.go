package engine_test

import (
	"context"
	"testing"

	"github.com/progressor-engine/progressor/engine"
	"github.com/progressor-engine/progressor/process"
	"github.com/progressor-engine/progressor/processor"
	progressorv1 "github.com/progressor-engine/progressor/proto/progressor/v1"
	"github.com/progressor-engine/progressor/storage/storagetest"
)

// A result restarts the history. The history then begins with the events of that result, even for
// the next task in memory, and older events are removed.
func TestRestartHistoryByResult(t *testing.T) {
	t.Parallel()
	s := &seen{}
	dsn := storagetest.DSN(t)
	n := start(t, dsn, processor.Func(func(
		ctx context.Context, r *progressorv1.ProcessRequest,
	) (*progressorv1.ProcessResponse, error) {
		response, err := s.processor().Process(ctx, r)
		if err == nil && string(r.GetArgs()) == "restart" {
			response.GetResult().RestartHistory = true
		}
		return response, err
	}))
	n.started(t, "p")
	n.called(t, "p", "a")
	n.called(t, "p", "restart")
	n.called(t, "p", "b")
	if got := s.ids(); got != "3" || s.process().GetFirstEventId() != 3 {
		t.Errorf("the call after the restart was shown the events %q, first event %d, want 3", got,
			s.process().GetFirstEventId())
	}
	db := openDB(t, dsn)
	eventually(t, "the old history is removed", func() bool {
		return db.count(t, "SELECT count(*) FROM events WHERE event_id < 3") == 0 &&
			db.count(t, "SELECT count(*) FROM tasks") == 2
	})
	traced, err := n.TraceProcess(t.Context(), key("p"), 0, "")
	if err != nil || len(traced.GetTasks()) != 2 || traced.GetFirstEventId() != 3 ||
		traced.GetHistoryRestartedTime() == nil {
		t.Errorf("trace: %v, %v", traced, err)
	}
}

// An operator restarts the history on another node while a call runs. The next call in memory gets
// the new history.
func TestRestartHistoryBetweenTwoCalls(t *testing.T) {
	t.Parallel()
	s, g := &seen{}, newGate()
	defer g.release()
	gated := g.heldBefore(s.processor().Process)
	dsn := storagetest.DSN(t)
	a, b := start(t, dsn, gated), start(t, dsn, gated)
	a.started(t, "p")
	db := openDB(t, dsn)
	slow := a.calling("p", "hold")
	receive(t, "the call runs", g.entered)
	next := a.calling("p", "next", func(p *engine.CallParams) { p.Accepted = true })
	eventually(t, "the next call waits", func() bool { return db.count(t, "SELECT count(*) FROM schedule") == 1 })
	restarted, err := b.RestartHistory(t.Context(), key("p"), process.Actor{})
	if err != nil || restarted.GetFirstEventId() != 2 || restarted.GetLastEventId() != 1 {
		t.Fatalf("restarted: %v, %v", restarted, err)
	}
	g.release()
	receive(t, "the slow call", slow)
	receive(t, "the next call", next)
	eventually(t, "both are done", func() bool { return db.count(t, "SELECT last_event_id FROM processes") == 3 })
	if got := s.ids(); got != "2" {
		t.Errorf("the call after the restart was shown the events %q, want 2", got)
	}
}

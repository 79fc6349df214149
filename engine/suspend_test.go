package engine_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/progressor-engine/progressor/engine"
	"github.com/progressor-engine/progressor/process"
	"github.com/progressor-engine/progressor/processor"
	progressorv1 "github.com/progressor-engine/progressor/proto/progressor/v1"
	"github.com/progressor-engine/progressor/storage/storagetest"
)

func (n *node) suspended(t testing.TB, id string) *progressorv1.Process {
	t.Helper()
	p, err := n.SuspendProcess(t.Context(), key(id), "looking into it", process.Actor{})
	if err != nil {
		t.Fatalf("suspend %s: %v", id, err)
	}
	return p
}

func (n *node) resumed(t testing.TB, id string) *progressorv1.Process {
	t.Helper()
	p, err := n.ResumeProcess(t.Context(), key(id), process.Actor{})
	if err != nil {
		t.Fatalf("resume %s: %v", id, err)
	}
	return p
}

// refusedIn reports whether an error rejects a request because of the status of its process.
func refusedIn(err error, status process.Status) bool {
	var wrong *process.WrongStatusError
	return errors.As(err, &wrong) && wrong.Status == status
}

// When a process is suspended, its running task ends, and waiting tasks run on resume, on any node,
// at once. Calls in between are rejected.
func TestSuspend(t *testing.T) {
	t.Parallel()
	dsn := storagetest.DSN(t)
	g := newGate()
	defer g.release()
	held := by{callTask: g.heldBefore(processor.Echo().Process)}
	a, b := start(t, dsn, held), start(t, dsn, held)
	a.started(t, "p")
	running := a.calling("p", "hold")
	receive(t, "the call runs", g.entered)
	waiting := a.calling("p", "waiting")
	eventually(t, "the second waits", func() bool {
		return look(t, dsn).count(t, "SELECT count(*) FROM schedule") == 1
	})
	p := b.suspended(t, "p")
	if p.GetStatus() != progressorv1.ProcessStatus_PROCESS_STATUS_SUSPENDED ||
		p.GetPreviousStatus() != progressorv1.ProcessStatus_PROCESS_STATUS_RUNNING ||
		p.GetDetail() != "looking into it" {
		t.Errorf("suspended: %v", p)
	}
	if again := a.suspended(t, "p"); again.GetStatusChangedTime().AsTime() != p.GetStatusChangedTime().AsTime() {
		t.Error("a second suspend changes something")
	}
	if res := <-b.calling("p", "refused"); !refusedIn(res.err, process.StatusSuspended) {
		t.Errorf("a call of a suspended process: %v", res.err)
	}
	g.release()
	if res := receive(t, "the running call", running); res.err != nil || string(res.ans.Response) != "hold" {
		t.Errorf("the running call: %+v", res)
	}
	eventually(t, "nothing runs", func() bool { return look(t, dsn).count(t, "SELECT count(*) FROM running") == 0 })
	if got := look(t, dsn).count(t, "SELECT count(*) FROM schedule WHERE waits_for = 'operator'"); got != 1 {
		t.Errorf("%d tasks wait for the operator", got)
	}
	if p := b.resumed(t, "p"); p.GetStatus() != progressorv1.ProcessStatus_PROCESS_STATUS_RUNNING ||
		p.GetDetail() != "" {
		t.Errorf("resumed: %v", p)
	}
	b.resumed(t, "p")
	if res := receive(t, "the waiting call", waiting); res.err != nil || string(res.ans.Response) != "waiting" {
		t.Errorf("the waiting call: %+v", res)
	}
	a.called(t, "p", "again")
}

// Timers that come due while their process is suspended run on resume, not earlier.
func TestSuspendedTimers(t *testing.T) {
	t.Parallel()
	dsn := storagetest.DSN(t)
	fired := make(chan string, 10)
	g := newGate()
	defer g.release()
	n := start(t, dsn, by{
		initTask: func(ctx context.Context, r *progressorv1.ProcessRequest) (*progressorv1.ProcessResponse, error) {
			if r.GetProcess().GetProcessId() == "held" {
				if err := g.pass(ctx, r, true); err != nil {
					return nil, err
				}
			}
			return processor.Result().SetTimerAfter(100 * time.Millisecond).Done()
		},
		timeoutTask: func(_ context.Context, r *progressorv1.ProcessRequest) (*progressorv1.ProcessResponse, error) {
			fired <- r.GetProcess().GetProcessId()
			return processor.Result().Done()
		},
	})
	if _, err := n.Start(t.Context(), engine.StartParams{Key: key("held"), Accepted: true}); err != nil {
		t.Fatal(err)
	}
	receive(t, "INIT runs", g.entered)
	n.suspended(t, "held") // suspended before its timer is set, so that it cannot fire earlier
	g.release()
	n.started(t, "other")
	if got := receive(t, "the other's timer", fired); got != "other" {
		t.Fatalf("the timer of %s fired", got)
	}
	rows := look(t, dsn)
	eventually(t, "the timer is due", func() bool {
		return rows.count(t, `SELECT count(*) FROM schedule
			WHERE scheduled_time < now() - interval '100 milliseconds'`) == 1
	})
	select {
	case id := <-fired:
		t.Errorf("the timer of %s, which is suspended, fired", id)
	default:
	}
	n.resumed(t, "held")
	if got := receive(t, "its own timer", fired); got != "held" {
		t.Errorf("the timer of %s fired", got)
	}
}

// A process that is suspended in INIT finishes its INIT task and continues after the resume.
func TestSuspendInInit(t *testing.T) {
	t.Parallel()
	dsn := storagetest.DSN(t)
	g := newGate()
	defer g.release()
	n := start(t, dsn, by{initTask: g.held(true)})
	started := make(chan error, 1)
	go func() {
		_, err := n.Start(t.Context(), engine.StartParams{Key: key("p")})
		started <- err
	}()
	receive(t, "INIT runs", g.entered)
	n.suspended(t, "p")
	g.release()
	if err := receive(t, "the start", started); err != nil {
		t.Error(err)
	}
	if got := n.status(t, "p"); got != "SUSPENDED" {
		t.Errorf("the process is %s", got)
	}
	n.resumed(t, "p")
	n.called(t, "p", "x")
}

func TestSuspendRefused(t *testing.T) {
	t.Parallel()
	n := start(t, storagetest.DSN(t),
		by{callTask: func(ctx context.Context, r *progressorv1.ProcessRequest) (*progressorv1.ProcessResponse, error) {
			if string(r.GetArgs()) == "complete" {
				return processor.Result().Complete().Done()
			}
			return nil, processor.Fail("odd", "it broke")
		}})
	if _, err := n.SuspendProcess(t.Context(), key("p"), "", process.Actor{}); !errors.Is(err,
		process.ErrProcessNotFound) {
		t.Errorf("suspend an unknown process: %v", err)
	}
	if _, err := n.SuspendProcess(t.Context(), process.Key{Namespace: "none", ProcessID: "p"}, "",
		process.Actor{}); !errors.Is(err, process.ErrNamespaceNotFound) {
		t.Errorf("suspend in an unknown namespace: %v", err)
	}
	for args, status := range map[string]process.Status{
		"complete": process.StatusCompleted, "fail": process.StatusError,
	} {
		n.started(t, args)
		<-n.calling(args, args)
		_, suspend := n.SuspendProcess(t.Context(), key(args), "", process.Actor{})
		_, resume := n.ResumeProcess(t.Context(), key(args), process.Actor{})
		if !refusedIn(suspend, status) || !refusedIn(resume, status) {
			t.Errorf("in %s: suspend %v, resume %v", status, suspend, resume)
		}
	}
}

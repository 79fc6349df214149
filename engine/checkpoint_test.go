package engine_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"

	"google.golang.org/protobuf/proto"

	"github.com/progressor-engine/progressor/engine"
	"github.com/progressor-engine/progressor/process"
	"github.com/progressor-engine/progressor/processor"
	progressorv1 "github.com/progressor-engine/progressor/proto/progressor/v1"
	"github.com/progressor-engine/progressor/storage/storagetest"
)

// checkpoint stores one event.
func checkpoint(ctx context.Context, payload string) (yield bool, err error) {
	return processor.Checkpoint(ctx, processor.Result().Event([]byte(payload)))
}

// payloads returns the payloads of the history of a process.
func payloads(p *progressorv1.Process) string {
	var list []string
	for _, e := range p.GetHistory() {
		list = append(list, string(e.GetPayload()))
	}
	return strings.Join(list, " ")
}

// A checkpoint is stored while the attempt runs. The events of the result follow those of the
// checkpoint. The next task, which the node runs from memory, gets all these events.
func TestCheckpoint(t *testing.T) {
	t.Parallel()
	g, next := newGate(), make(chan *progressorv1.Process, 1)
	defer g.release()
	n := start(t, storagetest.DSN(t), byTask{
		initTask: answers(processor.Result().Event([]byte("init")).SetTimerAfter(0)),
		timeoutTask: func(ctx context.Context, r *progressorv1.ProcessRequest) (*progressorv1.ProcessResponse, error) {
			if r.GetProcess().GetLastEventId() > 1 {
				next <- r.GetProcess()
				return processor.Result().Done()
			}
			for _, text := range []string{"a", "b"} {
				made := processor.Result().Event([]byte(text)).AuxState([]byte(text))
				if _, err := processor.Checkpoint(ctx, made.Metadata(map[string]any{"at": text})); err != nil {
					return nil, err
				}
			}
			if err := g.pass(ctx, r, true); err != nil {
				return nil, err
			}
			return processor.Result().Event([]byte("c")).SetTimerAfter(0).Done()
		},
	})
	n.started(t, "p")
	w := n.watching("p", 0)
	defer w.cancel()
	receive(t, "both checkpoints", g.entered)
	p, err := n.GetProcess(t.Context(), key("p"), nil, 0)
	if err != nil || payloads(p) != "init a b" || string(p.GetAuxState()) != "b" || n.Attempts() != 1 ||
		p.GetMetadata().AsMap()["at"] != "b" {
		t.Fatalf("%v, %v", p, err)
	}
	eventually(t, "a watcher gets the checkpoints", func() bool {
		return receive(t, "an update", w.updates).GetEvent().GetEventId() == 3
	})
	g.release()
	got := receive(t, "the next task", next)
	p, err = n.GetProcess(t.Context(), key("p"), nil, 0)
	if err != nil || payloads(p) != "init a b c" || len(got.GetHistory()) != 4 || string(got.GetAuxState()) != "b" ||
		got.GetMetadata().AsMap()["at"] != "b" || got.GetLastEventId() != 4 {
		t.Fatalf("%v, %v; the next task gets %v", p, err, got)
	}
	for i, e := range got.GetHistory() {
		if !proto.Equal(e, p.GetHistory()[i]) {
			t.Errorf("event %d: the next task gets %v, stored is %v", i+1, e, p.GetHistory()[i])
		}
	}
}

// A task whose attempt is lost after a checkpoint runs again, with the events of the checkpoint.
func TestCheckpointOfLostAttempt(t *testing.T) {
	t.Parallel()
	dsn := storagetest.DSN(t)
	n := start(t, dsn, byTask{
		initTask: answers(processor.Result().SetTimerAfter(0)),
		timeoutTask: func(ctx context.Context, r *progressorv1.ProcessRequest) (*progressorv1.ProcessResponse, error) {
			if _, err := checkpoint(ctx, fmt.Sprint(r.GetAttempt(), " after ", payloads(r.GetProcess()))); err != nil {
				return nil, err
			}
			if r.GetAttempt() == 1 {
				return nil, &processor.LostError{Err: errors.New("the test lost it")}
			}
			return processor.Result().Complete().Done()
		},
	})
	n.put(t, quick())
	n.started(t, "p")
	eventually(t, "the process is completed", func() bool { return n.status(t, "p") == "COMPLETED" })
	p, err := n.GetProcess(t.Context(), key("p"), nil, 0)
	if err != nil || payloads(p) != "1 after  2 after 1 after " {
		t.Errorf("%q, %v", payloads(p), err)
	}
	if n := openDB(t, dsn).count(t, "SELECT count(DISTINCT attempt) FROM events"); n != 2 {
		t.Errorf("the events are of %d attempts", n)
	}
}

// A checkpoint stores nothing if its process was removed or its attempt has ended.
func TestCheckpointIsFenced(t *testing.T) {
	t.Parallel()
	g, ended := newGate(), make(chan error, 1)
	defer g.release()
	dsn := storagetest.DSN(t)
	var late context.Context
	n := start(t, dsn, byTask{
		initTask: answers(processor.Result().SetTimerAfter(0)),
		timeoutTask: func(ctx context.Context, r *progressorv1.ProcessRequest) (*progressorv1.ProcessResponse, error) {
			late = ctx
			_ = g.pass(ctx, r, false)
			_, err := checkpoint(context.WithoutCancel(ctx), "late")
			ended <- err
			return processor.Result().Event([]byte("later")).Done()
		},
	})
	n.started(t, "p")
	receive(t, "the timer runs", g.entered)
	if err := n.RemoveProcess(t.Context(), key("p"), process.Actor{}); err != nil {
		t.Fatal(err)
	}
	g.release()
	if err := receive(t, "the checkpoint", ended); !errors.Is(err, process.ErrFenced) {
		t.Errorf("%v", err)
	}
	eventually(t, "the attempt ends", func() bool { return n.Attempts() == 0 })
	if _, err := checkpoint(context.WithoutCancel(late), "latest"); !errors.Is(err, process.ErrFenced) {
		t.Errorf("after the attempt: %v", err)
	}
	if n := openDB(t, dsn).count(t, "SELECT count(*) FROM events"); n != 0 {
		t.Errorf("%d events", n)
	}
}

// An INIT task cannot store checkpoints. TIMEOUT and CANCEL tasks can. A checkpoint must have
// events, and may also have a state and metadata, but nothing else.
func TestCheckpointsThatAreRefused(t *testing.T) {
	t.Parallel()
	refused := func(ctx context.Context, b *processor.ResultBuilder, field string) {
		t.Helper()
		var invalid *process.InvalidError
		if _, err := processor.Checkpoint(ctx, b); !errors.As(err, &invalid) || invalid.Field != field {
			t.Errorf("%v, want an error about %s", err, field)
		}
	}
	none := func(ctx context.Context, r *progressorv1.ProcessRequest) (*progressorv1.ProcessResponse, error) {
		if _, err := checkpoint(ctx, "x"); !errors.Is(err, processor.ErrNoCheckpoints) {
			t.Errorf("%s: %v", r.GetType(), err)
		}
		return processor.Result().SetTimerAfter(0).Done()
	}
	checked := make(chan struct{})
	n := start(t, storagetest.DSN(t), byTask{
		initTask: none, callTask: none, notifyTask: none,
		timeoutTask: func(ctx context.Context, _ *progressorv1.ProcessRequest) (*progressorv1.ProcessResponse, error) {
			event := func() *processor.ResultBuilder { return processor.Result().Event(nil) }
			refused(ctx, processor.Result().AuxState(nil), "result.events")
			refused(ctx, event().SetTimerAfter(0), "result.set_timer")
			refused(ctx, event().Complete(), "result.complete")
			refused(ctx, event().Response([]byte("x")), "result.response")
			refused(ctx, event().Start("", "q", nil), "result.commands")
			refused(ctx, event().RestartHistory(), "result.restart_history")
			refused(ctx, event().AuxState(make([]byte, process.MaxPayloadBytes+1)), "result.aux_state")
			close(checked)
			return processor.Result().Done()
		},
		cancelTask: func(ctx context.Context, _ *progressorv1.ProcessRequest) (*progressorv1.ProcessResponse, error) {
			if yield, err := checkpoint(ctx, "cancel"); !yield || err != nil {
				t.Error(yield, err)
			}
			return processor.Result().Done()
		},
	})
	n.started(t, "p")
	receive(t, "the timer", checked)
	if _, err := n.CancelProcess(t.Context(), engine.CancelParams{Key: key("p"), Reason: "no more"}); err != nil {
		t.Fatal(err)
	}
	eventually(t, "the process is cancelled", func() bool { return n.status(t, "p") == "CANCELLED" })
	p, err := n.GetProcess(t.Context(), key("p"), nil, 0)
	if err != nil || payloads(p) != "cancel" {
		t.Errorf("%q, %v", payloads(p), err)
	}
}

// A checkpoint asks the attempt to end if a call waits. The call runs after the attempt.
func TestCheckpointYields(t *testing.T) {
	t.Parallel()
	began := make(chan struct{})
	n := start(t, storagetest.DSN(t), byTask{
		initTask: answers(processor.Result().SetTimerAfter(0)),
		timeoutTask: func(ctx context.Context, _ *progressorv1.ProcessRequest) (*progressorv1.ProcessResponse, error) {
			for i := range process.MaxHistoryEvents {
				yield, err := checkpoint(ctx, "x")
				if i == 0 {
					close(began)
				}
				if yield || err != nil {
					return processor.Result().Event([]byte("yields")).Done()
				}
			}
			return processor.Result().Done()
		},
	})
	n.started(t, "p")
	receive(t, "the first checkpoint", began)
	n.called(t, "p", "x")
	p, err := n.GetProcess(t.Context(), key("p"), nil, 0)
	if err != nil || !strings.Contains(payloads(p), "x yields") {
		t.Errorf("%d events, %v", p.GetLastEventId(), err)
	}
}

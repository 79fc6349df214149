package crons_test

import (
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"testing"
	"time"

	"github.com/progressor-engine/progressor/engine"
	"github.com/progressor-engine/progressor/process"
	progressorv1 "github.com/progressor-engine/progressor/proto/progressor/v1"
)

func (n *node) cancelFire(t testing.TB, id string, f *progressorv1.Fire) (*progressorv1.Fire, error) {
	t.Helper()
	return n.CancelFire(t.Context(), &progressorv1.CancelFireRequest{
		Namespace: "ns", CronId: id, FireTime: f.GetFireTime(), Reason: "wrong data",
	}, kim)
}

// everyTarget returns a cron for each kind of target. The runs of these crons do not end before the
// gate of n is closed.
func everyTarget(t *testing.T, n *node) []*progressorv1.Cron {
	t.Helper()
	server := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		_, _ = io.Copy(io.Discard, r.Body) // the server notices a closed connection only after it has read the body
		<-r.Context().Done()
	}))
	t.Cleanup(server.Close)
	n.putTemplate(t, askFlow(`"cancel_policy": {"grace": "0s"},`))
	init := starts("init", never, "hold")
	init.GetTarget().GetStartProcess().RunEnd = progressorv1.StartProcessTarget_RUN_END_INIT
	if _, err := n.Start(t.Context(), engine.StartParams{Key: key("busy")}); err != nil {
		t.Fatal(err)
	}
	notify := starts("notify", never, "")
	notify.Target = &progressorv1.CronTarget{Target: &progressorv1.CronTarget_NotifyProcess{
		NotifyProcess: &progressorv1.NotifyProcessTarget{Namespace: "ns", ProcessId: "busy", Args: []byte("hold")},
	}}
	return []*progressorv1.Cron{
		starts("process", never, "wait"), init, enqueues("job", nil), runs(t, "flow", ""),
		target("http", server.URL), notify,
	}
}

// CancelFire ends the run of a fire as CANCELLED, for every kind of target.
func TestCancelFire(t *testing.T) {
	t.Parallel()
	n := startPull(t)
	defer close(n.gate)
	list := everyTarget(t, n)
	for _, c := range list {
		n.create(t, c)
		f := n.trigger(t, c.GetCronId())
		if c.GetCronId() == "flow" {
			n.waits(t, runOf(t, f))
		}
		got, err := n.cancelFire(t, c.GetCronId(), f)
		if err != nil || !got.GetFireTime().AsTime().Equal(f.GetFireTime().AsTime()) {
			t.Fatalf("%s: %v, %v", c.GetCronId(), got, err)
		}
		n.awaits(t, c.GetCronId(), "FIRED CANCELLED 1")
		if _, err = n.cancelFire(t, c.GetCronId(), f); !errors.As(err, new(*process.WrongStatusError)) {
			t.Errorf("%s: cancel of a fire that has ended: %v", c.GetCronId(), err)
		}
	}
	k := n.Count(t, `SELECT count(*) FROM audit WHERE method = 'CancelFire' AND actor = 'kim'
		AND details->>'note' = 'wrong data'`)
	if k != len(list) {
		t.Errorf("the audit log has %d of %d commands", k, len(list))
	}
}

// A cancelled fire that waits is removed from the queue, and the next fire moves up.
func TestCancelFireThatWaits(t *testing.T) {
	t.Parallel()
	n := startPull(t)
	c := starts("c", never, "wait")
	c.Policy.ConcurrencyPolicy = progressorv1.ConcurrencyPolicy_CONCURRENCY_POLICY_QUEUE
	n.create(t, c)
	first, second := n.trigger(t, "c"), n.trigger(t, "c")
	n.trigger(t, "c")
	n.awaits(t, "c", "FIRED RUNNING 1, QUEUED SCHEDULED, QUEUED SCHEDULED")
	got, err := n.cancelFire(t, "c", second)
	if err != nil || got.GetStatus() != progressorv1.FireStatus_FIRE_STATUS_CANCELLED || got.GetDetail() == "" ||
		got.GetEndedTime() == nil {
		t.Fatalf("%v, %v", got, err)
	}
	n.call(t, first.GetProcessId(), "complete")
	n.awaits(t, "c", "FIRED SUCCESS 1, QUEUED CANCELLED, QUEUED RUNNING 1")
	millis := &progressorv1.Fire{FireTime: stamp(first.GetFireTime().AsTime().Truncate(time.Millisecond))}
	if _, err := n.cancelFire(t, "c", millis); !errors.As(err, new(*process.WrongStatusError)) {
		t.Errorf("a fire time without its microseconds: %v", err)
	}
	wrong := &progressorv1.Fire{FireTime: stamp(time.Unix(1, 0))}
	if _, err := n.cancelFire(t, "c", wrong); !isInvalid(err, "fire_time") {
		t.Errorf("a fire that does not exist: %v", err)
	}
	if _, err := n.cancelFire(t, "d", first); !errors.Is(err, process.ErrCronNotFound) {
		t.Errorf("a cron that does not exist: %v", err)
	}
}

func isInvalid(err error, field string) bool {
	wrong, ok := errors.AsType[*process.InvalidError](err)
	return ok && wrong.Field == field
}

package crons_test

import (
	"errors"
	"testing"

	"github.com/progressor-engine/progressor/engine"
	"github.com/progressor-engine/progressor/engine/enginetest"
	"github.com/progressor-engine/progressor/process"
	"github.com/progressor-engine/progressor/processor"
	"github.com/progressor-engine/progressor/processor/durable"
	progressorv1 "github.com/progressor-engine/progressor/proto/progressor/v1"
	"github.com/progressor-engine/progressor/storage/storagetest"
)

// desk returns a durable function that takes requests. The function answers a request after a call
// of "go".
func desk() processor.Processor {
	return durable.Func("desk", func(ctx durable.Ctx, _ struct{}) (string, error) {
		asks, goes := durable.Requests[string, int](ctx, "ask"), durable.Calls[int, int](ctx, "go")
		for {
			ask := asks.Next()
			goes.Next()
			switch ask.Args {
			case "end":
				return "", nil
			case "fail":
				return "", errors.New("no money")
			case "no":
				ask.Reject(processor.Reject("no", "not today"))
			default:
				ask.Reply(1)
			}
		}
	})
}

// asks starts a process with this ID, and triggers a cron that sends it a request. It returns when
// the request is open.
func (n *node) asks(t *testing.T, id, request string) *progressorv1.Fire {
	t.Helper()
	if _, err := n.Start(t.Context(), engine.StartParams{Key: key(id), Args: []byte("{}")}); err != nil {
		t.Fatal(err)
	}
	c := starts(id, never, "")
	c.Target = &progressorv1.CronTarget{Target: &progressorv1.CronTarget_NotifyProcess{
		NotifyProcess: &progressorv1.NotifyProcessTarget{ProcessId: id, Args: []byte(`{"ask":"` + request + `"}`)},
	}}
	n.create(t, c)
	fire := n.trigger(t, id)
	eventually(t, id+" has taken the request", func() bool {
		return n.Count(t, "SELECT count(*) FROM schedule WHERE process_id = $1 AND waits_for = 'reply'", id) == 1
	})
	return fire
}

func (n *node) goes(t *testing.T, id string) {
	t.Helper()
	if _, err := n.Call(t.Context(), engine.CallParams{
		Key: key(id), Args: []byte(`{"go":1}`), Timeout: testTimeout,
	}); err != nil {
		t.Fatal(err)
	}
}

func startDesk(t *testing.T) *node {
	n := enginetest.Start(t, storagetest.DSN(t), desk(), enginetest.Kinds)
	return &node{Node: n, Crons: n.Crons}
}

// If a function answers a notification later, the run ends with the reply.
func TestNotifyDefers(t *testing.T) {
	t.Parallel()
	n := startDesk(t)
	for id, want := range map[string]struct{ ledger, detail string }{
		"yes":    {"FIRED SUCCESS 1", ""},
		"no":     {"FIRED FAILED 1", "rejected: not today"},
		"end":    {"FIRED FAILED 1", "rejected: the function has ended without a reply"},
		"fail":   {"FIRED FAILED 1", "the task was cancelled, because the process is in ERROR: no money"},
		"remove": {"FIRED FAILED 1", "the process was removed"},
		"cancel": {"FIRED CANCELLED 1", "the task was cancelled"},
	} {
		n.asks(t, id, id)
		if got := showFires(n.fires(t, id)); got != "FIRED RUNNING 1" {
			t.Errorf("%s before the reply: %s", id, got)
		}
		var err error
		switch id {
		case "remove":
			err = n.RemoveProcess(t.Context(), key(id), kim)
		case "cancel":
			_, err = n.CancelProcess(t.Context(), engine.CancelParams{Key: key(id)})
		default:
			n.goes(t, id)
		}
		if err != nil {
			t.Fatal(err)
		}
		if f := n.awaits(t, id, want.ledger)[0]; f.GetDetail() != want.detail {
			t.Errorf("%s: %s", id, f.GetDetail())
		}
	}
}

// A run that waits for a long time sleeps most of that time, and uses no slot then. It can be
// cancelled. It does not send the notification again.
func TestNotifyWaitsForLong(t *testing.T) {
	t.Parallel()
	n := startDesk(t)
	ids := []string{"answered", "cancelled"}
	var fires []*progressorv1.Fire
	for _, id := range ids {
		fires = append(fires, n.asks(t, id, "yes"))
	}
	n.Count(t, `WITH changed AS (UPDATE processes SET created_time = created_time - interval '1 hour'
		WHERE starts_with(process_id, $1) RETURNING 1) SELECT count(*) FROM changed`, process.CronRunPrefix)
	eventually(t, "the runs sleep", func() bool {
		return n.Count(t, `SELECT count(*) FROM schedule WHERE starts_with(process_id, $1) AND waits_for = 'time'
			AND scheduled_time > statement_timestamp() + interval '20 seconds'`, process.CronRunPrefix) == len(ids)
	})
	if _, err := n.cancelFire(t, "cancelled", fires[1]); err != nil {
		t.Fatal(err)
	}
	n.awaits(t, "cancelled", "FIRED CANCELLED 1")
	for _, id := range ids {
		n.goes(t, id)
	}
	n.Count(t, `WITH changed AS (UPDATE schedule SET scheduled_time = statement_timestamp()
		WHERE starts_with(process_id, $1) RETURNING 1) SELECT count(*) FROM changed`, process.CronRunPrefix)
	n.awaits(t, "answered", "FIRED SUCCESS 1")
	for _, id := range ids {
		if k := n.Count(t, "SELECT count(*) FROM tasks WHERE process_id = $1 AND task_type = 'NOTIFY'", id); k != 1 {
			t.Errorf("%s got %d notifications", id, k)
		}
	}
}

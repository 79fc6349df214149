package engine_test

import (
	"errors"
	"testing"
	"time"

	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/progressor-engine/progressor/engine"
	"github.com/progressor-engine/progressor/process"
	progressorv1 "github.com/progressor-engine/progressor/proto/progressor/v1"
	"github.com/progressor-engine/progressor/storage/storagetest"
)

// An ended process is removed after the retention of its namespace. A process that has not ended
// stays, regardless of its age.
func TestRetention(t *testing.T) {
	t.Parallel()
	reg := newRegistry()
	n := start(t, storagetest.DSN(t), byTask{initTask: words, callTask: words}, reg.use)
	n.put(t, &progressorv1.Namespace{Namespace: "ns", Retention: durationpb.New(time.Second)})
	n.started(t, "ends")
	n.started(t, "lives")
	n.called(t, "ends", "complete")
	n.called(t, "lives", "")
	eventually(t, "the ended process is removed", func() bool {
		_, err := n.GetProcess(t.Context(), key("ends"), nil, 0)
		return errors.Is(err, process.ErrProcessNotFound)
	})
	n.called(t, "lives", "")
	eventually(t, "its ID can be used again", func() bool {
		_, err := n.Start(t.Context(), engine.StartParams{Key: key("ends")})
		return err == nil
	})
	if got := reg.value(t, "progressor_expired_processes_total", "namespace=ns"); got != 1 {
		t.Errorf("the metric reports %v expired processes, want 1", got)
	}
}

// If a pass had no time for all expired processes, the next pass follows immediately, not ten
// seconds later. Otherwise a node would remove at most 160 processes per second.
func TestRetentionContinues(t *testing.T) {
	t.Parallel()
	dsn := storagetest.DSN(t)
	n := start(t, dsn, byTask{initTask: words, callTask: words})
	n.put(t, &progressorv1.Namespace{Namespace: "ns", Retention: durationpb.New(time.Hour)})
	n.started(t, "ends")
	n.called(t, "ends", "complete")
	if _, err := storagetest.Connect(t, dsn).Exec(t.Context(),
		`UPDATE processes SET attention_time = attention_time - interval '1 day',
			status_changed_time = status_changed_time - interval '1 day'`); err != nil {
		t.Fatal(err)
	}
	err := n.ExpireTwice(t.Context(), func() {
		if _, err := n.GetProcess(t.Context(), key("ends"), nil, 0); err != nil {
			t.Errorf("after a pass without time: %v", err)
		}
	})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := n.GetProcess(t.Context(), key("ends"), nil, 0); !errors.Is(err, process.ErrProcessNotFound) {
		t.Errorf("after the next pass: %v", err)
	}
}

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

// A process at its end leaves after its namespace's retention; one that lives stays, however old.
func TestRetention(t *testing.T) {
	t.Parallel()
	reg := newRegistry()
	n := start(t, storagetest.DSN(t), by{initTask: words, callTask: words}, reg.use)
	n.put(t, &progressorv1.Namespace{Namespace: "ns", Retention: durationpb.New(time.Second)})
	n.started(t, "ends")
	n.started(t, "lives")
	n.called(t, "ends", "complete")
	n.called(t, "lives", "")
	eventually(t, "the process that ended is gone", func() bool {
		_, err := n.GetProcess(t.Context(), key("ends"), nil, 0)
		return errors.Is(err, process.ErrProcessNotFound)
	})
	n.called(t, "lives", "")
	eventually(t, "its id is free again", func() bool {
		_, err := n.Start(t.Context(), engine.StartParams{Key: key("ends")})
		return err == nil
	})
	if got := reg.value(t, "progressor_expired_processes_total", "namespace=ns"); got != 1 {
		t.Errorf("%v processes expired by the metric, want 1", got)
	}
}

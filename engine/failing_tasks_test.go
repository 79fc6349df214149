package engine_test

import (
	"context"
	"errors"
	"testing"

	"github.com/progressor-engine/progressor/engine"
	"github.com/progressor-engine/progressor/processor"
	progressorv1 "github.com/progressor-engine/progressor/proto/progressor/v1"
	"github.com/progressor-engine/progressor/storage/storagetest"
)

// Processes of internal kinds whose tasks fail for more than a minute are counted, by kind.
func TestFailingTasksAreCounted(t *testing.T) {
	t.Parallel()
	dsn := storagetest.DSN(t)
	fails := byTask{initTask: func(
		context.Context, *progressorv1.ProcessRequest,
	) (*progressorv1.ProcessResponse, error) {
		return nil, errors.New("the table is gone")
	}}
	reg := newRegistry()
	n := startKinds(t, dsn, processor.Echo(), []engine.Kind{
		{Name: "own", Processor: fails}, {Name: "other", Processor: fails}, {Name: "plain"},
	}, reg.use)
	n.startedOwn(t, "~own/a")
	n.startedOwn(t, "~own/b")
	rows := openDB(t, dsn)
	eventually(t, "both have failed", func() bool {
		return rows.count(t, "SELECT count(DISTINCT process_id) FROM failed_attempts") == 2
	})
	_, err := rows.Exec(t.Context(),
		"UPDATE failed_attempts SET failed_time = failed_time - interval '61 s' WHERE process_id = '~own/a'")
	if err != nil {
		t.Fatal(err)
	}
	const name = "progressor_failing_internal_processes"
	if own, other := reg.value(t, name, "kind=own"), reg.value(t, name, "kind=other"); own != 1 || other != 0 {
		t.Errorf("%g of own and %g of other, want 1 and 0", own, other)
	}
	if !reg.has(t, name, "kind=other") || reg.has(t, name, "kind=plain") {
		t.Error("the metric must show the kinds with a processor, and only these")
	}
}

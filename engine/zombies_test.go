package engine_test

import (
	"context"
	"fmt"
	"testing"

	"golang.org/x/sync/errgroup"

	"github.com/progressor-engine/progressor/engine"
	"github.com/progressor-engine/progressor/engine/pull"
	progressorv1 "github.com/progressor-engine/progressor/proto/progressor/v1"
	"github.com/progressor-engine/progressor/storage/storagetest"
)

// One pass of the collector ends up to maxZombieSaves leases of a dead worker.
func TestLeasesOfADeadWorker(t *testing.T) {
	t.Parallel()
	dsn := storagetest.DSN(t)
	n := start(t, dsn, byTask{})
	n.put(t, &progressorv1.Namespace{Namespace: "ns", Processor: &progressorv1.ProcessorConfig{
		Transport: &progressorv1.ProcessorConfig_Pull{Pull: &progressorv1.PullProcessor{}},
	}})
	const leases = 450
	var starts errgroup.Group
	for i := range leases {
		starts.Go(func() error {
			_, err := n.Start(context.Background(), engine.StartParams{Key: key(fmt.Sprintf("p%d", i)), Accepted: true})
			return err
		})
	}
	if err := starts.Wait(); err != nil {
		t.Fatal(err)
	}
	for held := 0; held < leases; {
		polled, err := n.Poll(t.Context(), pull.PollParams{
			Namespaces: []string{"ns"}, WorkerID: "w1", Max: leases, Wait: longWait,
		})
		if err != nil || len(polled) == 0 {
			t.Fatalf("%d leases after %d, %v", len(polled), held, err)
		}
		held += len(polled)
	}
	// The interval prevents the node's own collector from ending the leases during this test.
	expire := "UPDATE leases SET expires_time = now() - interval '1 second', heartbeat_interval = interval '1 hour'"
	if _, err := openDB(t, dsn).Exec(t.Context(), expire); err != nil {
		t.Fatal(err)
	}
	passes, err := n.CollectionPasses(t.Context())
	if err != nil || passes != 1 {
		t.Errorf("%d passes ended the leases (want 1), %v", passes, err)
	}
	if left := openDB(t, dsn).count(t, "SELECT count(*) FROM running"); left != 0 {
		t.Errorf("%d attempts run", left)
	}
}

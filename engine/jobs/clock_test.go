package jobs_test

import (
	"testing"

	"github.com/progressor-engine/progressor/engine/enginetest"
	progressorv1 "github.com/progressor-engine/progressor/proto/progressor/v1"
	"github.com/progressor-engine/progressor/storage/storagetest"
)

// A forward step of the database clock does not end the lease of a worker that renews it.
func TestForwardClockStepKeepsLeases(t *testing.T) {
	t.Parallel()
	n := start(t, storagetest.DSN(t), scripted())
	n.enqueue(t, "pull", "alive", nil)
	alive := n.leaseOne(t, "w1")
	n.beat(t, "w1", alive)
	n.enqueue(t, "pull", "dead", nil)
	n.leaseOne(t, "w2")
	n.exec(t, `WITH r AS (UPDATE running SET running_time = running_time - interval '1 day',
		deadline = deadline - interval '1 day')
		UPDATE leases SET leased_time = leased_time - interval '1 day', beat_time = beat_time - interval '1 day',
		  expires_time = expires_time - interval '1 day',
		       heartbeat_interval = CASE process_id WHEN 'dead' THEN interval '1 millisecond'
		         ELSE heartbeat_interval END`)
	enginetest.Eventually(t, testTimeout, "the lease of the dead worker is lost", func() bool {
		return n.Count(t, "SELECT sum(takeovers)::int FROM jobs") > 0
	})
	if k := n.Count(t, "SELECT takeovers FROM jobs WHERE process_id = 'alive'"); k != 0 {
		t.Error("the lease of the live worker was lost")
	}
	if d := n.beat(t, "w1", alive); d.GetDirective() != progressorv1.LeaseDirective_DIRECTIVE_CONTINUE {
		t.Error(d)
	}
}

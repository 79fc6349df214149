package jobs_test

import (
	"slices"
	"testing"
	"time"

	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/progressor-engine/progressor/engine/enginetest"
	"github.com/progressor-engine/progressor/process"
	progressorv1 "github.com/progressor-engine/progressor/proto/progressor/v1"
	"github.com/progressor-engine/progressor/storage/storagetest"
)

// Each outcome has its own retention. An outcome without a retention of its own uses retention. 0
// means that jobs are kept forever.
func TestRetentionByOutcome(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		name                         string
		completed, failed, cancelled time.Duration
		left                         []string
	}{
		{"failed longer", 24 * time.Hour, 30 * 24 * time.Hour, 0, []string{"failed"}},
		{"failed alone", 0, time.Hour, 0, []string{"cancelled", "succeeded"}},
		{"cancelled alone", 0, 0, time.Hour, []string{"failed", "succeeded"}},
		{"cancelled longer", time.Hour, 0, 30 * 24 * time.Hour, []string{"cancelled"}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			n := start(t, storagetest.DSN(t), scripted())
			n.ended(t)
			n.exec(t, `UPDATE processes SET attention_time = attention_time - interval '2 days',
				status_changed_time = status_changed_time - interval '2 days' WHERE attention IS NOT NULL`)
			n.Put(t, pullNamespace(func(ns *progressorv1.Namespace) {
				ns.Retention, ns.FailedRetention = durationpb.New(tt.completed), durationpb.New(tt.failed)
				ns.CancelledRetention = durationpb.New(tt.cancelled)
			}))
			enginetest.Eventually(t, testTimeout, "the others are removed", func() bool {
				var left []string
				for _, id := range []string{"cancelled", "failed", "succeeded"} {
					if _, err := n.Get(t.Context(), key("pull", id), 0); err == nil {
						left = append(left, id)
					}
				}
				return slices.Equal(left, tt.left)
			})
		})
	}
}

// ended creates a job in each end state. The ID of the job is the state.
func (n *node) ended(t *testing.T) {
	t.Helper()
	n.enqueue(t, "pull", "succeeded", nil)
	if err := n.succeed(n.leaseOne(t, "w1"), nil); err != nil {
		t.Fatal(err)
	}
	n.enqueue(t, "pull", "failed", nil)
	if err := n.fail(n.leaseOne(t, "w1"), "broken"); err != nil {
		t.Fatal(err)
	}
	n.enqueue(t, "pull", "cancelled", nil)
	if _, err := n.Cancel(t.Context(), key("pull", "cancelled"), "", process.Actor{}); err != nil {
		t.Fatal(err)
	}
}

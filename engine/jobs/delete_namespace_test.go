package jobs_test

import (
	"errors"
	"testing"

	"github.com/progressor-engine/progressor/engine/enginetest"
	"github.com/progressor-engine/progressor/process"
	progressorv1 "github.com/progressor-engine/progressor/proto/progressor/v1"
	"github.com/progressor-engine/progressor/storage/storagetest"
)

// The constraints of a namespace that is created again have the versions of those of the deleted
// one, but other rules.
func TestConstraintsOfANamespaceCreatedAgain(t *testing.T) {
	t.Parallel()
	n := start(t, storagetest.DSN(t), scripted())
	n.limit(t, &progressorv1.Constraint{Name: "region", Match: `job.name == "work"`, Key: byRegion, MaxRunning: 1})
	n.limited(t, "pull", "eu0", "eu", nil)
	n.limited(t, "pull", "eu1", "eu", nil)
	n.placed(t, "pull", 1)
	if _, err := n.DeleteNamespace(t.Context(), &progressorv1.DeleteNamespaceRequest{
		Namespace: "pull", WithData: true,
	}); err != nil {
		t.Fatal(err)
	}
	enginetest.Eventually(t, testTimeout, "it is gone", func() bool {
		_, err := n.GetNamespace(t.Context(), "pull")
		return errors.Is(err, process.ErrNamespaceNotFound)
	})
	if _, err := n.PutNamespace(t.Context(), pullNamespace(func(*progressorv1.Namespace) {})); err != nil {
		t.Fatal(err)
	}
	n.limit(t, &progressorv1.Constraint{Name: "region", Match: `job.name == "work"`, Key: byRegion, MaxRunning: 2})
	for _, id := range []string{"eu0", "eu1", "eu2"} {
		n.limited(t, "pull", id, "eu", nil)
	}
	n.placed(t, "pull", 2)
}

package jobs_test

import (
	"errors"
	"testing"

	"github.com/progressor-engine/progressor/engine/enginetest"
	"github.com/progressor-engine/progressor/process"
	progressorv1 "github.com/progressor-engine/progressor/proto/progressor/v1"
	"github.com/progressor-engine/progressor/storage/storagetest"
)

// A deleted namespace is created again. Its new constraints have the same versions as the deleted
// ones, but different rules. The new rules apply.
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
	enginetest.Eventually(t, testTimeout, "the namespace is deleted", func() bool {
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

// Paused job names are data of a namespace: a dry run and a rejected deletion count them, and they
// are deleted with the namespace.
func TestDeleteNamespaceWithPausedNames(t *testing.T) {
	t.Parallel()
	n := start(t, storagetest.DSN(t), scripted())
	n.pauses(t, "pull", "mail", "the mail server is down")
	request := &progressorv1.DeleteNamespaceRequest{Namespace: "pull"}
	const want = `namespace "pull" was not deleted: it has 1 paused job names: remove them first, ` +
		"or delete it with its data (with_data)"
	if _, err := n.DeleteNamespace(t.Context(), request); err == nil || err.Error() != want {
		t.Errorf("%v", err)
	}
	request.WithData, request.DryRun = true, true
	dry, err := n.DeleteNamespace(t.Context(), request)
	must(t, err)
	counts := dry.GetCounts()
	if len(counts) != 1 || counts[0].GetKind() != "paused_job_names" || counts[0].GetCount() != 1 {
		t.Errorf("a dry run counts %v", counts)
	}
	request.DryRun = false
	_, err = n.DeleteNamespace(t.Context(), request)
	must(t, err)
	enginetest.Eventually(t, testTimeout, "the namespace is deleted", func() bool {
		_, err := n.GetNamespace(t.Context(), "pull")
		return errors.Is(err, process.ErrNamespaceNotFound)
	})
	if left := n.Count(t, "SELECT count(*) FROM job_pauses"); left != 0 {
		t.Errorf("%d pauses remain", left)
	}
	_, err = n.PutNamespace(t.Context(), pullNamespace(func(*progressorv1.Namespace) {}))
	must(t, err)
	enginetest.Eventually(t, testTimeout, "the node knows that the pause has ended", func() bool {
		return !n.IsNamePaused("pull", "mail")
	})
}

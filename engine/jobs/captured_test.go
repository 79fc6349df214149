package jobs_test

import (
	"errors"
	"testing"
	"time"

	"google.golang.org/protobuf/types/known/timestamppb"

	"github.com/progressor-engine/progressor/process"
	progressorv1 "github.com/progressor-engine/progressor/proto/progressor/v1"
	"github.com/progressor-engine/progressor/storage/storagetest"
)

// recordWaits makes the database record which tasks have been in the table schedule.
func (n *node) recordWaits(t testing.TB) {
	t.Helper()
	n.exec(t, "CREATE TABLE waited (process_id text)")
	n.exec(t, `CREATE FUNCTION record_wait() RETURNS trigger LANGUAGE plpgsql AS $$
		BEGIN INSERT INTO waited VALUES (NEW.process_id); RETURN NULL; END $$`)
	n.exec(t, "CREATE TRIGGER record_wait AFTER INSERT ON schedule FOR EACH ROW EXECUTE FUNCTION record_wait()")
}

// requireWaited checks whether a job has been in the table schedule.
func (n *node) requireWaited(t testing.TB, id string, want bool) {
	t.Helper()
	if got := n.Count(t, "SELECT count(*) FROM waited WHERE process_id = $1", id) > 0; got != want {
		t.Errorf("job %s has waited: %t, want %t", id, got, want)
	}
}

// A job runs without waiting in the table schedule if the node that stores it has an idle slot. Its
// events are the same as those of a job that has waited.
func TestJobRunsAtOnce(t *testing.T) {
	t.Parallel()
	n := start(t, storagetest.DSN(t), scripted())
	n.recordWaits(t)
	n.enqueue(t, "ns", "now", nil)
	n.enqueue(t, "ns", "unique", &progressorv1.JobOptions{Unique: &progressorv1.Unique{Key: "k"}})
	n.enqueue(t, "ns", "timed", &progressorv1.JobOptions{RunTime: timestamppb.New(time.Unix(1, 0))})
	for _, id := range []string{"now", "unique", "timed"} {
		n.job(t, "ns", id, succeeded)
		n.requireWaited(t, id, id == "timed")
	}
	const want = "enqueued >available\nstarted available>running 1\nsucceeded running>succeeded 1"
	if got := n.history(t, "ns", "now"); got != want {
		t.Errorf("events %s\nwant %s", got, want)
	}
}

// A job waits in the table schedule if its node has no idle slot, or may not run the job at once.
func TestJobsWait(t *testing.T) {
	t.Parallel()
	held, free := make(chan string, 10), make(chan struct{})
	n := start(t, storagetest.DSN(t), holding(held, free))
	n.recordWaits(t)
	n.enqueue(t, "pull", "pulled", nil)

	n.Put(t, &progressorv1.Namespace{Namespace: "ns", MaxRunning: 1})
	n.enqueue(t, "ns", "first", nil)
	if id := <-held; id != "first" {
		t.Errorf("job %s runs first", id)
	}
	n.enqueue(t, "ns", "second", nil)
	n.placed(t, "ns", 1)
	close(free)
	n.job(t, "ns", "first", succeeded)
	n.job(t, "ns", "second", succeeded)
	n.requireWaited(t, "first", false)

	n.setPaused(t, true)
	n.enqueue(t, "ns", "paused", nil)
	n.setPaused(t, false)
	n.job(t, "ns", "paused", succeeded)
	n.pauses(t, "ns", "name", "it fails")
	n.enqueue(t, "ns", "other name", nil)
	n.job(t, "ns", "other name", succeeded)
	n.resumes(t, "ns", "name")
	n.Put(t, &progressorv1.Namespace{Namespace: "ns", FairnessKey: byTenant})
	n.enqueue(t, "ns", "fair", nil)
	n.job(t, "ns", "fair", succeeded)
	n.limit(t, &progressorv1.Constraint{Namespace: "ns", Name: "one", Key: "job.name", MaxRunning: 1})
	n.enqueue(t, "ns", "limited", nil)
	n.job(t, "ns", "limited", succeeded)
	for _, id := range []string{"pulled", "second", "paused", "other name", "fair", "limited"} {
		n.requireWaited(t, id, true)
	}
}

func (n *node) setPaused(t testing.TB, paused bool) {
	t.Helper()
	_, err := n.SetNamespacePaused(t.Context(), "ns", paused)
	must(t, err)
}

// The slot that was taken for a job is free again if the job is not created.
func TestSlotOfRefusedJob(t *testing.T) {
	t.Parallel()
	n := start(t, storagetest.DSN(t), scripted())
	n.Put(t, &progressorv1.Namespace{Namespace: "ns", MaxRunning: 1})
	n.enqueue(t, "ns", "a", nil)
	n.job(t, "ns", "a", succeeded)
	_, err := n.Enqueue(t.Context(), &progressorv1.EnqueueRequest{Namespace: "ns", JobId: "a", Name: "work"})
	if !errors.Is(err, process.ErrProcessExists) {
		t.Errorf("another job with the ID: %v", err)
	}
	n.enqueue(t, "ns", "b", nil)
	n.job(t, "ns", "b", succeeded)
}

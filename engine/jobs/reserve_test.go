package jobs_test

import (
	"fmt"
	"testing"

	"github.com/progressor-engine/progressor/engine/enginetest"
	"github.com/progressor-engine/progressor/process"
	progressorv1 "github.com/progressor-engine/progressor/proto/progressor/v1"
	"github.com/progressor-engine/progressor/storage/storagetest"
)

// tagged enqueues a job that needs the key of a constraint for each of its tags.
func (n *node) tagged(t *testing.T, id string, priority int32, tags ...string) {
	t.Helper()
	n.limited(t, "pull", id, "", &progressorv1.JobOptions{Priority: priority, Tags: tags})
}

// limitTags makes a constraint with one place for each tag.
func (n *node) limitTags(t *testing.T, tags ...string) {
	t.Helper()
	for _, tag := range tags {
		n.limit(t, &progressorv1.Constraint{Name: tag, Match: fmt.Sprintf("%q in job.tags", tag), MaxRunning: 1})
	}
}

// runUntil lets a worker run its leased jobs one after the other, oldest first, until it gets the
// given job. It returns the number of jobs that have ended before that.
func (n *node) runUntil(t *testing.T, id string, limit int) int {
	t.Helper()
	held := n.poll(t, "w", 4)
	for ended := 0; ended < limit; ended++ {
		for _, l := range held {
			if l.GetJob().GetJobId() == id {
				return ended
			}
		}
		must(t, n.succeed(held[0], nil))
		if held = held[1:]; len(held) == 0 {
			held = n.poll(t, "w", 1)
			continue
		}
		// The key of the ended job goes to the next job in the queue, or stays reserved.
		enginetest.Eventually(t, testTimeout, "the key of the ended job is assigned or reserved", func() bool {
			return n.Count(t, `SELECT count(*) FROM constraint_holds h
				WHERE NOT EXISTS (SELECT 1 FROM running r WHERE r.process_id = h.process_id)`) > 0 ||
				n.Count(t, "SELECT count(*) FROM constraint_reservations") > 0
		})
		held = append(held, n.leaseAll(t, "w")...)
	}
	t.Fatalf("%s has not run after %d other jobs", id, limit)
	return 0
}

// A job that needs four keys and has the smallest priority value starts soon, although 480 jobs
// that need one of these keys each were enqueued earlier.
func TestJobOfManyKeysDoesNotStarve(t *testing.T) {
	t.Parallel()
	n := start(t, storagetest.DSN(t), scripted())
	tags := []string{"a", "b", "c", "d"}
	n.limitTags(t, tags...)
	const each = 120
	r := &progressorv1.EnqueueBatchRequest{}
	for k := range each {
		for _, tag := range tags {
			r.Jobs = append(r.Jobs, &progressorv1.EnqueueRequest{
				Namespace: "pull", JobId: fmt.Sprint(tag, k), Name: "work",
				Options: &progressorv1.JobOptions{Tags: []string{tag}},
			})
		}
	}
	if _, err := n.EnqueueBatch(t.Context(), r); err != nil {
		t.Fatal(err)
	}
	n.placed(t, "pull", len(tags))
	n.tagged(t, "all", -100, tags...)
	if ended := n.runUntil(t, "all", each*len(tags)); ended > 20 {
		t.Errorf("%d of %d jobs of one key ended before the job that needs all keys", ended, each*len(tags))
	}
	if left := n.Count(t, "SELECT count(*) FROM constraint_reservations"); left != 0 {
		t.Errorf("%d keys are reserved after the job got them", left)
	}
}

// reserving enqueues jobs until job "both" waits for key a and has reserved keys a and b. Job a2
// runs, and jobs a3, b1 and b2 wait. reserving returns the lease of a2.
func (n *node) reserving(t *testing.T) *progressorv1.Lease {
	t.Helper()
	n.limitTags(t, "a", "b")
	n.tagged(t, "a1", 0, "a")
	n.tagged(t, "b0", 0, "b")
	first := map[string]*progressorv1.Lease{}
	for len(first) < 2 {
		l := n.leaseOne(t, "w")
		first[l.GetJob().GetJobId()] = l
	}
	n.tagged(t, "both", 0, "a", "b")
	n.tagged(t, "a2", 0, "a")
	n.tagged(t, "b1", 0, "b")
	n.tagged(t, "a3", 0, "a")
	n.tagged(t, "b2", 0, "b")
	must(t, n.succeed(first["a1"], nil)) // job "both" moves to the queue of key b
	a := n.leaseOne(t, "w")
	if got := a.GetJob().GetJobId(); got != "a2" {
		t.Fatalf("leased %s, want a2", got)
	}
	must(t, n.succeed(first["b0"], nil)) // a2 has taken key a in the meantime
	enginetest.Eventually(t, testTimeout, "two keys are reserved", func() bool {
		return n.Count(t, "SELECT count(*) FROM constraint_reservations WHERE process_id = 'both'") == 2
	})
	return a
}

func TestReservedKeyIsKept(t *testing.T) {
	t.Parallel()
	n := start(t, storagetest.DSN(t), scripted())
	a := n.reserving(t)
	if got := ids(n.leaseAll(t, "w")); got != "" {
		t.Errorf("leased %s, although b is reserved", got)
	}
	const want = "constraint b: reserved for job both, which also needs other keys; 0 before it"
	if got := n.job(t, "pull", "b1", available).GetBlockedOn(); got != want {
		t.Errorf("blocked on %q, want %q", got, want)
	}
	// A job with a smaller priority goes first, and the reservation stays.
	n.tagged(t, "urgent", -1, "b")
	urgent := n.leaseOne(t, "w")
	if got := urgent.GetJob().GetJobId(); got != "urgent" {
		t.Fatalf("leased %s, want urgent", got)
	}
	must(t, n.succeed(urgent, nil))
	must(t, n.succeed(a, nil))
	both := n.leaseOne(t, "w")
	if got := both.GetJob().GetJobId(); got != "both" {
		t.Fatalf("leased %s, want both", got)
	}
	must(t, n.succeed(both, nil))
	rest := map[string]bool{}
	for range 3 {
		l := n.leaseOne(t, "w")
		rest[l.GetJob().GetJobId()] = true
		must(t, n.succeed(l, nil))
	}
	if len(rest) != 3 {
		t.Errorf("then %v", rest)
	}
}

// The reserved keys of a job become free when the job leaves its queue for any reason.
func TestReservationEnds(t *testing.T) {
	t.Parallel()
	for name, leave := range map[string]func(*testing.T, *node){
		"cancelled": func(t *testing.T, n *node) {
			_, err := n.Cancel(t.Context(), key("pull", "both"), "", process.Actor{})
			must(t, err)
		},
		"suspended": func(t *testing.T, n *node) {
			_, err := n.SuspendProcess(t.Context(), key("pull", "both"), "", process.Actor{})
			must(t, err)
		},
		"removed": func(t *testing.T, n *node) {
			must(t, n.RemoveProcess(t.Context(), key("pull", "both"), process.Actor{}))
		},
		"needs other keys": func(t *testing.T, n *node) {
			match := `"b" in job.tags && !("a" in job.tags)`
			n.limit(t, &progressorv1.Constraint{Name: "b", Match: match, MaxRunning: 1})
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			n := start(t, storagetest.DSN(t), scripted())
			n.reserving(t)
			leave(t, n)
			if got := n.leaseOne(t, "w").GetJob().GetJobId(); got != "b1" {
				t.Errorf("leased %s, want b1", got)
			}
			enginetest.Eventually(t, testTimeout, "no key is reserved", func() bool {
				return n.Count(t, "SELECT count(*) FROM constraint_reservations") == 0
			})
		})
	}
}

package jobs_test

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"google.golang.org/protobuf/types/known/timestamppb"

	"github.com/progressor-engine/progressor/engine/enginetest"
	"github.com/progressor-engine/progressor/engine/pull"
	"github.com/progressor-engine/progressor/process"
	progressorv1 "github.com/progressor-engine/progressor/proto/progressor/v1"
	"github.com/progressor-engine/progressor/storage/storagetest"
)

// named enqueues a job with the given name.
func (n *node) named(t testing.TB, namespace, id, name string, o *progressorv1.JobOptions) {
	t.Helper()
	_, err := n.Enqueue(t.Context(), &progressorv1.EnqueueRequest{
		Namespace: namespace, JobId: id, Name: name, Options: o,
	})
	must(t, err)
}

// pauses pauses a job name.
func (n *node) pauses(t testing.TB, namespace, name, reason string) {
	t.Helper()
	p, err := n.PauseName(t.Context(), namespace, name, reason, kim)
	must(t, err)
	if p.GetName() != name || p.GetReason() != reason || p.GetActor() != "kim" || p.GetPausedTime() == nil {
		t.Errorf("paused: %v", p)
	}
}

// resumes resumes a job name that is paused.
func (n *node) resumes(t testing.TB, namespace, name string) {
	t.Helper()
	was, err := n.ResumeName(t.Context(), namespace, name, kim)
	must(t, err)
	if !was {
		t.Errorf("%s was not paused", name)
	}
}

// leasedIDs returns the IDs of the jobs of leases, sorted.
func leasedIDs(leases []*progressorv1.Lease) string {
	var ids []string
	for _, l := range leases {
		ids = append(ids, l.GetJob().GetJobId())
	}
	slices.Sort(ids)
	return strings.Join(ids, " ")
}

// No kind of poll gets a job of a paused name. Jobs of other names are leased, and running attempts
// continue.
func TestPausedNameIsNotLeased(t *testing.T) {
	t.Parallel()
	n := start(t, storagetest.DSN(t), scripted())
	n.named(t, "pull", "runs", "mail", nil)
	running := n.leaseOne(t, "w")
	n.pauses(t, "pull", "mail", "the server is down")
	n.named(t, "pull", "mail-1", "mail", nil)
	n.named(t, "pull", "sms-1", "sms", &progressorv1.JobOptions{Priority: 9})
	n.enqueue(t, "pull", "group", workers(1, 0)) // polls also read groups
	n.members(t, "group", 1)
	n.named(t, "pull", "mail-group", "mail", workers(1, 0, "w2"))
	n.members(t, "mail-group", 1)
	if got := leasedIDs(n.leaseAll(t, "w2")); !strings.HasPrefix(got, "sms-1 ~job/~/group/") ||
		strings.Contains(got, "mail") {
		t.Errorf("leased %s", got)
	}
	leases, err := n.Poll(t.Context(), pull.PollParams{
		Namespaces: []string{"pull"}, WorkerID: "w2", JobNames: []string{"mail"}, Max: 100,
	})
	must(t, err)
	if len(leases) > 0 {
		t.Errorf("leased with the paused name: %s", leasedIDs(leases))
	}
	wantBlockedOn(t, n.job(t, "pull", "mail-1", available), "job name: paused")
	must(t, n.succeed(running, nil))
	n.job(t, "pull", "runs", succeeded)

	n.resumes(t, "pull", "mail")
	if got := leasedIDs(n.leaseAll(t, "w2")); !strings.Contains(got, "mail-1") ||
		!strings.Contains(got, "~job/~/mail-group/") {
		t.Errorf("leased after the resume: %s", got)
	}
}

// A poll that waits gets a job as soon as the name of the job is resumed, on every node, whether or
// not the poll lists the name.
func TestResumedNameWakesPolls(t *testing.T) {
	t.Parallel()
	dsn := storagetest.DSN(t)
	n, other := start(t, dsn, scripted()), start(t, dsn, scripted())
	for _, at := range []*node{n, other} {
		for _, names := range [][]string{nil, {"mail"}} {
			n.pauses(t, "pull", "mail", "")
			enginetest.Eventually(t, testTimeout, "the node knows of the pause", func() bool {
				return at.IsNamePaused("pull", "mail")
			})
			worker := fmt.Sprintf("w%p %v", at, names)
			n.named(t, "pull", "of "+worker, "mail", nil)
			got := make(chan int, 1)
			go func() {
				leases, _ := at.Poll(t.Context(), pull.PollParams{
					Namespaces: []string{"pull"}, WorkerID: worker, JobNames: names, Max: 1, Wait: testTimeout,
				})
				got <- len(leases)
			}()
			enginetest.Eventually(t, testTimeout, "the worker polls", func() bool {
				return slices.ContainsFunc(at.workers(t, "pull"), func(w *progressorv1.Worker) bool {
					return w.GetWorkerId() == worker
				})
			})
			n.resumes(t, "pull", "mail")
			select {
			case k := <-got:
				if k != 1 {
					t.Fatalf("%d leases, want 1", k)
				}
			case <-time.After(10 * time.Second): // a poll that is not woken searches again after a minute
				t.Fatal("the resume did not wake the poll")
			}
			enginetest.Eventually(t, testTimeout, "the node knows of the resume", func() bool {
				return !at.IsNamePaused("pull", "mail")
			})
		}
	}
}

// A processor is not called for jobs of a paused name, whether they wait for a slot or for their
// time.
func TestPausedNameIsNotPushed(t *testing.T) {
	t.Parallel()
	n := start(t, storagetest.DSN(t), scripted())
	n.pauses(t, "ns", "mail", "")
	n.named(t, "ns", "now", "mail", nil)
	n.named(t, "ns", "later", "mail", &progressorv1.JobOptions{
		RunTime: timestamppb.New(time.Now().Add(50 * time.Millisecond)),
	})
	for k := range 3 {
		id := fmt.Sprint("other-", k)
		n.named(t, "ns", id, "sms", &progressorv1.JobOptions{
			RunTime: timestamppb.New(time.Now().Add(100 * time.Millisecond)),
		})
		n.job(t, "ns", id, succeeded)
	}
	if got := n.Count(t, "SELECT count(*) FROM schedule WHERE job_name = 'mail'"); got != 2 {
		t.Errorf("%d jobs wait, want 2", got)
	}
	n.resumes(t, "ns", "mail")
	n.job(t, "ns", "now", succeeded)
	n.job(t, "ns", "later", succeeded)
}

// Jobs of a paused name leave keys to jobs of other names, whether they have a key or wait for one.
func TestPausedNameLeavesKeys(t *testing.T) {
	t.Parallel()
	n := start(t, storagetest.DSN(t), scripted())
	n.limit(t, &progressorv1.Constraint{Name: "one", Match: `job.name == "mail" || job.name == "sms"`, MaxRunning: 1})
	n.named(t, "pull", "mail-1", "mail", nil)
	n.placed(t, "pull", 1)
	n.named(t, "pull", "mail-2", "mail", nil)
	n.named(t, "pull", "sms-1", "sms", nil)
	n.pauses(t, "pull", "mail", "")
	l := n.leaseOne(t, "w")
	if got := l.GetJob().GetJobId(); got != "sms-1" {
		t.Fatalf("leased %s, want the job that got the key", got)
	}
	wantBlockedOn(t, n.job(t, "pull", "mail-2", available), "job name: paused")
	must(t, n.succeed(l, nil))
	n.resumes(t, "pull", "mail")
	for _, want := range []string{"mail-1", "mail-2"} {
		l := n.leaseOne(t, "w")
		if got := l.GetJob().GetJobId(); got != want {
			t.Errorf("leased %s, want %s", got, want)
		}
		must(t, n.succeed(l, nil))
	}
}

// A pause is listed with its time, reason and author. A second pause changes the reason. The number
// of paused names is bounded. Pause and resume are audited.
func TestPausedNamesAreListed(t *testing.T) {
	t.Parallel()
	n := start(t, storagetest.DSN(t), scripted())
	n.pauses(t, "pull", "b", "first")
	before, err := n.ListPausedNames(t.Context(), "pull")
	must(t, err)
	n.pauses(t, "pull", "b", "second")
	n.pauses(t, "pull", "a", "")
	list, err := n.ListPausedNames(t.Context(), "pull")
	must(t, err)
	if len(list) != 2 || list[0].GetName() != "a" || list[1].GetReason() != "second" ||
		!list[1].GetPausedTime().AsTime().Equal(before[0].GetPausedTime().AsTime()) {
		t.Errorf("paused: %v, before: %v", list, before)
	}
	for k := range 98 {
		n.pauses(t, "pull", fmt.Sprint("name-", k), "")
	}
	n.pauses(t, "pull", "b", "third") // the name is already paused
	_, err = n.PauseName(t.Context(), "pull", "one more", "")
	invalid, ok := errors.AsType[*process.InvalidError](err)
	if !ok || invalid.Error() != "name: a namespace has at most 100 paused job names: resume one first" {
		t.Errorf("the 101st name: %v", err)
	}
	n.pauses(t, "ns", "one more", "") // another namespace has its own limit
	n.resumes(t, "pull", "b")
	if was, err := n.ResumeName(t.Context(), "pull", "b", kim); err != nil || was {
		t.Errorf("a second resume: %t, %v", was, err)
	}
	got := n.Count(t, `SELECT count(*) FROM audit WHERE namespace = 'pull' AND subject = 'b' AND actor = 'kim'
		AND method IN ('PauseJobs', 'ResumeJobs')`)
	if got != 4 {
		t.Errorf("%d entries in the audit, want 4", got)
	}
	if _, err := n.PauseName(t.Context(), "none", "b", ""); !errors.Is(err, process.ErrNamespaceNotFound) {
		t.Errorf("a pause without a namespace: %v", err)
	}
	if _, err := n.ResumeName(t.Context(), "none", "b"); !errors.Is(err, process.ErrNamespaceNotFound) {
		t.Errorf("a resume without a namespace: %v", err)
	}
}

// The explanation of a waiting job shows that its name is paused, who has paused it and why.
func TestPausedNameIsExplained(t *testing.T) {
	t.Parallel()
	n := start(t, storagetest.DSN(t), scripted())
	n.named(t, "pull", "j", "mail", nil)
	n.pauses(t, "pull", "mail", "the server is down")
	e, err := n.ExplainProcess(t.Context(), key("pull", "j"))
	must(t, err)
	text := e.GetWaitsForDetail() + "\n" + e.GetUnblock()
	for _, want := range []string{
		`Jobs with the name "mail" have been paused since 20`, " by kim (the server is down).",
		"To resume the name, run progressor job resume pull mail.",
	} {
		if !strings.Contains(text, want) {
			t.Errorf("%q lacks %q", text, want)
		}
	}
}

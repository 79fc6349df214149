package jobs_test

import (
	"fmt"
	"strings"
	"testing"

	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/durationpb"
	"google.golang.org/protobuf/types/known/structpb"

	"github.com/progressor-engine/progressor/engine"
	"github.com/progressor-engine/progressor/process"
	progressorv1 "github.com/progressor-engine/progressor/proto/progressor/v1"
	"github.com/progressor-engine/progressor/storage/storagetest"
)

// The tasks in the response of a Poll are bounded in bytes. The next poll returns the others, even
// if members of groups wait.
func TestPollIsBoundedInBytes(t *testing.T) {
	t.Parallel()
	n := start(t, storagetest.DSN(t), scripted())
	const jobs, size = 12, 1_000_000
	args := structpb.NewStringValue(strings.Repeat("x", size))
	for _, group := range []*progressorv1.WorkerGroup{nil, {Count: 1}} {
		for k := range jobs {
			if _, err := n.Enqueue(t.Context(), &progressorv1.EnqueueRequest{
				Namespace: "pull", JobId: fmt.Sprintf("%d of %v", k, group), Name: "work", Args: args,
				Options: &progressorv1.JobOptions{Workers: group},
			}); err != nil {
				t.Fatal(err)
			}
		}
		for left := jobs; left > 0; {
			leases := n.poll(t, "w"+fmt.Sprint(left), jobs)
			if most := process.MaxPollBytes/size + 1; len(leases) == 0 || len(leases) > most {
				t.Fatalf("%d leases in one response, want at most %d", len(leases), most)
			}
			for _, l := range leases {
				left--
				must(t, n.succeed(l, nil))
			}
		}
	}
}

// A job keeps its newest failures, with shortened texts. All failures count: the job is retried
// max_retry times and no more.
func TestFailuresAreBounded(t *testing.T) {
	t.Parallel()
	n := start(t, storagetest.DSN(t), scripted())
	const attempts = process.MaxJobFailures + 10
	n.enqueue(t, "pull", "j", &progressorv1.JobOptions{
		MaxRetry: attempts - 1, Backoff: &progressorv1.Backoff{Steps: []*durationpb.Duration{durationpb.New(0)}},
	})
	long := strings.Repeat("<", 50_000)
	for k := range attempts {
		l := n.leaseOne(t, "w")
		if got := len(l.GetJob().GetFailures()); got != min(k, process.MaxJobFailures) {
			t.Fatalf("attempt %d: the lease has %d failures", k+1, got)
		}
		must(t, n.CompleteLease(t.Context(), l.GetLeaseToken(),
			engine.LeaseAnswer{Response: &progressorv1.ProcessResponse{
				Outcome: &progressorv1.ProcessResponse_Failure{Failure: &progressorv1.Failure{
					Reason: "broken", Message: long, Details: structpb.NewStringValue(long),
				}},
			}}))
	}
	job := n.job(t, "pull", "j", failed)
	last := job.GetFailures()[len(job.GetFailures())-1]
	if len(job.GetFailures()) != process.MaxJobFailures || last.GetAttempt() != attempts ||
		last.GetReason() != "broken" {
		t.Errorf("%d failures, the last one of attempt %d: %s", len(job.GetFailures()), last.GetAttempt(),
			last.GetReason())
	}
	if size := proto.Size(job); size > 200_000 {
		t.Errorf("the job has %d bytes", size)
	}
	if k := n.Count(t, "SELECT length(failure->>'message') FROM tasks WHERE process_id = 'j'"); k != len(long) {
		t.Errorf("the task keeps %d bytes of the message", k)
	}
}

// A job that an older version has stored with more failures than the limit keeps only the newest
// ones when its next attempt fails. All failures still count for max_retry.
func TestFailuresOfBeforeTheLimit(t *testing.T) {
	t.Parallel()
	n := start(t, storagetest.DSN(t), scripted())
	n.enqueue(t, "pull", "j", &progressorv1.JobOptions{
		MaxRetry: 31, Backoff: &progressorv1.Backoff{Steps: []*durationpb.Duration{durationpb.New(0)}},
	})
	n.exec(t, `UPDATE jobs SET failures =
		(SELECT jsonb_agg(jsonb_build_object('attempt', k, 'workerId', 'w', 'time', now(), 'takeover', k <= 10,
		'failure', '{"reason": "broken"}'::jsonb) ORDER BY k) FROM generate_series(1, 40) k)`)
	for k, want := range []progressorv1.JobState{available, failed} { // 30 retries are used up
		must(t, n.fail(n.leaseOne(t, "w"), "broken"))
		if job := n.job(t, "pull", "j", want); len(job.GetFailures()) != process.MaxJobFailures {
			t.Errorf("%d failures after %d more", len(job.GetFailures()), k+1)
		}
	}
}

// A heartbeat with too much progress is rejected with the name of the field.
func TestProgressIsBounded(t *testing.T) {
	t.Parallel()
	n := start(t, storagetest.DSN(t), scripted())
	n.enqueue(t, "pull", "j", nil)
	l := n.leaseOne(t, "w")
	beat := func(bytes int) error {
		_, err := n.BeatLeases(t.Context(), &progressorv1.HeartbeatRequest{WorkerId: "w",
			Beats: []*progressorv1.LeaseBeat{
				{LeaseToken: l.GetLeaseToken(), Progress: &progressorv1.Progress{Summary: strings.Repeat("x", bytes)}},
			}})
		return err
	}
	wantField(t, beat(process.MaxProgressBytes), "beats[0].progress")
	wantField(t, beat(process.MaxProgressBytes-100), "")
}

// The results of many workers fit into one job. Results over the limit are omitted, and the event
// of the end contains their number.
func TestResultsOfAGroupAreBounded(t *testing.T) {
	t.Parallel()
	n := start(t, storagetest.DSN(t), scripted())
	const members, size = 10, 1_000_000
	o := workers(members, 0)
	o.KeepResult = true
	n.enqueue(t, "pull", "j", o)
	for k := range members {
		must(t, n.succeed(n.leaseOne(t, fmt.Sprintf("w%d", k)), structpb.NewStringValue(strings.Repeat("x", size))))
	}
	job := n.job(t, "pull", "j", succeeded)
	if got := len(job.GetResult().GetStructValue().GetFields()); got != process.MaxGroupResultBytes/size {
		t.Errorf("the results of %d workers are kept", got)
	}
	if text := n.history(t, "pull", "j"); !strings.Contains(text, "the results of 2 workers are omitted") {
		t.Error(text)
	}
}

// The failures of many workers fit into one job. The job keeps the newest failures, and shortens
// the failures of its worker runs after 2 MiB.
func TestFailuresOfAGroupAreBounded(t *testing.T) {
	t.Parallel()
	n := start(t, storagetest.DSN(t), scripted())
	const members = 25
	n.enqueue(t, "pull", "j", workers(1, members-1))
	for k := range members {
		l := n.leaseOne(t, fmt.Sprintf("w%d", k))
		must(t, n.CompleteLease(t.Context(), l.GetLeaseToken(),
			engine.LeaseAnswer{Response: &progressorv1.ProcessResponse{
				Outcome: &progressorv1.ProcessResponse_Failure{
					Failure: &progressorv1.Failure{Reason: "broken", Message: fmt.Sprintf("by w%d", k)},
				},
			}}))
	}
	job := n.job(t, "pull", "j", failed)
	if list := job.GetFailures(); len(list) > process.MaxJobFailures || list[0].GetMessage() != "by w6" {
		t.Errorf("%d failures, the first one %s", len(list), list[0].GetMessage())
	}
	if k := n.Count(t, "SELECT (failures->0->>'omitted')::int FROM jobs WHERE process_id = 'j'"); k != 6 {
		t.Errorf("%d failures are omitted", k)
	}
	n.exec(t, "UPDATE job_places SET failure = jsonb_build_object('reason', 'broken', 'message', repeat('x', 100000))")
	whole := 0
	for _, r := range n.job(t, "pull", "j", failed).GetWorkerRuns() {
		if size := len(r.GetFailure().GetMessage()); size == 100_000 {
			whole++
		} else if size != 1000 || r.GetFailure().GetReason() != "broken" {
			t.Errorf("a message of %d bytes, reason %q", size, r.GetFailure().GetReason())
		}
	}
	if whole != 2<<20/100_030 {
		t.Errorf("%d whole failures", whole)
	}
}

// The size limit of a page of jobs also counts the results of workers whose job has not ended.
func TestListJobsCountsWorkerRuns(t *testing.T) {
	t.Parallel()
	n := start(t, storagetest.DSN(t), scripted())
	for k := range 3 {
		id := fmt.Sprintf("j%d", k)
		n.enqueue(t, "pull", id, workers(2, 0))
		n.members(t, id, 2)
	}
	n.exec(t, "UPDATE job_places SET result = convert_to('\"' || repeat('x', 3 << 20) || '\"', 'UTF8')")
	var pages []int
	for token, more := "", true; more; more = token != "" {
		list, next, err := n.List(t.Context(), &progressorv1.ListJobsRequest{
			Namespace: "pull", Filter: `job_id = "j*"`, PageToken: token,
		})
		if err != nil {
			t.Fatal(err)
		}
		pages, token = append(pages, len(list)), next
	}
	if fmt.Sprint(pages) != "[2 1]" {
		t.Errorf("pages of %v jobs", pages)
	}
	n.exec(t, "UPDATE job_places SET result = NULL")
}

// The cancel reasons in the response to a heartbeat are bounded. Nevertheless, the response
// contains the cancel of every lease.
func TestCancelReasonsAreBounded(t *testing.T) {
	t.Parallel()
	n := start(t, storagetest.DSN(t), scripted())
	const jobs = 1100
	batch, beats := &progressorv1.EnqueueBatchRequest{}, &progressorv1.HeartbeatRequest{WorkerId: "w"}
	for range jobs {
		batch.Jobs = append(batch.Jobs, &progressorv1.EnqueueRequest{Namespace: "pull", Name: "work"})
	}
	if _, err := n.EnqueueBatch(t.Context(), batch); err != nil {
		t.Fatal(err)
	}
	for len(beats.GetBeats()) < jobs {
		for _, l := range n.poll(t, "w", jobs) {
			beats.Beats = append(beats.Beats, &progressorv1.LeaseBeat{LeaseToken: l.GetLeaseToken()})
		}
	}
	n.exec(t, `UPDATE processes SET cancel_reason = repeat('x', 4096), cancel_requested_time = now(),
		cancel_deadline = now() + interval '1 hour'`)
	directives, err := n.BeatLeases(t.Context(), beats)
	if err != nil {
		t.Fatal(err)
	}
	cancelled, reasonBytes := 0, 0
	for _, d := range directives {
		if d.GetDirective() == progressorv1.LeaseDirective_DIRECTIVE_CANCEL {
			cancelled++
		}
		reasonBytes += len(d.GetCancelReason())
	}
	if cancelled != jobs || reasonBytes != 4<<20 {
		t.Errorf("%d of %d leases are cancelled, with %d bytes of reasons", cancelled, jobs, reasonBytes)
	}
	n.exec(t, "UPDATE processes SET cancel_reason = NULL, cancel_requested_time = NULL, cancel_deadline = NULL")
}

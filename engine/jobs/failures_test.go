package jobs_test

import (
	"context"
	"fmt"
	"testing"
	"time"

	"google.golang.org/protobuf/types/known/durationpb"
	"google.golang.org/protobuf/types/known/fieldmaskpb"
	"google.golang.org/protobuf/types/known/timestamppb"

	"github.com/progressor-engine/progressor/engine"
	progressorv1 "github.com/progressor-engine/progressor/proto/progressor/v1"
	"github.com/progressor-engine/progressor/storage/storagetest"
)

// Each failure contains the number of its attempt, the worker and the time, and shows whether a
// takeover followed. If a worker sends values for these fields, the values are ignored.
func TestFailedAttemptsSayWhichTheyWere(t *testing.T) {
	t.Parallel()
	n := start(t, storagetest.DSN(t), scripted())
	begin := time.Now()
	n.enqueue(t, "pull", "j", &progressorv1.JobOptions{
		MaxRetry: 1, Backoff: &progressorv1.Backoff{Steps: []*durationpb.Duration{durationpb.New(0)}},
	})
	fail := func(worker string) {
		said := &progressorv1.Failure{
			Reason: "broken", Attempt: 9, WorkerId: "liar", FailedTime: timestamppb.New(time.Unix(0, 0)),
			Takeover: true,
		}
		answer := engine.LeaseAnswer{
			Response: &progressorv1.ProcessResponse{Outcome: &progressorv1.ProcessResponse_Failure{Failure: said}},
		}
		if err := n.CompleteLease(context.Background(), n.leaseOne(t, worker).GetLeaseToken(), answer); err != nil {
			t.Fatal(err)
		}
	}
	leases := func(d time.Duration) { // sets the lease duration of later attempts
		if _, err := n.Update(context.Background(), &progressorv1.UpdateJobRequest{
			Namespace: "pull", JobId: "j",
			Options: &progressorv1.JobOptions{
				LeaseDuration: durationpb.New(d), HeartbeatInterval: durationpb.New(d / 2),
			},
			UpdateMask: &fieldmaskpb.FieldMask{Paths: []string{"lease_duration", "heartbeat_interval"}},
		}); err != nil {
			t.Fatal(err)
		}
	}
	fail("w1")
	leases(time.Second)
	n.beat(t, "w2", n.leaseOne(t, "w2"))
	leases(time.Hour)
	fail("w3")
	got := ""
	for _, f := range n.job(t, "pull", "j", failed).GetFailures() {
		got += fmt.Sprintln(f.GetAttempt(), f.GetWorkerId(), f.GetReason(), f.GetTakeover())
		if at := f.GetFailedTime().AsTime(); at.Before(begin) || at.After(time.Now()) {
			t.Errorf("attempt %d failed at %s", f.GetAttempt(), at)
		}
	}
	if want := "1 w1 broken false\n2 w2 lease_lost true\n3 w3 broken false\n"; got != want {
		t.Errorf("got\n%swant\n%s", got, want)
	}
}

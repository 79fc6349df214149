package jobs_test

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"google.golang.org/protobuf/types/known/fieldmaskpb"
	"google.golang.org/protobuf/types/known/timestamppb"

	"github.com/progressor-engine/progressor/process"
	progressorv1 "github.com/progressor-engine/progressor/proto/progressor/v1"
	"github.com/progressor-engine/progressor/storage/storagetest"
)

// UpdateJob changes run_time only while a job waits. Otherwise, the complete update is rejected,
// because a running job would ignore the new run_time when it waits again.
func TestRunTimeOfARunningJob(t *testing.T) {
	t.Parallel()
	n := start(t, storagetest.DSN(t), scripted())
	later := func(id string) error {
		_, err := n.Update(t.Context(), &progressorv1.UpdateJobRequest{
			Namespace: "pull", JobId: id, UpdateMask: &fieldmaskpb.FieldMask{Paths: []string{"priority", "run_time"}},
			Options: &progressorv1.JobOptions{Priority: 7, RunTime: timestamppb.New(time.Now().Add(time.Hour))},
		})
		return err
	}
	refused := func(id string, state progressorv1.JobState) {
		t.Helper()
		var wrong *process.WrongStatusError
		if err := later(id); !errors.As(err, &wrong) || !strings.Contains(wrong.Reason, "run_time") {
			t.Errorf("%s has another run_time: %v", id, err)
		}
		if job := n.job(t, "pull", id, state); job.GetOptions().GetPriority() != 0 {
			t.Errorf("part of a rejected update was stored: %v", job)
		}
	}
	n.enqueue(t, "pull", "plain", nil)
	l := n.leaseOne(t, "w")
	refused("plain", running)
	if err := n.ReleaseLeases(context.Background(), []string{l.GetLeaseToken()}, 0); err != nil {
		t.Fatal(err)
	}
	if err := later("plain"); err != nil {
		t.Fatal(err)
	}
	if job := n.job(t, "pull", "plain",
		progressorv1.JobState_JOB_STATE_SCHEDULED); job.GetOptions().GetPriority() != 7 {
		t.Errorf("%v", job)
	}
	if leases := n.leaseAll(t, "w"); len(leases) != 0 {
		t.Errorf("leased before its run time: %v", leases)
	}

	n.enqueue(t, "pull", "group", workers(1, 0))
	n.members(t, "group", 1)
	refused("group", progressorv1.JobState_JOB_STATE_AVAILABLE)
}

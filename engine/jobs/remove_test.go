package jobs_test

import (
	"errors"
	"strings"
	"testing"
	"time"

	"google.golang.org/protobuf/types/known/timestamppb"

	"github.com/progressor-engine/progressor/process"
	progressorv1 "github.com/progressor-engine/progressor/proto/progressor/v1"
	"github.com/progressor-engine/progressor/storage/storagetest"
)

// RemoveJob deletes a job in each end state, and rejects the request in other states without any
// effect.
func TestRemoveJob(t *testing.T) {
	t.Parallel()
	n := start(t, storagetest.DSN(t), scripted())
	by := process.Actor{Name: "ann"}
	end := func(id string, o *progressorv1.JobOptions, f func(*progressorv1.Lease) error) {
		t.Helper()
		n.enqueue(t, "pull", id, o)
		if err := f(n.leaseOne(t, "w1")); err != nil {
			t.Fatal(err)
		}
	}
	end("succeeded", &progressorv1.JobOptions{KeepResult: true}, func(l *progressorv1.Lease) error {
		return n.succeed(l, nil)
	})
	end("failed", nil, func(l *progressorv1.Lease) error { return n.fail(l, "broken") })
	end("retryable", slowly(1), func(l *progressorv1.Lease) error { return n.fail(l, "broken") })
	end("runs", nil, func(*progressorv1.Lease) error { return nil })
	n.enqueue(t, "pull", "scheduled", &progressorv1.JobOptions{RunTime: timestamppb.New(time.Now().Add(time.Hour))})
	n.enqueue(t, "pull", "cancelled", nil)
	if _, err := n.Cancel(t.Context(), key("pull", "cancelled"), "", by); err != nil {
		t.Fatal(err)
	}
	n.enqueue(t, "pull", "available", nil)
	for _, id := range []string{"retryable", "runs", "scheduled", "available"} {
		err := n.Remove(t.Context(), key("pull", id), by)
		wrong, ok := errors.AsType[*process.WrongStatusError](err)
		if !ok || wrong.State != strings.ToUpper(strings.ReplaceAll(id, "runs", "running")) {
			t.Errorf("%s: %v", id, err)
		}
	}
	if k := n.Count(t, "SELECT count(*) FROM audit WHERE method = 'RemoveJob'"); k != 0 {
		t.Errorf("%d audit entries, although nothing was removed", k)
	}
	for _, id := range []string{"succeeded", "failed", "cancelled"} {
		if err := n.Remove(t.Context(), key("pull", id), by); err != nil {
			t.Errorf("%s: %v", id, err)
		}
		if err := n.Remove(t.Context(), key("pull", id), by); !errors.Is(err, process.ErrJobNotFound) {
			t.Errorf("%s again: %v", id, err)
		}
	}
	if k := n.Count(t, "SELECT count(*) FROM job_events WHERE type = 'removed' AND actor = 'ann'"); k != 3 {
		t.Errorf("%d events", k)
	}
	if k := n.Count(t, "SELECT count(*) FROM audit WHERE method = 'RemoveJob' AND actor = 'ann'"); k != 3 {
		t.Errorf("%d audits", k)
	}
	if k := n.Count(t, "SELECT count(*) FROM jobs"); k != 4 {
		t.Errorf("%d jobs are left", k)
	}
}

// RemoveJob does not remove a process that is not a job.
func TestRemoveJobOfProcess(t *testing.T) {
	t.Parallel()
	n := start(t, storagetest.DSN(t), scripted())
	n.exec(t, `INSERT INTO processes (namespace, process_id, status, attention, attention_time, created_time,
		status_changed_time)
		VALUES ('pull', 'p', 'COMPLETED', 'COMPLETED', now(), now(), now())`)
	n.exec(t, "INSERT INTO status_counts (namespace, status, n) VALUES ('pull', 'COMPLETED', 1)")
	if err := n.Remove(t.Context(), key("pull", "p"), process.Actor{}); !errors.Is(err, process.ErrJobNotFound) {
		t.Errorf("%v", err)
	}
	if k := n.Count(t, "SELECT count(*) FROM processes WHERE process_id = 'p' AND removed_time IS NULL"); k != 1 {
		t.Error("the process is removed")
	}
}

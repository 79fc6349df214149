package worker

import (
	"testing"
	"time"

	"github.com/progressor-engine/progressor/cmd/progressor/internal/cli"
	"github.com/progressor-engine/progressor/cmd/progressor/internal/cli/clitest"
	progressorv1 "github.com/progressor-engine/progressor/proto/progressor/v1"
)

func TestWorkerStop(t *testing.T) {
	f := &clitest.Engine{}
	p := clitest.Serve(t, newCommands, f)
	clitest.WantLines(t, p.OK(t, "worker", "stop", "mail", "host-1", "--grace", "1m", "--reason", "deploy"),
		"host-1 3 STOP mail, media keys:mailer")
	if got := f.Last.(*progressorv1.StopWorkerRequest); got.GetGrace().AsDuration() != time.Minute ||
		got.GetReason() != "deploy" {
		t.Errorf("%v", got)
	}
	clitest.WantLines(t, p.OK(t, "worker", "stop", "mail", "host-1", "--quiet"), "QUIET")
	clitest.WantLines(t, p.OK(t, "worker", "stop", "mail", "host-1", "--continue"), "CONTINUE")
	if r := p.Run(t, "worker", "stop", "mail", "host-1", "--quiet", "--continue"); r.Code != cli.ExitUsage {
		t.Errorf("%+v", r)
	}
}

// Get shows the leases of a worker, the progress of its jobs and its last results.
func TestWorkerGet(t *testing.T) {
	f := &clitest.Engine{}
	p := clitest.Serve(t, newCommands, f)
	clitest.WantLines(t, p.OK(t, "worker", "get", "mail", "host 1", "--leases", "2"), "worker host 1", "leases 2",
		"mail-1 send 2 2026-11-01", "42 % page 4", "order-7 CALL 1", "and more; to show them, use --leases",
		"TIME JOB RESULT ATTEMPT MESSAGE")
	got := f.Last.(*progressorv1.ListJobEventsRequest)
	if got.GetFilter() != `worker_id = "host 1" AND type != started` || got.GetPageSize() != 10 {
		t.Errorf("%v", got)
	}
	p.OK(t, "worker", "get", "mail", "host-1", "--leases", "2", "-o", "json")
	if got := f.Last.(*progressorv1.GetWorkerRequest); got.GetMaxLeases() != 2 || got.GetWorkerId() != "host-1" {
		t.Errorf("%v", got)
	}
}

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

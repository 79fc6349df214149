package process

import (
	"testing"
	"time"

	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/progressor-engine/progressor/cmd/progressor/internal/cli/clitest"
	progressorv1 "github.com/progressor-engine/progressor/proto/progressor/v1"
)

func TestCancelSuspendResume(t *testing.T) {
	f := &clitest.Engine{Process: &progressorv1.Process{
		Namespace: "demo", ProcessId: "o-1", Status: progressorv1.ProcessStatus_PROCESS_STATUS_SUSPENDED,
		Detail: "a\x1breason", CancelReason: "why",
	}}
	p := clitest.Serve(t, newCommands, f)
	clitest.WantLines(t, p.OK(t, "cancel", "demo", "o-1"), "process        demo/o-1", "cancel reason  why")
	clitest.WantRequest(t, f.Last, &progressorv1.CancelProcessRequest{Namespace: "demo", ProcessId: "o-1"})
	p.OK(t, "cancel", "demo", "o-1", "--reason", "no more", "--grace", "5m")
	clitest.WantRequest(t, f.Last,
		&progressorv1.CancelProcessRequest{Namespace: "demo", ProcessId: "o-1", Reason: "no more",
			Grace: durationpb.New(5 * time.Minute)})
	p.OK(t, "cancel", "demo", "o-1", "--grace", "0s")
	clitest.WantRequest(t, f.Last,
		&progressorv1.CancelProcessRequest{Namespace: "demo", ProcessId: "o-1", Grace: durationpb.New(0)})
	clitest.WantLines(t, p.OK(t, "suspend", "demo", "o-1", "--reason", "why not"), "status         SUSPENDED")
	clitest.WantRequest(t, f.Last,
		&progressorv1.SuspendProcessRequest{Namespace: "demo", ProcessId: "o-1", Reason: "why not"})
	clitest.WantLines(t, p.OK(t, "resume", "demo", "o-1", "-o", "json"), `"processId":`)
	clitest.WantRequest(t, f.Last, &progressorv1.ResumeProcessRequest{Namespace: "demo", ProcessId: "o-1"})
}

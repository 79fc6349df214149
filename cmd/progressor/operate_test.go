package main

import (
	"context"
	"testing"
	"time"

	"google.golang.org/protobuf/types/known/durationpb"

	progressorv1 "github.com/progressor-engine/progressor/proto/progressor/v1"
)

func (f *fakeEngine) CancelProcess(_ context.Context, req *progressorv1.CancelProcessRequest) (*progressorv1.CancelProcessResponse, error) {
	return answer(f, req, &progressorv1.CancelProcessResponse{Process: f.process})
}

func (f *fakeEngine) SuspendProcess(_ context.Context, req *progressorv1.SuspendProcessRequest) (*progressorv1.SuspendProcessResponse, error) {
	return answer(f, req, &progressorv1.SuspendProcessResponse{Process: f.process})
}

func (f *fakeEngine) ResumeProcess(_ context.Context, req *progressorv1.ResumeProcessRequest) (*progressorv1.ResumeProcessResponse, error) {
	return answer(f, req, &progressorv1.ResumeProcessResponse{Process: f.process})
}

func TestCancelSuspendResume(t *testing.T) {
	f := &fakeEngine{process: &progressorv1.Process{
		Namespace: "demo", ProcessId: "o-1", Status: progressorv1.ProcessStatus_PROCESS_STATUS_SUSPENDED, Detail: "a\x1breason", CancelReason: "why",
	}}
	p := serveFake(t, f)
	wantLines(t, p.ok(t, "cancel", "demo", "o-1"), "process        demo/o-1", "cancel reason  why")
	wantRequest(t, f.last, &progressorv1.CancelProcessRequest{Namespace: "demo", ProcessId: "o-1"})
	p.ok(t, "cancel", "demo", "o-1", "--reason", "no more", "--grace", "5m")
	wantRequest(t, f.last, &progressorv1.CancelProcessRequest{Namespace: "demo", ProcessId: "o-1", Reason: "no more", Grace: durationpb.New(5 * time.Minute)})
	p.ok(t, "cancel", "demo", "o-1", "--grace", "0s")
	wantRequest(t, f.last, &progressorv1.CancelProcessRequest{Namespace: "demo", ProcessId: "o-1", Grace: durationpb.New(0)})
	wantLines(t, p.ok(t, "suspend", "demo", "o-1", "--reason", "why not"), "status         SUSPENDED")
	wantRequest(t, f.last, &progressorv1.SuspendProcessRequest{Namespace: "demo", ProcessId: "o-1", Reason: "why not"})
	wantLines(t, p.ok(t, "resume", "demo", "o-1", "-o", "json"), `"processId":`)
	wantRequest(t, f.last, &progressorv1.ResumeProcessRequest{Namespace: "demo", ProcessId: "o-1"})
}

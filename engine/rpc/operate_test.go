package rpc

import (
	"net/http"
	"strings"
	"testing"

	"connectrpc.com/connect"
	"google.golang.org/protobuf/types/known/durationpb"

	progressorv1 "github.com/progressor-engine/progressor/proto/progressor/v1"
)

func TestOperatorsOverEveryProtocol(t *testing.T) {
	t.Parallel()
	w := newServedEngine(t)
	for name, client := range protocols(w.url) {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			id := "held-" + name
			if _, err := client.Start(t.Context(),
				&progressorv1.StartRequest{Namespace: "n", ProcessId: id}); err != nil {
				t.Fatal(err)
			}
			held, err := client.SuspendProcess(t.Context(),
				&progressorv1.SuspendProcessRequest{Namespace: "n", ProcessId: id, Reason: "why"})
			if err != nil || held.GetProcess().GetStatus() != progressorv1.ProcessStatus_PROCESS_STATUS_SUSPENDED ||
				held.GetProcess().GetDetail() != "why" {
				t.Fatalf("suspend: got %v, %v", held, err)
			}
			_, err = client.Call(t.Context(), &progressorv1.CallRequest{Namespace: "n", ProcessId: id})
			d := requireReason(t, err, connect.CodeFailedPrecondition, progressorv1.ErrorDetail_REASON_PROCESS_STATUS,
				id)
			if d.GetProcessStatus() != progressorv1.ProcessStatus_PROCESS_STATUS_SUSPENDED {
				t.Errorf("call: got %s", text(d))
			}
			resumed, err := client.ResumeProcess(t.Context(),
				&progressorv1.ResumeProcessRequest{Namespace: "n", ProcessId: id})
			if err != nil || resumed.GetProcess().GetStatus() != progressorv1.ProcessStatus_PROCESS_STATUS_RUNNING {
				t.Fatalf("resume: got %v, %v", resumed, err)
			}
			cancel := &progressorv1.CancelProcessRequest{Namespace: "n", ProcessId: id, Reason: "no more",
				Grace: durationpb.New(0)}
			ended, err := client.CancelProcess(t.Context(), cancel)
			if err != nil || ended.GetProcess().GetStatus() != progressorv1.ProcessStatus_PROCESS_STATUS_CANCELLED ||
				ended.GetProcess().GetCancelReason() != "no more" {
				t.Fatalf("cancel: got %v, %v", ended, err)
			}
			_, err = client.CancelProcess(t.Context(), cancel)
			requireReason(t, err, connect.CodeFailedPrecondition, progressorv1.ErrorDetail_REASON_PROCESS_STATUS, id)
			_, err = client.SuspendProcess(t.Context(),
				&progressorv1.SuspendProcessRequest{Namespace: "n", ProcessId: "nobody"})
			requireReason(t, err, connect.CodeNotFound, progressorv1.ErrorDetail_REASON_PROCESS_NOT_FOUND, "nobody")
		})
	}
}

func TestOperatorsAreValidated(t *testing.T) {
	t.Parallel()
	s := newSite(t, &processes{})
	for body, field := range map[string]string{
		`{"namespace":"n","processId":"p","reason":"a\u0000b"}`:                          "reason",
		`{"namespace":"n","processId":"p","reason":"` + strings.Repeat("x", 4097) + `"}`: "reason",
		`{"namespace":"n","processId":"p","grace":"-1s"}`:                                "grace",
	} {
		status, answered := post(t, s.url+"/progressor.v1.ProcessService/CancelProcess", "application/json", body)
		if status != http.StatusBadRequest || !strings.Contains(answered, `"field":"`+field+`"`) {
			t.Errorf("%.80s: got %d %s", body, status, answered)
		}
	}
}

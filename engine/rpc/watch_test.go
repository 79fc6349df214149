package rpc

import (
	"strings"
	"testing"

	"connectrpc.com/connect"

	progressorv1 "github.com/progressor-engine/progressor/proto/progressor/v1"
)

func TestWatchOverEveryProtocol(t *testing.T) {
	t.Parallel()
	w := newServedEngine(t)
	for name, client := range protocols(w.url) {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			ctx, id := t.Context(), strings.ReplaceAll(name, " ", "-")
			for _, args := range []string{"a", "b"} {
				if _, err := client.Start(ctx,
					&progressorv1.StartRequest{Namespace: "n", ProcessId: id + args, Args: []byte(args)}); err != nil {
					t.Fatal(err)
				}
			}
			stream, err := client.WatchProcess(ctx,
				&progressorv1.WatchProcessRequest{Namespace: "n", ProcessId: id + "a"})
			if err != nil {
				t.Fatal(err)
			}
			event := func(want string) {
				t.Helper()
				if !stream.Receive() || string(stream.Msg().GetEvent().GetPayload()) != want {
					t.Fatalf("got %v, %v, want the event %q", stream.Msg(), stream.Err(), want)
				}
			}
			event("a")
			if p := stream.Receive() && stream.Msg().GetProcess().GetProcessId() == id+"a"; !p {
				t.Fatalf("got %v, %v, want the process", stream.Msg(), stream.Err())
			}
			if _, err := client.Call(ctx,
				&progressorv1.CallRequest{Namespace: "n", ProcessId: id + "a", Args: []byte("c")}); err != nil {
				t.Fatal(err)
			}
			event("c")
			if _, err := client.RemoveProcess(ctx,
				&progressorv1.RemoveProcessRequest{Namespace: "n", ProcessId: id + "a"}); err != nil {
				t.Fatal(err)
			}
			if stream.Receive() || stream.Err() != nil {
				t.Errorf("got %v, %v, want the end", stream.Msg(), stream.Err())
			}
			for _, bad := range []struct {
				request *progressorv1.WatchProcessRequest
				code    connect.Code
				reason  progressorv1.ErrorDetail_Reason
			}{
				{&progressorv1.WatchProcessRequest{Namespace: "n", ProcessId: "nobody"}, connect.CodeNotFound,
					progressorv1.ErrorDetail_REASON_PROCESS_NOT_FOUND},
				{&progressorv1.WatchProcessRequest{Namespace: "n", ProcessId: id, AfterEventId: -1},
					connect.CodeInvalidArgument, progressorv1.ErrorDetail_REASON_INVALID},
			} {
				stream, err := client.WatchProcess(ctx, bad.request)
				if err == nil {
					for stream.Receive() {
						t.Errorf("got %v", stream.Msg())
					}
					err = stream.Err()
				}
				requireReason(t, err, bad.code, bad.reason, bad.request.GetProcessId())
			}
		})
	}
}

package main

import (
	"errors"
	"fmt"
	"net"
	"net/http"
	"regexp"
	"strings"
	"sync/atomic"
	"testing"

	"connectrpc.com/connect"

	"github.com/progressor-engine/progressor/cmd/progressor/internal/cli"
	"github.com/progressor-engine/progressor/cmd/progressor/internal/cli/clitest"
	progressorv1 "github.com/progressor-engine/progressor/proto/progressor/v1"
)

var dyingEngines atomic.Int32

// dyingEngine is an engine that accepts one request and dies before it answers. If the system
// allows it, the engine has its own address, because the client tries again, and another test may
// use the port by then.
func dyingEngine(t *testing.T, reset bool) (p clitest.Program, taken *atomic.Int32) {
	t.Helper()
	var config net.ListenConfig
	listener, err := config.Listen(t.Context(), "tcp", fmt.Sprintf("127.0.1.%d:0", dyingEngines.Add(1)))
	if err != nil {
		listener, err = config.Listen(t.Context(), "tcp", "127.0.0.1:0")
	}
	if err != nil {
		t.Fatal(err)
	}
	taken = &atomic.Int32{}
	server := &http.Server{Handler: http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		taken.Add(1)
		_ = listener.Close()
		if conn, _, err := http.NewResponseController(w).Hijack(); err == nil {
			if reset {
				_ = conn.(*net.TCPConn).SetLinger(0)
			}
			_ = conn.Close()
		}
	})}
	go func() { _ = server.Serve(listener) }()
	t.Cleanup(func() { _ = server.Close() })
	return clitest.Program{Commands: newCommands, Env: map[string]string{"PROGRESSOR_ADDRESS": "http://" + listener.Addr().String()}}, taken
}

// If an engine dies during a request, the error says that the request may have been accepted, and
// shows the key with which to check or to repeat it.
func TestLostAnswer(t *testing.T) {
	key := `[0-9a-f-]{36}`
	again := "the same command with -k " + key + ", which is not executed twice\n$"
	for line, next := range map[string]string{
		"call demo o-1": "progressor await demo o-1 --idempotency-key " + key + ", or " + again,
		"call demo o-1 -k mine": "progressor await demo o-1 --idempotency-key mine, or the same " +
			"command with -k mine",
		"repair demo o-1 --simple":            "progressor await demo o-1 --idempotency-key " + key + ", or " + again,
		"start demo":                          again,
		"start demo o-1":                      "progressor await demo o-1 --idempotency-key " + key,
		"job enqueue mail send":               again,
		"job enqueue mail send --id m-1":      "progressor job get mail m-1\n$",
		"run start demo order":                again,
		"run start demo order --id r-1":       "progressor run get demo r-1\n$",
		"run repeat demo r-1":                 again,
		"bulk start cancel demo status=ERROR": again,
	} {
		t.Run(line, func(t *testing.T) {
			t.Parallel()
			for _, reset := range []bool{false, true} {
				p, taken := dyingEngine(t, reset)
				r := p.Run(t, shellWords(line)...)
				want := regexp.MustCompile(
					`a response was lost: the request may have been accepted \(unavailable\)\. Next: ` + next)
				if r.Code != cli.ExitUnavailable || taken.Load() != 1 || !want.MatchString(r.Stderr) {
					t.Errorf("%d taken, %+v\nwant %s", taken.Load(), r, want)
				}
			}
		})
	}
}

// An error response of an engine is final, unless the engine itself does not know the outcome.
func TestErrorResponsesAreFinal(t *testing.T) {
	for reason, lost := range map[progressorv1.ErrorDetail_Reason]bool{
		progressorv1.ErrorDetail_REASON_UNAVAILABLE: true, progressorv1.ErrorDetail_REASON_PROCESS_NOT_FOUND: false,
	} {
		p := clitest.Serve(t, newCommands,
			&clitest.Engine{
				Err: clitest.EngineError(connect.CodeUnavailable, "no", &progressorv1.ErrorDetail{Reason: reason})})
		if r := p.Run(t, "call", "demo", "o-1"); strings.Contains(r.Stderr, "may have been accepted") != lost {
			t.Errorf("%s: %+v", reason, r)
		}
	}
	for code, lost := range map[connect.Code]bool{connect.CodeNotFound: false, connect.CodeDeadlineExceeded: true,
		connect.CodeResourceExhausted: false} {
		if got := cli.MaybeStored(connect.NewError(code, errors.New("x"))); got != lost {
			t.Errorf("%s: %t", code, got)
		}
	}
	if r := (clitest.Program{Commands: newCommands}).Run(t, "call", "demo", "o-1", "--address",
		"127.0.0.1:1"); strings.Contains(r.Stderr, "may have been") {
		t.Errorf("nothing was sent: %+v", r)
	}
}

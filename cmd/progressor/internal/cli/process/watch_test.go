package process

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/progressor-engine/progressor/cmd/progressor/internal/cli/clitest"
	progressorv1 "github.com/progressor-engine/progressor/proto/progressor/v1"
)

func TestWatch(t *testing.T) {
	p := order()
	f := &clitest.Engine{Updates: []*progressorv1.WatchProcessResponse{
		{Update: &progressorv1.WatchProcessResponse_Event{Event: p.GetHistory()[0]}},
		{Update: &progressorv1.WatchProcessResponse_Process{Process: p}},
	}}
	p.StatusChangedTime = p.GetCreatedTime()
	client := clitest.Serve(t, newCommands, f)
	out := client.OK(t, "watch", "demo", "o-1", "--offset", "7")
	clitest.WantLines(t, out, "2026-11-20T12:00:00.000Z  event 1  task 1  reserved\n",
		`2026-11-20T12:00:00.000Z  ERROR  task 7  no book\nleft`)
	clitest.WantRequest(t, f.Last,
		&progressorv1.WatchProcessRequest{Namespace: "demo", ProcessId: "o-1", AfterEventId: 7})
	lines := strings.Split(strings.TrimSpace(client.OK(t, "watch", "demo", "o-1", "-o", "json")), "\n")
	if len(lines) != 2 {
		t.Fatalf("%d lines: %q", len(lines), lines)
	}
	for _, line := range lines {
		if !json.Valid([]byte(line)) {
			t.Errorf("not JSON: %s", line)
		}
	}
	if !strings.Contains(lines[0], `{"event":{"eventId":"1"`) {
		t.Errorf("got %s", lines[0])
	}
}

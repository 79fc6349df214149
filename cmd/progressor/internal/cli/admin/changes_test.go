package admin

import (
	"strings"
	"testing"
	"time"

	"google.golang.org/protobuf/types/known/timestamppb"

	"github.com/progressor-engine/progressor/cmd/progressor/internal/cli"
	"github.com/progressor-engine/progressor/cmd/progressor/internal/cli/clitest"
	progressorv1 "github.com/progressor-engine/progressor/proto/progressor/v1"
)

// Changes are printed as lines or JSON. After the stream breaks, the command continues after the
// last response.
func TestChanges(t *testing.T) {
	f := &clitest.Engine{}
	p := clitest.Serve(t, newCommands, f)
	script := func() {
		f.Changes = []*progressorv1.WatchChangesResponse{
			{Cursor: "first", Changes: []*progressorv1.Change{
				{ChangeId: 1, Kind: progressorv1.ChangeKind_CHANGE_KIND_EVENT, Type: "stored", ProcessId: "p",
					EventId: 7, Payload: []byte("abc")},
				{ChangeId: 2, Kind: progressorv1.ChangeKind_CHANGE_KIND_LIFECYCLE, Type: "failed", ProcessId: "p",
					FromStatus: "RUNNING", ToStatus: "ERROR", Reason: "out of stock"},
			}},
			{Cursor: "second"},
		}
	}
	script()
	r := p.Run(t, "changes", "orders", "--watch", "--kind", "event,lifecycle", "--process", "p",
		"--from", "2026-11-26T10:00:00Z")
	clitest.WantLines(t, r.Stdout, "event p stored event 7, 3 bytes", "lifecycle p failed RUNNING → ERROR out of stock")
	clitest.WantRequest(t, f.Last, &progressorv1.WatchChangesRequest{
		Namespace: "orders", Cursor: "second", ProcessId: "p", Kinds: []progressorv1.ChangeKind{
			progressorv1.ChangeKind_CHANGE_KIND_EVENT, progressorv1.ChangeKind_CHANGE_KIND_LIFECYCLE,
		},
	})
	script()
	out := p.OK(t, "changes", "orders", "-o", "json")
	lines := strings.Split(strings.TrimSpace(out), "\n")
	if len(lines) != 2 || !strings.Contains(lines[1], `"second"`) {
		t.Errorf("as JSON: %s", out)
	}
	f.Changes = nil
	at := time.Date(2026, 11, 26, 9, 0, 0, 0, time.UTC)
	for args, want := range map[string]*progressorv1.WatchChangesRequest{
		"":                                 {Stop: true, FromTime: timestamppb.New(time.Unix(0, 0))},
		"--watch --from AZN3":              {Cursor: "AZN3"},
		"--from 1970-01-01":                {Stop: true, FromTime: timestamppb.New(time.Unix(0, 0))},
		"--from 2026-11-26T10:00:00+01:00": {Stop: true, FromTime: timestamppb.New(at)},
	} {
		p.Run(t, append([]string{"changes", "orders"}, strings.Fields(args)...)...) // --watch ends with an error
		want.Namespace = "orders"
		clitest.WantRequest(t, f.Last, want)
	}
	p.OK(t, "changes", "orders", "--from", "-2h")
	since := f.Last.(*progressorv1.WatchChangesRequest).GetFromTime().AsTime()
	if d := time.Since(since); d < 2*time.Hour || d > 3*time.Hour {
		t.Errorf("--from -2h begins %s ago", d)
	}
	for _, from := range []string{"10:30", "yesterday"} {
		r = p.Run(t, "changes", "orders", "--watch", "--from", from)
		if r.Code != cli.ExitUsage ||
			!strings.HasPrefix(r.Stderr, "progressor: --from: must be the cursor of a previous response, or a time") {
			t.Errorf("%+v", r)
		}
	}
}

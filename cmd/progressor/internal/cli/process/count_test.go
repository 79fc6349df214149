package process

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/progressor-engine/progressor/cmd/progressor/internal/cli/clitest"
	progressorv1 "github.com/progressor-engine/progressor/proto/progressor/v1"
)

func TestCount(t *testing.T) {
	f := &clitest.Engine{Insight: &progressorv1.CountProcessesResponse{
		CountByStatus:    map[string]int64{"error": 2, "cancelled": 0, "running": 1_000_000},
		InternalByStatus: map[string]int64{"running": 7}}}
	p := clitest.Serve(t, newCommands, f)
	if out, want := p.OK(t, "count", "demo"),
		"STATUS     PROCESSES  INTERNAL\nRUNNING      1000000         7\n"+
			"ERROR              2         0\nCANCELLED          0         0\n"; out != want {
		t.Errorf("output =\n%s\nwant\n%s", out, want)
	}
	clitest.WantRequest(t, f.Last, &progressorv1.CountProcessesRequest{Namespace: "demo", UsersOnly: true})
	if out := p.OK(t, "count", "demo", "--internal"); !strings.HasPrefix(out, "STATUS     WITH INTERNAL\n") {
		t.Errorf("output =\n%s", out)
	}
	clitest.WantRequest(t, f.Last, &progressorv1.CountProcessesRequest{Namespace: "demo"})
	var counts struct{ CountByStatus map[string]string }
	if err := json.Unmarshal([]byte(p.OK(t, "count", "-o", "json")), &counts); err != nil ||
		counts.CountByStatus["running"] != "1000000" {
		t.Errorf("got %v, %v", counts, err)
	}
	clitest.WantRequest(t, f.Last, &progressorv1.CountProcessesRequest{UsersOnly: true})
}

package main

import (
	"context"
	"encoding/json"
	"testing"

	progressorv1 "github.com/progressor-engine/progressor/proto/progressor/v1"
)

func (f *fakeEngine) CountProcesses(_ context.Context, req *progressorv1.CountProcessesRequest) (*progressorv1.CountProcessesResponse, error) {
	resp, _ := f.insight.(*progressorv1.CountProcessesResponse)
	return answer(f, req, resp)
}

func TestCount(t *testing.T) {
	f := &fakeEngine{insight: &progressorv1.CountProcessesResponse{CountByStatus: map[string]int64{"error": 2, "cancelled": 0, "running": 1_000_000}}}
	p := serveFake(t, f)
	if out, want := p.ok(t, "count", "demo"), "STATUS     PROCESSES\nRUNNING      1000000\nERROR              2\nCANCELLED          0\n"; out != want {
		t.Errorf("output =\n%s\nwant\n%s", out, want)
	}
	wantRequest(t, f.last, &progressorv1.CountProcessesRequest{Namespace: "demo"})
	var counts struct{ CountByStatus map[string]string }
	if err := json.Unmarshal([]byte(p.ok(t, "count", "-o", "json")), &counts); err != nil || counts.CountByStatus["running"] != "1000000" {
		t.Errorf("got %v, %v", counts, err)
	}
	wantRequest(t, f.last, &progressorv1.CountProcessesRequest{})
}

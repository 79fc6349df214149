package explain_test

import (
	"strings"
	"testing"
	"time"

	"github.com/progressor-engine/progressor/explain"
	"github.com/progressor-engine/progressor/process"
)

// The process of a run is COMPLETED however the run ended. The explanation says how it ended, and
// how to run the fire again.
func TestFires(t *testing.T) {
	const rerun = "To run the fire again, run progressor cron rerun shop nightly 2026-11-20T12:00:00Z."
	for name, tt := range map[string]struct {
		fire    explain.Fire
		status  process.Status
		texts   []string
		without string
	}{
		"succeeded": {explain.Fire{Status: "SUCCESS", Detail: "HTTP 200", Attempt: 1, Newest: 1},
			process.StatusCompleted,
			[]string{"The fire of cron nightly at 2026-11-20T12:00:00.000Z succeeded: HTTP 200.",
				"Nothing: the run has ended."}, "rerun"},
		"failed": {explain.Fire{Status: "FAILED", Detail: "HTTP 503 Service Unavailable", Attempt: 1, Newest: 1},
			process.StatusCompleted,
			[]string{"The fire of cron nightly at 2026-11-20T12:00:00.000Z failed: HTTP 503 Service Unavailable.",
				"Nothing: the run has ended.", rerun,
				"To list the fires of the cron, run progressor cron fires shop nightly."}, "COMPLETED"},
		"failed again": {explain.Fire{Status: "FAILED", Attempt: 2, Newest: 2}, process.StatusCompleted,
			[]string{"Attempt 2 of the fire of cron nightly at 2026-11-20T12:00:00.000Z failed.", rerun}, "COMPLETED"},
		"timed out": {explain.Fire{Status: "TIMEOUT", Detail: "no response within 10s", Attempt: 1, Newest: 1},
			process.StatusCompleted, []string{"timed out: no response within 10s.", rerun}, "COMPLETED"},
		"cancelled": {explain.Fire{Status: "CANCELLED", Detail: "enough.", Attempt: 1, Newest: 1},
			process.StatusCancelled, []string{"was cancelled: enough.\n", rerun}, "CANCELLED"},
		"run again": {explain.Fire{Status: "FAILED", Detail: "HTTP 503", Attempt: 1, Newest: 2},
			process.StatusCompleted, []string{"failed: HTTP 503. Attempt 2 has started since.",
				"To list the fires of the cron, run progressor cron fires shop nightly."}, "cron rerun"},
		"not in the ledger": {explain.Fire{Status: "FAILED", Detail: "HTTP 503", Attempt: 1}, process.StatusCompleted,
			[]string{"failed: HTTP 503.", "Nothing: it is deleted after the retention of its namespace."},
			"progressor"},
	} {
		tt.fire.CronID, tt.fire.Time = "nightly", at(0)
		e := explain.Explain(state(status(tt.status, 95), func(s *explain.State) {
			s.Process.ProcessID, s.Fire = "~run/nightly/2026-11-20T12:00:00Z", &tt.fire
		}))
		text := e.Detail + "\n" + e.Next + "\n" + e.Unblock
		if e.WaitsFor != "" || !e.NextTime.Equal(time.Time{}) || strings.Contains(text, tt.without) {
			t.Errorf("%s: waits for %q until %s, or %q in\n%s", name, e.WaitsFor, e.NextTime, tt.without, text)
		}
		for _, want := range tt.texts {
			if !strings.Contains(text, want) {
				t.Errorf("%s: no %q in\n%s", name, want, text)
			}
		}
	}
}

package crons_test

import (
	"strings"
	"testing"

	progressorv1 "github.com/progressor-engine/progressor/proto/progressor/v1"
	"github.com/progressor-engine/progressor/storage/storagetest"
)

// TestExplainCron checks that the explanation of a paused cron names the author, the reason and the
// start of the pause, for a pause by a person and by the cron itself.
func TestExplainCron(t *testing.T) {
	t.Parallel()
	n := start(t, storagetest.DSN(t))
	explains := func(id string, want ...string) {
		t.Helper()
		var text string
		eventually(t, id+" has this explanation", func() bool {
			m, err := n.ExplainProcess(t.Context(), key("~cron/"+id))
			if err != nil {
				t.Fatal(err)
			}
			text = m.GetWaitsForDetail() + "\n" + m.GetNext() + "\n" + m.GetUnblock()
			for _, w := range want {
				if !strings.Contains(text, w) {
					return false
				}
			}
			return true
		})
	}
	n.create(t, starts("nightly", never, "complete"))
	explains("nightly", "Cron nightly waits for its next fire time.")
	for _, note := range []string{"", "the bank is closed"} { // a second pause changes the note but not the time
		if _, err := n.Pause(t.Context(), &progressorv1.PauseCronRequest{
			Namespace: "ns", CronId: "nightly", Note: note,
		}, kim); err != nil {
			t.Fatal(err)
		}
	}
	explains("nightly", "Cron nightly has been paused since 20", "by kim: the bank is closed.")
	if _, err := n.Resume(t.Context(), &progressorv1.ResumeCronRequest{
		Namespace: "ns", CronId: "nightly",
	}, kim); err != nil {
		t.Fatal(err)
	}
	explains("nightly", "Cron nightly waits for its next fire time.")

	fails := starts("fails", "* * * * * *", "fail")
	fails.Policy.PauseAfterFailures = 1
	n.create(t, fails)
	explains("fails", "Cron fails has been paused since 20", "): paused after 1 failures in a row;",
		"To resume it, run progressor cron resume ns fails.")
}

package crons_test

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	progressorv1 "github.com/progressor-engine/progressor/proto/progressor/v1"
	"github.com/progressor-engine/progressor/storage/storagetest"
)

// explains waits until the explanation of a process contains these texts.
func (n *node) explains(t *testing.T, id string, want ...string) {
	t.Helper()
	eventually(t, fmt.Sprintf("the explanation of %s contains %q", id, want), func() bool {
		m, err := n.ExplainProcess(t.Context(), key(id))
		if err != nil {
			t.Fatal(err)
		}
		text := m.GetWaitsForDetail() + "\n" + m.GetNext() + "\n" + m.GetUnblock()
		return !slices.ContainsFunc(want, func(w string) bool { return !strings.Contains(text, w) })
	})
}

// TestExplainCron checks that the explanation of a paused cron names the author, the reason and the
// start of the pause, for a pause by a person and by the cron itself.
func TestExplainCron(t *testing.T) {
	t.Parallel()
	n := start(t, storagetest.DSN(t))
	explains := func(id string, want ...string) {
		t.Helper()
		n.explains(t, "~cron/"+id, want...)
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

// TestExplainRun checks that the explanation of an HTTP run says how the run ended, also after the
// fire was run again and after the cron was deleted with its ledger.
func TestExplainRun(t *testing.T) {
	t.Parallel()
	var status atomic.Int32
	status.Store(http.StatusServiceUnavailable)
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.WriteHeader(int(status.Load()))
	}))
	defer server.Close()
	n := start(t, storagetest.DSN(t))
	n.create(t, target("hook", server.URL))
	n.trigger(t, "hook")
	fire := n.awaits(t, "hook", "FIRED FAILED 1")[0]
	at := fire.GetFireTime().AsTime().Format(time.RFC3339Nano)
	n.explains(t, fire.GetProcessId(), "The fire of cron hook at ", " failed: HTTP 503 Service Unavailable.",
		"Nothing: the run has ended.", "run progressor cron rerun ns hook "+at+".")

	status.Store(http.StatusOK)
	if _, err := n.RerunFire(t.Context(), &progressorv1.RerunFireRequest{
		Namespace: "ns", CronId: "hook", FireTime: fire.GetFireTime(),
	}, kim); err != nil {
		t.Fatal(err)
	}
	again := n.awaits(t, "hook", "FIRED SUCCESS 2")[0]
	n.explains(t, again.GetProcessId(), "Attempt 2 of the fire of cron hook at ", " succeeded: HTTP 200.")
	n.explains(t, fire.GetProcessId(), " failed: HTTP 503 Service Unavailable. Attempt 2 has started since.")

	if err := n.Delete(t.Context(), &progressorv1.DeleteCronRequest{Namespace: "ns", CronId: "hook"}, kim); err != nil {
		t.Fatal(err)
	}
	n.explains(t, fire.GetProcessId(), " failed: HTTP 503 Service Unavailable.\nNothing: the run has ended.\nNothing: ")
}

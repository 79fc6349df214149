package crons_test

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"google.golang.org/protobuf/types/known/durationpb"

	progressorv1 "github.com/progressor-engine/progressor/proto/progressor/v1"
	"github.com/progressor-engine/progressor/storage/storagetest"
)

// metrics returns all metrics of crons that are not 0 by name and labels, without the label
// namespace. For a histogram it returns the count, and for consecutive failures also the sum.
func (n *node) metrics(t testing.TB) map[string]float64 {
	t.Helper()
	families, err := n.Registry.Gather()
	if err != nil {
		t.Fatal(err)
	}
	found := map[string]float64{}
	for _, f := range families {
		if !strings.HasPrefix(f.GetName(), "progressor_cron_") {
			continue
		}
		for _, m := range f.GetMetric() {
			if m.GetCounter().GetValue() == 0 && m.GetHistogram().GetSampleCount() == 0 {
				continue
			}
			name := strings.TrimPrefix(f.GetName(), "progressor_cron_")
			for _, l := range m.GetLabel() {
				if l.GetName() != "namespace" {
					name += fmt.Sprintf("{%s=%s}", l.GetName(), l.GetValue())
				} else if l.GetValue() != "ns" {
					t.Errorf("%s is of namespace %q", f.GetName(), l.GetValue())
				}
			}
			if h := m.GetHistogram(); h != nil {
				found[name+" count"] = float64(h.GetSampleCount())
				if f.GetName() == "progressor_cron_failures_in_a_row" {
					found[name+" sum"] = h.GetSampleSum()
				}
				continue
			}
			found[name] = m.GetCounter().GetValue()
		}
	}
	return found
}

// Each metric counts its own events only.
func TestMetrics(t *testing.T) {
	t.Parallel()
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/broken" {
			w.WriteHeader(http.StatusInternalServerError)
		}
	}))
	defer server.Close()
	n := start(t, storagetest.DSN(t))
	want := map[string]float64{}
	moved := func(what string, by map[string]float64) {
		t.Helper()
		for name, k := range by {
			want[name] += k
		}
		eventually(t, what, func() bool { return fmt.Sprint(n.metrics(t)) == fmt.Sprint(want) || t.Failed() })
	}
	trigger := func(id string, action progressorv1.OverlapAction) {
		t.Helper()
		if _, err := n.Trigger(t.Context(), &progressorv1.TriggerCronRequest{
			Namespace: "ns", CronId: id, OverlapAction: action,
		}, kim); err != nil {
			t.Fatal(err)
		}
	}
	on := starts("on", "* * * * * *", "complete")
	on.Spec.MaxFires = 1
	n.create(t, on)
	n.awaits(t, "on", "FIRED SUCCESS 1")
	moved("a fire", map[string]float64{
		"fires_total{decision=fired}": 1, "runs_total{status=success}": 1, "lateness_seconds count": 1,
	})

	bad := starts("bad", never, "fail")
	bad.Policy.FailureAction = progressorv1.FailureAction_FAILURE_ACTION_RETRY
	n.create(t, bad)
	trigger("bad", 0)
	n.awaits(t, "bad", "FIRED FAILED 1")
	moved("a failure", map[string]float64{
		"fires_total{decision=fired}": 1, "runs_total{status=failed}": 1, "failures_in_a_row count": 1,
		"failures_in_a_row sum": 1,
	})
	trigger("bad", 0)
	n.awaits(t, "bad", "FIRED FAILED 1, FIRED FAILED 2")
	moved("a retry", map[string]float64{
		"fires_total{decision=fired}": 1, "runs_total{status=failed}": 1, "task_failure_retry_total": 1,
		"failures_in_a_row count": 1, "failures_in_a_row sum": 2,
	})

	late := starts("late", never, "wait")
	late.Policy.Timeout = durationpb.New(100 * time.Millisecond)
	n.create(t, late)
	trigger("late", 0)
	n.awaits(t, "late", "FIRED TIMEOUT 1")
	moved("a timeout", map[string]float64{
		"fires_total{decision=fired}": 1, "runs_total{status=timeout}": 1, "task_timeout_total": 1,
		"failures_in_a_row count": 1, "failures_in_a_row sum": 1,
	})

	n.create(t, starts("busy", never, "wait"))
	trigger("busy", 0)
	trigger("busy", 0)
	moved("the concurrency limit", map[string]float64{
		"fires_total{decision=fired}": 1, "fires_total{decision=skipped_concurrency}": 1,
		"runs_total{status=skipped}": 1, "concurrency_skipped_total": 1,
	})
	trigger("busy", progressorv1.OverlapAction_OVERLAP_ACTION_SKIP)
	moved("an overlap", map[string]float64{
		"fires_total{decision=skipped_overlap}": 1, "runs_total{status=skipped}": 1, "task_overlap_skipped_total": 1,
	})
	trigger("busy", progressorv1.OverlapAction_OVERLAP_ACTION_CANCEL_PREV)
	n.awaits(t, "busy", "FIRED CANCELLED 1, SKIPPED_CONCURRENCY SKIPPED, SKIPPED_OVERLAP SKIPPED, FIRED RUNNING 1")
	moved("a run that is replaced: no failure", map[string]float64{
		"fires_total{decision=fired}": 1, "runs_total{status=cancelled}": 1,
	})

	n.create(t, target("good", server.URL+"/good"))
	trigger("good", 0)
	n.awaits(t, "good", "FIRED SUCCESS 1")
	moved("a request", map[string]float64{
		"fires_total{decision=fired}": 1, "runs_total{status=success}": 1,
		"http_duration_seconds{status=success} count": 1,
	})
	n.create(t, target("broken", server.URL+"/broken"))
	trigger("broken", 0)
	n.awaits(t, "broken", "FIRED FAILED 1")
	moved("a request that fails", map[string]float64{
		"fires_total{decision=fired}": 1, "runs_total{status=failed}": 1,
		"http_duration_seconds{status=failed} count": 1, "failures_in_a_row count": 1, "failures_in_a_row sum": 1,
	})

	madeUp := starts("made-up", "* * * * * *", "complete")
	madeUp.Paused, madeUp.Spec.EndTime, madeUp.Policy.MaxConcurrency = true,
		stamp(time.Now().Add(2500*time.Millisecond)), 100
	n.create(t, madeUp)
	eventually(t, "all fire times have passed", func() bool {
		return time.Now().After(madeUp.GetSpec().GetEndTime().AsTime())
	})
	if _, err := n.Resume(t.Context(), &progressorv1.ResumeCronRequest{
		Namespace: "ns", CronId: "made-up", CatchUp: true,
	}, kim); err != nil {
		t.Fatal(err)
	}
	fired := float64(n.Count(t, "SELECT count(*) FROM cron_fires WHERE cron_id = 'made-up' AND decision = 'FIRED'"))
	if fired < 2 {
		t.Errorf("%v fire times were caught up", fired)
	}
	moved("fire times that were caught up are not late", map[string]float64{
		"fires_total{decision=fired}": fired, "runs_total{status=success}": fired,
	})

	held := starts("held", "* * * * * *", "complete")
	held.Paused, held.Spec.EndTime = true, stamp(time.Now().Add(2500*time.Millisecond))
	n.create(t, held)
	eventually(t, "all fire times have passed", func() bool {
		return time.Now().After(held.GetSpec().GetEndTime().AsTime())
	})
	if _, err := n.Resume(t.Context(), &progressorv1.ResumeCronRequest{
		Namespace: "ns", CronId: "held",
	}, kim); err != nil {
		t.Fatal(err)
	}
	missed := float64(n.Count(t, "SELECT count(*) FROM cron_fires WHERE cron_id = 'held' AND decision = 'MISSED'"))
	if missed < 2 {
		t.Errorf("%v fire times were missed", missed)
	}
	moved("missed fire times", map[string]float64{
		"fires_total{decision=missed}": missed, "runs_total{status=skipped}": missed, "misfires_total": missed,
	})
}

package jobs_test

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/progressor-engine/progressor/engine/enginetest"
	progressorv1 "github.com/progressor-engine/progressor/proto/progressor/v1"
	"github.com/progressor-engine/progressor/storage/storagetest"
)

// figures returns the metrics of namespace pull that are not 0. For a histogram it returns the
// count.
func figures(t testing.TB, registry *prometheus.Registry) map[string]float64 {
	t.Helper()
	all := exported(t, registry)
	maps.DeleteFunc(all, func(_ string, value float64) bool { return value == 0 })
	return all
}

// exported is like figures, but includes the metrics that are 0.
func exported(t testing.TB, registry *prometheus.Registry) map[string]float64 {
	t.Helper()
	families, err := registry.Gather()
	must(t, err)
	all := map[string]float64{}
	for _, f := range families {
		for _, m := range f.GetMetric() {
			labels := []string{strings.TrimPrefix(f.GetName(), "progressor_")}
			pull := false
			for _, l := range m.GetLabel() {
				if l.GetName() == "namespace" {
					pull = l.GetValue() == "pull"
				} else {
					labels = append(labels, l.GetValue())
				}
			}
			value := m.GetCounter().GetValue() + m.GetGauge().GetValue() + float64(m.GetHistogram().GetSampleCount())
			if pull {
				all[strings.Join(labels, " ")] = value
			}
		}
	}
	return all
}

// Each metric counts its events. Only a limited number of job names have their own metrics.
func TestMetrics(t *testing.T) {
	t.Parallel()
	n := start(t, storagetest.DSN(t), scripted())
	n.limit(t, &progressorv1.Constraint{Name: "one", Match: `job.name == "limited"`, MaxRunning: 1})
	enqueue := func(id, name string, o *progressorv1.JobOptions) {
		t.Helper()
		_, err := n.Enqueue(t.Context(), &progressorv1.EnqueueRequest{
			Namespace: "pull", JobId: id, Name: name, Options: o,
		})
		must(t, err)
	}
	enqueue("a", "limited", nil)
	enqueue("b", "limited", nil)
	must(t, n.succeed(n.leaseOne(t, "w"), nil))
	must(t, n.succeed(n.leaseOne(t, "w"), nil))
	enqueue("lost", "lost", &progressorv1.JobOptions{LeaseDuration: durationpb.New(time.Second)})
	n.beat(t, "w", n.leaseOne(t, "w"))
	lease := n.leaseOne(t, "w2")
	enqueue("waits", "waits", nil)
	var got map[string]float64
	enginetest.Eventually(t, testTimeout, "the loss is counted", func() bool {
		got = figures(t, n.Registry)
		return got["job_lease_losses_total lost"] > 0
	})
	for name, want := range map[string]float64{
		"job_claims_total": 4, "job_duration_seconds limited": 2, "jobs limited succeeded": 2, "jobs lost running": 1,
		"jobs waits available": 1, "job_lease_losses_total lost": 1,
	} {
		if got[name] != want {
			t.Errorf("%s is %v, want %v; all are %v", name, got[name], want, got)
		}
	}
	if got["job_blocked_seconds_total one"] <= 0 || got["oldest_available_job_age_seconds"] <= 0 ||
		got["job_duration_seconds waits"] != 0 {
		t.Errorf("%v", got)
	}
	must(t, n.succeed(lease, nil))
	must(t, n.succeed(n.leaseOne(t, "w"), nil))
	for k := range 110 {
		enqueue(fmt.Sprint("k", k), fmt.Sprint("name", k), nil)
	}
	for range 110 {
		must(t, n.succeed(n.leaseOne(t, "w"), nil))
	}
	var names []string
	for name := range figures(t, n.Registry) {
		if strings.HasPrefix(name, "job_duration_seconds") {
			names = append(names, name)
		}
	}
	if len(names) != 101 || !slices.Contains(names, "job_duration_seconds (other)") {
		t.Errorf("%d names have a metric", len(names))
	}
}

// Counters are exported as 0 before their first event, because rate() does not count an event that
// creates its series.
func TestCountersBeginAtZero(t *testing.T) {
	t.Parallel()
	n := start(t, storagetest.DSN(t), scripted())
	n.limit(t, &progressorv1.Constraint{Name: "one", Match: `job.name == "limited"`, MaxRunning: 1})
	_, err := n.Enqueue(t.Context(), &progressorv1.EnqueueRequest{Namespace: "pull", JobId: "a", Name: "first"})
	must(t, err)
	lease := n.leaseOne(t, "w")
	all := exported(t, n.Registry)
	for _, name := range []string{
		"job_blocked_seconds_total one", "job_lease_losses_total first", "job_start_deadlines_total first",
	} {
		if value, ok := all[name]; !ok || value != 0 {
			t.Errorf("%s is not exported as 0; all are %v", name, all)
		}
	}
	must(t, n.succeed(lease, nil))
}

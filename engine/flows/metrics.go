package flows

import (
	"github.com/prometheus/client_golang/prometheus"

	"github.com/progressor-engine/progressor/engine"
	"github.com/progressor-engine/progressor/storage"
	"github.com/progressor-engine/progressor/storage/flows"
)

// metrics counts the runs that end on this node.
type metrics struct {
	runs *prometheus.CounterVec
}

func newMetrics(e *engine.Engine, registerers []prometheus.Registerer) *metrics {
	m := &metrics{runs: prometheus.NewCounterVec(prometheus.CounterOpts{
		Name: "progressor_flow_runs_total",
		Help: "Runs of flows that have ended, by status: succeeded, failed, cancelled, expired. A run that is " +
			"retried counts again when it ends.",
	}, []string{"namespace", "status"})}
	e.TrackSeries(m.runs)
	e.StartSeries(func(label string) {
		for _, status := range []flows.Status{flows.Succeeded, flows.Failed, flows.Cancelled, flows.Expired} {
			m.runs.WithLabelValues(label, string(status))
		}
	})
	for _, registerer := range registerers {
		storage.Register(registerer, m.runs)
	}
	return m
}

// recordEnd marks the last event as the end of the run, and counts the run after the result is
// stored.
func (t *task) recordEnd(status flows.Status) {
	if n := len(t.events); n > 0 {
		t.events[n-1].EndsJob = true
	}
	runs, label := t.flows.metrics.runs, t.flows.engine.NamespaceLabel(t.key.Namespace)
	t.Stored(func() { runs.WithLabelValues(label, string(status)).Inc() })
}

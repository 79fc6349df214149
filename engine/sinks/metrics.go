package sinks

import (
	"context"
	"strings"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/progressor-engine/progressor/engine"
	progressorv1 "github.com/progressor-engine/progressor/proto/progressor/v1"
	"github.com/progressor-engine/progressor/storage"
	"github.com/progressor-engine/progressor/storage/changes"
)

const (
	gaugeAge   = 5 * time.Second // maximum age of the gauges
	gaugeLimit = 10_000          // maximum number of sinks with gauges
)

// metrics counts the deliveries of this node.
type metrics struct {
	delivered *prometheus.CounterVec
	rejected  *prometheus.CounterVec
	failures  *prometheus.CounterVec
}

func newMetrics(s *Sinks, registerer prometheus.Registerer) *metrics {
	counter := func(name, help string) *prometheus.CounterVec {
		labels := []string{"namespace", "sink_id"}
		return prometheus.NewCounterVec(prometheus.CounterOpts{Name: name, Help: help}, labels)
	}
	m := &metrics{
		delivered: counter("progressor_sink_changes_delivered_total",
			"Changes that this node has delivered to a sink."),
		rejected: counter("progressor_sink_dead_letters_total",
			"Changes that the target of a sink has rejected permanently."),
		failures: counter("progressor_sink_failures_total", "Failed deliveries of this node. The sink retries them."),
	}
	s.engine.TrackSeries(m.delivered, m.rejected, m.failures)
	storage.Register(registerer, m.delivered, m.rejected, m.failures, &gauges{sinks: s})
	return m
}

// start creates the series of a sink to which this node begins to deliver. They must be exported as
// 0 before their first event, because rate() and increase() do not count an event that creates its
// series.
func (m *metrics) start(labels []string) {
	for _, counter := range []*prometheus.CounterVec{m.delivered, m.rejected, m.failures} {
		counter.WithLabelValues(labels...)
	}
}

// observe counts a batch that was delivered.
func (m *metrics) observe(d *delivery, batch []*progressorv1.Change, began time.Time) {
	m.delivered.WithLabelValues(d.sinks.labels(d.lease.Namespace, d.lease.SinkID)...).Add(float64(len(batch)))
	for _, name := range notificationTypes(batch) {
		d.sinks.engine.ObserveNotification(d.lease.Namespace, name, began)
	}
}

// notificationTypes returns the types of the changes in a batch, with the names that the reference
// implementation uses for notifications.
func notificationTypes(batch []*progressorv1.Change) (types []string) {
	events := 0
	for _, c := range batch {
		if c.GetKind() == progressorv1.ChangeKind_CHANGE_KIND_EVENT {
			events++
		}
	}
	if events > 0 {
		types = append(types, "event_sink")
	}
	if events < len(batch) {
		types = append(types, "lifecycle_sink")
	}
	return types
}

// gauges exports the lag and the state of all sinks. It queries the database only during scrapes.
type gauges struct {
	sinks *Sinks
	cache engine.ScrapeCache[[]changes.SinkRow]
}

var (
	lagChanges = prometheus.NewDesc("progressor_sink_lag_changes",
		"Recorded changes that a sink has not delivered yet. All nodes report the same value.",
		[]string{"namespace", "sink_id"}, nil)
	lagSeconds = prometheus.NewDesc("progressor_sink_lag_seconds",
		"Age of the oldest change that a sink has not delivered yet, in seconds; 0 if there is none. All nodes report "+
			"the same value.", []string{"namespace", "sink_id"}, nil)
	sinkState = prometheus.NewDesc("progressor_sink_state",
		"1 for the current state of a sink: active, paused, failing, broken or disabled. The series of the namespace "+
			"(other) are the number of sinks in a state. All nodes report the same value.",
		[]string{"namespace", "sink_id", "state"}, nil)
)

// Describe implements prometheus.Collector.
func (g *gauges) Describe(ch chan<- *prometheus.Desc) {
	ch <- lagChanges
	ch <- lagSeconds
	ch <- sinkState
}

// Collect implements prometheus.Collector. While the database is unavailable it exports nothing.
func (g *gauges) Collect(ch chan<- prometheus.Metric) {
	rows, err := g.cache.Get(gaugeAge, func(ctx context.Context) ([]changes.SinkRow, error) {
		rows, err := changes.ListSinks(ctx, g.sinks.store, nil, "", changes.SinkKey{}, gaugeLimit)
		if err != nil {
			g.sinks.log.Warn("cannot read the lags of sinks", "error", err)
		}
		return rows, err
	})
	if err != nil {
		return
	}
	lags, ages, states := map[sinkLabel]float64{}, map[sinkLabel]float64{}, map[sinkLabel]map[string]float64{}
	for n := range rows {
		r := &rows[n]
		named := g.sinks.labels(r.Namespace, r.SinkID)
		label := sinkLabel{named[0], named[1]}
		lags[label] += float64(r.LagChanges)
		ages[label] = max(ages[label], float64(r.LagUs)/1e6)
		if states[label] == nil {
			states[label] = map[string]float64{}
		}
		states[label][strings.ToLower(r.State)]++
	}
	gauge := func(desc *prometheus.Desc, value float64, labels ...string) {
		ch <- prometheus.MustNewConstMetric(desc, prometheus.GaugeValue, value, labels...)
	}
	for label := range lags {
		gauge(lagChanges, lags[label], label.namespace, label.sink)
		gauge(lagSeconds, ages[label], label.namespace, label.sink)
		for state, count := range states[label] {
			gauge(sinkState, count, label.namespace, label.sink, state)
		}
	}
}

// sinkLabel are the labels of a sink.
type sinkLabel struct{ namespace, sink string }

// labels returns the labels "namespace" and "sink_id" of a sink. Sinks in namespaces without series
// of their own share one pair of labels.
func (s *Sinks) labels(namespace, sink string) []string {
	label := s.engine.NamespaceLabel(namespace)
	if label == engine.OtherNamespaces {
		sink = label
	}
	return []string{label, sink}
}

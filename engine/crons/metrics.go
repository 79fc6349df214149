package crons

import (
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/progressor-engine/progressor/cron"
	"github.com/progressor-engine/progressor/engine"
	"github.com/progressor-engine/progressor/storage"
)

// metrics counts what the tasks of crons have stored.
type metrics struct {
	runs        *prometheus.CounterVec
	overlap     *prometheus.CounterVec
	retries     *prometheus.CounterVec
	timeouts    *prometheus.CounterVec
	concurrency *prometheus.CounterVec
	fires       *prometheus.CounterVec
	misfires    *prometheus.CounterVec
	lateness    *prometheus.HistogramVec
	failures    *prometheus.HistogramVec
	requests    *prometheus.HistogramVec
}

func newMetrics(e *engine.Engine, registerer prometheus.Registerer) *metrics {
	counter := func(name, help string, labels ...string) *prometheus.CounterVec {
		return prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: name, Help: help,
		}, append([]string{"namespace"}, labels...))
	}
	m := &metrics{
		runs: counter("progressor_cron_runs_total",
			"Fire times of crons by outcome: success, failed, timeout, cancelled, skipped.", "status"),
		overlap: counter("progressor_cron_task_overlap_skipped_total",
			"Fire times of crons that were skipped because the previous run was still running."),
		retries:  counter("progressor_cron_task_failure_retry_total", "Runs of crons that repeat a failed run."),
		timeouts: counter("progressor_cron_task_timeout_total", "Runs of crons that exceeded their timeout."),
		concurrency: counter("progressor_cron_concurrency_skipped_total",
			"Fire times of crons that were skipped because max_concurrency was reached."),
		fires: counter("progressor_cron_fires_total", "Fire times of crons by decision.", "decision"),
		misfires: counter("progressor_cron_misfires_total",
			"Fire times of crons that were dropped by the misfire policy, the catch-up window or a pause."),
		lateness: prometheus.NewHistogramVec(prometheus.HistogramOpts{
			Name: "progressor_cron_lateness_seconds",
			Help: "Time from a fire time of a cron until its decision, in seconds. Excludes fire times that were " +
				"caught up.",
			Buckets: []float64{0.001, 0.005, 0.01, 0.02, 0.05, 0.1, 0.25, 1, 5, 60, 600, 3600},
		}, []string{"namespace"}),
		failures: prometheus.NewHistogramVec(prometheus.HistogramOpts{
			Name: "progressor_cron_failures_in_a_row",
			Help: "Number of consecutive failures of the cron, for each run that failed, timed out or was " +
				"cancelled.",
			Buckets: []float64{1, 2, 3, 5, 10, 20, 50, 100},
		}, []string{"namespace"}),
		requests: prometheus.NewHistogramVec(prometheus.HistogramOpts{
			Name:    "progressor_cron_http_duration_seconds",
			Help:    "Duration of HTTP requests of crons, by the outcome of the run, in seconds.",
			Buckets: []float64{0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60, 300},
		}, []string{"namespace", "status"}),
	}
	e.TrackSeries(m.runs, m.overlap, m.retries, m.timeouts, m.concurrency, m.fires, m.misfires, m.lateness, m.failures,
		m.requests)
	e.StartSeries(m.start)
	storage.Register(registerer, m.runs, m.overlap, m.retries, m.timeouts, m.concurrency, m.fires, m.misfires,
		m.lateness, m.failures, m.requests)
	return m
}

// start creates the series of a namespace.
func (m *metrics) start(label string) {
	for _, of := range []*prometheus.CounterVec{m.overlap, m.retries, m.timeouts, m.concurrency, m.misfires} {
		of.WithLabelValues(label)
	}
	for _, status := range []cron.Status{cron.Success, cron.Failed, cron.Timeout, cron.Cancelled, cron.Skipped} {
		m.runs.WithLabelValues(label, status.String())
	}
	m.lateness.WithLabelValues(label)
}

// namespaceLabel returns the label of the namespace of a task.
func namespaceLabel(t *task) string { return t.crons.engine.NamespaceLabel(t.Key.Namespace) }

// ended counts the end of a run.
func (m *metrics) ended(t *task, status cron.Status) {
	namespace := namespaceLabel(t)
	t.Stored(func() {
		m.runs.WithLabelValues(namespace, status.String()).Inc()
		if status == cron.Timeout {
			m.timeouts.WithLabelValues(namespace).Inc()
		}
	})
}

// failed counts a failed run and observes the number of consecutive failures of its cron.
func (m *metrics) failed(t *task) {
	namespace, failures := namespaceLabel(t), float64(t.state.Cron.Failures)
	t.Stored(func() { m.failures.WithLabelValues(namespace).Observe(failures) })
}

// requested counts a request, even if its result is not stored. o is nil if the run was asked to
// end. label is the label of the namespace.
func (m *metrics) requested(label string, o *outcome, took time.Duration) {
	status := cron.Cancelled
	if o != nil {
		status = o.Status
	}
	m.requests.WithLabelValues(label, status.String()).Observe(took.Seconds())
}

// decided counts a decision.
func (m *metrics) decided(t *task, fire cron.Fire) {
	namespace, count := namespaceLabel(t), float64(fire.Count)
	madeUp := t.resumed || fire.Time.Before(t.newest)
	late := t.Now.Sub(t.cron.Schedule.Due(t.cron.Key, fire.Time)).Seconds()
	t.Stored(func() {
		m.fires.WithLabelValues(namespace, fire.Decision.String()).Add(count)
		if fire.Status == cron.Skipped {
			m.runs.WithLabelValues(namespace, cron.Skipped.String()).Add(count)
		}
		switch fire.Decision {
		case cron.SkippedOverlap:
			m.overlap.WithLabelValues(namespace).Inc()
		case cron.SkippedConcurrency:
			m.concurrency.WithLabelValues(namespace).Inc()
		case cron.Missed:
			m.misfires.WithLabelValues(namespace).Add(count)
		}
		if !fire.Manual && fire.Decision != cron.Missed && !madeUp {
			m.lateness.WithLabelValues(namespace).Observe(late)
		}
	})
}

// refused counts a run that was refused. Its decision was counted as FIRED or QUEUED before.
func (m *metrics) refused(t *task) {
	namespace := namespaceLabel(t)
	t.Stored(func() {
		m.fires.WithLabelValues(namespace, cron.SkippedConcurrency.String()).Inc()
		m.runs.WithLabelValues(namespace, cron.Skipped.String()).Inc()
		m.concurrency.WithLabelValues(namespace).Inc()
	})
}

// retried counts a run that repeats a failed one.
func (m *metrics) retried(t *task) {
	namespace := namespaceLabel(t)
	t.Stored(func() { m.retries.WithLabelValues(namespace).Inc() })
}

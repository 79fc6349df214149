package storage

import (
	"errors"
	"strconv"
	"time"

	"github.com/prometheus/client_golang/prometheus"
)

// metrics are the metrics of the group commit. They exist even if they are not registered.
type metrics struct {
	registerer        prometheus.Registerer
	flushItems        prometheus.Histogram
	flushTime         prometheus.Histogram
	flushRetries      prometheus.Counter
	flushSplits       prometheus.Counter
	recoveries        prometheus.Counter
	fastPathFallbacks prometheus.Counter
	generations       prometheus.Counter
	unreplicated      prometheus.Counter
	contended         prometheus.Counter
	flushTimeouts     prometheus.Counter
	// resultRetries counts by SQLSTATE.
	resultRetries *prometheus.CounterVec
}

func newMetrics(registerer prometheus.Registerer) *metrics {
	counter := func(name, help string) prometheus.Counter {
		return prometheus.NewCounter(prometheus.CounterOpts{Name: name, Help: help})
	}
	m := &metrics{
		registerer: registerer,
		flushItems: prometheus.NewHistogram(prometheus.HistogramOpts{
			Name: "progressor_flush_items", Help: "Operations in one group commit.",
			Buckets: []float64{1, 2, 4, 8, 16, 32, 64, 128, 256},
		}),
		flushTime: prometheus.NewHistogram(prometheus.HistogramOpts{
			Name:    "progressor_flush_duration_seconds",
			Help:    "Duration of a group commit in seconds, including its commit.",
			Buckets: []float64{0.0005, 0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.25, 1},
		}),
		flushRetries: counter("progressor_flush_retries_total",
			"Group commits repeated after a deadlock or a serialization failure."),
		flushSplits: counter("progressor_flush_splits_total",
			"Group commits that failed as a whole and were repeated in halves."),
		flushTimeouts: counter("progressor_flush_timeouts_total",
			"Operations that took too long to store although each was the only one in its group commit."),
		recoveries: counter("progressor_flush_recoveries_total",
			"Group commits whose connection broke. Their outcome was determined on a new connection."),
		fastPathFallbacks: counter("progressor_quick_misses_total",
			"Calls and results of busy processes that needed a second group commit."),
		generations: counter("progressor_database_generations_total",
			"Failovers and restores of the database that this node has noticed. The last commits before each "+
				"of them may be lost."),
		unreplicated: counter("progressor_commits_not_replicated_total",
			"Commits whose wait for the synchronous standby was cancelled. The engine acknowledges them "+
				"only after a write on a new connection has reached the standby."),
		contended: counter("progressor_flush_contended_total",
			"How often a process was left out of a group commit because another session had locked one of its rows."),
		resultRetries: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "progressor_result_retries_total",
			Help: "Results that PostgreSQL did not store and that are retried, by SQLSTATE.",
		}, []string{"sqlstate"}),
	}
	// rate() needs a zero before the first event.
	for _, state := range []string{stateQueryCanceled, stateDiskFull, stateNoPrivilege, stateIOError} {
		m.resultRetries.WithLabelValues(state)
	}
	Register(registerer, m.resultRetries, m.flushItems, m.flushTime, m.flushRetries, m.flushSplits, m.recoveries,
		m.fastPathFallbacks,
		m.generations, m.unreplicated, m.contended, m.flushTimeouts)
	return m
}

// Register registers collectors. A collector that is already registered is kept. If registerer is
// nil, Register does nothing.
func Register(registerer prometheus.Registerer, collectors ...prometheus.Collector) {
	if registerer == nil {
		return
	}
	for _, c := range collectors {
		var twice prometheus.AlreadyRegisteredError
		if err := registerer.Register(c); err != nil && !errors.As(err, &twice) {
			panic(err) // two metrics with one name: a defect of this program
		}
	}
}

func (m *metrics) watchPools(pools []namedPool, shares ...*share) {
	if m.registerer != nil {
		Register(m.registerer, &poolCollector{pools: pools, shares: shares})
	}
}

// watchLanes registers the metrics of each lane.
func (m *metrics) watchLanes(lanes []*lane) {
	if m.registerer == nil {
		return
	}
	for _, l := range lanes {
		Register(m.registerer, prometheus.NewGaugeFunc(prometheus.GaugeOpts{
			Name: "progressor_lane_queue_items", Help: "Operations that wait for the next group commit of a lane.",
			ConstLabels: prometheus.Labels{"lane": strconv.Itoa(l.number)},
		}, func() float64 { return float64(len(l.in)) }), prometheus.NewGaugeFunc(prometheus.GaugeOpts{
			Name:        "progressor_lane_failing_seconds",
			Help:        "Time for which a lane has been unable to write to the database; 0 while it can.",
			ConstLabels: prometheus.Labels{"lane": strconv.Itoa(l.number)},
		}, l.failing))
	}
}

func (m *metrics) flushed(items int, took time.Duration) {
	m.flushItems.Observe(float64(items))
	m.flushTime.Observe(took.Seconds())
}

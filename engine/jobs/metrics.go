package jobs

import (
	"context"
	"maps"
	"strings"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/progressor-engine/progressor/engine"
	"github.com/progressor-engine/progressor/process"
	"github.com/progressor-engine/progressor/storage"
	"github.com/progressor-engine/progressor/storage/jobs"
)

const (
	// metricNames is the number of job names per namespace that have their own metrics. All later
	// names share one metric, because clients choose the names.
	metricNames = 100
	otherNames  = "(other)"

	statsAge = 5 * time.Second // maximum age of the values
)

// metrics counts the jobs of this node.
type metrics struct {
	engine    *engine.Engine
	claims    *prometheus.CounterVec
	lost      *prometheus.CounterVec
	late      *prometheus.CounterVec
	blocked   *prometheus.CounterVec
	durations *prometheus.HistogramVec

	mu    sync.Mutex
	named map[process.Key]struct{} // names that have their own metrics
	count map[string]int           // number of names by namespace
}

func newMetrics(q *Jobs, registerers []prometheus.Registerer) *metrics {
	m := &metrics{
		engine: q.engine,
		claims: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "progressor_job_claims_total",
			Help: "Attempts of jobs that this node has started or leased to workers.",
		}, []string{"namespace"}),
		lost: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "progressor_job_lease_losses_total",
			Help: "Attempts of jobs that ended because their worker or their node was lost.",
		}, []string{"namespace", "name"}),
		late: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "progressor_job_start_deadlines_total",
			Help: "Jobs that this node has ended because no attempt began by their start deadline.",
		}, []string{"namespace", "name"}),
		blocked: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "progressor_job_blocked_seconds_total",
			Help: "Time that jobs waited for the key of a constraint after they could run, in seconds. It is added " +
				"when a job gets its key.",
		}, []string{"namespace", "constraint"}),
		durations: prometheus.NewHistogramVec(prometheus.HistogramOpts{
			Name:    "progressor_job_duration_seconds",
			Help:    "Duration of attempts of jobs, from the claim until the result was stored, in seconds.",
			Buckets: []float64{0.005, 0.02, 0.1, 0.5, 1, 5, 15, 60, 300, 1800, 3600, 21_600},
		}, []string{"namespace", "name"}),
		named: map[process.Key]struct{}{}, count: map[string]int{},
	}
	q.engine.TrackSeries(m.claims, m.lost, m.late, m.blocked, m.durations)
	q.engine.StartSeries(m.start)
	for _, registerer := range registerers {
		storage.Register(registerer, m.claims, m.lost, m.late, m.blocked, m.durations, &statsCollector{jobs: q})
	}
	return m
}

// labels returns the labels "namespace" and "name" of a job. If the namespace has no label of its
// own, the name is "(other)".
func (m *metrics) labels(namespace, name string) []string {
	label := m.engine.NamespaceLabel(namespace)
	if label == engine.OtherNamespaces {
		return []string{label, otherNames}
	}
	return []string{label, m.name(namespace, name)}
}

// start creates the series of a namespace. If the namespace was deleted and created again, its
// names are counted again.
func (m *metrics) start(label string) {
	m.claims.WithLabelValues(label)
	if label == engine.OtherNamespaces {
		m.startName(label, otherNames)
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.count[label] > 0 {
		delete(m.count, label)
		maps.DeleteFunc(m.named, func(k process.Key, _ struct{}) bool { return k.Namespace == label })
	}
}

// startName creates the series of a name. It is called when an attempt of the first job with this
// name begins, so that the series exist before an attempt ends.
func (m *metrics) startName(label, name string) {
	m.lost.WithLabelValues(label, name)
	m.late.WithLabelValues(label, name)
}

// name returns the label "name" of a job.
func (m *metrics) name(namespace, name string) string {
	name = strings.ToValidUTF8(name, "?")
	k := process.Key{Namespace: namespace, ProcessID: name}
	m.mu.Lock()
	defer m.mu.Unlock()
	if _, known := m.named[k]; known {
		return name
	}
	if m.count[namespace] >= metricNames {
		return otherNames
	}
	m.named[k] = struct{}{}
	if m.count[namespace]++; m.count[namespace] == metricNames {
		m.startName(namespace, otherNames)
	}
	m.startName(namespace, name)
	return name
}

// claimed counts an attempt that begins.
func (m *metrics) claimed(c *storage.Claim) {
	job, _ := jobs.JobOf(c)
	m.claims.WithLabelValues(m.labels(c.Namespace, job.Name)[0]).Inc()
}

// ended counts an attempt whose end is stored.
func (m *metrics) ended(c *storage.Claim, done *storage.Completion, now time.Time) {
	record, isJob := done.Record.(*jobs.AttemptRecord)
	if !isJob || record.Type == EventReleased {
		return
	}
	labels := m.labels(c.Namespace, record.JobName)
	if record.Type == EventLeaseLost {
		m.lost.WithLabelValues(labels...).Inc()
	}
	if !c.RunningTime.IsZero() && !now.IsZero() {
		m.durations.WithLabelValues(labels...).Observe(max(now.Sub(c.RunningTime), 0).Seconds())
	}
}

// given counts how long jobs have waited for keys, by constraint.
func (m *metrics) given(namespace string, blocked map[string]time.Duration) {
	for constraint, waited := range blocked {
		m.blockedBy(namespace, constraint).Add(waited.Seconds())
	}
}

// blockedBy returns the series of a constraint, and creates it if it does not exist.
func (m *metrics) blockedBy(namespace, constraint string) prometheus.Counter {
	label := m.engine.NamespaceLabel(namespace)
	if label == engine.OtherNamespaces {
		constraint = label
	}
	return m.blocked.WithLabelValues(label, constraint)
}

// statsCollector exports the number of jobs by state. It queries the database only during a scrape.
type statsCollector struct {
	jobs  *Jobs
	cache engine.ScrapeCache[[]*jobs.Counts]
}

var (
	jobsInState = prometheus.NewDesc("progressor_jobs",
		"Jobs by state and name, counted in the database. All nodes report the same value.",
		[]string{"namespace", "name", "state"}, nil)
	oldestJob = prometheus.NewDesc("progressor_oldest_available_job_age_seconds",
		"How long the oldest job that could run has waited, in seconds, or 0 if no job waits. All nodes report the "+
			"same value.", []string{"namespace"}, nil)
)

// Describe implements prometheus.Collector.
func (c *statsCollector) Describe(ch chan<- *prometheus.Desc) {
	ch <- jobsInState
	ch <- oldestJob
}

// Collect implements prometheus.Collector. While the database is unavailable, it exports nothing
// rather than wrong values.
func (c *statsCollector) Collect(ch chan<- prometheus.Metric) {
	counts, err := c.cache.Get(statsAge, func(ctx context.Context) ([]*jobs.Counts, error) {
		return jobs.Count(ctx, c.jobs.store, c.jobs.engine.NamespaceNames())
	})
	if err != nil {
		return
	}
	byLabel := map[string][]*jobs.Counts{}
	for _, namespace := range c.jobs.engine.NamespaceNames() {
		byLabel[c.jobs.engine.NamespaceLabel(namespace)] = nil
	}
	for _, n := range counts {
		label := c.jobs.engine.NamespaceLabel(n.Namespace)
		byLabel[label] = append(byLabel[label], n)
	}
	for label, all := range byLabel {
		oldest, other := time.Duration(0), &jobs.Counts{Name: otherNames, ByState: map[string]int64{}}
		for _, n := range all {
			oldest = max(oldest, n.Oldest)
		}
		list, named := most(all), metricNames
		if label == engine.OtherNamespaces {
			named = 0
		}
		for _, n := range list[min(len(list), named):] {
			for state, count := range n.ByState {
				other.ByState[state] += count
			}
		}
		if list = list[:min(len(list), named)]; len(other.ByState) > 0 {
			list = append(list, other)
		}
		for _, n := range list {
			for _, state := range States {
				ch <- prometheus.MustNewConstMetric(jobsInState, prometheus.GaugeValue, float64(n.ByState[state]),
					label, strings.ToValidUTF8(n.Name, "?"), state)
			}
		}
		ch <- prometheus.MustNewConstMetric(oldestJob, prometheus.GaugeValue, oldest.Seconds(), label)
	}
}

package engine

import (
	"strings"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/progressor-engine/progressor/process"
	"github.com/progressor-engine/progressor/storage"
)

// engineMetrics are the metrics of a node. The eight histograms have the names and units of the
// reference implementation. docs/operations.md lists how their labels differ. The three that
// observe a scan have an empty namespace, because one scan serves all namespaces.
type engineMetrics struct {
	callsScanning  *prometheus.HistogramVec
	timersScanning *prometheus.HistogramVec
	zombies        *prometheus.HistogramVec
	preparing      *prometheus.HistogramVec
	processing     *prometheus.HistogramVec
	completion     *prometheus.HistogramVec
	removing       *prometheus.HistogramVec
	notification   *prometheus.HistogramVec

	timerLateness prometheus.Histogram
	refused       *prometheus.CounterVec
	scanErrors    *prometheus.CounterVec
	stale         *prometheus.CounterVec
	expired       *prometheus.CounterVec
	zombieTasks   *prometheus.CounterVec
	adopted       *prometheus.CounterVec
	lost          *prometheus.CounterVec
	messages      *prometheus.CounterVec
	fenced        prometheus.Counter
	declaredDead  prometheus.Counter
	clockSteps    *prometheus.CounterVec
}

// durationBuckets are in milliseconds. They range from the duration of a fast commit to more than
// the largest bucket of the reference implementation.
var durationBuckets = []float64{1, 2, 5, 10, 20, 50, 150, 300, 500, 750, 1000, 2500, 10_000, 60_000}

func newEngineMetrics(registerer prometheus.Registerer, e *Engine) *engineMetrics {
	counter := func(name, help string, labels ...string) *prometheus.CounterVec {
		return prometheus.NewCounterVec(prometheus.CounterOpts{Name: name, Help: help}, labels)
	}
	m := &engineMetrics{
		timerLateness: prometheus.NewHistogram(prometheus.HistogramOpts{
			Name:    "progressor_timer_lateness_seconds",
			Help:    "Time from when a timer was due until it was claimed, in seconds.",
			Buckets: []float64{0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.25, 1, 10, 60, 600},
		}),
		refused: counter("progressor_requests_refused_total",
			"Requests rejected because of overload, by limit. They are not stored.", "bound"),
		scanErrors: counter("progressor_scan_errors_total", "Failed scans for tasks.", "scan"),
		stale: counter("progressor_stale_results_total",
			"Results rejected because another attempt had replaced theirs.", "namespace"),
		expired: counter("progressor_expired_processes_total",
			"Processes removed after the retention of their namespace.", "namespace"),
		zombieTasks: counter("progressor_zombies_total",
			"Tasks of dead nodes or past their deadline that were collected.", "namespace"),
		adopted: counter("progressor_tasks_adopted_total",
			"Tasks found in the database after the response to their commit was lost.", "namespace"),
		lost: counter("progressor_tasks_lost_total",
			"Tasks lost by a failover of the database while a client waited for them.", "namespace"),
		messages: counter("progressor_messages_total",
			"Messages to processes, by namespace of the target, kind and outcome.", "namespace", "kind", "outcome"),

		fenced: prometheus.NewCounter(prometheus.CounterOpts{
			Name: "progressor_attempts_fenced_total",
			Help: "Attempts that this node cancelled because it could not store its heartbeat for too long.",
		}),
		declaredDead: prometheus.NewCounter(prometheus.CounterOpts{
			Name: "progressor_nodes_declared_dead_total",
			Help: "Nodes that this node declared dead because they sent no heartbeat for zombie_after.",
		}),
		clockSteps: counter("progressor_database_clock_steps_total",
			"Changes of the clock of PostgreSQL by 0.5 s or more, forward or backward.", "direction"),
	}
	m.addDurations()
	e.TrackSeries(m.preparing, m.processing, m.completion, m.removing, m.notification, m.stale, m.expired,
		m.zombieTasks, m.adopted, m.lost, m.messages)
	m.start()
	if registerer == nil {
		return m
	}
	storage.Register(registerer,
		m.callsScanning, m.timersScanning, m.zombies, m.preparing, m.processing, m.completion, m.removing,
		m.notification,
		m.timerLateness, m.refused, m.scanErrors, m.stale, m.expired, m.zombieTasks, m.adopted, m.lost, m.messages,
		m.fenced, m.declaredDead, m.clockSteps,
	)
	storage.Register(registerer, e.gauges()...)
	return m
}

// refusalBounds are the labels of rejected requests that package engine counts. See AddRefusals.
var refusalBounds = []string{
	"in_flight", "namespace_in_flight", "awaits", "namespace_awaits", "backlog", "place", "waiting", "namespaces",
}

// scanNames are the labels of failed scans, except those of kinds with urgent tasks (see Add).
var scanNames = []string{
	"calls", "messages", "timers", "released timers",
	"constraints", "groups", "start deadlines", "pulls", "takers", "workers", // of ReportScanError
}

// start creates series without the label of a namespace. They must be exported as 0 before their
// first event, because rate() and increase() do not count an event that creates its series.
func (m *engineMetrics) start() {
	for _, of := range []*prometheus.HistogramVec{m.callsScanning, m.timersScanning, m.zombies} {
		of.WithLabelValues("")
	}
	m.notification.WithLabelValues("", "event_sink")
	m.notification.WithLabelValues("", "lifecycle_sink")
	m.clockSteps.WithLabelValues("forward")
	m.clockSteps.WithLabelValues("backward")
	for _, bound := range refusalBounds {
		m.refused.WithLabelValues(bound)
	}
	for _, scan := range scanNames {
		m.scanErrors.WithLabelValues(scan)
	}
}

// AddRefusals creates the series of rejected requests that other packages count with CountRefusal.
func (e *Engine) AddRefusals(bounds ...string) {
	for _, bound := range bounds {
		e.metrics.refused.WithLabelValues(bound)
	}
}

// addDurations adds the histograms of the reference.
func (m *engineMetrics) addDurations() {
	histogram := func(name, help string, labels ...string) *prometheus.HistogramVec {
		return prometheus.NewHistogramVec(prometheus.HistogramOpts{
			Name: name, Help: help, Buckets: durationBuckets,
		}, append([]string{"namespace"}, labels...))
	}
	m.callsScanning = histogram("progressor_calls_scanning_duration_ms",
		"Durations of scans for calls (call, repair), in milliseconds.")
	m.timersScanning = histogram("progressor_timers_scanning_duration_ms",
		"Durations of scans for timers (timeout, remove), in milliseconds.")
	m.zombies = histogram("progressor_zombie_collection_duration_ms",
		"Durations of collecting zombie tasks, in milliseconds.")
	m.preparing = histogram("progressor_request_preparing_duration_ms",
		"Durations of preparing requests (init, call, repair), in milliseconds.", "task_type")
	m.processing = histogram("progressor_task_processing_duration_ms",
		"Durations of processing tasks, in milliseconds.", "task_type")
	m.completion = histogram("progressor_task_completion_duration_ms",
		"Durations of completing tasks, in milliseconds.", "completion_type")
	m.removing = histogram("progressor_process_removing_duration_ms",
		"Durations of removing processes, in milliseconds.")
	m.notification = histogram("progressor_notification_duration_ms", "Durations of notifications, in milliseconds.",
		"notification_type")
}

// gauges returns the metrics that read the state of the engine.
func (e *Engine) gauges() []prometheus.Collector {
	gauge := func(name, help string, value func() float64) prometheus.Collector {
		return prometheus.NewGaugeFunc(prometheus.GaugeOpts{Name: name, Help: help}, value)
	}
	return []prometheus.Collector{
		gauge("progressor_node_requests_only",
			"1 if this node accepts requests but runs no tasks (engine.requests_only), else 0.", e.requestsOnlyValue),
		gauge("progressor_requests_in_flight",
			"Requests in flight on this node, including calls that wait for their result.", func() float64 {
				return float64(e.inFlight.working.Load())
			}),
		gauge("progressor_requests_waiting",
			"Requests on this node that wait for an event: AwaitTask, Poll and streams.", func() float64 {
				return float64(e.inFlight.waiting.Load())
			}),
		gauge("progressor_tasks_running", "Tasks that this node is running.", func() float64 {
			return float64(e.attempts.count())
		}),
		gauge("progressor_functions_parked",
			"Processes that wait in memory, on this node or at workers and processors that it knows.", func() float64 {
				functions, _ := e.parking.Usage()
				return float64(functions)
			}),
		gauge("progressor_tasks_awaited", "Tasks that clients of this node wait for.", func() float64 {
			return float64(e.waiters.count())
		}),
		&slotsCollector{engine: e},
	}
}

func (e *Engine) requestsOnlyValue() float64 {
	if e.cfg.RequestsOnly {
		return 1
	}
	return 0
}

func since(began time.Time) float64 { return float64(time.Since(began).Microseconds()) / 1000 }

// ObserveNotification observes how long the delivery of changes of a namespace to a target took.
// The types are those of the reference: event_sink and lifecycle_sink.
func (e *Engine) ObserveNotification(namespace, notificationType string, began time.Time) {
	e.metrics.notification.WithLabelValues(e.NamespaceLabel(namespace), notificationType).Observe(since(began))
}

func (m *engineMetrics) callsScanned(began time.Time) {
	m.callsScanning.WithLabelValues("").Observe(since(began))
}

func (m *engineMetrics) timersScanned(began time.Time) {
	m.timersScanning.WithLabelValues("").Observe(since(began))
}

func (m *engineMetrics) zombiesScanned(began time.Time) {
	m.zombies.WithLabelValues("").Observe(since(began))
}

func (m *engineMetrics) timerLate(late time.Duration) {
	m.timerLateness.Observe(late.Seconds())
}

// LazySeries is a series of a histogram that is exported only after its first observation.
// Otherwise, most lines of a scrape would belong to unused series. Each series has up to 19 lines.
type LazySeries struct{ series func() prometheus.Observer }

// NewLazySeries returns the series with these labels.
func NewLazySeries(of *prometheus.HistogramVec, labels ...string) LazySeries {
	return LazySeries{sync.OnceValue(func() prometheus.Observer { return of.WithLabelValues(labels...) })}
}

// Observe implements prometheus.Observer.
func (a LazySeries) Observe(value float64) { a.series().Observe(value) }

// namespaceMetrics are the metrics of one namespace with resolved labels, because looking labels up
// costs more than observing.
type namespaceMetrics struct {
	preparing  map[process.TaskType]prometheus.Observer
	processing map[process.TaskType]prometheus.Observer
	completion map[string]prometheus.Observer
	removing   prometheus.Observer
	stale      prometheus.Counter
	zombies    prometheus.Counter
	expired    prometheus.Counter
	adopted    prometheus.Counter
}

// The completion types. Those of the reference implementation have the prefix complete_and_.
const (
	completionContinue = "continue" // the next task of the process follows immediately
	completionSuspend  = "suspend"  // a timer was set
	completionUnlock   = "unlock"   // nothing follows
	completionError    = "error"
	completionRemove   = "remove"
)

func (m *engineMetrics) namespace(name string) *namespaceMetrics {
	n := &namespaceMetrics{
		preparing: map[process.TaskType]prometheus.Observer{}, processing: map[process.TaskType]prometheus.Observer{},
		completion: map[string]prometheus.Observer{},
		removing:   NewLazySeries(m.removing, name), stale: m.stale.WithLabelValues(name),
		zombies: m.zombieTasks.WithLabelValues(name), expired: m.expired.WithLabelValues(name),
		adopted: m.adopted.WithLabelValues(name),
	}
	m.lost.WithLabelValues(name)
	for _, kind := range []storage.MessageKind{
		storage.MessageStart, storage.MessageNotify, storage.MessageCancel, storage.MessageChildEnd,
	} {
		for _, outcome := range []string{
			storage.Delivered, storage.TargetExists, storage.MessageHeld, storage.TargetNotFound, storage.TargetEnded,
		} {
			m.messages.WithLabelValues(name, string(kind), outcome)
		}
	}
	for _, t := range process.TaskTypes() {
		label := strings.ToLower(string(t))
		n.preparing[t] = NewLazySeries(m.preparing, name, label)
		n.processing[t] = NewLazySeries(m.processing, name, label)
	}
	for _, c := range []string{
		completionContinue, completionSuspend, completionUnlock, completionRemove,
	} {
		n.completion[c] = NewLazySeries(m.completion, name, c)
	}
	// An alert counts failures, so their series must exist before the first one.
	n.completion[completionError] = m.completion.WithLabelValues(name, completionError)
	return n
}

func (n *namespaceMetrics) prepared(t process.TaskType, began time.Time) {
	n.preparing[t].Observe(since(began))
}

func (n *namespaceMetrics) processed(t process.TaskType, began time.Time) {
	n.processing[t].Observe(since(began))
}

func (n *namespaceMetrics) removed(began time.Time) { n.removing.Observe(since(began)) }

func (n *namespaceMetrics) completed(c *storage.Completion, saved storage.Saved, began time.Time) {
	kind := completionUnlock
	switch {
	case c.Outcome == storage.Removed || c.Outcome == storage.Rejected && c.TaskType == process.TaskInit:
		kind = completionRemove
		n.removed(began)
	case c.Outcome == storage.Failed || c.Outcome == storage.Retry:
		kind = completionError
	case saved.Next != nil || saved.Deferred:
		kind = completionContinue
	case saved.TimerDelay >= 0:
		kind = completionSuspend
	}
	n.completion[kind].Observe(since(began))
}

// slotsCollector exports the slots of the node and of each namespace.
type slotsCollector struct{ engine *Engine }

var (
	slotsTaken = prometheus.NewDesc("progressor_places_taken", "Slots of a namespace in use on this node.",
		[]string{"namespace"}, nil)
	slotsWaiting = prometheus.NewDesc("progressor_places_awaited",
		"Requests that wait in memory for a slot of a namespace.", []string{"namespace"}, nil)

	nodeSlotsMax = prometheus.NewDesc("progressor_node_places", "Slots of this node for tasks of all namespaces.",
		nil, nil)
	nodeSlotsTaken = prometheus.NewDesc("progressor_node_places_taken", "Slots of this node in use.", nil, nil)
	nodeSlotsWaits = prometheus.NewDesc("progressor_node_places_waits_total",
		"How often a namespace had to wait for a slot of this node.", nil, nil)
)

// Describe implements prometheus.Collector.
func (c *slotsCollector) Describe(ch chan<- *prometheus.Desc) {
	ch <- slotsTaken
	ch <- slotsWaiting
	ch <- nodeSlotsMax
	ch <- nodeSlotsTaken
	ch <- nodeSlotsWaits
}

// Collect implements prometheus.Collector.
func (c *slotsCollector) Collect(ch chan<- prometheus.Metric) {
	nodeTaken, waits := c.engine.nodeSlots.inUse()
	ch <- prometheus.MustNewConstMetric(nodeSlotsMax, prometheus.GaugeValue, float64(c.engine.nodeSlots.max))
	ch <- prometheus.MustNewConstMetric(nodeSlotsTaken, prometheus.GaugeValue, float64(nodeTaken))
	ch <- prometheus.MustNewConstMetric(nodeSlotsWaits, prometheus.CounterValue, float64(waits))
	taken, waiting := map[string]int{}, map[string]int{}
	for name, ns := range c.engine.registry.all() {
		label := c.engine.NamespaceLabel(name)
		used, wanted := ns.slots.inUse()
		taken[label] += used
		waiting[label] += wanted
	}
	for label := range taken {
		ch <- prometheus.MustNewConstMetric(slotsTaken, prometheus.GaugeValue, float64(taken[label]), label)
		ch <- prometheus.MustNewConstMetric(slotsWaiting, prometheus.GaugeValue, float64(waiting[label]), label)
	}
}

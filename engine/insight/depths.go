package insight

import (
	"context"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/progressor-engine/progressor/engine"
	"github.com/progressor-engine/progressor/storage/insight"
)

const (
	depthLimit   = 10_000          // longer queues are reported with this length
	depthAge     = 5 * time.Second // maximum age of the values
	depthTimeout = 2 * time.Second
)

// depthsCollector exports the backlog of each namespace. It queries the database only during
// scrapes.
type depthsCollector struct {
	insight *Insight
	cache   engine.ScrapeCache[[]insight.Depth]
}

var (
	depthWaiting = prometheus.NewDesc("progressor_runnable_tasks",
		"Tasks in the database that could run now but are waiting, counted up to 10,000. All nodes report the same "+
			"value.", []string{"namespace"}, nil)
	depthOldest = prometheus.NewDesc("progressor_oldest_runnable_task_age_seconds",
		"How long the oldest task that could run now has waited, in seconds. All nodes report the same value.",
		[]string{"namespace"}, nil)
)

// Describe implements prometheus.Collector.
func (c *depthsCollector) Describe(ch chan<- *prometheus.Desc) {
	ch <- depthWaiting
	ch <- depthOldest
}

// Collect implements prometheus.Collector. While the database is unavailable it exports nothing.
func (c *depthsCollector) Collect(ch chan<- prometheus.Metric) {
	depths, err := c.cache.Get(depthAge, func(ctx context.Context) ([]insight.Depth, error) {
		var names []string
		for _, name := range c.insight.engine.NamespaceNames() {
			if !c.insight.engine.IsPaused(name) { // a paused namespace is not expected to run tasks
				names = append(names, name)
			}
		}
		depths, err := insight.QueueDepths(ctx, c.insight.store, names, depthLimit)
		if err != nil {
			c.insight.log.Warn("cannot read queue depths", "error", err)
		}
		return depths, err
	})
	if err != nil {
		return
	}
	byLabel := map[string]insight.Depth{}
	for _, d := range depths {
		label := c.insight.engine.NamespaceLabel(d.Namespace)
		sum := byLabel[label]
		sum.Waiting += d.Waiting
		sum.Oldest = max(sum.Oldest, d.Oldest)
		byLabel[label] = sum
	}
	for label, d := range byLabel {
		ch <- prometheus.MustNewConstMetric(depthWaiting, prometheus.GaugeValue, float64(d.Waiting), label)
		ch <- prometheus.MustNewConstMetric(depthOldest, prometheus.GaugeValue, d.Oldest.Seconds(), label)
	}
}

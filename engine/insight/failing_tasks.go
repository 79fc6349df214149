package insight

import (
	"context"
	"strings"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/progressor-engine/progressor/engine"
	"github.com/progressor-engine/progressor/process"
	"github.com/progressor-engine/progressor/storage"
	"github.com/progressor-engine/progressor/storage/insight"
)

const (
	// failingFor is how long a task of an internal kind must fail before the metric counts it. A
	// restart of the database takes less time.
	failingFor = time.Minute
	// failingLimit is the highest count that the metric reports.
	failingLimit = 1000
)

var failingProcesses = prometheus.NewDesc("progressor_failing_internal_processes",
	"Processes of an internal kind (flow, cron, run of a cron, bulk) whose own task has failed for more than a "+
		"minute and is "+
		"retried, counted up to 1,000 in total. All nodes report the same value.", []string{"kind"}, nil)

// failingCollector counts processes of internal kinds whose tasks fail. It reads the database when
// it is scraped.
type failingCollector struct {
	insight *Insight
	cache   engine.ScrapeCache[map[string]int] // by kind
}

// Describe implements prometheus.Collector.
func (c *failingCollector) Describe(ch chan<- *prometheus.Desc) { ch <- failingProcesses }

// Collect implements prometheus.Collector. It sends no metric while the database is unavailable.
func (c *failingCollector) Collect(ch chan<- prometheus.Metric) {
	counts, err := c.cache.Get(growthAge, c.count)
	if err != nil {
		return
	}
	for name, k := range c.insight.engine.RegisteredKinds() {
		if k.Processor != nil {
			ch <- prometheus.MustNewConstMetric(failingProcesses, prometheus.GaugeValue, float64(counts[name]), name)
		}
	}
}

// count returns the number of failing processes by kind.
func (c *failingCollector) count(ctx context.Context) (map[string]int, error) {
	var tasks []insight.FailingTask
	err := c.insight.store.ReadOne(ctx, "list failing tasks", func(ctx context.Context, db storage.DB) (err error) {
		tasks, err = insight.ListFailingTasks(ctx, db, failingFor, failingLimit)
		return err
	})
	if err != nil {
		c.insight.log.Warn("cannot read failing tasks", "error", err)
		return nil, err
	}
	failing, counts := map[process.Key]bool{}, map[string]int{}
	for _, t := range tasks {
		if failing[t.Key] {
			continue
		}
		failing[t.Key] = true
		kind, _, _ := strings.Cut(strings.TrimPrefix(t.Key.ProcessID, process.OwnPrefix), "/")
		counts[kind]++
	}
	return counts, nil
}

package insight

import (
	"context"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/progressor-engine/progressor/engine"
	"github.com/progressor-engine/progressor/storage/insight"
)

// growthAge is the maximum age of the values of growthCollector and failingCollector.
const growthAge = 15 * time.Second

// growthCollector exports metrics that show whether database maintenance falls behind. It queries
// the database only during scrapes.
type growthCollector struct {
	insight *Insight
	cache   engine.ScrapeCache[insight.Growth]
}

var (
	growthXIDAge = prometheus.NewDesc("progressor_database_transaction_age",
		"Age of the oldest unfrozen transaction ID of the database, in transactions.", nil, nil)
	growthFreezeMaxAge = prometheus.NewDesc("progressor_database_freeze_max_age",
		"Age at which autovacuum freezes a table in any case (autovacuum_freeze_max_age), in transactions.", nil, nil)
	growthKeyOverdue = prometheus.NewDesc("progressor_idempotency_keys_overdue_seconds",
		"How long the oldest idempotency key has been kept beyond its retention, in seconds.", nil, nil)
	growthMessageAge = prometheus.NewDesc("progressor_oldest_undelivered_message_age_seconds",
		"How long the oldest undelivered message has waited, in seconds.", nil, nil)
	growthMessages = prometheus.NewDesc("progressor_undelivered_messages",
		"Undelivered messages, counted up to 10,000.", nil, nil)
	growthBacklogs = prometheus.NewDesc("progressor_queue_backlogs",
		"Processes whose task queue was too large to update in the transaction that changed their status, counted up "+
			"to 10,000.", nil, nil)
	growthPending = prometheus.NewDesc("progressor_pending_results",
		"Attempts that workers have ended with the SQL function complete and whose result no node has stored yet, "+
			"counted up to 10,000.", nil, nil)
)

// Describe implements prometheus.Collector.
func (c *growthCollector) Describe(ch chan<- *prometheus.Desc) {
	for _, d := range []*prometheus.Desc{
		growthXIDAge, growthFreezeMaxAge, growthKeyOverdue, growthMessageAge, growthMessages, growthBacklogs,
		growthPending,
	} {
		ch <- d
	}
}

// Collect implements prometheus.Collector. While the database is unavailable it exports nothing.
func (c *growthCollector) Collect(ch chan<- prometheus.Metric) {
	growth, err := c.cache.Get(growthAge, func(ctx context.Context) (insight.Growth, error) {
		growth, err := insight.ReadGrowth(ctx, c.insight.store, c.insight.engine.Config().KeyRetention, depthLimit)
		if err != nil {
			c.insight.log.Warn("cannot read the growth metrics of the database", "error", err)
		}
		return growth, err
	})
	if err != nil {
		return
	}
	for d, value := range map[*prometheus.Desc]float64{
		growthXIDAge: float64(growth.XIDAge), growthFreezeMaxAge: float64(growth.FreezeMaxAge),
		growthKeyOverdue: growth.KeyOverdue.Seconds(), growthMessageAge: growth.MessageAge.Seconds(),
		growthMessages: float64(growth.Messages), growthBacklogs: float64(growth.Backlogs),
		growthPending: float64(growth.Pending),
	} {
		ch <- prometheus.MustNewConstMetric(d, prometheus.GaugeValue, value)
	}
}

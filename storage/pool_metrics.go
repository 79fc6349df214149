package storage

import (
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/prometheus/client_golang/prometheus"
)

// namedPool is a pool with its name in the metrics.
type namedPool struct {
	pool *pgxpool.Pool
	name string
}

// poolCollector exports metrics of the connection pools. It is one collector for all pools, because
// a registry rejects two collectors with the same names. The metric names of other collectors for
// pgx violate the rules of promtool.
type poolCollector struct {
	pools  []namedPool
	shares []*share
}

var (
	poolLabel       = []string{"pool"}
	poolConnections = prometheus.NewDesc("progressor_pool_connections", "Connections of a pool, by state.",
		[]string{"pool", "state"}, nil)
	poolBound = prometheus.NewDesc("progressor_pool_max_connections", "Maximum number of connections of a pool.",
		poolLabel, nil)
	poolAcquires = prometheus.NewDesc("progressor_pool_acquires_total",
		"How often a connection was acquired from a pool.", poolLabel, nil)
	poolWaits = prometheus.NewDesc("progressor_pool_empty_acquires_total",
		"How often no connection was free and a caller had to wait for one.", poolLabel, nil)
	poolWait = prometheus.NewDesc("progressor_pool_acquire_wait_seconds_total",
		"Time that callers waited for a connection, in seconds.", poolLabel, nil)
	poolOpened = prometheus.NewDesc("progressor_pool_connections_opened_total", "Connections opened by a pool.",
		poolLabel, nil)
	poolShareWaits = prometheus.NewDesc("progressor_pool_share_waits_total",
		"Waits because one kind of work was using all connections of its limit.", []string{"share"}, nil)
)

// Describe implements prometheus.Collector.
func (c *poolCollector) Describe(ch chan<- *prometheus.Desc) {
	for _, d := range []*prometheus.Desc{
		poolConnections, poolBound, poolAcquires, poolWaits, poolWait, poolOpened, poolShareWaits,
	} {
		ch <- d
	}
}

// Collect implements prometheus.Collector.
func (c *poolCollector) Collect(ch chan<- prometheus.Metric) {
	for _, p := range c.pools {
		p.collect(ch)
	}
	for _, s := range c.shares {
		ch <- prometheus.MustNewConstMetric(poolShareWaits, prometheus.CounterValue, float64(s.waits.Load()), s.name)
	}
}

func (c namedPool) collect(ch chan<- prometheus.Metric) {
	st := c.pool.Stat()
	gauge := func(d *prometheus.Desc, v int32, labels ...string) {
		ch <- prometheus.MustNewConstMetric(d, prometheus.GaugeValue, float64(v),
			append([]string{c.name}, labels...)...)
	}
	counter := func(d *prometheus.Desc, v float64) {
		ch <- prometheus.MustNewConstMetric(d, prometheus.CounterValue, v, c.name)
	}
	gauge(poolConnections, st.AcquiredConns(), "acquired")
	gauge(poolConnections, st.IdleConns(), "idle")
	gauge(poolConnections, st.ConstructingConns(), "constructing")
	gauge(poolBound, st.MaxConns())
	counter(poolAcquires, float64(st.AcquireCount()))
	counter(poolWaits, float64(st.EmptyAcquireCount()))
	counter(poolWait, st.EmptyAcquireWaitTime().Seconds())
	counter(poolOpened, float64(st.NewConnsCount()))
}

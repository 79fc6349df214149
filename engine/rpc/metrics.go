package rpc

import (
	"time"

	"connectrpc.com/connect"
	"github.com/prometheus/client_golang/prometheus"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/reflect/protoregistry"

	"github.com/progressor-engine/progressor/engine"
)

// codeOK is the label of a successful request.
const codeOK = "ok"

// Reasons why HTTP requests are rejected, or ended while their response is sent.
const (
	rejectedHost   = "host"
	rejectedOrigin = "origin"
	rejectedSlow   = "slow_body"
	rejectedStall  = "stalled"
	rejectedBody   = "undecodable"
)

// metrics counts requests by method and code.
type metrics struct {
	duration *prometheus.HistogramVec
	answered map[string]prometheus.Observer // by procedure, for successful requests
	failed   map[string]prometheus.Counter  // by procedure, see isFailure
	rejected map[string]prometheus.Counter  // by reason
}

// newMetrics registers the metrics of the services with reg. If reg is nil, they are not exported.
func newMetrics(reg prometheus.Registerer, version string, services ...string) (*metrics, error) {
	m := &metrics{
		duration: prometheus.NewHistogramVec(prometheus.HistogramOpts{
			Name: "progressor_rpc_duration_seconds",
			Help: "Duration of requests in seconds, from the decoded request to its response or error, " +
				"including waits.",
			Buckets: []float64{0.0005, 0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1, 2, 5, 10, 30, 60},
		}, []string{"method", "code"}),
		answered: map[string]prometheus.Observer{}, failed: map[string]prometheus.Counter{},
		rejected: map[string]prometheus.Counter{},
	}
	failures := prometheus.NewCounterVec(prometheus.CounterOpts{
		Name: "progressor_rpc_failures_total",
		Help: "Requests that failed with UNAVAILABLE or INTERNAL: failures of the node or of its database.",
	}, []string{"method"})
	rejections := prometheus.NewCounterVec(prometheus.CounterOpts{
		Name: "progressor_http_rejected_total",
		Help: "HTTP requests that were rejected because of their Host (reason host), because a page of " +
			"another site sent them (origin), because their body arrived too slowly (slow_body) or could not be " +
			"decoded, such as one with too many values (undecodable), and those that ended because their client " +
			"did not read the response (stalled).",
	}, []string{"reason"})
	for _, reason := range []string{rejectedHost, rejectedOrigin, rejectedSlow, rejectedStall, rejectedBody} {
		m.rejected[reason] = rejections.WithLabelValues(reason)
	}
	for _, name := range services {
		d, err := protoregistry.GlobalFiles.FindDescriptorByName(protoreflect.FullName(name))
		if err != nil {
			return nil, err
		}
		methods := d.(protoreflect.ServiceDescriptor).Methods()
		for i := range methods.Len() {
			procedure := "/" + name + "/" + string(methods.Get(i).Name())
			m.answered[procedure] = engine.NewLazySeries(m.duration, procedure[1:], codeOK)
			m.failed[procedure] = failures.WithLabelValues(procedure[1:])
		}
	}
	if reg == nil {
		return m, nil
	}
	build := prometheus.NewGauge(prometheus.GaugeOpts{
		Name:        "progressor_build",
		Help:        "Always 1. The label contains the running version.",
		ConstLabels: prometheus.Labels{"version": version},
	})
	build.Set(1)
	for _, c := range []prometheus.Collector{m.duration, failures, rejections, build} {
		if err := reg.Register(c); err != nil {
			return nil, err
		}
	}
	return m, nil
}

func (m *metrics) observe(procedure string, err error, took time.Duration) {
	if o, ok := m.answered[procedure]; ok && err == nil {
		o.Observe(took.Seconds())
		return
	}
	m.duration.WithLabelValues(procedure[1:], codeText(err)).Observe(took.Seconds())
	if failed, ok := m.failed[procedure]; ok && isFailure(err) {
		failed.Inc()
	}
}

// isFailure reports whether a request failed because of the node or its database.
func isFailure(err error) bool {
	code := connect.CodeOf(err)
	return err != nil && (code == connect.CodeUnavailable || code == connect.CodeInternal)
}

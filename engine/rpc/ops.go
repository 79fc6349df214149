package rpc

import (
	"log/slog"
	"net/http"

	"github.com/prometheus/client_golang/prometheus/promhttp"
)

// NewOps returns a handler for probes and scrapers that have no credentials. It serves only /livez,
// /readyz and /metrics of NewHandler. The handler does not authenticate requests, so only trusted
// networks may reach its listener.
func NewOps(cfg Config) http.Handler {
	if cfg.Logger == nil {
		cfg.Logger = slog.Default()
	}
	mux := http.NewServeMux()
	mountProbes(mux, cfg, readiness(cfg.Engine.Ready, cfg.Ready))
	if cfg.Gatherer != nil {
		mux.Handle("GET /metrics", metricsPage(cfg))
	}
	return limitStalls(cfg.Hosts.Guard(mux, func() {}), writeTimeout, func() {})
}

// mountProbes serves the pages that report whether the program runs and is ready.
func mountProbes(mux *http.ServeMux, cfg Config, ready func() error) {
	mux.HandleFunc("GET /livez", func(w http.ResponseWriter, _ *http.Request) { page(w, http.StatusOK, "ok") })
	mux.HandleFunc("GET /readyz", func(w http.ResponseWriter, _ *http.Request) {
		if err := ready(); err != nil {
			page(w, http.StatusServiceUnavailable, "not ready: "+err.Error())
			return
		}
		page(w, http.StatusOK, cfg.readyText())
	})
}

// metricsPage returns the page for Prometheus.
func metricsPage(cfg Config) http.Handler {
	return promhttp.HandlerFor(cfg.Gatherer, promhttp.HandlerOpts{
		Registry: cfg.Registerer, EnableOpenMetrics: true,
		ErrorLog: slog.NewLogLogger(cfg.Logger.Handler(), slog.LevelWarn),
	})
}

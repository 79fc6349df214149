package rpc

import (
	"compress/gzip"
	"context"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"strings"

	"connectrpc.com/connect"
	"connectrpc.com/grpchealth"
	"connectrpc.com/grpcreflect"
	"github.com/prometheus/client_golang/prometheus"
	"go.opentelemetry.io/otel/trace"

	"github.com/progressor-engine/progressor/docs"
	"github.com/progressor-engine/progressor/engine"
	"github.com/progressor-engine/progressor/engine/auth"
	"github.com/progressor-engine/progressor/engine/bulk"
	"github.com/progressor-engine/progressor/engine/crons"
	"github.com/progressor-engine/progressor/engine/flows"
	"github.com/progressor-engine/progressor/engine/insight"
	"github.com/progressor-engine/progressor/engine/jobs"
	"github.com/progressor-engine/progressor/engine/pull"
	"github.com/progressor-engine/progressor/engine/sinks"
	"github.com/progressor-engine/progressor/engine/streams"
	"github.com/progressor-engine/progressor/internal/budget"
	"github.com/progressor-engine/progressor/process"
	progressorv1 "github.com/progressor-engine/progressor/proto/progressor/v1"
	"github.com/progressor-engine/progressor/proto/progressor/v1/progressorv1connect"
)

const (
	// maxBodyBytes limits the body of a request, compressed or not. It is slightly larger than the
	// limit of a message, because the error of that limit is more helpful.
	maxBodyBytes = process.MaxMessageBytes + 64<<10
	// maxCheckBytes limits requests that need no token, such as health checks.
	maxCheckBytes = 4 << 10
	// compressMinBytes is the minimum size of a response that is compressed for clients that accept
	// compression. Go's clients accept it by default, but gzip would cost more than a small call
	// itself.
	compressMinBytes = 16 << 10
	// workerCompressMinBytes is the same limit for workers. A hundred leases take 50 KB.
	// Compressing them took a quarter of the engine's CPU time for a pulled job, and as much CPU
	// time of the worker.
	workerCompressMinBytes = 1 << 20
)

// Config configures the handler.
type Config struct {
	Engine     *engine.Engine
	Insight    *insight.Insight
	Workers    *pull.Server          // the server that pull.New returned
	Bulks      *bulk.Bulks           // nil if BulkService is not served
	Flows      *flows.Flows          // nil if FlowService is not served
	Crons      *crons.Crons          // nil if CronService is not served
	Jobs       *jobs.Jobs            // nil if JobService and JobEventService are not served
	Streams    *streams.Streams      // nil if ChangeService is not served
	Sinks      *sinks.Sinks          // set if Streams is set
	Access     *auth.Access          // nil if AccessService is not served
	Logger     *slog.Logger          // slog.Default() if nil
	Registerer prometheus.Registerer // for the metrics of the handler; nil means no metrics
	Gatherer   prometheus.Gatherer   // for /metrics; nil means that there is no such page
	Traces     trace.TracerProvider  // for the spans of requests; nil means no spans
	Version    string                // version of the program
	Console    Console               // "" means ConsoleFull
	Auth       *auth.Authenticator   // checks tokens; nil if all clients may do everything
	Hosts      *Hosts                // names of the server; nil means IP addresses and localhost only
	Limits     Limits                // limits of clients; zero means no limits
	Ready      func() error          // returns why the program is not ready even if the engine is; may be nil
}

// services are the served services.
var services = []string{
	progressorv1connect.ProcessServiceName, progressorv1connect.NamespaceServiceName,
	progressorv1connect.InsightServiceName,
	progressorv1connect.BulkServiceName, progressorv1connect.CronServiceName, progressorv1connect.JobServiceName,
	progressorv1connect.JobEventServiceName,
	progressorv1connect.WorkerServiceName, progressorv1connect.FlowServiceName,
	progressorv1connect.ChangeServiceName, progressorv1connect.AccessServiceName,
}

// NewHandler returns a handler for the services and for:
//
//	/livez         200 while the program runs
//	/readyz        200 while the engine accepts requests, else 503 with the reason
//	/metrics       Prometheus text or OpenMetrics
//	/openapi.yaml  the API, for HTTP tools
//	/.well-known/progressor-keys  public keys that verify requests to processors
//	/changes       WatchChanges as Server-Sent Events
//	/whoami        who the client is, and what it may do
//	/login         where users log in to the web console; /logout ends the login
//	/              the web console, for clients that accept HTML
//
// It also serves gRPC health (with the status of /readyz, and that of namespaces) and gRPC
// reflection, v1 and v1alpha. It rejects requests whose Host is not one of cfg.Hosts, and requests
// from pages of other sites. It panics if the rules in the proto files cannot be compiled, or if a
// metric with the same name is already registered. Both are defects of the program.
func NewHandler(cfg Config) http.Handler {
	e := cfg.Engine
	workers, err := newWorkerService(cfg.Workers, cfg.Logger)
	if err != nil {
		panic(fmt.Sprintf("rpc: %v", err))
	}
	s := served{
		&processes{engine: e}, &namespaces{engine: e, insight: cfg.Insight}, &insights{engine: e, insight: cfg.Insight},
		progressorv1connect.UnimplementedBulkServiceHandler{},
		progressorv1connect.UnimplementedCronServiceHandler{}, progressorv1connect.UnimplementedJobServiceHandler{},
		progressorv1connect.UnimplementedJobEventServiceHandler{}, workers,
		progressorv1connect.UnimplementedFlowServiceHandler{},
		progressorv1connect.UnimplementedChangeServiceHandler{},
		progressorv1connect.UnimplementedAccessServiceHandler{},
	}
	if cfg.Access != nil {
		s.access = &accessService{cfg.Access}
	}
	if cfg.Streams != nil {
		s.change = &changeService{streams: cfg.Streams, sinks: cfg.Sinks}
	}
	if cfg.Bulks != nil {
		s.bulk = &bulks{bulks: cfg.Bulks}
	}
	if cfg.Crons != nil {
		s.cron = &cronService{crons: cfg.Crons}
	}
	if cfg.Jobs != nil {
		s.job, s.jobEvent = &jobService{jobs: cfg.Jobs}, &jobEventService{jobs: cfg.Jobs}
	}
	if cfg.Flows != nil {
		s.flow = &flowService{flows: cfg.Flows}
	}
	cfg.Limits.refused = e.CountRefusal
	e.AddRefusals(append(clientBounds(), boundOfMemory)...)
	h, err := newHandler(cfg, s, readiness(e.Ready, cfg.Ready))
	if err != nil {
		panic(fmt.Sprintf("rpc: %v", err))
	}
	return h
}

// readiness combines the readiness of the engine and of the program.
func readiness(engine, program func() error) func() error {
	return func() error {
		if err := engine(); err != nil || program == nil {
			return err
		}
		return program()
	}
}

// served contains the handler of each service.
type served struct {
	process   progressorv1connect.ProcessServiceHandler
	namespace progressorv1connect.NamespaceServiceHandler
	insight   progressorv1connect.InsightServiceHandler
	bulk      progressorv1connect.BulkServiceHandler
	cron      progressorv1connect.CronServiceHandler
	job       progressorv1connect.JobServiceHandler
	jobEvent  progressorv1connect.JobEventServiceHandler
	worker    progressorv1connect.WorkerServiceHandler
	flow      progressorv1connect.FlowServiceHandler
	change    progressorv1connect.ChangeServiceHandler
	access    progressorv1connect.AccessServiceHandler
}

// newHandler mounts the given services. Tests pass their own.
func newHandler(cfg Config, s served, ready func() error) (http.Handler, error) {
	if cfg.Logger == nil {
		cfg.Logger = slog.Default()
	}
	if cfg.Console == "" {
		cfg.Console = ConsoleFull
	}
	valid, err := newValidation(services...)
	if err != nil {
		return nil, err
	}
	may, err := newAuthorization(cfg.Auth, services...)
	if err != nil {
		return nil, err
	}
	counted, err := newMetrics(cfg.Registerer, cfg.Version, services...)
	if err != nil {
		return nil, err
	}
	clients := newClients(cfg.Limits)
	rejected := func(reason string) func() { return counted.rejected[reason].Inc }
	failed := undecodable(rejected(rejectedBody))
	gunzip := connect.WithCompression("gzip", func() connect.Decompressor { return &limitedGzip{failed: failed} },
		func() connect.Compressor { return gzip.NewWriter(io.Discard) })
	options := connect.WithHandlerOptions(
		connect.WithCodec(binary{failed}),
		connect.WithCodec(strictJSON{codecJSON, failed}),
		connect.WithCodec(strictJSON{codecJSONCharset, failed}),
		connect.WithCodec(packed{failed}),
		gunzip,
		connect.WithReadMaxBytes(process.MaxMessageBytes),
		connect.WithCompressMinBytes(compressMinBytes),
		connect.WithInterceptors(
			&interceptor{valid, may, cfg.Logger, counted, newShared(), clients, newTraces(cfg.Traces)}),
	)
	mux := http.NewServeMux()
	errorWriter := connect.NewErrorWriter(options)
	private := func(h http.Handler) http.Handler { return authenticated(cfg.Auth, errorWriter, h) }
	bodies := &memory{budget.New(requestBudget), clients.limits.refused, failed}
	mount := func(path string, h http.Handler) { mux.Handle(path, packErrors(private(bodies.limit(h)))) }
	mount(progressorv1connect.NewProcessServiceHandler(s.process, options))
	mount(progressorv1connect.NewNamespaceServiceHandler(s.namespace, options))
	mount(progressorv1connect.NewInsightServiceHandler(s.insight, options))
	mount(progressorv1connect.NewBulkServiceHandler(s.bulk, options))
	mount(progressorv1connect.NewCronServiceHandler(s.cron, options))
	mount(progressorv1connect.NewJobServiceHandler(s.job, options))
	mount(progressorv1connect.NewFlowServiceHandler(s.flow, options))
	mount(progressorv1connect.NewJobEventServiceHandler(s.jobEvent, options))
	mount(progressorv1connect.NewChangeServiceHandler(s.change, options))
	mount(progressorv1connect.NewAccessServiceHandler(s.access, options))
	mount(newWorkerHandler(s.worker, options))
	// Probes have no token. Health shows whether a namespace exists only to authenticated clients.
	path, checks := grpchealth.NewHandler(&health{ready, s.namespace, may},
		connect.WithReadMaxBytes(maxCheckBytes), gunzip)
	mux.Handle(path, limitBody(identified(cfg.Auth, errorWriter, checks)))
	reflector := grpcreflect.NewStaticReflector(append([]string{grpchealth.HealthV1ServiceName}, services...)...)
	reflected := connect.WithReadMaxBytes(process.MaxMessageBytes)
	mount(grpcreflect.NewHandlerV1(reflector, reflected, gunzip))
	mount(grpcreflect.NewHandlerV1Alpha(reflector, reflected, gunzip))
	if err := mountPages(mux, cfg, clients, ready, may, private); err != nil {
		return nil, err
	}
	if cfg.Console != ConsoleOff {
		mountLogin(mux, cfg.Auth, errorWriter, private)
	}
	guarded := guardBrowsers(cfg.Console, mux, rejected(rejectedOrigin))
	h := limitStalls(cfg.Hosts.Guard(guarded, rejected(rejectedHost)), writeTimeout, rejected(rejectedStall))
	return limitBodyTime(h, bodyTimeout, rejected(rejectedSlow)), nil
}

// mountPages serves the pages for probes, scrapers and people.
func mountPages(
	mux *http.ServeMux, cfg Config, clients *clients, ready func() error, may *authorization,
	private func(http.Handler) http.Handler,
) error {
	mux.Handle("GET /whoami", private(http.HandlerFunc(whoami)))
	mountProbes(mux, cfg, ready)
	if cfg.Gatherer != nil {
		// The labels contain the names of all namespaces.
		metrics := everywhere(progressorv1.Permission_PERMISSION_NAMESPACE_READ, metricsPage(cfg))
		mux.Handle("GET /metrics", private(metrics))
	}
	if cfg.Streams != nil {
		mux.Handle("GET /changes",
			private(&changePage{streams: cfg.Streams, clients: clients, log: cfg.Logger, access: may}))
	}
	mux.HandleFunc("GET /openapi.yaml", func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "application/yaml")
		w.Header().Set("X-Content-Type-Options", "nosniff")
		_, _ = w.Write(docs.OpenAPI) // the client may have disconnected
	})
	if cfg.Engine != nil {
		mux.HandleFunc("GET "+publicKeysPath, publicKeys(cfg.Engine.PublicKeys, cfg.Logger))
	}
	return mountConsole(mux, cfg.Console, cfg.Version, func(w http.ResponseWriter, r *http.Request) {
		scheme := "http://"
		if r.TLS != nil {
			scheme = "https://"
		}
		page(w, http.StatusOK, "progressor "+cfg.Version+`

An RPC is a POST of JSON or MessagePack, or any Connect, gRPC or gRPC-Web client:
  curl -H 'Content-Type: application/json' -d '{}' `+scheme+r.Host+`/progressor.v1.NamespaceService/ListNamespaces
Reflection and /openapi.yaml describe the API. Pages: /livez /readyz /metrics /openapi.yaml`)
	})
}

// readyText is the body of /readyz of a node that is ready.
func (c *Config) readyText() string {
	if c.Engine != nil && c.Engine.RequestsOnly() {
		return "ok: takes requests, runs no tasks"
	}
	return "ok"
}

func page(w http.ResponseWriter, status int, text string) {
	w.Header().Set("Content-Type", "text/plain; charset=utf-8")
	w.Header().Set("X-Content-Type-Options", "nosniff")
	w.WriteHeader(status)
	_, _ = w.Write([]byte(text + "\n")) // the client may have disconnected
}

// limitBody is like memory.limit, for small requests that anyone may send.
func limitBody(h http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		r.Body = http.MaxBytesReader(w, r.Body, maxCheckBytes)
		h.ServeHTTP(w, r)
	})
}

// health serves grpc.health.v1.Health. Every service is SERVING while the engine is ready. A
// namespace is SERVING while its tasks run.
type health struct {
	ready      func() error
	namespaces progressorv1connect.NamespaceServiceHandler
	access     *authorization // for the health of namespaces; nil if all clients may do everything
}

// namespacePrefix begins the names of the services that are namespaces.
const namespacePrefix = "namespace/"

// Check returns the status of a service. The service "" is the program, and "namespace/orders" is
// the namespace orders.
func (h *health) Check(ctx context.Context, r *grpchealth.CheckRequest) (*grpchealth.CheckResponse, error) {
	if name, ok := strings.CutPrefix(r.Service, namespacePrefix); ok && name != "" {
		return h.checkNamespace(ctx, name)
	}
	known := r.Service == "" || r.Service == grpchealth.HealthV1ServiceName
	for _, s := range services {
		known = known || s == r.Service
	}
	if !known {
		return nil, connect.NewError(connect.CodeNotFound, fmt.Errorf("there is no service %q", r.Service))
	}
	status := grpchealth.StatusServing
	if h.ready() != nil {
		status = grpchealth.StatusNotServing
	}
	return &grpchealth.CheckResponse{Status: status}, nil
}

func (h *health) checkNamespace(ctx context.Context, name string) (*grpchealth.CheckResponse, error) {
	request := &progressorv1.GetNamespaceHealthRequest{Namespace: name}
	const procedure = progressorv1connect.NamespaceServiceGetNamespaceHealthProcedure
	if _, err := h.access.check(ctx, procedure, request); err != nil {
		return nil, err
	}
	resp, err := h.namespaces.GetNamespaceHealth(ctx, request)
	if err != nil {
		connectErr, _ := toConnect(err, request)
		return nil, connectErr
	}
	status := grpchealth.StatusServing
	for _, ns := range resp.GetNamespaces() {
		if ns.GetStatus() == progressorv1.HealthStatus_HEALTH_STATUS_DOWN {
			status = grpchealth.StatusNotServing
		}
	}
	return &grpchealth.CheckResponse{Status: status}, nil
}

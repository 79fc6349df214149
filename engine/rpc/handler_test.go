package rpc

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"connectrpc.com/connect"
	"connectrpc.com/grpchealth"
	"connectrpc.com/grpcreflect"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/reflect/protoregistry"

	"github.com/progressor-engine/progressor/engine/auth"
	"github.com/progressor-engine/progressor/process"
	progressorv1 "github.com/progressor-engine/progressor/proto/progressor/v1"
	"github.com/progressor-engine/progressor/proto/progressor/v1/progressorv1connect"
)

// open contains the methods for which an empty request is valid. They have no implementation here.
var open = map[string]bool{"CountProcesses": true, "GetNamespaceHealth": true, "GetOverview": true, "ListErrors": true,
	"ListAudit": true, "ListOpenWaits": true, "ListBulks": true, "ListNamespaces": true, "ListSinks": true,
	"ListKeys": true, "ListGrants": true, "ListConsoleLogins": true, "ListNextCrons": true}

func TestEveryMethodIsServed(t *testing.T) {
	t.Parallel()
	s := newSite(t, &processes{})
	for _, service := range services {
		d, err := protoregistry.GlobalFiles.FindDescriptorByName(protoreflect.FullName(service))
		if err != nil {
			t.Fatal(err)
		}
		methods := d.(protoreflect.ServiceDescriptor).Methods()
		for i := range methods.Len() {
			method := methods.Get(i)
			if method.IsStreamingServer() {
				continue
			}
			path := "/" + service + "/" + string(method.Name())
			// An empty request is rejected by the validation, if its type has fields.
			if open[string(method.Name())] {
				if status, body := post(t, s.url+path, "application/json", `{}`); status != http.StatusNotImplemented {
					t.Errorf("%s: got %d %s", path, status, body)
				}
			} else if method.Input().Fields().Len() > 0 {
				status, body := post(t, s.url+path, "application/json", `{}`)
				if status != http.StatusBadRequest || !strings.Contains(body, `"reason":"REASON_INVALID"`) ||
					!strings.Contains(body, `is required`) && !strings.Contains(body, `must contain at least 1 item`) {
					t.Errorf("%s: got %d %s", path, status, body)
				}
			}
		}
	}
}

// TestCommandsForJobsOfTheEngine checks that refuseOwnJob, which UpdateJob and CancelJob call,
// accepts the job of a step, and that the error of refuseRetry, which RetryJob calls, names the
// command to use instead.
func TestCommandsForJobsOfTheEngine(t *testing.T) {
	t.Parallel()
	for id, want := range map[string]bool{"a": true, "~job/r1/a": true, "~job/r1/a.undo~2": true, "~job/~/g/w": false,
		"~flow/r1": false, "~run/x": false} {
		if err := refuseOwnJob(id); (err == nil) != want {
			t.Errorf("%s: %v", id, err)
		}
	}
	for id, want := range map[string]string{
		"~job/r1/a.2": `job_id: is the job of a step (r1/a.2), ` +
			`whose run continued without it: retry the run (RetryRun, progressor run retry)`,
		"~job/~/g/w": `must not begin with "~"`,
	} {
		if err := refuseRetry(id); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v", id, err)
		}
	}
}

func TestPanicsAndInternalErrorsStayInside(t *testing.T) {
	t.Parallel()
	h := echo()
	h.call = func(_ context.Context, r *progressorv1.CallRequest) (*progressorv1.CallResponse, error) {
		if r.GetProcessId() == "panic" {
			panic("secret")
		}
		return nil, errors.New("SELECT secret")
	}
	s := newSite(t, h)
	for _, id := range []string{"panic", "error"} {
		status, body := post(t, s.url+callPath, "application/json", `{"namespace":"n","processId":"`+id+`"}`)
		if status != http.StatusInternalServerError || strings.Contains(body, "secret") ||
			!strings.Contains(body, internalText) {
			t.Errorf("%s: got %d %s", id, status, body)
		}
	}
	log := s.log.String()
	for _, want := range []string{`level=ERROR`, `panic=secret`, `handler_test.go`, `level=WARN`,
		`error="SELECT secret"`, `process_id=error`} {
		if !strings.Contains(log, want) {
			t.Errorf("the log has no %s:\n%s", want, log)
		}
	}
}

func TestPages(t *testing.T) {
	t.Parallel()
	s := newSite(t, echo())
	if status, _ := post(t, s.url+callPath, "application/json",
		`{"namespace":"n","processId":"p"}`); status != http.StatusOK {
		t.Fatalf("call: %d", status)
	}
	if status, _ := post(t, s.url+callPath, "application/json", `{}`); status != http.StatusBadRequest {
		t.Fatalf("bad call: %d", status)
	}
	s.ready = nil
	for path, want := range map[string]string{
		"/": "progressor v0.0.0-test", "/livez": "ok", "/readyz": "ok", "/openapi.yaml": "openapi: 3.1.0",
		"/metrics": `progressor_rpc_duration_seconds_count{code="ok",method="progressor.v1.ProcessService/Call"} 1`,
	} {
		if status, body := get(t, s.url+path, ""); status != http.StatusOK || !strings.Contains(body, want) {
			t.Errorf("%s: got %d %s", path, status, body)
		}
	}
	_, metrics := get(t, s.url+"/metrics", "application/openmetrics-text")
	for _, want := range []string{
		`progressor_rpc_duration_seconds_count{code="invalid_argument",method="progressor.v1.ProcessService/Call"} 1`,
		`progressor_build{version="v0.0.0-test"} 1`, "# EOF",
	} {
		if !strings.Contains(metrics, want) {
			t.Errorf("metrics have no %s:\n%s", want, metrics)
		}
	}
	if status, _ := get(t, s.url+"/nowhere", ""); status != http.StatusNotFound {
		t.Errorf("/nowhere: got %d", status)
	}
}

// A program is ready only if the engine and the other parts of the program are ready. An error of
// the engine takes precedence.
func TestReadinessOfTheProgram(t *testing.T) {
	t.Parallel()
	away, crons := errors.New("database away"), errors.New("crons")
	is := func(err error) func() error { return func() error { return err } }
	for _, c := range []struct {
		engine, program func() error
		want            error
	}{{is(nil), nil, nil}, {is(away), nil, away}, {is(nil), is(nil), nil}, {is(nil), is(crons), crons},
		{is(away), is(crons), away}} {
		if got := readiness(c.engine, c.program)(); !errors.Is(got, c.want) {
			t.Errorf("%v, want %v", got, c.want)
		}
	}
}

func TestReadinessIsHealth(t *testing.T) {
	t.Parallel()
	s := newSite(t, echo())
	h2c := &http.Client{Transport: &http.Transport{Protocols: new(http.Protocols)}}
	h2c.Transport.(*http.Transport).Protocols.SetUnencryptedHTTP2(true)
	client := grpchealth.NewClient(h2c, s.url, connect.WithGRPC())
	for _, c := range []struct {
		ready  error
		want   grpchealth.Status
		status int
	}{
		{nil, grpchealth.StatusServing, http.StatusOK},
		{errors.New("database away"), grpchealth.StatusNotServing, http.StatusServiceUnavailable},
	} {
		s.ready = c.ready
		if status, body := get(t, s.url+"/readyz", ""); status != c.status {
			t.Errorf("/readyz: got %d %s", status, body)
		}
		for _, service := range append([]string{"", grpchealth.HealthV1ServiceName}, services...) {
			got, err := client.Check(t.Context(), &grpchealth.CheckRequest{Service: service})
			if err != nil || got.Status != c.want {
				t.Errorf("%q: got %v, %v, want %v", service, got, err, c.want)
			}
		}
	}
	if status, _ := get(t, s.url+"/livez", ""); status != http.StatusOK {
		t.Error("/livez must not depend on the database")
	}
	_, err := client.Check(t.Context(), &grpchealth.CheckRequest{Service: "nowhere"})
	requireCode(t, err, connect.CodeNotFound)
}

// healthOnly serves the health of namespaces only.
type healthOnly struct {
	progressorv1connect.UnimplementedNamespaceServiceHandler
}

func (healthOnly) GetNamespaceHealth(
	_ context.Context, r *progressorv1.GetNamespaceHealthRequest,
) (*progressorv1.GetNamespaceHealthResponse, error) {
	status, ok := progressorv1.HealthStatus_value["HEALTH_STATUS_"+r.GetNamespace()]
	if !ok {
		return nil, fmt.Errorf("namespace %q: %w", r.GetNamespace(), process.ErrNamespaceNotFound)
	}
	return &progressorv1.GetNamespaceHealthResponse{Namespaces: []*progressorv1.NamespaceHealth{{
		Namespace: r.GetNamespace(), Status: progressorv1.HealthStatus(status),
	}}}, nil
}

// Namespaces are services of gRPC health. A DEGRADED namespace is SERVING.
func TestHealthOfNamespaces(t *testing.T) {
	t.Parallel()
	h := &health{func() error { return nil }, healthOnly{}, nil}
	for name, want := range map[string]grpchealth.Status{
		"OK": grpchealth.StatusServing, "DEGRADED": grpchealth.StatusServing, "DOWN": grpchealth.StatusNotServing,
	} {
		got, err := h.Check(t.Context(), &grpchealth.CheckRequest{Service: "namespace/" + name})
		if err != nil || got.Status != want {
			t.Errorf("%s: got %v, %v, want %v", name, got, err, want)
		}
	}
	for _, service := range []string{"namespace/nowhere", "namespace/", "OK"} {
		_, err := h.Check(t.Context(), &grpchealth.CheckRequest{Service: service})
		requireCode(t, err, connect.CodeNotFound)
	}
}

func TestReflectionShowsTheAPI(t *testing.T) {
	t.Parallel()
	s := newSite(t, echo())
	h2c := &http.Client{Transport: &http.Transport{Protocols: new(http.Protocols)}}
	h2c.Transport.(*http.Transport).Protocols.SetUnencryptedHTTP2(true)
	stream := grpcreflect.NewClient(h2c, s.url, connect.WithGRPC()).NewStream(t.Context())
	names, err := stream.ListServices()
	if err != nil {
		t.Fatal(err)
	}
	if got := len(names); got != len(services)+1 {
		t.Errorf("services: got %v", names)
	}
	for _, service := range services {
		if _, err := stream.FileContainingSymbol(protoreflect.FullName(service)); err != nil {
			t.Errorf("%s: %v", service, err)
		}
	}
	if _, err := stream.Close(); err != nil {
		t.Errorf("close: %v", err)
	}
}

func TestServeLetsRequestsEnd(t *testing.T) {
	t.Parallel()
	arrived, release := make(chan struct{}), make(chan struct{})
	h := http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		close(arrived)
		<-release
		_, _ = w.Write([]byte("done"))
	})
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithCancel(t.Context())
	served := make(chan error, 1)
	go func() { served <- Serve(ctx, ln, h, nil, nil, time.Minute) }()
	answered := make(chan string, 1)
	go func() {
		_, body := get(t, "http://"+ln.Addr().String(), "")
		answered <- body
	}()
	<-arrived
	stop()
	close(release)
	if body := <-answered; body != "done" {
		t.Errorf("got %q", body)
	}
	if err := <-served; err != nil {
		t.Errorf("Serve: %v", err)
	}
}

func TestServeEndsRequestsAfterTheDrain(t *testing.T) {
	t.Parallel()
	arrived := make(chan struct{})
	h := http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		close(arrived)
		<-r.Context().Done()
	})
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithCancel(t.Context())
	served := make(chan error, 1)
	var log bytes.Buffer
	go func() { served <- Serve(ctx, ln, h, nil, slog.New(slog.NewTextHandler(&log, nil)), time.Millisecond) }()
	cut := make(chan error, 1)
	go func() {
		r, err := http.Get("http://" + ln.Addr().String())
		if err == nil {
			_ = r.Body.Close()
		}
		cut <- err
	}()
	<-arrived
	stop()
	if err := <-served; err != nil {
		t.Errorf("Serve: %v", err)
	}
	if err := <-cut; err == nil {
		t.Error("the request was answered")
	}
	if !strings.Contains(log.String(), "drain") {
		t.Errorf("log: %s", log.String())
	}
}

func get(t *testing.T, url, accept string) (int, string) {
	t.Helper()
	r, err := http.NewRequest(http.MethodGet, url, nil)
	if err != nil {
		t.Error(err)
		return 0, ""
	}
	r.Header.Set("Accept", accept)
	answer, err := http.DefaultClient.Do(r)
	if err != nil {
		t.Error(err)
		return 0, ""
	}
	defer func() { _ = answer.Body.Close() }()
	var body bytes.Buffer
	if _, err := body.ReadFrom(answer.Body); err != nil {
		t.Error(err)
	}
	return answer.StatusCode, body.String()
}

// BenchmarkCall measures the cost of the handler for a call, without the network and the engine. In
// the benchmark key, requests are authenticated by an API key. In the benchmark open, they are not
// authenticated.
func BenchmarkCall(b *testing.B) {
	id, token := auth.NewToken()
	hash := auth.Hash(token)
	keys := roleKeys{id: {SecretHash: hash[:], Roles: []string{"client"}, Patterns: []string{"bench"}}}
	for name, config := range map[string]Config{"open": {}, "key": {Auth: auth.New(keys, "", nil)}} {
		b.Run(name, func(b *testing.B) {
			h, err := newHandler(config, scripted(echo()), func() error { return nil })
			if err != nil {
				b.Fatal(err)
			}
			body := `{"namespace":"bench","processId":"p","args":"` + strings.Repeat("YWJj", 70) + `"}`
			b.ReportAllocs()
			for b.Loop() {
				r := httptest.NewRequest(http.MethodPost, callPath, strings.NewReader(body))
				r.Host = localhost
				r.Header.Set("Content-Type", "application/json")
				r.Header.Set("Authorization", "Bearer "+token)
				w := httptest.NewRecorder()
				h.ServeHTTP(w, r)
				if w.Code != http.StatusOK {
					b.Fatal(w.Body.String())
				}
			}
		})
	}
}

// BenchmarkServe measures calls over the loopback network with 32 clients per CPU core, for each
// protocol.
func BenchmarkServe(b *testing.B) {
	h, err := newHandler(Config{}, scripted(echo()), func() error { return nil })
	if err != nil {
		b.Fatal(err)
	}
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		b.Fatal(err)
	}
	ctx, stop := context.WithCancel(b.Context())
	served := make(chan error, 1)
	go func() { served <- Serve(ctx, ln, h, nil, nil, time.Second) }()
	h1 := &http.Client{Transport: &http.Transport{MaxIdleConnsPerHost: 64}}
	h2c := &http.Client{Transport: &http.Transport{Protocols: new(http.Protocols)}}
	h2c.Transport.(*http.Transport).Protocols.SetUnencryptedHTTP2(true)
	url := "http://" + ln.Addr().String()
	for name, client := range map[string]progressorv1connect.ProcessServiceClient{
		"connect": progressorv1connect.NewProcessServiceClient(h1, url),
		"json":    progressorv1connect.NewProcessServiceClient(h1, url, connect.WithProtoJSON()),
		"grpc":    progressorv1connect.NewProcessServiceClient(h2c, url, connect.WithGRPC()),
	} {
		b.Run(name, func(b *testing.B) {
			b.SetParallelism(32) // per CPU core
			b.ReportAllocs()
			b.RunParallel(func(pb *testing.PB) {
				for pb.Next() {
					r := &progressorv1.CallRequest{Namespace: "n", ProcessId: "p", Args: make([]byte, 200)}
					if _, err := client.Call(b.Context(), r); err != nil {
						b.Error(err)
						return
					}
				}
			})
		})
	}
	stop()
	if err := <-served; err != nil {
		b.Fatal(err)
	}
}

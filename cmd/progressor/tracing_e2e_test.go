package main

import (
	"compress/gzip"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"

	coltracepb "go.opentelemetry.io/proto/otlp/collector/trace/v1"
	tracepb "go.opentelemetry.io/proto/otlp/trace/v1"
	"google.golang.org/protobuf/proto"

	"github.com/progressor-engine/progressor/cmd/progressor/internal/cli/clitest"
	"github.com/progressor-engine/progressor/storage/storagetest"
)

// collector is a test server that receives spans by OTLP over HTTP.
type collector struct {
	url string

	mu       sync.Mutex
	paths    map[string]bool
	spans    []*tracepb.Span
	services map[string]bool
}

func newCollector(t *testing.T) *collector {
	t.Helper()
	c := &collector{paths: map[string]bool{}, services: map[string]bool{}}
	server := httptest.NewServer(http.HandlerFunc(c.take))
	t.Cleanup(server.Close)
	c.url = server.URL
	return c
}

func (c *collector) take(w http.ResponseWriter, r *http.Request) {
	body, err := r.Body, error(nil)
	if r.Header.Get("Content-Encoding") == "gzip" {
		body, err = gzip.NewReader(r.Body)
	}
	var text []byte
	if err == nil {
		text, err = io.ReadAll(body)
	}
	request := &coltracepb.ExportTraceServiceRequest{}
	if err == nil {
		err = proto.Unmarshal(text, request)
	}
	if err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.paths[r.URL.Path] = true
	for _, of := range request.GetResourceSpans() {
		for _, a := range of.GetResource().GetAttributes() {
			if a.GetKey() == "service.name" {
				c.services[a.GetValue().GetStringValue()] = true
			}
		}
		for _, scope := range of.GetScopeSpans() {
			c.spans = append(c.spans, scope.GetSpans()...)
		}
	}
	w.Header().Set("Content-Type", "application/x-protobuf")
}

// named returns the span with the given name, or nil if it has not arrived.
func (c *collector) named(name string) *tracepb.Span {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, s := range c.spans {
		if s.GetName() == name {
			return s
		}
	}
	return nil
}

// serve sends spans to a collector, including the last ones when it stops. The spans of a request
// and of its task belong to the trace of the client.
func TestServeTraces(t *testing.T) {
	t.Parallel()
	c := newCollector(t)
	d := background(t, nil, "serve", "--db.dsn", storagetest.DSN(t), "--listen", "127.0.0.1:0", "--tracing.endpoint",
		c.url)
	d.Client.OK(t, "namespace", "put", "shop", "--builtin", "echo")
	request, err := http.NewRequestWithContext(t.Context(), http.MethodPost,
		d.URL+"/progressor.v1.ProcessService/Start",
		strings.NewReader(`{"namespace":"shop","processId":"o-1"}`))
	if err != nil {
		t.Fatal(err)
	}
	request.Header.Set("Content-Type", "application/json")
	request.Header.Set("traceparent", "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01")
	resp, err := http.DefaultClient.Do(request)
	if err != nil {
		t.Fatal(err)
	}
	if body, _ := io.ReadAll(resp.Body); resp.StatusCode != http.StatusOK || resp.Body.Close() != nil {
		t.Fatalf("%d: %s", resp.StatusCode, body)
	}
	d.Stop(t)
	start, task := c.named("progressor.v1.ProcessService/Start"), c.named("task INIT")
	if start == nil || task == nil {
		t.Fatalf("the collector received %v", c.spans)
	}
	if got := fmt.Sprintf("%x %x", start.GetTraceId(), start.GetParentSpanId()); got !=
		"0af7651916cd43dd8448eb211c80319c b7ad6b7169203331" {
		t.Errorf("the request is in %s", got)
	}
	if string(task.GetParentSpanId()) != string(start.GetSpanId()) ||
		string(task.GetTraceId()) != string(start.GetTraceId()) {
		t.Errorf("the task is a child of %x, not of %x", task.GetParentSpanId(), start.GetSpanId())
	}
	if !c.paths["/v1/traces"] || len(c.paths) != 1 || !c.services["progressor"] {
		t.Errorf("%v, %v", c.paths, c.services)
	}
}

// If the collector is down, requests succeed, and /metrics has a counter of dropped spans.
func TestServeWithoutItsCollector(t *testing.T) {
	t.Parallel()
	away := httptest.NewServer(http.NotFoundHandler())
	away.Close()
	d := background(t, nil, "serve", "--db.dsn", storagetest.DSN(t), "--listen", "127.0.0.1:0", "--tracing.endpoint",
		away.URL)
	d.Client.OK(t, "namespace", "put", "e", "--builtin", "echo")
	clitest.WantLines(t, d.Client.OK(t, "start", "e", "p", "--args", "hello"), "response hello")
	if _, body := clitest.Fetch(t, d.URL+"/metrics"); !strings.Contains(body,
		`progressor_trace_spans_dropped_total{reason="export"}`) {
		t.Error("dropped spans are not counted")
	}
	d.Stop(t)
}

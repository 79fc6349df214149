package rpc

import (
	"bytes"
	"context"
	"errors"
	"io"
	"log/slog"
	"net"
	"net/http"
	"strings"
	"testing"
	"time"

	"connectrpc.com/connect"
	"github.com/prometheus/client_golang/prometheus"
	"google.golang.org/protobuf/encoding/protojson"

	progressorv1 "github.com/progressor-engine/progressor/proto/progressor/v1"
	"github.com/progressor-engine/progressor/proto/progressor/v1/progressorv1connect"
)

// script implements ProcessService with the functions of a test. Other methods are unimplemented.
type script struct {
	progressorv1connect.UnimplementedProcessServiceHandler
	start func(context.Context, *progressorv1.StartRequest) (*progressorv1.StartResponse, error)
	call  func(context.Context, *progressorv1.CallRequest) (*progressorv1.CallResponse, error)
}

func (s *script) Start(ctx context.Context, r *progressorv1.StartRequest) (*progressorv1.StartResponse, error) {
	return s.start(ctx, r)
}

func (s *script) Call(ctx context.Context, r *progressorv1.CallRequest) (*progressorv1.CallResponse, error) {
	return s.call(ctx, r)
}

func echo() *script {
	return &script{
		start: func(_ context.Context, r *progressorv1.StartRequest) (*progressorv1.StartResponse, error) {
			return &progressorv1.StartResponse{ProcessId: r.GetProcessId(), TaskId: 1, Response: r.GetArgs()}, nil
		},
		call: func(_ context.Context, r *progressorv1.CallRequest) (*progressorv1.CallResponse, error) {
			return &progressorv1.CallResponse{TaskId: 1, Response: r.GetArgs()}, nil
		},
	}
}

// site is a listening handler, configured as in Serve.
type site struct {
	url      string
	registry *prometheus.Registry
	log      *bytes.Buffer // to be read after the requests were answered
	ready    error
}

// scripted serves only ProcessService, with an implementation of the test.
func scripted(p progressorv1connect.ProcessServiceHandler) served {
	return served{
		p, progressorv1connect.UnimplementedNamespaceServiceHandler{},
		progressorv1connect.UnimplementedInsightServiceHandler{},
		progressorv1connect.UnimplementedBulkServiceHandler{}, progressorv1connect.UnimplementedCronServiceHandler{},
		progressorv1connect.UnimplementedJobServiceHandler{}, progressorv1connect.UnimplementedJobEventServiceHandler{},
		progressorv1connect.UnimplementedWorkerServiceHandler{}, progressorv1connect.UnimplementedFlowServiceHandler{},
		progressorv1connect.UnimplementedChangeServiceHandler{},
		progressorv1connect.UnimplementedAccessServiceHandler{},
	}
}

func newSite(t *testing.T, p progressorv1connect.ProcessServiceHandler) *site {
	t.Helper()
	s := &site{registry: prometheus.NewRegistry(), log: &bytes.Buffer{}}
	h, err := newHandler(Config{
		Logger:     slog.New(slog.NewTextHandler(s.log, nil)),
		Registerer: s.registry,
		Gatherer:   s.registry,
		Version:    "v0.0.0-test",
	}, scripted(p), func() error { return s.ready })
	if err != nil {
		t.Fatal(err)
	}
	s.url = listen(t, h)
	return s
}

// listen serves h until the test ends and returns its URL.
func listen(t *testing.T, h http.Handler) string {
	t.Helper()
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- Serve(ctx, ln, h, nil, slog.New(slog.DiscardHandler), time.Second) }()
	t.Cleanup(func() {
		stop()
		if err := <-ended; err != nil {
			t.Errorf("Serve: %v", err)
		}
	})
	return "http://" + ln.Addr().String()
}

// protocols returns a client for each protocol.
func protocols(url string) map[string]progressorv1connect.ProcessServiceClient {
	h2c := &http.Client{Transport: &http.Transport{Protocols: new(http.Protocols)}}
	h2c.Transport.(*http.Transport).Protocols.SetUnencryptedHTTP2(true)
	h1 := &http.Client{Transport: &http.Transport{}}
	dial := progressorv1connect.NewProcessServiceClient
	return map[string]progressorv1connect.ProcessServiceClient{
		"connect":      dial(h1, url),
		"connect json": dial(h1, url, connect.WithProtoJSON()),
		"connect h2c":  dial(h2c, url),
		"grpc":         dial(h2c, url, connect.WithGRPC()),
		"grpc json":    dial(h2c, url, connect.WithGRPC(), connect.WithProtoJSON()),
		"grpc-web":     dial(h1, url, connect.WithGRPCWeb()),
	}
}

const callPath = "/progressor.v1.ProcessService/Call"

// post sends a body to a URL and returns the status and the body of the response.
func post(t *testing.T, url, contentType, body string) (int, string) {
	t.Helper()
	r, err := http.Post(url, contentType, strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = r.Body.Close() }()
	b, err := io.ReadAll(r.Body)
	if err != nil {
		t.Fatal(err)
	}
	return r.StatusCode, string(b)
}

// detailOf returns the ErrorDetail of an error, or nil.
func detailOf(err error) *progressorv1.ErrorDetail {
	own, ok := errors.AsType[*connect.Error](err)
	if !ok {
		return nil
	}
	for _, d := range own.Details() {
		m, err := d.Value()
		if err != nil {
			continue
		}
		if detail, ok := m.(*progressorv1.ErrorDetail); ok {
			return detail
		}
	}
	return nil
}

func requireCode(t *testing.T, err error, want connect.Code) {
	t.Helper()
	if got := connect.CodeOf(err); err == nil || got != want {
		t.Fatalf("code: got %v (%v), want %v", got, err, want)
	}
}

func text(m *progressorv1.ErrorDetail) string {
	b, err := protojson.Marshal(m)
	if err != nil {
		return err.Error()
	}
	return string(b)
}

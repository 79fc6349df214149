package rpc

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"connectrpc.com/connect"

	"github.com/progressor-engine/progressor/engine/auth"
	"github.com/progressor-engine/progressor/internal/requestid"
)

// A request has the ID that its client has chosen, or a new one. The response has the same ID.
func TestRequestsAreIdentified(t *testing.T) {
	t.Parallel()
	for _, selected := range []RequestLog{LogNoRequests, LogAllRequests} {
		seen := ""
		see := func(_ http.ResponseWriter, r *http.Request) { seen = requestid.Of(r.Context()) }
		h := Identify(http.HandlerFunc(see), selected, slog.New(slog.DiscardHandler))
		for chosen, kept := range map[string]bool{"order-17/3": true, "": false, "a b": false, "a\r\nb": false} {
			w, r := httptest.NewRecorder(), httptest.NewRequest(http.MethodGet, "/livez", nil)
			if chosen != "" {
				r.Header.Set("X-Request-ID", chosen)
			}
			h.ServeHTTP(w, r)
			got := w.Header().Get("X-Request-ID")
			if got == "" || got != seen || (got == chosen) != kept {
				t.Errorf("%q: the request has the ID %q, its response %q", chosen, seen, got)
			}
		}
	}
}

// loggedRequests are requests with the lines that they write, as "method code status actor".
var loggedRequests = []struct {
	name   string
	method string
	path   string
	serve  http.HandlerFunc
	line   string
	failed bool
}{
	{"a page", http.MethodGet, "/login/callback?code=secret", func(w http.ResponseWriter, r *http.Request) {
		noteActor(r.Context(), &auth.Principal{Name: "key:k"})
		_, _ = io.WriteString(w, "text")
	}, "GET /login/callback  200 key:k", false},
	{"a page that does not exist", http.MethodGet, "/" + strings.Repeat("x", 300), http.NotFound,
		"GET /" + strings.Repeat("x", 195) + "…  404 ", true},
	{"a method", http.MethodPost, "/p.v1.S/M", func(_ http.ResponseWriter, r *http.Request) {
		noteEnd(r.Context(), nil)
	}, "p.v1.S/M ok 200 ", false},
	{"a method of gRPC that fails", http.MethodPost, "/p.v1.S/M", func(_ http.ResponseWriter, r *http.Request) {
		noteEnd(r.Context(), connect.NewError(connect.CodeAborted, errors.New("secret")))
	}, "p.v1.S/M aborted 200 ", true},
	{"a request of gRPC that reaches no method", http.MethodPost, "/p.v1.S/M",
		func(w http.ResponseWriter, _ *http.Request) { w.Header().Set("Grpc-Status", "16") },
		"POST /p.v1.S/M unauthenticated 200 ", true},
	{"a closed connection", http.MethodPost, "/p.v1.S/M", func(w http.ResponseWriter, _ *http.Request) {
		w.WriteHeader(http.StatusEarlyHints)
		w.WriteHeader(http.StatusBadGateway)
		panic(http.ErrAbortHandler)
	}, "POST /p.v1.S/M  502 ", true},
}

// The log has one line for each selected request, without parameters, payloads and errors.
func TestRequestLog(t *testing.T) {
	t.Parallel()
	for _, selected := range []RequestLog{LogNoRequests, LogFailedRequests, LogAllRequests} {
		for _, test := range loggedRequests {
			var text bytes.Buffer
			h := Identify(test.serve, selected, slog.New(slog.NewJSONHandler(&text, nil)))
			r := httptest.NewRequest(test.method, test.path, strings.NewReader("secret"))
			r.Header.Set("Authorization", "Bearer secret")
			func() {
				defer func() { _ = recover() }()
				h.ServeHTTP(httptest.NewRecorder(), r)
			}()
			if selected == LogNoRequests || selected == LogFailedRequests && !test.failed {
				if text.Len() > 0 {
					t.Errorf("%s: %s is logged: %s", selected, test.name, &text)
				}
				continue
			}
			var line struct {
				Msg, Level, Method, Code, Actor, Peer string
				Status, Received, Sent, Took          int64
			}
			if err := json.Unmarshal(text.Bytes(), &line); err != nil {
				t.Fatalf("%s: %s: %v in %q", selected, test.name, err, &text)
			}
			got := fmt.Sprintf("%s %s %d %s", line.Method, line.Code, line.Status, line.Actor)
			if got != test.line || line.Msg != "request" || line.Level != "INFO" ||
				line.Peer != r.RemoteAddr || line.Received != 6 || line.Took <= 0 ||
				test.name == "a page" && line.Sent != 4 || strings.Contains(text.String(), "secret") {
				t.Errorf("%s: %s is logged as %s", selected, test.name, &text)
			}
		}
	}
}

// Without the log, a request costs only the allocations for its ID: the ID, its header, its context
// and the copy of the request.
func TestIdentifyAllocatesLittle(t *testing.T) {
	h := Identify(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {}), LogNoRequests, nil)
	w, r := httptest.NewRecorder(), httptest.NewRequest(http.MethodPost, "/p.v1.S/M", nil)
	if n := testing.AllocsPerRun(1000, func() { h.ServeHTTP(w, r) }); n > 4 {
		t.Errorf("%v allocations, want at most 4", n)
	}
}

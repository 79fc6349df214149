package rpc

import (
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
)

// A program that is starting is alive and not ready. It serves requests as soon as it has a
// handler.
func TestFront(t *testing.T) {
	t.Parallel()
	front := NewFront(nil)
	serve := func(method, host, path string) (int, string) {
		r := httptest.NewRequest(method, "http://"+host+path, strings.NewReader("{}"))
		w := httptest.NewRecorder()
		front.ServeHTTP(w, r)
		return w.Code, w.Body.String()
	}
	front.SetPhase("waiting for the database")
	for _, c := range []struct {
		method, host, path string
		status             int
		body               string
	}{
		{http.MethodGet, "127.0.0.1", "/livez", http.StatusOK, "ok\n"},
		{http.MethodGet, "127.0.0.1", "/readyz", http.StatusServiceUnavailable,
			"not ready: waiting for the database\n"},
		{http.MethodPost, "127.0.0.1", "/progressor.v1.ProcessService/Call", http.StatusServiceUnavailable,
			"not ready: waiting for the database\n"},
		{http.MethodGet, "foreign.example.com", "/livez", http.StatusForbidden, ""},
	} {
		status, body := serve(c.method, c.host, c.path)
		if status != c.status || c.body != "" && body != c.body {
			t.Errorf("%s %s: %d %q", c.host, c.path, status, body)
		}
	}
	front.Use(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusTeapot) }))
	if status, _ := serve(http.MethodGet, "127.0.0.1", "/readyz"); status != http.StatusTeapot {
		t.Errorf("with a handler: %d", status)
	}
}

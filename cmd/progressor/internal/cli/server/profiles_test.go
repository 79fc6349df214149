package server

import (
	"net/http"
	"net/http/httptest"
	"os"
	"strings"
	"testing"
)

// A web page that rebinds its name to the address of the engine cannot read a profile. No page
// shows the command line, which may contain the password of the database.
func TestProfiles(t *testing.T) {
	t.Parallel()
	names, err := hosts("127.0.0.1:8080", " profiles.example.com ,")
	if err != nil {
		t.Fatal(err)
	}
	handler := profiles(names)
	for _, tt := range []struct {
		host, page string
		status     int
	}{
		{"127.0.0.1:6060", "", http.StatusOK},
		{"profiles.example.com", "goroutine?debug=2", http.StatusOK},
		{"evil.example:6060", "", http.StatusForbidden},
		{"evil.example:6060", "goroutine?debug=2", http.StatusForbidden},
		{"evil.example:6060", "symbol", http.StatusForbidden},
		{"localhost:6060", "cmdline", http.StatusNotFound},
		{"localhost:6060", "cmdline/", http.StatusNotFound},
	} {
		r := httptest.NewRequestWithContext(t.Context(), http.MethodGet, "/debug/pprof/"+tt.page, nil)
		r.Host = tt.host
		w := httptest.NewRecorder()
		handler.ServeHTTP(w, r)
		if body := w.Body.String(); w.Code != tt.status || strings.Contains(body, os.Args[0]+"\x00") {
			t.Errorf("%s of %s: %d, want %d: %.300s", tt.page, tt.host, w.Code, tt.status, body)
		}
	}
}

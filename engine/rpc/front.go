package rpc

import (
	"net/http"
	"sync/atomic"
)

// Front is the handler of a program that is starting. Until Use is called, /livez returns 200, and
// all other paths return 503. It is safe for concurrent use.
type Front struct {
	handler atomic.Pointer[http.Handler]
	phase   atomic.Pointer[string]
}

// NewFront returns a Front that accepts only requests to the given hosts.
func NewFront(hosts *Hosts) *Front {
	f := &Front{}
	f.SetPhase("starting")
	mux := http.NewServeMux()
	mux.HandleFunc("GET /livez", func(w http.ResponseWriter, _ *http.Request) { page(w, http.StatusOK, "ok") })
	mux.HandleFunc("/", func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Connection", "close") // so that net/http does not read the body
		page(w, http.StatusServiceUnavailable, "not ready: "+*f.phase.Load())
	})
	h := limitStalls(hosts.Guard(mux, func() {}), writeTimeout, func() {})
	f.Use(limitBodyTime(h, bodyTimeout, func() {}))
	return f
}

// SetPhase sets the reason why the program is not ready. Clients without credentials can see it.
func (f *Front) SetPhase(phase string) { f.phase.Store(&phase) }

// Use makes h the handler of all later requests.
func (f *Front) Use(h http.Handler) { f.handler.Store(&h) }

// ServeHTTP serves a request.
func (f *Front) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	(*f.handler.Load()).ServeHTTP(w, r)
}

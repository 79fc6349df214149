package rpc

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"strings"
	"time"
)

// The limits of the listener. It has no read or write timeout, because a request may wait as long
// as its client wants. limitBodyTime limits the time for a body. limitStalls limits the time for
// each part of a response.
const (
	readHeaderTimeout    = 10 * time.Second
	idleTimeout          = 2 * time.Minute
	maxHeaderBytes       = 64 << 10
	maxConcurrentStreams = 10_000 // concurrent requests on one HTTP/2 connection
)

// DefaultDrain is how long Serve waits for running requests by default.
const DefaultDrain = 30 * time.Second

// Serve serves HTTP/1.1 and HTTP/2 on ln until ctx is cancelled. Then it accepts no new
// connections, waits up to drain for running requests (0 means DefaultDrain), closes the remaining
// connections and ln, and returns nil. Without certificates, it does not use TLS, and HTTP/2 is
// h2c. A nil logger means slog.Default().
func Serve(
	ctx context.Context, ln net.Listener, h http.Handler, certificates *Certificates, log *slog.Logger,
	drain time.Duration,
) error {
	if log == nil {
		log = slog.Default()
	}
	if drain <= 0 {
		drain = DefaultDrain
	}
	server := newServer(h, log)
	if certificates != nil {
		server.TLSConfig = certificates.Config()
		server.Protocols.SetUnencryptedHTTP2(false)
		server.Protocols.SetHTTP2(true)
	}
	return serve(ctx, ln, server, log, drain)
}

// newServer returns a server with the limits.
func newServer(h http.Handler, log *slog.Logger) *http.Server {
	server := &http.Server{
		Handler:           h,
		ReadHeaderTimeout: readHeaderTimeout,
		IdleTimeout:       idleTimeout,
		MaxHeaderBytes:    maxHeaderBytes,
		Protocols:         new(http.Protocols),
		// limitStalls cannot end a stream if the client reads nothing from its connection.
		HTTP2:    &http.HTTP2Config{MaxConcurrentStreams: maxConcurrentStreams, WriteByteTimeout: writeTimeout},
		ErrorLog: slog.NewLogLogger(errorsOfServer{log.Handler()}, slog.LevelDebug),
	}
	server.Protocols.SetHTTP1(true)
	server.Protocols.SetUnencryptedHTTP2(true)
	return server
}

// serve is Serve for a given server.
func serve(ctx context.Context, ln net.Listener, server *http.Server, log *slog.Logger, drain time.Duration) error {
	failed := make(chan error, 1)
	go func() {
		if server.TLSConfig != nil {
			failed <- server.ServeTLS(ln, "", "")
			return
		}
		failed <- server.Serve(ln)
	}()
	select {
	case err := <-failed:
		return fmt.Errorf("serve %s: %w", ln.Addr(), err)
	case <-ctx.Done():
	}
	draining, cancel := context.WithTimeout(context.WithoutCancel(ctx), drain)
	defer cancel()
	err := server.Shutdown(draining)
	if errors.Is(err, context.DeadlineExceeded) {
		log.Warn("drain timeout: closing the connections of running requests", "drain", drain)
		err = server.Close()
	}
	if ended := <-failed; err == nil && !errors.Is(ended, http.ErrServerClosed) {
		err = ended
	}
	if err != nil {
		return fmt.Errorf("shut down %s: %w", ln.Addr(), err)
	}
	return nil
}

// errorsOfServer logs the errors of net/http. Errors that prevent all clients from connecting, such
// as too many open files, are warnings.
type errorsOfServer struct{ slog.Handler }

// Handle logs an error.
func (h errorsOfServer) Handle(ctx context.Context, r slog.Record) error {
	if strings.Contains(r.Message, "Accept error") {
		r.Level = slog.LevelWarn
	}
	if !h.Handler.Enabled(ctx, r.Level) {
		return nil
	}
	return h.Handler.Handle(ctx, r)
}

// Enabled returns true for every level, because Handle decides whether an error is logged.
func (errorsOfServer) Enabled(context.Context, slog.Level) bool { return true }

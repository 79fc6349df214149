package rpc

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"net/netip"
	"time"
)

// The limits of the listener. There is no read or write timeout: a request may wait as long as its client asks for.
const (
	readHeaderTimeout    = 10 * time.Second
	idleTimeout          = 2 * time.Minute
	maxHeaderBytes       = 64 << 10
	maxConcurrentStreams = 10_000 // requests at a time on one HTTP/2 connection
)

// DefaultDrain is how long Serve lets requests end before it cuts their connections.
const DefaultDrain = 30 * time.Second

// Serve answers on ln, HTTP/1.1 and HTTP/2 without TLS (h2c) alike, until ctx ends. Then it takes no new connection, lets the
// requests that run end for at most drain (0: DefaultDrain), cuts the rest and returns nil. It closes ln. A nil logger
// is slog.Default.
func Serve(ctx context.Context, ln net.Listener, h http.Handler, log *slog.Logger, drain time.Duration) error {
	if log == nil {
		log = slog.Default()
	}
	if drain <= 0 {
		drain = DefaultDrain
	}
	server := &http.Server{
		Handler:           h,
		ReadHeaderTimeout: readHeaderTimeout,
		IdleTimeout:       idleTimeout,
		MaxHeaderBytes:    maxHeaderBytes,
		Protocols:         new(http.Protocols),
		HTTP2:             &http.HTTP2Config{MaxConcurrentStreams: maxConcurrentStreams},
		ErrorLog:          slog.NewLogLogger(log.Handler(), slog.LevelDebug),
	}
	server.Protocols.SetHTTP1(true)
	server.Protocols.SetUnencryptedHTTP2(true)

	failed := make(chan error, 1)
	go func() { failed <- server.Serve(ln) }()
	select {
	case err := <-failed:
		return fmt.Errorf("serve %s: %w", ln.Addr(), err)
	case <-ctx.Done():
	}
	draining, cancel := context.WithTimeout(context.WithoutCancel(ctx), drain)
	defer cancel()
	err := server.Shutdown(draining)
	if errors.Is(err, context.DeadlineExceeded) {
		log.Warn("requests still ran when the drain was over: their connections are cut", "drain", drain)
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

// CheckListen refuses to listen where others than this machine could connect: there is no authentication yet. insecure
// is the operator's word that the network itself is trusted. The address is host:port; of names only localhost is known
// to be this machine.
func CheckListen(addr string, insecure bool) error {
	host, _, err := net.SplitHostPort(addr)
	if err != nil {
		return fmt.Errorf("listen address %q: %w (want host:port, as in 127.0.0.1:7070)", addr, err)
	}
	if insecure || isLoopback(host) {
		return nil
	}
	return fmt.Errorf("listen address %q is not loopback: whoever reaches it could do everything, for there is no authentication; "+
		"listen on 127.0.0.1, or say --insecure if the network is trusted", addr)
}

func isLoopback(host string) bool {
	if host == "localhost" {
		return true
	}
	ip, err := netip.ParseAddr(host)
	return err == nil && ip.Unmap().IsLoopback()
}

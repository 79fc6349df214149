package processor

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"time"
)

const (
	readHeaderTimeout = 10 * time.Second
	idleTimeout       = 3 * time.Minute // longer than the engine keeps its connections: it closes them first
	maxHeaderBytes    = 64 << 10
	maxStreams        = 10_000 // attempts in one HTTP/2 connection at a time; Go's default is 250
)

// Serve listens on addr, such as "127.0.0.1:9090", and answers for the processor until ctx ends: over HTTP/1.1 and HTTP/2,
// without TLS unless WithTLS is given. Then it takes no new tasks, lets those that run finish (WithStopTimeout) and
// returns nil. An error says that it could not listen, or that tasks were cut off.
func Serve(ctx context.Context, addr string, p Processor, opts ...Option) error {
	listener, err := new(net.ListenConfig).Listen(ctx, "tcp", addr)
	if err != nil {
		return fmt.Errorf("serve processor: %w", err)
	}
	return ServeOn(ctx, listener, p, opts...)
}

// ServeOn is Serve on a listener that is open already; it closes it.
func ServeOn(ctx context.Context, listener net.Listener, p Processor, opts ...Option) error {
	o := newOptions(opts)
	// Attempts outlive ctx until the stop timeout: stop taking first, stop doing later.
	running, cutOff := context.WithCancel(context.WithoutCancel(ctx))
	defer cutOff()
	server := &http.Server{
		Handler:           Handler(p, opts...),
		ReadHeaderTimeout: readHeaderTimeout,
		IdleTimeout:       idleTimeout,
		MaxHeaderBytes:    maxHeaderBytes,
		ErrorLog:          slog.NewLogLogger(o.logger.Handler(), slog.LevelWarn),
		BaseContext:       func(net.Listener) context.Context { return running },
		Protocols:         new(http.Protocols),
		HTTP2:             &http.HTTP2Config{MaxConcurrentStreams: maxStreams},
		TLSConfig:         o.tls,
	}
	server.Protocols.SetHTTP1(true)
	server.Protocols.SetUnencryptedHTTP2(o.tls == nil)
	server.Protocols.SetHTTP2(o.tls != nil)

	var served error
	stopped := make(chan struct{})
	go func() {
		defer close(stopped)
		if o.tls == nil {
			served = server.Serve(listener)
			return
		}
		served = server.ServeTLS(listener, "", "")
	}()
	select {
	case <-stopped:
		return fmt.Errorf("serve processor: %w", served)
	case <-ctx.Done():
	}
	err := stop(ctx, server, cutOff, o.stopTimeout)
	<-stopped
	return err
}

// stop lets the attempts that run finish, for as long as the timeout.
func stop(ctx context.Context, server *http.Server, cutOff context.CancelFunc, timeout time.Duration) error {
	grace, cancel := context.WithTimeout(context.WithoutCancel(ctx), max(timeout, 0))
	defer cancel()
	err := server.Shutdown(grace)
	if err == nil {
		return nil
	}
	cutOff()
	err = errors.Join(fmt.Errorf("stop processor: tasks still ran after %s: %w", timeout, err), server.Close())
	return err
}

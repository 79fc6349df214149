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
	idleTimeout       = 3 * time.Minute // longer than the engine's, so that the engine closes idle connections first
	maxHeaderBytes    = 64 << 10
	maxStreams        = 10_000 // concurrent attempts per HTTP/2 connection; Go's default is 250
)

// Serve listens on addr, such as "127.0.0.1:9090", and serves p until ctx ends. It speaks HTTP/1.1
// and HTTP/2, without TLS unless WithTLS is given. When ctx ends, it accepts no new tasks, waits
// for running ones (WithStopTimeout) and returns nil. It returns an error if it cannot listen, or
// if tasks still ran after the timeout.
//
// If `progressor deploy check` has started the program, Serve only answers checks: see
// CheckAddressVariable.
func Serve(ctx context.Context, addr string, p Processor, opts ...Option) error {
	if checked, ok := CheckAddress(); ok {
		addr, p = checked, ChecksOnly(p)
		opts = append(opts, func(o *options) { o.middleware, o.tls = nil, nil })
	}
	listener, err := new(net.ListenConfig).Listen(ctx, "tcp", addr)
	if err != nil {
		return fmt.Errorf("serve processor: %w", err)
	}
	return ServeOn(ctx, listener, p, opts...)
}

// ServeOn is like Serve, but uses an open listener. It closes the listener.
func ServeOn(ctx context.Context, listener net.Listener, p Processor, opts ...Option) error {
	o := newOptions(opts)
	if o.parking != nil {
		defer o.parking.Close()
	}
	// Running attempts may outlive ctx, until the stop timeout.
	running, cancelRunning := context.WithCancel(context.WithoutCancel(ctx))
	defer cancelRunning()
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
	err := stop(ctx, server, cancelRunning, o.stopTimeout)
	<-stopped
	return err
}

// stop waits for running attempts, but not longer than timeout, and then cancels the rest.
func stop(ctx context.Context, server *http.Server, cancelRunning context.CancelFunc, timeout time.Duration) error {
	grace, cancel := context.WithTimeout(context.WithoutCancel(ctx), max(timeout, 0))
	defer cancel()
	err := server.Shutdown(grace)
	if err == nil {
		return nil
	}
	cancelRunning()
	err = errors.Join(fmt.Errorf("stop processor: tasks still running after %s: %w", timeout, err), server.Close())
	return err
}

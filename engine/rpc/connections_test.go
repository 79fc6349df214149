package rpc

import (
	"context"
	"io"
	"log/slog"
	"net"
	"net/http"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	dto "github.com/prometheus/client_model/go"
)

// A client with too many connections cannot open another one until it closes one.
func TestConnectionsAreLimited(t *testing.T) {
	t.Parallel()
	c := NewConnections(6)
	inner, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	h := http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { page(w, http.StatusOK, "ok") })
	go func() { ended <- Serve(ctx, c.Limit(inner), h, nil, slog.New(slog.DiscardHandler), time.Second) }()
	t.Cleanup(func() {
		stop()
		if err := <-ended; err != nil {
			t.Error(err)
		}
	})
	open := func() net.Conn {
		t.Helper()
		conn, err := net.Dial("tcp", inner.Addr().String())
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = conn.Close() })
		return conn
	}
	served := func(conn net.Conn) bool {
		_, _ = io.WriteString(conn, "GET / HTTP/1.1\r\nHost: localhost\r\n\r\n")
		answer := make([]byte, 15)
		_, err := io.ReadFull(conn, answer)
		return err == nil && string(answer) == "HTTP/1.1 200 OK"
	}
	var conns []net.Conn
	for range 3 {
		conn := open()
		conns = append(conns, conn)
		if !served(conn) {
			t.Error("a connection within the limit is closed")
		}
	}
	// The server may close the connection before Dial returns.
	if conn, err := net.Dial("tcp", inner.Addr().String()); err == nil && served(conn) {
		t.Error("a connection beyond the limit is served")
	}
	if n := valueOf(t, c.refused[boundOfClient]); n != 1 {
		t.Errorf("%g refused", n)
	}
	_ = conns[0].Close()
	ticker, late := time.NewTicker(time.Millisecond), time.After(10*time.Second)
	defer ticker.Stop()
	for valueOf(t, c.open) != 2 {
		select {
		case <-ticker.C:
		case <-late:
			t.Fatal("a closed connection is still counted")
		}
	}
	if !served(open()) {
		t.Error("the place of a closed connection is not free")
	}
}

// valueOf returns the value of a counter or gauge.
func valueOf(t *testing.T, m prometheus.Metric) float64 {
	t.Helper()
	var value dto.Metric
	if err := m.Write(&value); err != nil {
		t.Fatal(err)
	}
	return value.GetCounter().GetValue() + value.GetGauge().GetValue()
}

// Five clients take all connections that they can get. Another client still gets 10 connections.
func TestConnectionsForOthers(t *testing.T) {
	t.Parallel()
	c := NewConnections(1000)
	for _, client := range []string{"a", "b", "c", "d", "e"} {
		for c.enter(client) {
		}
	}
	if c.held["a"] != 500 || c.held["b"] != 250 {
		t.Errorf("the first clients get %d and %d connections", c.held["a"], c.held["b"])
	}
	for n := range 10 {
		if !c.enter("other") {
			t.Fatalf("another client gets %d connections", n)
		}
	}
	for range 10 {
		c.leave("other")
	}
	if _, ok := c.held["other"]; ok {
		t.Error("a client without connections uses memory")
	}
}

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
	"sync/atomic"
	"testing"
	"time"
)

// slowSite serves a handler whose bodies have a short timeout, and counts rejected bodies.
func slowSite(t *testing.T, timeout time.Duration, h http.HandlerFunc) (address string, rejected *atomic.Int32) {
	t.Helper()
	rejected = &atomic.Int32{}
	url := listen(t, limitBodyTime(h, timeout, func() { rejected.Add(1) }))
	return strings.TrimPrefix(url, "http://"), rejected
}

// TestSlowBody sends a body that stops after its first byte. The server ends the request and closes
// the connection, even if the handler does not read the body.
func TestSlowBody(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		name     string
		handler  http.HandlerFunc
		rejected int32
	}{
		{"read", func(_ http.ResponseWriter, r *http.Request) { _, _ = io.ReadAll(r.Body) }, 1},
		{"not read", func(http.ResponseWriter, *http.Request) {}, 0},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			address, rejected := slowSite(t, 50*time.Millisecond, tt.handler)
			conn, err := net.Dial("tcp", address)
			if err != nil {
				t.Fatal(err)
			}
			defer conn.Close()
			_, err = io.WriteString(conn, "POST / HTTP/1.1\r\nHost: localhost\r\nContent-Length: 100000\r\n\r\nx")
			if err != nil {
				t.Fatal(err)
			}
			if _, err := io.Copy(io.Discard, conn); err != nil { // until the server closes the connection
				t.Log(err)
			}
			if rejected.Load() != tt.rejected {
				t.Errorf("%d bodies were rejected, want %d", rejected.Load(), tt.rejected)
			}
		})
	}
}

// A body that arrives fast enough may take longer than the timeout, and later requests of the
// connection are not affected.
func TestBodyInTime(t *testing.T) {
	t.Parallel()
	const timeout = 20 * time.Millisecond
	address, rejected := slowSite(t, timeout, func(w http.ResponseWriter, r *http.Request) {
		body, err := io.ReadAll(r.Body)
		if err != nil {
			t.Errorf("after %d bytes: %v", len(body), err)
		}
		<-time.After(2 * timeout) // the deadline of the body does not limit the handler
		if r.Context().Err() != nil {
			t.Errorf("the request was cancelled: %v", context.Cause(r.Context()))
		}
		_, _ = w.Write(body)
	})
	reader, writer := io.Pipe()
	go func() {
		defer writer.Close()
		for range 4 {
			_, _ = writer.Write(bytes.Repeat([]byte("x"), minBodyRate/4)) // 250 ms more for each part
			<-time.After(timeout)
		}
	}()
	for _, body := range []io.Reader{reader, strings.NewReader("short"), http.NoBody} {
		answer, err := http.Post("http://"+address, "text/plain", body)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := io.Copy(io.Discard, answer.Body); err != nil {
			t.Error(err)
		}
		_ = answer.Body.Close()
	}
	if rejected.Load() != 0 {
		t.Errorf("%d bodies were rejected", rejected.Load())
	}
}

// TestSlowBodyOfHTTP2 is like TestSlowBody, in a stream of HTTP/2.
func TestSlowBodyOfHTTP2(t *testing.T) {
	t.Parallel()
	address, rejected := slowSite(t, 50*time.Millisecond, func(w http.ResponseWriter, r *http.Request) {
		if _, err := io.ReadAll(r.Body); err == nil {
			t.Error("the body has ended")
		}
		w.WriteHeader(http.StatusRequestTimeout)
	})
	h2c := &http.Client{Transport: &http.Transport{Protocols: new(http.Protocols)}}
	h2c.Transport.(*http.Transport).Protocols.SetUnencryptedHTTP2(true)
	reader, writer := io.Pipe()
	defer writer.Close()
	go func() { _, _ = writer.Write([]byte("x")) }()
	answer, err := h2c.Post("http://"+address, "text/plain", reader)
	if err != nil {
		t.Fatal(err)
	}
	_ = answer.Body.Close()
	if answer.StatusCode != http.StatusRequestTimeout || rejected.Load() != 1 {
		t.Errorf("%s, %d bodies were rejected", answer.Status, rejected.Load())
	}
}

// fullListener fails once, like the listener of a program without free file descriptors, and then
// accepts connections.
type fullListener struct {
	net.Listener
	failed bool
}

type temporary struct{ error }

func (temporary) Temporary() bool { return true }
func (temporary) Timeout() bool   { return false }

func (l *fullListener) Accept() (net.Conn, error) {
	if !l.failed {
		l.failed = true
		return nil, temporary{errors.New("too many open files")}
	}
	return l.Listener.Accept()
}

// A server that cannot accept a connection logs a warning, and accepts the next connection.
func TestAcceptErrorsAreLogged(t *testing.T) {
	t.Parallel()
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithCancel(t.Context())
	served := make(chan error, 1)
	var log bytes.Buffer
	handler := http.HandlerFunc(func(http.ResponseWriter, *http.Request) {})
	logger := slog.New(slog.NewTextHandler(&log, nil))
	go func() { served <- Serve(ctx, &fullListener{Listener: ln}, handler, nil, logger, time.Second) }()
	get(t, "http://"+ln.Addr().String(), "")
	stop()
	if err := <-served; err != nil {
		t.Errorf("Serve: %v", err)
	}
	if !strings.Contains(log.String(), "level=WARN") || !strings.Contains(log.String(), "too many open files") {
		t.Errorf("log: %s", log.String())
	}
}

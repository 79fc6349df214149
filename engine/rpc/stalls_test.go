package rpc

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"os"
	"strings"
	"sync/atomic"
	"testing"
	"time"
)

// stallSite serves h behind limitStalls. It returns the address of the server, and the number of
// responses that were ended because the client stalled.
func stallSite(t *testing.T, timeout time.Duration, h http.HandlerFunc) (address string, rejected *atomic.Int32) {
	rejected = &atomic.Int32{}
	url := listen(t, limitStalls(h, timeout, func() { rejected.Add(1) }))
	return strings.TrimPrefix(url, "http://"), rejected
}

// endless returns a handler that writes until a write fails, and then sends the error to failed.
func endless(failed chan<- error) http.HandlerFunc {
	return func(w http.ResponseWriter, _ *http.Request) {
		message := bytes.Repeat([]byte("x"), 1<<20)
		for {
			if _, err := w.Write(message); err != nil {
				failed <- err
				return
			}
			w.(http.Flusher).Flush()
		}
	}
}

// TestClientsThatDoNotRead runs clients that request an endless stream and never read it. The
// writes to each of these streams must fail, so that its handler ends.
func TestClientsThatDoNotRead(t *testing.T) {
	t.Parallel()
	failed := make(chan error, 20)
	address, rejected := stallSite(t, 100*time.Millisecond, endless(failed))
	for range 10 {
		conn, err := net.Dial("tcp", address)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = conn.Close() })
		if _, err := fmt.Fprintf(conn, "GET / HTTP/1.1\r\nHost: localhost\r\n\r\n"); err != nil {
			t.Fatal(err)
		}
	}
	h2c := &http.Client{Transport: &http.Transport{Protocols: new(http.Protocols)}}
	h2c.Transport.(*http.Transport).Protocols.SetUnencryptedHTTP2(true)
	for range 10 {
		answer, err := h2c.Get("http://" + address) // the client buffers one flow-control window and then stalls
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = answer.Body.Close() })
	}
	for range 20 {
		select {
		case err := <-failed:
			if err == nil {
				t.Error("a stream ended without an error")
			}
		case <-time.After(30 * time.Second):
			t.Fatal("a stream has not ended")
		}
	}
	if rejected.Load() != 20 {
		t.Errorf("%d stalled streams were counted", rejected.Load())
	}
}

// TestClosedWindows runs HTTP/2 clients with flow-control windows of 0 bytes, so the server cannot
// send them any data. The clients read all frames of their connection, so a write to the connection
// never blocks, and only the timeout of limitStalls can end the response. Small responses fit in
// the buffers of the server, which sends them after the handler has returned.
func TestClosedWindows(t *testing.T) {
	t.Parallel()
	for _, size := range []int{10, 10 << 10, 60 << 10} {
		address, _ := stallSite(t, 100*time.Millisecond, func(w http.ResponseWriter, _ *http.Request) {
			_, _ = w.Write(bytes.Repeat([]byte("x"), size)) // fails if the response is larger than the buffers
		})
		conn, err := net.Dial("tcp", address)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = conn.Close() })
		if err := conn.SetDeadline(time.Now().Add(30 * time.Second)); err != nil {
			t.Fatal(err)
		}
		const (
			settings = "\x00\x00\x06\x04\x00\x00\x00\x00\x00" + "\x00\x04\x00\x00\x00\x00"      // windows of 0 bytes
			headers  = "\x00\x00\x0e\x01\x05\x00\x00\x00\x01" + "\x82\x86\x84\x41\x09localhost" // GET /
		)
		if _, err := io.WriteString(conn, "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"+settings+headers); err != nil {
			t.Fatal(err)
		}
		for frame := make([]byte, 9); ; {
			if _, err := io.ReadFull(conn, frame); err != nil {
				t.Fatalf("a response of %d bytes: %v", size, err)
			}
			const reset = 3
			if frame[3] == reset {
				break
			}
			if _, err := io.CopyN(io.Discard, conn, int64(frame[1])<<8|int64(frame[2])); err != nil {
				t.Fatal(err)
			}
		}
	}
}

// TestPipelinesThatAreNotRead runs HTTP/1.1 clients that send many requests and never read a
// response. The server closes their connections, even if each response fits in its buffers.
func TestPipelinesThatAreNotRead(t *testing.T) {
	t.Parallel()
	for _, size := range []int{10, 10 << 10, 60 << 10} {
		address, _ := stallSite(t, 100*time.Millisecond, func(w http.ResponseWriter, _ *http.Request) {
			_, _ = w.Write(bytes.Repeat([]byte("x"), size))
		})
		conn, err := net.Dial("tcp", address)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = conn.Close() })
		if err := conn.SetDeadline(time.Now().Add(30 * time.Second)); err != nil {
			t.Fatal(err)
		}
		requests := strings.Repeat("GET / HTTP/1.1\r\nHost: localhost\r\n\r\n", 1000)
		for err == nil {
			_, err = io.WriteString(conn, requests)
		}
		if errors.Is(err, os.ErrDeadlineExceeded) {
			t.Errorf("responses of %d bytes: the connection is still open", size)
		}
	}
}

// limitStalls does not end the responses of clients that read slowly, streams that have nothing to
// send for longer than the timeout, or later requests on the same connection.
func TestSlowReadersAreServed(t *testing.T) {
	t.Parallel()
	const timeout = 300 * time.Millisecond
	large := bytes.Repeat([]byte("x"), 8<<20)
	address, rejected := stallSite(t, timeout, func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/idle" {
			_, _ = io.WriteString(w, "first")
			w.(http.Flusher).Flush()
			<-time.After(2 * timeout)
			_, _ = io.WriteString(w, "last")
			return
		}
		if n, err := w.Write(large); err != nil || n != len(large) {
			t.Errorf("wrote %d bytes: %v", n, err)
		}
	})
	h2c := &http.Client{Transport: &http.Transport{Protocols: new(http.Protocols)}}
	h2c.Transport.(*http.Transport).Protocols.SetUnencryptedHTTP2(true)
	for name, client := range map[string]*http.Client{"HTTP/1.1": {Transport: &http.Transport{}}, "HTTP/2": h2c} {
		for _, path := range []string{"/slow", "/idle", "/slow"} {
			answer, err := client.Get("http://" + address + path)
			if err != nil {
				t.Fatal(err)
			}
			read, part := 0, make([]byte, 1<<20)
			for err == nil {
				var n int
				n, err = io.ReadFull(answer.Body, part)
				read += n
				<-time.After(timeout / 6) // reading the whole response takes longer than the timeout
			}
			if !errors.Is(err, io.EOF) && !errors.Is(err, io.ErrUnexpectedEOF) ||
				read != map[string]int{"/slow": len(large), "/idle": len("firstlast")}[path] {
				t.Errorf("%s %s: %d bytes, %v", name, path, read, err)
			}
			_ = answer.Body.Close()
		}
	}
	if rejected.Load() != 0 {
		t.Errorf("%d responses were counted as stalled", rejected.Load())
	}
}

// stalledConn is a connection whose Read stalls after the first bytes that the server sends.
type stalledConn struct {
	net.Conn
	left int           // bytes to read before Read stalls
	gone chan struct{} // ends the stalled Read when it is closed
}

func (c *stalledConn) Read(p []byte) (int, error) {
	if c.left <= 0 {
		<-c.gone
		return 0, net.ErrClosed
	}
	n, err := c.Conn.Read(p[:min(len(p), c.left)])
	c.left -= n
	return n, err
}

// If a client reads nothing from its HTTP/2 connection, the server cannot tell the client that a
// stream has ended. Therefore, the server closes the connection.
func TestConnectionsThatAreNotRead(t *testing.T) {
	t.Parallel()
	failed, rejected := make(chan error, 1), make(chan struct{}, 1)
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	server := newServer(limitStalls(endless(failed), 100*time.Millisecond, func() { rejected <- struct{}{} }),
		slog.New(slog.DiscardHandler))
	server.HTTP2.WriteByteTimeout /= 100 // so that the test takes 300 ms
	ctx, stop := context.WithCancel(t.Context())
	served := make(chan error, 1)
	go func() { served <- serve(ctx, ln, server, slog.New(slog.DiscardHandler), time.Second) }()
	gone := make(chan struct{})
	h2c := &http.Client{Transport: &http.Transport{Protocols: new(http.Protocols),
		DialContext: func(ctx context.Context, network, address string) (net.Conn, error) {
			conn, err := (&net.Dialer{}).DialContext(ctx, network, address)
			return &stalledConn{Conn: conn, left: 64 << 10, gone: gone}, err
		}}}
	h2c.Transport.(*http.Transport).Protocols.SetUnencryptedHTTP2(true)
	answer, err := h2c.Get("http://" + ln.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	defer answer.Body.Close()
	for _, end := range []string{"stalled", "ended"} {
		select {
		case <-rejected:
		case <-failed:
		case <-time.After(30 * time.Second):
			t.Fatalf("the stream has not %s", end)
		}
	}
	close(gone)
	stop()
	if err := <-served; err != nil {
		t.Errorf("serve: %v", err)
	}
}

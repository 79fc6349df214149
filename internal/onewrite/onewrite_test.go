package onewrite_test

import (
	"context"
	"errors"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/progressor-engine/progressor/internal/onewrite"
)

// opaque is a body of a type that net/http does not know. It counts how often it is closed.
type opaque struct {
	io.Reader
	closed int
}

func (o *opaque) Close() error { o.closed++; return nil }

type counted struct {
	net.Conn
	writes *atomic.Int32
}

func (c counted) Write(b []byte) (int, error) { c.writes.Add(1); return c.Conn.Write(b) }

// echoing starts a server that returns the request body, and a transport that counts its writes.
func echoing(t *testing.T) (url string, transport *http.Transport, writes *atomic.Int32) {
	t.Helper()
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		text, _ := io.ReadAll(r.Body)
		_, _ = w.Write(text)
	}))
	t.Cleanup(server.Close)
	writes = new(atomic.Int32)
	transport = &http.Transport{DialContext: func(ctx context.Context, network, addr string) (net.Conn, error) {
		conn, err := (&net.Dialer{}).DialContext(ctx, network, addr)
		return counted{conn, writes}, err
	}}
	t.Cleanup(transport.CloseIdleConnections)
	return server.URL, transport, writes
}

func post(t *testing.T, url string, rt http.RoundTripper, body io.ReadCloser, length int64) string {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), http.MethodPost, url, body)
	if err != nil {
		t.Fatal(err)
	}
	req.ContentLength = length
	resp, err := rt.RoundTrip(req)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = resp.Body.Close() }()
	answer, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatal(err)
	}
	return string(answer)
}

// A small request is one write. The test also checks that net/http alone needs two writes. When
// this is no longer true, this package can be removed.
func TestSmallRequests(t *testing.T) {
	t.Parallel()
	url, transport, writes := echoing(t)
	post(t, url, transport, &opaque{Reader: strings.NewReader("hello")}, 5)
	if n := writes.Swap(0); n != 2 {
		t.Errorf("without this package, net/http sends a request in %d writes, want 2", n)
	}
	body := &opaque{Reader: strings.NewReader("hello")}
	if answer := post(t, url, onewrite.Transport{Next: transport}, body, 5); answer != "hello" {
		t.Errorf("the response is %q", answer)
	}
	if n := writes.Load(); n != 1 {
		t.Errorf("%d writes, want 1", n)
	}
	if body.closed != 1 {
		t.Errorf("the body was closed %d times, want 1", body.closed)
	}
}

// A body that is large, empty or of unknown length is sent unchanged.
func TestOtherRequests(t *testing.T) {
	t.Parallel()
	url, transport, _ := echoing(t)
	large := strings.Repeat("x", 1<<16)
	for name, c := range map[string]struct {
		text   string
		length int64
	}{"large": {large, int64(len(large))}, "unknown": {"hello", -1}} {
		body := &opaque{Reader: strings.NewReader(c.text)}
		if answer := post(t, url, onewrite.Transport{Next: transport}, body, c.length); answer != c.text {
			t.Errorf("%s: %d bytes were returned, want %d", name, len(answer), len(c.text))
		}
	}
	req := httptest.NewRequestWithContext(t.Context(), http.MethodGet, url, http.NoBody)
	if same, err := onewrite.Request(req); err != nil || same != req {
		t.Errorf("a request without a body was changed (%v)", err)
	}
}

// A body can be read again, for a retry on a new connection. The original request does not change.
func TestBodyIsReadAgain(t *testing.T) {
	t.Parallel()
	req := httptest.NewRequestWithContext(t.Context(), http.MethodPost, "/",
		&opaque{Reader: strings.NewReader("hello")})
	req.ContentLength = 5
	given := req.Body
	whole, err := onewrite.Request(req)
	if err != nil {
		t.Fatal(err)
	}
	if req.Body != given || req.GetBody != nil {
		t.Error("the request was modified")
	}
	for range 2 {
		text, err := io.ReadAll(whole.Body)
		if err != nil || string(text) != "hello" {
			t.Fatalf("%q, %v", text, err)
		}
		if whole.Body, err = whole.GetBody(); err != nil {
			t.Fatal(err)
		}
	}
}

// If the body cannot be read, or does not have the declared length, nothing is sent.
func TestBodyThatBreaks(t *testing.T) {
	t.Parallel()
	broken := errors.New("broken")
	for _, c := range []struct {
		body io.Reader
		want string
	}{
		{strings.NewReader("hel"), "Content-Length is 5, but the body has only 3 bytes"},
		{strings.NewReader("hello!"), "Content-Length is 5, but the body is longer"},
		{io.MultiReader(strings.NewReader("he"), readError{broken}), "broken"},
	} {
		url, transport, writes := echoing(t)
		req, err := http.NewRequestWithContext(t.Context(), http.MethodPost, url, &opaque{Reader: c.body})
		if err != nil {
			t.Fatal(err)
		}
		req.ContentLength = 5
		resp, err := onewrite.Transport{Next: transport}.RoundTrip(req)
		if err == nil {
			_ = resp.Body.Close()
		}
		if err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%v, want %s", err, c.want)
		}
		if n := writes.Load(); n != 0 {
			t.Errorf("%d writes of a request whose body breaks", n)
		}
	}
}

type readError struct{ err error }

func (r readError) Read([]byte) (int, error) { return 0, r.err }

// Package onewrite has small requests over HTTP/1.1 leave in one write. net/http sends the head of a request by itself where the body might make
// it wait, which it believes of every reader but those of the standard library that lie in memory. Connect's is another one: each of its calls
// was two packets, and woke the other side twice.
package onewrite

import (
	"bytes"
	"fmt"
	"io"
	"net/http"
)

// maxBytes is how long a body may be: it shares the buffer of its connection, 4 KiB, with the head of its request.
const maxBytes = 3 << 10

// Request gives a request whose body is small and of known length a body that lies in memory. It reads the one of req, and closes it.
func Request(req *http.Request) (*http.Request, error) {
	if req.Body == nil || req.Body == http.NoBody || req.ContentLength <= 0 || req.ContentLength > maxBytes {
		return req, nil
	}
	body, err := io.ReadAll(io.LimitReader(req.Body, req.ContentLength+1))
	if closeErr := req.Body.Close(); err == nil {
		err = closeErr
	}
	if err == nil && int64(len(body)) != req.ContentLength {
		err = fmt.Errorf("its Content-Length is %d, and it has %d bytes or more", req.ContentLength, len(body))
	}
	if err != nil {
		return nil, fmt.Errorf("read the body of the request: %w", err)
	}
	whole := *req
	whole.GetBody = func() (io.ReadCloser, error) { return io.NopCloser(bytes.NewReader(body)), nil }
	whole.Body, err = whole.GetBody()
	return &whole, err
}

// Transport sends requests as Request makes them.
type Transport struct{ Next http.RoundTripper }

// RoundTrip implements http.RoundTripper.
func (t Transport) RoundTrip(req *http.Request) (*http.Response, error) {
	whole, err := Request(req)
	if err != nil {
		return nil, err
	}
	return t.Next.RoundTrip(whole)
}

// CloseIdleConnections is what http.Client's calls.
func (t Transport) CloseIdleConnections() { (&http.Client{Transport: t.Next}).CloseIdleConnections() }

package onewrite

import (
	"bytes"
	"fmt"
	"io"
	"net/http"
)

// maxBytes is the maximum length of a body. The body shares a 4 KiB buffer with the header.
const maxBytes = 3 << 10

// Request returns req with an in-memory body if its body is small and of known length. It reads and
// closes the body of req.
func Request(req *http.Request) (*http.Request, error) {
	if req.Body == nil || req.Body == http.NoBody || req.ContentLength <= 0 || req.ContentLength > maxBytes {
		return req, nil
	}
	body, err := io.ReadAll(io.LimitReader(req.Body, req.ContentLength+1))
	if closeErr := req.Body.Close(); err == nil {
		err = closeErr
	}
	if n := int64(len(body)); err == nil && n < req.ContentLength {
		err = fmt.Errorf("the Content-Length is %d, but the body has only %d bytes", req.ContentLength, n)
	} else if err == nil && n > req.ContentLength {
		err = fmt.Errorf("the Content-Length is %d, but the body is longer", req.ContentLength)
	}
	if err != nil {
		return nil, fmt.Errorf("read the request body: %w", err)
	}
	whole := *req
	whole.GetBody = func() (io.ReadCloser, error) { return io.NopCloser(bytes.NewReader(body)), nil }
	whole.Body, err = whole.GetBody()
	return &whole, err
}

// Transport applies Request to each request.
type Transport struct{ Next http.RoundTripper }

// RoundTrip implements http.RoundTripper.
func (t Transport) RoundTrip(req *http.Request) (*http.Response, error) {
	whole, err := Request(req)
	if err != nil {
		return nil, err
	}
	return t.Next.RoundTrip(whole)
}

// CloseIdleConnections closes the idle connections of Next. http.Client.CloseIdleConnections calls
// it.
func (t Transport) CloseIdleConnections() { (&http.Client{Transport: t.Next}).CloseIdleConnections() }

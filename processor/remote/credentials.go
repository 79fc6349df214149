package remote

import (
	"bytes"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net/http"
	"sync/atomic"
	"time"

	"github.com/progressor-engine/progressor/process"
	"github.com/progressor-engine/progressor/processor"
	"github.com/progressor-engine/progressor/processor/signature"
	progressorv1 "github.com/progressor-engine/progressor/proto/progressor/v1"
)

// Credentials contains what each request to a processor needs in addition to the task.
type Credentials struct {
	Headers     map[string]string
	Keys        []signature.Key // sign the request
	Certificate string          // the client certificate and its key in PEM; "" if there is none
}

// credentialSource returns the credentials of each request.
type credentialSource struct {
	fixed http.Header
	open  func(context.Context) (Credentials, error) // nil if only fixed is sent
	pool  *pool
}

// addTo adds the headers to those of a request. It returns the keys that sign the request, and the
// connections on which the request is sent. Its error is a *processor.UnreachableError, because the
// request was not sent.
func (s *credentialSource) addTo(
	ctx context.Context, header http.Header,
) (keys []signature.Key, via *http.Transport, err error) {
	configured, keys, via, err := s.read(ctx)
	if invalid, ok := errors.AsType[*process.InvalidError](err); ok {
		err = fmt.Errorf("a header %s", invalid.Message)
	}
	if err != nil {
		return nil, nil, &processor.UnreachableError{
			Err: fmt.Errorf("its headers, keys or certificate are not known: %w", err),
		}
	}
	for name, values := range configured {
		header[name] = values
	}
	return keys, via, nil
}

func (s *credentialSource) read(
	ctx context.Context,
) (headers http.Header, keys []signature.Key, via *http.Transport, err error) {
	if s.open == nil {
		via, err = s.pool.with("")
		return s.fixed, nil, via, err
	}
	c, err := s.open(ctx)
	if err != nil {
		return nil, nil, nil, err
	}
	if headers, err = parseHeaders(c.Headers); err != nil {
		return nil, nil, nil, err
	}
	via, err = s.pool.with(c.Certificate)
	return headers, c.Keys, via, err
}

// pool contains the connections to a processor. They all use the same client certificate. If the
// certificate changes, later requests use new connections.
type pool struct {
	create   func(*tls.Config) *http.Transport
	security *tls.Config // without a client certificate
	current  atomic.Pointer[pooled]
}

type pooled struct {
	certificate string // in PEM
	transport   *http.Transport
}

func newPool(security *tls.Config, create func(*tls.Config) *http.Transport) *pool {
	p := &pool{create: create, security: security}
	p.current.Store(&pooled{transport: create(security)})
	return p
}

// with returns the connections with this client certificate in PEM, or those without a client
// certificate if certificate is "".
func (p *pool) with(certificate string) (*http.Transport, error) {
	last := p.current.Load()
	if last.certificate == certificate {
		return last.transport, nil
	}
	security := p.security.Clone()
	if certificate != "" {
		pair, err := ParseCertificate(certificate)
		if err != nil {
			return nil, fmt.Errorf("the client certificate: %w", err)
		}
		present(security, pair)
	}
	next := &pooled{certificate, p.create(security)}
	if !p.current.CompareAndSwap(last, next) { // another request was faster
		return p.with(certificate)
	}
	last.transport.CloseIdleConnections()
	return next.transport, nil
}

func (p *pool) close() { p.current.Load().transport.CloseIdleConnections() }

// messageID returns the webhook-id of a request, which differs for each attempt.
func messageID(req *progressorv1.ProcessRequest) string {
	return fmt.Sprintf("task_%s_%d_%d", signature.Escape(req.GetProcess().GetNamespace()), req.GetTaskId(),
		req.GetFencingToken())
}

type messageIDKey struct{}

// signed returns a signed copy of a request of Connect. It reads and closes the body of req.
func signed(req *http.Request, keys []signature.Key) (*http.Request, error) {
	body, err := io.ReadAll(req.Body)
	if closeErr := req.Body.Close(); err == nil {
		err = closeErr
	}
	if err != nil {
		return nil, fmt.Errorf("read the body of the request: %w", err)
	}
	id, _ := req.Context().Value(messageIDKey{}).(string)
	signature.Sign(req.Header, id, time.Now(), body, keys...)
	whole := *req
	whole.ContentLength = int64(len(body))
	whole.GetBody = func() (io.ReadCloser, error) { return io.NopCloser(bytes.NewReader(body)), nil }
	whole.Body, err = whole.GetBody()
	return &whole, err
}

package client

import (
	"net"
	"net/http"
	"time"

	"connectrpc.com/connect"

	"github.com/progressor-engine/progressor/internal/onewrite"
)

// Protocol is how requests travel. The engine speaks both on one port.
type Protocol int

// The protocols.
const (
	ProtocolConnect Protocol = iota // the default: HTTP/1.1, or HTTP/2 over TLS
	ProtocolGRPC                    // HTTP/2, without TLS too
)

// Option changes what New makes.
type Option func(*options)

type options struct {
	protocol       Protocol
	httpClient     connect.HTTPClient
	connectOptions []connect.ClientOption
	retry          Retry
	autoKeys       bool
}

// WithProtocol chooses the protocol; the default is ProtocolConnect.
func WithProtocol(p Protocol) Option { return func(o *options) { o.protocol = p } }

// WithHTTPClient sends requests through h instead of a client of New's own. With ProtocolGRPC h must speak HTTP/2.
func WithHTTPClient(h connect.HTTPClient) Option { return func(o *options) { o.httpClient = h } }

// WithConnectOptions hands options, such as interceptors, to the generated clients.
func WithConnectOptions(opts ...connect.ClientOption) Option {
	return func(o *options) { o.connectOptions = append(o.connectOptions, opts...) }
}

// WithRetry sets how requests are tried again; the default is DefaultRetry.
func WithRetry(r Retry) Option { return func(o *options) { o.retry = r } }

// WithoutKeys sends requests without an idempotency key where the caller gave none: cheaper for the engine, but such a
// request is tried again only where the engine said that it stored nothing.
func WithoutKeys() Option { return func(o *options) { o.autoKeys = false } }

// newTransport keeps one idle connection for each request in flight: Go's default of two makes a busy client open a
// connection for nearly every request.
func newTransport(p Protocol) http.RoundTripper {
	t := &http.Transport{
		Proxy:               http.ProxyFromEnvironment,
		DialContext:         (&net.Dialer{Timeout: 10 * time.Second, KeepAlive: 30 * time.Second}).DialContext,
		MaxIdleConns:        1024,
		MaxIdleConnsPerHost: 1024,
		IdleConnTimeout:     90 * time.Second,
		TLSHandshakeTimeout: 10 * time.Second,
		Protocols:           new(http.Protocols),
	}
	t.Protocols.SetHTTP2(true)
	if p == ProtocolGRPC {
		t.Protocols.SetUnencryptedHTTP2(true)
		return t
	}
	t.Protocols.SetHTTP1(true)
	return onewrite.Transport{Next: t}
}

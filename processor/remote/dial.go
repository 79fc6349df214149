package remote

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/netip"
	"net/url"
	"strings"
	"time"

	"github.com/progressor-engine/progressor/process"
	"github.com/progressor-engine/progressor/processor"
	progressorv1 "github.com/progressor-engine/progressor/proto/progressor/v1"
)

// Names of the configuration's fields in errors.
const (
	fieldURL      = "processor.connect.url"
	fieldMoreURLs = "processor.connect.more_urls"
	fieldEncoding = "processor.connect.encoding"
	fieldProtocol = "processor.connect.protocol"
	fieldHeaders  = "processor.connect.headers"
	fieldSigning  = "processor.connect.signing_secrets"
	fieldTLS      = "processor.connect.tls"
)

const (
	dialTimeout = 10 * time.Second
	// idleTimeout is short because servers close idle connections without notice (Node after 5 s,
	// others after 2 s). A request on a closed connection is lost, and the engine cannot know
	// whether it was handled.
	idleTimeout = 1500 * time.Millisecond
	// With HTTP/2, the server announces that it will close a connection, and pings detect a dead
	// peer.
	idleTimeoutHTTP2 = 90 * time.Second
	pingAfter        = 15 * time.Second
	pingTimeout      = 5 * time.Second
)

// Processor calls a processor over HTTP.
type Processor struct {
	endpoints   endpoints
	credentials *credentialSource
	namespace   string
}

// Dial returns a processor for a namespace's configuration. It does not connect yet. If the
// configuration is invalid, the error is a *process.InvalidError with the field's name. maxRunning
// is the maximum number of concurrent attempts, and of idle connections; 0 or less means
// process.DefaultMaxRunning. Dial calls open for the credentials of each request. If open is nil,
// the headers are those of cfg, and cfg must not name secrets. The result is a *Processor.
func Dial(
	namespace string, cfg *progressorv1.ConnectProcessor, maxRunning int,
	open func(context.Context) (Credentials, error),
) (processor.Processor, error) {
	targets, err := parseURLs(cfg)
	if err != nil {
		return nil, err
	}
	fixed, err := parseHeaders(cfg.GetHeaders())
	if err != nil {
		return nil, err
	}
	security, err := TLSConfig(fieldTLS, cfg.GetTls(), "", append([]string{cfg.GetUrl()}, cfg.GetMoreUrls()...)...)
	if err != nil {
		return nil, err
	}
	if err := checkSecrets(cfg, open != nil); err != nil {
		return nil, err
	}
	grpc := false
	switch cfg.GetProtocol() {
	case progressorv1.ConnectProcessor_PROTOCOL_UNSPECIFIED, progressorv1.ConnectProcessor_PROTOCOL_CONNECT:
	case progressorv1.ConnectProcessor_PROTOCOL_GRPC:
		grpc = true
	default:
		return nil, &process.InvalidError{Field: fieldProtocol,
			Message: fmt.Sprintf("unknown protocol %d", cfg.GetProtocol())}
	}
	if maxRunning <= 0 {
		maxRunning = process.DefaultMaxRunning
	}
	c := &credentialSource{fixed: fixed, open: open}
	c.pool = newPool(security, func(security *tls.Config) *http.Transport {
		return newTransport(maxRunning, grpc, security)
	})
	p := &Processor{namespace: namespace, credentials: c}
	switch encoding := cfg.GetEncoding(); encoding {
	case progressorv1.ConnectProcessor_ENCODING_UNSPECIFIED, progressorv1.ConnectProcessor_ENCODING_PROTO:
		for n, target := range targets {
			if target.RawQuery != "" {
				return nil, &process.InvalidError{
					Field:   urlField(n),
					Message: "must not have a query, unless the encoding is ENCODING_JSON or ENCODING_MSGPACK",
				}
			}
		}
		p.endpoints.add(targets, func(target *url.URL) callFunc { return rpcCall(target, c, grpc) })
	case progressorv1.ConnectProcessor_ENCODING_JSON, progressorv1.ConnectProcessor_ENCODING_MSGPACK:
		if grpc {
			return nil, &process.InvalidError{
				Field: fieldProtocol, Message: fmt.Sprintf("PROTOCOL_GRPC requires ENCODING_PROTO (got %s)", encoding),
			}
		}
		in := jsonEncoding
		if encoding == progressorv1.ConnectProcessor_ENCODING_MSGPACK {
			in = msgpackEncoding
		}
		p.endpoints.add(targets, func(target *url.URL) callFunc { return plainCall(target, c, in) })
	default:
		return nil, &process.InvalidError{Field: fieldEncoding, Message: fmt.Sprintf("unknown encoding %d", encoding)}
	}
	return p, nil
}

// checkSecrets returns an error if a processor cannot use the secrets of its configuration.
func checkSecrets(cfg *progressorv1.ConnectProcessor, open bool) error {
	const none = "this node has no secrets"
	switch signing := len(cfg.GetSigningSecrets()) > 0; {
	case signing && !open:
		return &process.InvalidError{Field: fieldSigning, Message: none}
	case signing && cfg.GetProtocol() == progressorv1.ConnectProcessor_PROTOCOL_GRPC:
		return &process.InvalidError{Field: fieldSigning,
			Message: "must be empty with PROTOCOL_GRPC: gRPC servers cannot verify a signature of the body"}
	case cfg.GetTls().GetCertificateSecret() != "" && !open:
		return &process.InvalidError{Field: fieldTLS + ".certificate_secret", Message: none}
	}
	return nil
}

// Process sends the request and returns the processor's answer. The package comment describes its
// errors.
func (p *Processor) Process(
	ctx context.Context, req *progressorv1.ProcessRequest,
) (*progressorv1.ProcessResponse, error) {
	kept := processor.KeptOf(ctx)
	resp, at, err := p.send(ctx, req, kept)
	if kept.Repeats() {
		return nil, err
	}
	if err != nil {
		return nil, fmt.Errorf("call processor of %s at %s: %w", p.namespace, at.host, classify(ctx, err))
	}
	keep(kept, req, resp, at)
	return resp, nil
}

// Reach opens a connection to the processor and closes it. It sends no request. If the processor
// has several URLs, it returns nil if one of them accepts a connection. Otherwise, it returns the
// error of the last URL.
func (p *Processor) Reach(ctx context.Context) error {
	_, via, err := p.credentials.addTo(ctx, http.Header{})
	if err != nil {
		return fmt.Errorf("connect to the processor of %s: %w", p.namespace, err)
	}
	for _, at := range p.endpoints.all {
		dial := via.DialContext
		if at.url.Scheme == "https" {
			dial = via.DialTLSContext
		}
		var conn net.Conn
		if conn, err = dial(ctx, "tcp", hostPort(at.url)); err == nil {
			return conn.Close()
		}
		err = fmt.Errorf("connect to the processor of %s at %s: %w", p.namespace, at.host, err)
	}
	return err
}

// hostPort returns the address of a URL, with the default port of its scheme if it has none.
func hostPort(target *url.URL) string {
	port := target.Port()
	switch {
	case port != "":
	case target.Scheme == "https":
		port = "443"
	default:
		port = "80"
	}
	return net.JoinHostPort(target.Hostname(), port)
}

// Close closes idle connections. The others are closed after their requests, once they have been
// idle for the idle timeout. Close always returns nil.
func (p *Processor) Close() error {
	p.credentials.pool.close()
	return nil
}

// classify returns the error of this module that Connect wrapped. If ctx has ended, it returns
// ctx's error.
func classify(ctx context.Context, err error) error {
	if cause := ctx.Err(); cause != nil {
		return cause
	}
	if unreachable, ok := errors.AsType[*processor.UnreachableError](err); ok {
		return unreachable
	}
	if bad, ok := errors.AsType[*processor.BadResponseError](err); ok {
		return bad
	}
	if lost, ok := errors.AsType[*processor.LostError](err); ok {
		return lost
	}
	return err
}

// urlField returns the field name of the n-th URL.
func urlField(n int) string {
	if n == 0 {
		return fieldURL
	}
	return fmt.Sprintf("%s[%d]", fieldMoreURLs, n-1)
}

func parseURLs(cfg *progressorv1.ConnectProcessor) ([]*url.URL, error) {
	var targets []*url.URL
	for n, text := range append([]string{cfg.GetUrl()}, cfg.GetMoreUrls()...) {
		target, err := parseURL(urlField(n), text)
		if err != nil {
			return nil, err
		}
		targets = append(targets, target)
	}
	return targets, nil
}

func parseURL(field, text string) (*url.URL, error) {
	invalid := func(message string) (*url.URL, error) {
		return nil, &process.InvalidError{Field: field, Message: message}
	}
	if text == "" {
		return invalid("must not be empty")
	}
	target, err := url.Parse(text)
	if err != nil {
		if parseErr, ok := errors.AsType[*url.Error](err); ok {
			err = parseErr.Err // without the URL, which may contain a password
		}
		return invalid("must be a URL: " + err.Error())
	}
	switch {
	case target.Scheme != "http" && target.Scheme != "https":
		return invalid("must begin with http:// or https://")
	case target.Hostname() == "":
		return invalid("must name a host")
	case target.User != nil:
		return invalid("must not contain a user or a password: use the Authorization header")
	case target.Fragment != "":
		return invalid("must not contain a fragment")
	}
	if addr, err := netip.ParseAddr(target.Hostname()); err == nil {
		if err := Allowed(addr); err != nil {
			return invalid(err.Error())
		}
	}
	if target.Path == "" {
		target.Path = "/"
	}
	return target, nil
}

// reserved contains headers that must not be configured. The transport sets most of them.
var reserved = map[string]bool{
	"Accept-Encoding": true, "Connection": true, "Content-Encoding": true, "Content-Length": true, "Content-Type": true,
	"Expect": true, "Host": true, "Idempotency-Key": true, "Keep-Alive": true, "Proxy-Connection": true, "Te": true,
	"Trailer": true, "Transfer-Encoding": true, "Upgrade": true, "X-Idempotency-Key": true,
}

// parseHeaders validates the configured headers. Idempotency-Key is not allowed because net/http
// repeats requests that have one.
func parseHeaders(configured map[string]string) (http.Header, error) {
	headers := make(http.Header, len(configured))
	for name, value := range configured {
		field := fieldHeaders + "." + name
		canonical := http.CanonicalHeaderKey(name)
		switch {
		case !IsToken(name):
			return nil, &process.InvalidError{Field: fieldHeaders, Message: fmt.Sprintf("invalid header name %q", name)}
		case reserved[canonical], strings.HasPrefix(canonical, "Connect-"), strings.HasPrefix(canonical, "Grpc-"):
			return nil, &process.InvalidError{Field: field, Message: "must not be set: the transport sets it"}
		case len(headers[canonical]) > 0:
			return nil, &process.InvalidError{Field: field, Message: "must not be set twice"}
		case strings.ContainsFunc(value, func(r rune) bool { return r < ' ' && r != '\t' || r == 0x7f }):
			return nil, &process.InvalidError{Field: field, Message: "must not contain control characters"}
		}
		headers.Set(canonical, value)
	}
	return headers, nil
}

// IsToken reports whether name is a token of RFC 9110, section 5.6.2.
func IsToken(name string) bool {
	return name != "" && !strings.ContainsFunc(name, func(r rune) bool {
		alphanumeric := 'a' <= r && r <= 'z' || 'A' <= r && r <= 'Z' || '0' <= r && r <= '9'
		return !alphanumeric && !strings.ContainsRune("!#$%&'*+-.^_`|~", r)
	})
}

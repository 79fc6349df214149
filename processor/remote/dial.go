// Package remote is the push transport: a processor that is called over HTTP. Dial makes one of a namespace's
// configuration; what it returns is a processor.Processor like any other.
//
// # Encodings and protocols
//
// ENCODING_PROTO is a call of ProcessorService by the Connect protocol over HTTP/1.1 (PROTOCOL_CONNECT) or by gRPC over
// HTTP/2, without TLS too (PROTOCOL_GRPC); the procedure's path is added to the URL. ENCODING_JSON is a plain POST to the
// URL as it is: the body is a ProcessRequest in protobuf's JSON, status 200 and a ProcessResponse in JSON the answer.
// ENCODING_MSGPACK is the same in MessagePack (see package msgpack).
//
// # What became of an attempt that has no answer
//
// An error of Process is of one of these types; Process never tries anything again by itself.
//
//	processor.UnreachableError   the request surely never reached user code: the address cannot be resolved or connected to
//	                             (or is refused by policy), the TLS handshake failed; plain POST: HTTP 408, 429 or 503;
//	                             Connect and gRPC: the codes UNAVAILABLE and RESOURCE_EXHAUSTED
//	processor.BadResponseError   an answer came that is none: any other HTTP status (redirects, 404 and 502 too) or code,
//	                             text that cannot be read, an unknown field, more than 16 MiB
//	processor.LostError          the connection broke after the request was sent: nobody knows
//	the context's error          it was cancelled or its deadline passed; the request was closed
//
// 502 and 504 are not "unreachable": a proxy says them of processors that broke off in the middle, too. Connect's own
// DEADLINE_EXCEEDED is the deadline of the context.
//
// # Safety
//
// The address is looked at after it was resolved, for every connection: link-local and metadata addresses are never
// connected to; loopback and private ones are, processors live there. Redirects are not followed, proxies of the environment
// not used, cookies not kept, answers not decompressed. Error texts hold neither payloads nor header values.
package remote

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net/http"
	"net/netip"
	"net/url"
	"strings"
	"time"

	"github.com/progressor-engine/progressor/process"
	"github.com/progressor-engine/progressor/processor"
	progressorv1 "github.com/progressor-engine/progressor/proto/progressor/v1"
)

// The paths of the configuration's fields, as errors name them.
const (
	fieldURL      = "processor.connect.url"
	fieldEncoding = "processor.connect.encoding"
	fieldProtocol = "processor.connect.protocol"
	fieldHeaders  = "processor.connect.headers"
)

const (
	dialTimeout = 10 * time.Second
	// idleTimeout is short because servers close idle connections without a word, Node's after 5 s and others after 2 s: a
	// request that meets the close is lost, and nobody knows whether it was handled.
	idleTimeout = 1500 * time.Millisecond
	// HTTP/2 says when it closes a connection, and a dead peer is found by a ping.
	idleTimeoutHTTP2 = 90 * time.Second
	pingAfter        = 15 * time.Second
	pingTimeout      = 5 * time.Second
)

// Processor calls a processor over HTTP.
type Processor struct {
	call      func(context.Context, *progressorv1.ProcessRequest) (*progressorv1.ProcessResponse, error)
	transport *http.Transport
	name      string // what errors call it: the namespace and the URL's host
}

// Dial makes a processor of a namespace's configuration. It connects to nothing yet; a configuration that cannot work is a
// *process.InvalidError that names the field. maxRunning is how many attempts may run at a time: so many connections are
// kept (0 or less: process.DefaultMaxRunning). What it returns is a *Processor.
func Dial(namespace string, cfg *progressorv1.ConnectProcessor, maxRunning int) (processor.Processor, error) {
	return dial(namespace, cfg, maxRunning, &tls.Config{MinVersion: tls.VersionTLS12})
}

func dial(
	namespace string, cfg *progressorv1.ConnectProcessor, maxRunning int, security *tls.Config,
) (processor.Processor, error) {
	target, err := parseURL(cfg.GetUrl())
	if err != nil {
		return nil, err
	}
	headers, err := parseHeaders(cfg.GetHeaders())
	if err != nil {
		return nil, err
	}
	grpc := false
	switch cfg.GetProtocol() {
	case progressorv1.ConnectProcessor_PROTOCOL_UNSPECIFIED, progressorv1.ConnectProcessor_PROTOCOL_CONNECT:
	case progressorv1.ConnectProcessor_PROTOCOL_GRPC:
		grpc = true
	default:
		return nil, &process.InvalidError{Field: fieldProtocol, Message: fmt.Sprintf("%d is no protocol", cfg.GetProtocol())}
	}
	if maxRunning <= 0 {
		maxRunning = process.DefaultMaxRunning
	}
	p := &Processor{name: namespace + " at " + target.Host}
	switch encoding := cfg.GetEncoding(); encoding {
	case progressorv1.ConnectProcessor_ENCODING_UNSPECIFIED, progressorv1.ConnectProcessor_ENCODING_PROTO:
		if target.RawQuery != "" {
			return nil, &process.InvalidError{Field: fieldURL, Message: "a query is only for ENCODING_JSON and ENCODING_MSGPACK: the procedure's path follows"}
		}
		p.transport = newTransport(maxRunning, grpc, security)
		p.call = rpcCall(target, headers, p.transport, grpc)
	case progressorv1.ConnectProcessor_ENCODING_JSON, progressorv1.ConnectProcessor_ENCODING_MSGPACK:
		if grpc {
			return nil, &process.InvalidError{
				Field: fieldProtocol, Message: fmt.Sprintf("PROTOCOL_GRPC goes with ENCODING_PROTO: %s is a plain POST", encoding),
			}
		}
		in := jsonEncoding
		if encoding == progressorv1.ConnectProcessor_ENCODING_MSGPACK {
			in = msgpackEncoding
		}
		p.transport = newTransport(maxRunning, false, security)
		p.call = plainCall(target, headers, p.transport, in)
	default:
		return nil, &process.InvalidError{Field: fieldEncoding, Message: fmt.Sprintf("%d is no encoding", encoding)}
	}
	return p, nil
}

// Process sends the request and answers what the processor answered. See the package's comment for the errors.
func (p *Processor) Process(ctx context.Context, req *progressorv1.ProcessRequest) (*progressorv1.ProcessResponse, error) {
	resp, err := p.call(ctx, req)
	if err != nil {
		return nil, fmt.Errorf("call processor of %s: %w", p.name, classify(ctx, err))
	}
	return resp, nil
}

// Close closes the connections that are idle; the others are closed when their requests have ended and they have been idle
// for a while. It always returns nil.
func (p *Processor) Close() error {
	p.transport.CloseIdleConnections()
	return nil
}

// classify takes the class of an error out of what Connect wrapped around it. What the context ended, ended by the context.
func classify(ctx context.Context, err error) error {
	if cause := ctx.Err(); cause != nil {
		return cause
	}
	if unreachable, ok := errors.AsType[*processor.UnreachableError](err); ok {
		return unreachable // not what Connect wrapped around it
	}
	if bad, ok := errors.AsType[*processor.BadResponseError](err); ok {
		return bad
	}
	if lost, ok := errors.AsType[*processor.LostError](err); ok {
		return lost
	}
	return err
}

func parseURL(text string) (*url.URL, error) {
	invalid := func(message string) (*url.URL, error) {
		return nil, &process.InvalidError{Field: fieldURL, Message: message}
	}
	if text == "" {
		return invalid("it is empty")
	}
	target, err := url.Parse(text)
	if err != nil {
		if parseErr, ok := errors.AsType[*url.Error](err); ok {
			err = parseErr.Err // without the URL: it may hold a password
		}
		return invalid("it is no URL: " + err.Error())
	}
	switch {
	case target.Scheme != "http" && target.Scheme != "https":
		return invalid("it must begin with http:// or https://")
	case target.Hostname() == "":
		return invalid("it names no host")
	case target.User != nil:
		return invalid("it must not hold a user or a password: use the header Authorization")
	case target.Fragment != "":
		return invalid("it must not hold a fragment")
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

// reserved are the headers that the transport itself speaks with.
var reserved = map[string]bool{
	"Accept-Encoding": true, "Connection": true, "Content-Encoding": true, "Content-Length": true, "Content-Type": true,
	"Expect": true, "Host": true, "Idempotency-Key": true, "Keep-Alive": true, "Proxy-Connection": true, "Te": true,
	"Trailer": true, "Transfer-Encoding": true, "Upgrade": true, "X-Idempotency-Key": true,
}

// parseHeaders refuses what cannot be sent. Idempotency-Key is refused because net/http repeats requests that have one.
func parseHeaders(configured map[string]string) (http.Header, error) {
	headers := make(http.Header, len(configured))
	for name, value := range configured {
		field := fieldHeaders + "." + name
		canonical := http.CanonicalHeaderKey(name)
		switch {
		case !isToken(name):
			return nil, &process.InvalidError{Field: fieldHeaders, Message: fmt.Sprintf("%q is no name of a header", name)}
		case reserved[canonical], strings.HasPrefix(canonical, "Connect-"), strings.HasPrefix(canonical, "Grpc-"):
			return nil, &process.InvalidError{Field: field, Message: "it is set by the transport"}
		case len(headers[canonical]) > 0:
			return nil, &process.InvalidError{Field: field, Message: "it is set twice"}
		case strings.ContainsFunc(value, func(r rune) bool { return r < ' ' && r != '\t' || r == 0x7f }):
			return nil, &process.InvalidError{Field: field, Message: "its value holds a control character"}
		}
		headers.Set(canonical, value)
	}
	return headers, nil
}

// isToken is RFC 9110's token.
func isToken(name string) bool {
	return name != "" && !strings.ContainsFunc(name, func(r rune) bool {
		alphanumeric := 'a' <= r && r <= 'z' || 'A' <= r && r <= 'Z' || '0' <= r && r <= '9'
		return !alphanumeric && !strings.ContainsRune("!#$%&'*+-.^_`|~", r)
	})
}

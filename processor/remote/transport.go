package remote

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/netip"
	"slices"
	"syscall"
	"time"

	"github.com/progressor-engine/progressor/internal/budget"
	"github.com/progressor-engine/progressor/process"
	"github.com/progressor-engine/progressor/processor"
)

// maxHeaderBytes is the maximum size of the headers of a response.
const maxHeaderBytes = 64 << 10

// newTransport returns a transport. Each processor has its own transport, so that a processor that
// hangs does not take connections from another.
func newTransport(maxRunning int, http2 bool, security *tls.Config) *http.Transport {
	protocols := new(http.Protocols)
	security = security.Clone()
	idle := idleTimeout
	if http2 {
		protocols.SetHTTP2(true)
		protocols.SetUnencryptedHTTP2(true)
		security.NextProtos = []string{"h2"}
		idle = idleTimeoutHTTP2
	} else {
		protocols.SetHTTP1(true)
		security.NextProtos = []string{"http/1.1"}
	}
	dialer := &net.Dialer{Timeout: dialTimeout, KeepAlive: 15 * time.Second, ControlContext: Control}
	return &http.Transport{
		Protocols: protocols,
		// Keep one idle connection per concurrent attempt. With Go's default of 2, most requests
		// would open a connection.
		MaxIdleConns:        maxRunning,
		MaxIdleConnsPerHost: maxRunning,
		IdleConnTimeout:     idle,
		DisableCompression:  true,
		// The budget for responses counts only their bodies.
		MaxResponseHeaderBytes: maxHeaderBytes,
		HTTP2:                  &http.HTTP2Config{SendPingTimeout: pingAfter, PingTimeout: pingTimeout},
		DialContext: func(ctx context.Context, network, addr string) (net.Conn, error) {
			conn, err := dialer.DialContext(ctx, network, addr)
			if err != nil {
				return nil, &processor.UnreachableError{Err: &networkError{err}}
			}
			return conn, nil
		},
		DialTLSContext: func(ctx context.Context, network, addr string) (net.Conn, error) {
			conn, err := (&tls.Dialer{NetDialer: dialer, Config: security}).DialContext(ctx, network, addr)
			if err != nil {
				return nil, &processor.UnreachableError{Err: &networkError{err}}
			}
			return conn, nil
		},
	}
}

// send makes one round trip. Errors after the connection is established, including those of reading
// the answer, are a LostError. The exception is a rejected client certificate: its error is an
// UnreachableError.
func send(transport *http.Transport, req *http.Request) (*http.Response, error) {
	resp, err := transport.RoundTrip(req)
	if err != nil {
		if processor.Unreachable(err) {
			return nil, err
		}
		if rejectedCertificate(err) != "" { // with TLS 1.3, the server checks it after the handshake of the client
			return nil, &processor.UnreachableError{Err: &networkError{err}}
		}
		if errors.Is(err, io.EOF) {
			err = io.ErrUnexpectedEOF // Connect replaces io.EOF, and the LostError around it
		}
		return nil, &processor.LostError{Err: &networkError{err}}
	}
	resp.Body = &answerBody{ReadCloser: resp.Body, ctx: req.Context(), size: resp.ContentLength}
	return resp, nil
}

// answerBody turns errors of reading an answer into LostErrors. A large answer waits for memory,
// and holds it until the result is stored.
type answerBody struct {
	io.ReadCloser
	ctx   context.Context //nolint:containedctx // the context of the request
	size  int64           // how long the answer is; -1 if it is unknown
	read  int64
	asked bool
}

func (b *answerBody) Read(p []byte) (int, error) {
	n, err := b.ReadCloser.Read(p)
	b.read += int64(n)
	if !b.asked && b.read > budget.Free {
		b.asked = true
		most := int64(process.MaxMessageBytes)
		if b.size >= 0 {
			most = min(most, b.size)
		}
		if err := budget.From(b.ctx).Take(b.ctx, most); err != nil {
			return n, &processor.LostError{Err: err}
		}
	}
	if err == io.EOF {
		budget.From(b.ctx).Keep(b.read)
	}
	if err != nil && err != io.EOF {
		err = &processor.LostError{Err: &networkError{err}}
	}
	return n, err
}

// Control checks an address before the connection is opened. It is for net.Dialer, which has
// resolved the name by then.
func Control(_ context.Context, _, address string, _ syscall.RawConn) error {
	resolved, err := netip.ParseAddrPort(address)
	if err != nil {
		return fmt.Errorf("address %q: %w", address, err)
	}
	return Allowed(resolved.Addr())
}

// metadataAddrs contains the addresses, other than link-local ones, at which clouds serve the
// credentials of the machine.
var metadataAddrs = map[netip.Addr]bool{
	netip.MustParseAddr("fd00:ec2::254"):   true,
	netip.MustParseAddr("fd20:ce::254"):    true,
	netip.MustParseAddr("100.100.100.200"): true,
	netip.MustParseAddr("168.63.129.16"):   true,
	netip.MustParseAddr("192.0.0.192"):     true,
}

// metadataPrefixes are the networks that contain metadata addresses, including those of future
// services, and the prefixes under which networks translate or tunnel to any IPv4 address.
var metadataPrefixes = []netip.Prefix{
	netip.MustParsePrefix("fd00:ec2::/32"), netip.MustParsePrefix("192.0.0.0/24"),
	netip.MustParsePrefix("64:ff9b:1::/48"), netip.MustParsePrefix("2002::/16"), netip.MustParsePrefix("::/96"),
	netip.MustParsePrefix("::ffff:0:0:0/96"),
}

func servesMetadata(addr netip.Addr) bool {
	if addr.IsLoopback() || addr.IsUnspecified() { // in ::/96
		return false
	}
	within := func(p netip.Prefix) bool { return p.Contains(addr) }
	return metadataAddrs[addr] || slices.ContainsFunc(metadataPrefixes, within)
}

// nat64 is the prefix under which IPv6 networks reach IPv4 addresses; the last four bytes are the
// address.
var nat64 = netip.MustParsePrefix("64:ff9b::/96")

// plain returns an address without its zone. It converts an IPv4 address that is embedded in IPv6
// to IPv4.
func plain(addr netip.Addr) netip.Addr {
	addr = addr.WithZone("").Unmap()
	if nat64.Contains(addr) {
		bytes := addr.As16()
		addr = netip.AddrFrom4([4]byte(bytes[12:]))
	}
	return addr
}

// Allowed returns an error if configuration must not name addr as a processor or HTTP target:
// link-local, cloud metadata and multicast addresses.
func Allowed(addr netip.Addr) error {
	addr = plain(addr)
	switch {
	case addr.IsLinkLocalUnicast():
		return fmt.Errorf("address %s is not allowed: it is link-local", addr)
	case servesMetadata(addr):
		return fmt.Errorf("address %s is not allowed: it may serve cloud metadata", addr)
	case addr.IsMulticast():
		return fmt.Errorf("address %s is not allowed: it is multicast", addr)
	}
	return nil
}

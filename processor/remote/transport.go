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
	"syscall"
	"time"

	"github.com/progressor-engine/progressor/processor"
)

// newTransport makes a transport of its own for each processor: one that hangs takes no connections from another.
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
		// As many as there are attempts at a time: Go's default of 2 makes most requests open a connection of their own.
		MaxIdleConns:        maxRunning,
		MaxIdleConnsPerHost: maxRunning,
		IdleConnTimeout:     idle,
		DisableCompression:  true,
		HTTP2:               &http.HTTP2Config{SendPingTimeout: pingAfter, PingTimeout: pingTimeout},
		DialContext: func(ctx context.Context, network, addr string) (net.Conn, error) {
			conn, err := dialer.DialContext(ctx, network, addr)
			if err != nil {
				return nil, &processor.UnreachableError{Err: err}
			}
			return conn, nil
		},
		DialTLSContext: func(ctx context.Context, network, addr string) (net.Conn, error) {
			conn, err := (&tls.Dialer{NetDialer: dialer, Config: security}).DialContext(ctx, network, addr)
			if err != nil {
				return nil, &processor.UnreachableError{Err: err}
			}
			return conn, nil
		},
	}
}

// send is one round trip. What breaks once there is a connection, also while the answer is read, is a LostError.
func send(transport *http.Transport, req *http.Request) (*http.Response, error) {
	resp, err := transport.RoundTrip(req)
	if err != nil {
		if processor.Unreachable(err) {
			return nil, err
		}
		if errors.Is(err, io.EOF) {
			err = io.ErrUnexpectedEOF // Connect replaces errors that are io.EOF, and their class with them
		}
		return nil, &processor.LostError{Err: err}
	}
	resp.Body = &answerBody{resp.Body}
	return resp, nil
}

// answerBody gives errors of reading an answer their class.
type answerBody struct{ io.ReadCloser }

func (b *answerBody) Read(p []byte) (int, error) {
	n, err := b.ReadCloser.Read(p)
	if err != nil && err != io.EOF {
		err = &processor.LostError{Err: err}
	}
	return n, err
}

// Control looks at the address that is about to be connected to, for a net.Dialer: names are resolved by then.
func Control(_ context.Context, _, address string, _ syscall.RawConn) error {
	resolved, err := netip.ParseAddrPort(address)
	if err != nil {
		return fmt.Errorf("address %q: %w", address, err)
	}
	return Allowed(resolved.Addr())
}

// metadataAddrs are where clouds answer with the credentials of the machine, as far as they are not link-local.
var metadataAddrs = map[netip.Addr]bool{
	netip.MustParseAddr("fd00:ec2::254"):   true,
	netip.MustParseAddr("fd20:ce::254"):    true,
	netip.MustParseAddr("100.100.100.200"): true,
	netip.MustParseAddr("168.63.129.16"):   true,
	netip.MustParseAddr("192.0.0.192"):     true,
}

// nat64 is the prefix by which an IPv6 network reaches IPv4 addresses: the last four bytes.
var nat64 = netip.MustParsePrefix("64:ff9b::/96")

// Allowed is the policy for the addresses that configuration names, of processors and of HTTP targets: anything but link-local, metadata and multicast ones.
func Allowed(addr netip.Addr) error {
	addr = addr.WithZone("").Unmap()
	if nat64.Contains(addr) {
		bytes := addr.As16()
		addr = netip.AddrFrom4([4]byte(bytes[12:]))
	}
	switch {
	case addr.IsLinkLocalUnicast():
		return fmt.Errorf("address %s is link-local: never connected to", addr)
	case metadataAddrs[addr]:
		return fmt.Errorf("address %s answers with a cloud's metadata: never connected to", addr)
	case addr.IsMulticast():
		return fmt.Errorf("address %s is multicast: never connected to", addr)
	}
	return nil
}

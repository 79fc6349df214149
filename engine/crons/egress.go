package crons

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"io"
	"net"
	"net/netip"
	"strings"
	"syscall"

	"github.com/progressor-engine/progressor/processor/remote"
)

var (
	errDeniedAddress = errors.New("the address of the host is not allowed")
	errOwnAddress    = errors.New("the address is that of this engine, which crons must not call")
)

// egress decides to which addresses the requests of crons may go. It checks the resolved address
// right before it is connected to, so a changed DNS record cannot bypass the check.
type egress struct {
	listeners []netip.AddrPort // listeners of this program
}

// DenyListener makes a listener of this program unreachable for crons, which could otherwise call
// an API that trusts loopback. Call it before the engine runs.
func (c *Crons) DenyListener(address net.Addr) {
	if tcp, ok := address.(*net.TCPAddr); ok {
		c.egress.listeners = append(c.egress.listeners, tcp.AddrPort())
	}
}

// control is called by net.Dialer with the resolved address. Its errors have no addresses, because
// the namespace sees them.
func (e *egress) control(ctx context.Context, network, address string, conn syscall.RawConn) error {
	if remote.Control(ctx, network, address, conn) != nil {
		return errDeniedAddress
	}
	to, err := netip.ParseAddrPort(address)
	if err != nil {
		return errDeniedAddress
	}
	for _, listener := range e.listeners {
		if listener.Port() == to.Port() && sameHost(listener.Addr().Unmap(), to.Addr().WithZone("").Unmap()) {
			return errOwnAddress
		}
	}
	return nil
}

// sameHost reports whether a connection to an address may reach a listener on this machine.
func sameHost(listener, to netip.Addr) bool {
	if listener == to {
		return true
	}
	if !listener.IsUnspecified() && !to.IsUnspecified() {
		return false
	}
	if to.IsLoopback() || to.IsUnspecified() {
		return true
	}
	own, err := net.InterfaceAddrs()
	if err != nil {
		return true // it is unknown, so do not connect
	}
	for _, a := range own {
		if prefix, ok := a.(*net.IPNet); ok {
			if addr, ok := netip.AddrFromSlice(prefix.IP); ok && addr.Unmap() == to {
				return true
			}
		}
	}
	return false
}

// failureClass returns what a namespace may know about a request that failed. It contains no
// addresses of the network of the engine, and nothing of an answer that is not HTTP.
func failureClass(err error) string {
	for _, own := range []error{errDeniedAddress, errOwnAddress} {
		if errors.Is(err, own) {
			return own.Error()
		}
	}
	if dns, ok := errors.AsType[*net.DNSError](err); ok {
		if dns.IsTimeout {
			return "the name of the host was not resolved in time"
		}
		return "the name of the host cannot be resolved"
	}
	if class := certificateClass(err); class != "" {
		return class
	}
	waited, isNet := errors.AsType[net.Error](err)
	switch {
	case errors.Is(err, syscall.ECONNREFUSED):
		return "connection refused"
	case errors.Is(err, syscall.EHOSTUNREACH), errors.Is(err, syscall.ENETUNREACH):
		return "the host is unreachable"
	case errors.Is(err, io.EOF), errors.Is(err, io.ErrUnexpectedEOF), errors.Is(err, syscall.ECONNRESET),
		errors.Is(err, syscall.EPIPE):
		return errNoAnswer.Error()
	case isNet && waited.Timeout():
		return "the host did not respond in time"
	case strings.Contains(err.Error(), "malformed HTTP"):
		return "the server does not respond with HTTP"
	}
	return "the request failed"
}

// certificateClass returns the class of an error of TLS, or "".
func certificateClass(err error) string {
	if _, ok := errors.AsType[tls.RecordHeaderError](err); ok {
		return "the server does not respond with TLS"
	}
	if _, ok := errors.AsType[x509.UnknownAuthorityError](err); ok {
		return "the certificate of the server is signed by an unknown authority"
	}
	if _, ok := errors.AsType[x509.HostnameError](err); ok {
		return "the certificate of the server is for another host"
	}
	if invalid, ok := errors.AsType[x509.CertificateInvalidError](err); ok {
		if invalid.Reason == x509.Expired {
			return "the certificate of the server has expired or is not valid yet"
		}
		return "the certificate of the server is not valid"
	}
	if _, ok := errors.AsType[*tls.CertificateVerificationError](err); ok {
		return "the certificate of the server is not valid"
	}
	return ""
}

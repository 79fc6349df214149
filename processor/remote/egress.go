package remote

import (
	"context"
	"errors"
	"net"
	"net/netip"
	"syscall"
)

// Errors of Egress. Their texts contain no addresses, because the users of a namespace can read
// them.
var (
	ErrDeniedAddress = errors.New("the address of the host is not allowed")
	ErrOwnAddress    = errors.New("crons and sinks must not call this engine")
)

// Egress determines the addresses to which crons and sinks may send requests. It checks the
// resolved address right before it connects, so a changed DNS record cannot bypass the check.
type Egress struct {
	listeners []netip.AddrPort // listeners of this program
}

// DenyListener makes a listener of this program unreachable for crons and sinks, which could
// otherwise call an API that trusts loopback. Call it before the engine runs.
func (e *Egress) DenyListener(address net.Addr) {
	if tcp, ok := address.(*net.TCPAddr); ok {
		e.listeners = append(e.listeners, tcp.AddrPort())
	}
}

// Control is called by net.Dialer with the resolved address.
func (e *Egress) Control(ctx context.Context, network, address string, conn syscall.RawConn) error {
	if Control(ctx, network, address, conn) != nil {
		return ErrDeniedAddress
	}
	to, err := netip.ParseAddrPort(address)
	if err != nil {
		return ErrDeniedAddress
	}
	for _, listener := range e.listeners {
		if listener.Port() == to.Port() && sameHost(listener.Addr().Unmap(), to.Addr().WithZone("").Unmap()) {
			return ErrOwnAddress
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
		return true // the addresses of this machine are unknown, so do not connect
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

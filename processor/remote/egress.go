package remote

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"slices"
	"strings"
	"syscall"
)

// Errors of Egress. Their texts contain no addresses, because the users of a namespace can read
// them.
var (
	ErrDeniedAddress   = errors.New("the address of the host is not allowed")
	ErrOwnAddress      = errors.New("crons and sinks must not call this engine")
	ErrDatabaseAddress = errors.New("crons and sinks must not call the database of this engine")
	ErrPrivateAddress  = errors.New("the address of the host is private, and outgoing.allow does not contain it")
)

// Egress determines the addresses to which crons and sinks may send requests. It checks the
// resolved address right before it connects, so a changed DNS record cannot bypass the check.
// Call its methods before the engine runs, except Control.
type Egress struct {
	listeners []netip.AddrPort // listeners of this program
	databases []databaseHost
	isLimited bool
	allowed   []Network
}

// DenyListener makes a listener of this program unreachable for crons and sinks, which could
// otherwise call an API that trusts loopback.
func (e *Egress) DenyListener(address net.Addr) {
	if tcp, ok := address.(*net.TCPAddr); ok {
		e.listeners = append(e.listeners, tcp.AddrPort())
	}
}

// DenyDatabase makes a host of the database unreachable for crons and sinks. A host that begins
// with a slash is the directory of a Unix socket on this machine.
func (e *Egress) DenyDatabase(host string, port uint16) {
	e.databases = append(e.databases, databaseHost{host, port})
}

// AllowOnly makes private addresses unreachable for crons and sinks unless they are in a network.
// Public addresses are not affected. Without AllowOnly, all private addresses are allowed.
func (e *Egress) AllowOnly(networks []Network) { e.isLimited, e.allowed = true, networks }

// Control is called by net.Dialer with the resolved address.
func (e *Egress) Control(ctx context.Context, network, address string, conn syscall.RawConn) error {
	if Control(ctx, network, address, conn) != nil {
		return ErrDeniedAddress
	}
	to, err := netip.ParseAddrPort(address)
	if err != nil {
		return ErrDeniedAddress
	}
	to = netip.AddrPortFrom(plain(to.Addr()), to.Port())
	for _, listener := range e.listeners {
		if listener.Port() == to.Port() && sameHost(listener.Addr().Unmap(), to.Addr()) {
			return ErrOwnAddress
		}
	}
	if slices.ContainsFunc(e.databases, func(d databaseHost) bool { return d.is(ctx, to) }) {
		return ErrDatabaseAddress
	}
	if e.isLimited && isPrivate(to.Addr()) &&
		!slices.ContainsFunc(e.allowed, func(n Network) bool { return n.contains(to) }) {
		return ErrPrivateAddress
	}
	return nil
}

// databaseHost is a host and port of the database.
type databaseHost struct {
	host string
	port uint16
}

// is reports whether an address may be that of the database. It resolves the name each time,
// because the address changes after a failover.
func (d databaseHost) is(ctx context.Context, to netip.AddrPort) bool {
	if d.port != to.Port() {
		return false
	}
	if strings.HasPrefix(d.host, "/") {
		return sameHost(netip.IPv6Unspecified(), to.Addr())
	}
	addrs, err := net.DefaultResolver.LookupNetIP(ctx, "ip", d.host)
	if err != nil {
		return true // its address is unknown, so do not connect
	}
	return slices.ContainsFunc(addrs, func(addr netip.Addr) bool {
		addr = plain(addr)
		if sameHost(netip.IPv6Unspecified(), addr) { // the database may listen on all addresses of this machine
			addr = netip.IPv6Unspecified()
		}
		return sameHost(addr, to.Addr())
	})
}

// Network is a set of addresses: those of a prefix, with one port or, if port is 0, with any port.
type Network struct {
	prefix netip.Prefix
	port   uint16
}

func (n Network) contains(to netip.AddrPort) bool {
	return n.prefix.Contains(to.Addr()) && (n.port == 0 || n.port == to.Port())
}

// loopbackPrefixes are the addresses of the machine itself. A connection to an unspecified address
// also goes there.
var loopbackPrefixes = []netip.Prefix{
	netip.MustParsePrefix("127.0.0.0/8"), netip.MustParsePrefix("::1/128"),
	netip.MustParsePrefix("0.0.0.0/8"), netip.MustParsePrefix("::/128"),
}

// privatePrefixes are the addresses of private networks: RFC 1918, RFC 4193 and RFC 6598. The other
// prefixes are not public either, and some networks use them for their machines: 198.18.0.0/15 is
// for benchmarks, 240.0.0.0/4 is reserved, and fec0::/10 was the site-local prefix.
var privatePrefixes = []netip.Prefix{
	netip.MustParsePrefix("10.0.0.0/8"), netip.MustParsePrefix("172.16.0.0/12"),
	netip.MustParsePrefix("192.168.0.0/16"), netip.MustParsePrefix("fc00::/7"), netip.MustParsePrefix("100.64.0.0/10"),
	netip.MustParsePrefix("198.18.0.0/15"), netip.MustParsePrefix("240.0.0.0/4"), netip.MustParsePrefix("fec0::/10"),
}

func isPrivate(addr netip.Addr) bool {
	within := func(p netip.Prefix) bool { return p.Contains(addr) }
	return slices.ContainsFunc(loopbackPrefixes, within) || slices.ContainsFunc(privatePrefixes, within)
}

// ParseNetworks parses a list of networks, separated by commas: loopback, private (which does not
// include loopback), prefixes, and addresses with or without a port.
func ParseNetworks(list string) (networks []Network, err error) {
	for item := range strings.SplitSeq(list, ",") {
		item = strings.TrimSpace(item)
		var prefixes []netip.Prefix
		var port uint16
		switch item {
		case "":
			continue
		case "loopback":
			prefixes = loopbackPrefixes
		case "private":
			prefixes = privatePrefixes
		default:
			prefix, parsedPort, err := parseNetwork(item)
			if err != nil {
				return nil, err
			}
			prefixes, port = []netip.Prefix{prefix}, parsedPort
		}
		for _, prefix := range prefixes {
			networks = append(networks, Network{prefix, port})
		}
	}
	return networks, nil
}

func parseNetwork(item string) (netip.Prefix, uint16, error) {
	if prefix, err := netip.ParsePrefix(item); err == nil {
		return prefix.Masked(), 0, nil
	}
	if addr, err := netip.ParseAddr(item); err == nil {
		addr = plain(addr)
		return netip.PrefixFrom(addr, addr.BitLen()), 0, nil
	}
	if to, err := netip.ParseAddrPort(item); err == nil && to.Port() > 0 {
		addr := plain(to.Addr())
		return netip.PrefixFrom(addr, addr.BitLen()), to.Port(), nil
	}
	return netip.Prefix{}, 0, fmt.Errorf("must be a list of loopback, private, prefixes such as 10.0.0.0/8, and "+
		"addresses such as 10.0.0.5 or 10.0.0.5:8080, separated by commas (got %q)", item)
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

package remote_test

import (
	"errors"
	"net"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"strings"
	"testing"

	"github.com/progressor-engine/progressor/processor/remote"
)

// dial connects as a cron or sink does.
func dial(e *remote.Egress, address string) error {
	dialer := &net.Dialer{ControlContext: e.Control}
	conn, err := dialer.Dial("tcp", address)
	if err != nil {
		return err
	}
	return conn.Close()
}

// A cron or sink cannot call the engine that runs it, under any address of the machine.
func TestOwnListenerIsDenied(t *testing.T) {
	t.Parallel()
	api := httptest.NewServer(http.NotFoundHandler())
	defer api.Close()
	other := httptest.NewServer(http.NotFoundHandler())
	defer other.Close()
	e := &remote.Egress{}
	e.DenyListener(api.Listener.Addr())
	_, port, _ := net.SplitHostPort(api.Listener.Addr().String())
	for _, host := range []string{"127.0.0.1", "localhost", "0.0.0.0", "::ffff:127.0.0.1"} {
		if err := dial(e, net.JoinHostPort(host, port)); !errors.Is(err, remote.ErrOwnAddress) {
			t.Errorf("%s: %v", host, err)
		}
	}
	if err := dial(e, other.Listener.Addr().String()); err != nil {
		t.Errorf("another server: %v", err)
	}
	everywhere := &remote.Egress{}
	everywhere.DenyListener(net.TCPAddrFromAddrPort(netip.MustParseAddrPort("[::]:8080")))
	own, denied := remote.ErrOwnAddress, remote.ErrDeniedAddress
	for to, want := range map[string]error{
		"127.0.0.1:8080": own, "[::1]:8080": own, "127.9.9.9:8080": own,
		"0.0.0.0:8080": own, "127.0.0.1:8081": nil, "192.0.2.1:8080": nil, "[2001:db8::1]:8080": nil,
		"169.254.169.254:80": denied, "[fd00:ec2::254]:80": denied, "x": denied,
	} {
		if err := everywhere.Control(t.Context(), "tcp", to, nil); !errors.Is(err, want) {
			t.Errorf("%s: %v, want %v", to, err, want)
		}
	}
}

// Crons and sinks reach private addresses only if they are allowed.
func TestPrivateAddressesAreDenied(t *testing.T) {
	t.Parallel()
	networks, err := remote.ParseNetworks(" 10.1.0.0/16, 192.168.0.5:8080,[fd00::5]:80 ,fd00::6,")
	if err != nil {
		t.Fatal(err)
	}
	e := &remote.Egress{}
	e.AllowOnly(networks)
	private := remote.ErrPrivateAddress
	for to, want := range map[string]error{
		"10.1.2.3:80": nil, "[::ffff:10.1.2.3]:80": nil, "[64:ff9b::a01:203]:80": nil, "10.2.0.1:80": private,
		"192.168.0.5:8080": nil, "192.168.0.5:80": private, "[fd00::5]:80": nil, "[fd00::5]:81": private,
		"[fd00::6]:9": nil, "[fd00::7]:9": private, "127.0.0.1:80": private, "[::1]:80": private, "0.0.0.0:80": private,
		"[::]:80": private, "172.16.0.1:80": private, "172.32.0.1:80": nil, "100.64.0.1:80": private,
		"[64:ff9b::7f00:1]:80": private, "192.0.2.1:80": nil, "[2001:db8::1]:443": nil,
		"198.18.0.1:80": private, "198.20.0.1:80": nil, "240.0.0.1:80": private, "255.255.255.255:80": private,
		"0.1.2.3:80": private, "[fec0::1]:80": private, "169.254.169.254:80": remote.ErrDeniedAddress,
		"[::ffff:0:10.2.0.1]:80": remote.ErrDeniedAddress, "[2002:a02:1::]:80": remote.ErrDeniedAddress,
		"[64:ff9b:1::a02:1]:80": remote.ErrDeniedAddress, "[::10.2.0.1]:80": remote.ErrDeniedAddress,
	} {
		if err := e.Control(t.Context(), "tcp", to, nil); !errors.Is(err, want) {
			t.Errorf("%s: %v, want %v", to, err, want)
		}
	}
	for _, list := range []string{"loopback", "private"} {
		networks, err := remote.ParseNetworks(list)
		if err != nil {
			t.Fatal(err)
		}
		e := &remote.Egress{}
		e.AllowOnly(networks)
		for to, of := range map[string]string{"127.0.0.1:1": "loopback", "0.0.0.0:1": "loopback", "[::]:1": "loopback",
			"172.16.0.1:1": "private", "240.0.0.1:1": "private"} {
			if err := e.Control(t.Context(), "tcp", to, nil); (err == nil) != (of == list) {
				t.Errorf("%s: %s: %v", list, to, err)
			}
		}
	}
	for _, list := range []string{
		"localhost", "10.0.0.0/33", "10.0.0.5:0", "10.0.0.0/8:80", "public", "10.0.0.1 10.0.0.2",
	} {
		if got, err := remote.ParseNetworks(list); err == nil || !strings.Contains(err.Error(), list) {
			t.Errorf("%q: %v, %v", list, got, err)
		}
	}
}

// Crons and sinks never reach the database, even if its address is allowed.
func TestDatabaseIsDenied(t *testing.T) {
	t.Parallel()
	networks, err := remote.ParseNetworks("loopback,private")
	if err != nil {
		t.Fatal(err)
	}
	e := &remote.Egress{}
	e.AllowOnly(networks)
	e.DenyDatabase("10.0.0.5", 5432)
	e.DenyDatabase("localhost", 6432)
	e.DenyDatabase("/var/run/postgresql", 7432)
	database := remote.ErrDatabaseAddress
	for to, want := range map[string]error{
		"10.0.0.5:5432": database, "10.0.0.5:80": nil, "10.0.0.6:5432": nil, "[64:ff9b::a00:5]:5432": database,
		"127.0.0.1:6432": database, "127.0.0.2:6432": database, "[::1]:6432": database, "127.0.0.1:6433": nil,
		"127.0.0.1:7432": database, "0.0.0.0:7432": database, "10.0.0.6:7432": nil,
	} {
		if err := e.Control(t.Context(), "tcp", to, nil); !errors.Is(err, want) {
			t.Errorf("%s: %v, want %v", to, err, want)
		}
	}
}

// If the database has any address of this machine, it is denied at all of them, including loopback.
func TestDatabaseOnThisMachineIsDenied(t *testing.T) {
	t.Parallel()
	addrs, err := net.InterfaceAddrs()
	if err != nil {
		t.Fatal(err)
	}
	for _, a := range addrs {
		prefix, err := netip.ParsePrefix(a.String())
		if err != nil || prefix.Addr().IsLinkLocalUnicast() {
			continue
		}
		e := &remote.Egress{}
		e.DenyDatabase(prefix.Addr().String(), 5432)
		for _, other := range addrs {
			to, err := netip.ParsePrefix(other.String())
			if err != nil || to.Addr().IsLinkLocalUnicast() {
				continue
			}
			address := netip.AddrPortFrom(to.Addr(), 5432).String()
			if err := e.Control(t.Context(), "tcp", address, nil); !errors.Is(err, remote.ErrDatabaseAddress) {
				t.Errorf("the database at %s is reached at %s: %v", prefix.Addr(), address, err)
			}
		}
	}
}

package remote_test

import (
	"errors"
	"net"
	"net/http"
	"net/http/httptest"
	"net/netip"
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

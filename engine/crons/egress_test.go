package crons

import (
	"errors"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"net/url"
	"strings"
	"testing"
)

// dialed requests a URL as a cron does and returns the class of its failure, or "".
func dialed(e *egress, to string) string {
	response, err := newHTTPClient(e).Get(to)
	if err != nil {
		return failureClass(err)
	}
	_ = response.Body.Close()
	return ""
}

// A cron cannot call the engine that runs it, under any address of the machine.
func TestOwnListenerIsDenied(t *testing.T) {
	t.Parallel()
	api := httptest.NewServer(http.NotFoundHandler())
	defer api.Close()
	other := httptest.NewServer(http.NotFoundHandler())
	defer other.Close()
	c := &Crons{}
	c.DenyListener(api.Listener.Addr())
	_, port, _ := net.SplitHostPort(api.Listener.Addr().String())
	for _, host := range []string{"127.0.0.1", "localhost", "0.0.0.0", "[::ffff:127.0.0.1]"} {
		if got := dialed(&c.egress, "http://"+host+":"+port); got != errOwnAddress.Error() {
			t.Errorf("%s: %q", host, got)
		}
	}
	if got := dialed(&c.egress, other.URL); got != "" {
		t.Errorf("another server: %q", got)
	}
	everywhere := &egress{listeners: []netip.AddrPort{netip.MustParseAddrPort("[::]:8080")}}
	for to, want := range map[string]error{
		"127.0.0.1:8080": errOwnAddress, "[::1]:8080": errOwnAddress, "127.9.9.9:8080": errOwnAddress,
		"0.0.0.0:8080": errOwnAddress, "127.0.0.1:8081": nil, "192.0.2.1:8080": nil, "[2001:db8::1]:8080": nil,
		"169.254.169.254:80": errDeniedAddress, "[fd00:ec2::254]:80": errDeniedAddress, "x": errDeniedAddress,
	} {
		if err := everywhere.control(t.Context(), "tcp", to, nil); !errors.Is(err, want) {
			t.Errorf("%s: %v, want %v", to, err, want)
		}
	}
}

// TestFailuresShowNothingInternal checks that the detail of a failed request contains nothing that
// a server has sent instead of HTTP, and no address.
func TestFailuresShowNothingInternal(t *testing.T) {
	t.Parallel()
	banner, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer banner.Close()
	go func() {
		for {
			conn, err := banner.Accept()
			if err != nil {
				return
			}
			_, _ = io.WriteString(conn, "SSH-2.0-OpenSSH_secret\r\n\r\n")
			_ = conn.Close()
		}
	}()
	closed, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	_ = closed.Close()
	secure := httptest.NewTLSServer(http.NotFoundHandler())
	defer secure.Close()
	secure.Config.ErrorLog = nil
	for name, tt := range map[string]struct{ url, want string }{
		"banner":         {"http://" + banner.Addr().String(), "the server does not respond with HTTP"},
		"banner for TLS": {"https://" + banner.Addr().String(), "the server does not respond with TLS"},
		"closed":         {"http://" + closed.Addr().String(), "connection refused"},
		"certificate":    {secure.URL, "the certificate of the server is signed by an unknown authority"},
		"metadata":       {"http://169.254.169.254/", errDeniedAddress.Error()},
	} {
		got := dialed(&egress{}, tt.url)
		u, err := url.Parse(tt.url)
		if err != nil {
			t.Fatal(err)
		}
		if got != tt.want || strings.Contains(got, "secret") || strings.Contains(got, u.Hostname()) {
			t.Errorf("%s: %q, want %q", name, got, tt.want)
		}
	}
	for _, tt := range []struct {
		err  error
		want string
	}{
		{&net.DNSError{Name: "db.internal", Server: "10.0.0.2:53", IsNotFound: true},
			"the name of the host cannot be resolved"},
		{&net.DNSError{Server: "10.0.0.2:53", IsTimeout: true}, "the name of the host was not resolved in time"},
		{errors.New("10.0.0.2 said secret"), "the request failed"},
	} {
		if got := failureClass(tt.err); got != tt.want {
			t.Errorf("%v: %q, want %q", tt.err, got, tt.want)
		}
	}
}

// The reason phrase of a response is text of the server.
func TestStatusHasNoTextOfTheServer(t *testing.T) {
	t.Parallel()
	for code, want := range map[int]string{502: "502 Bad Gateway", 599: "599", 200: "200 OK"} {
		if got := statusText(code); got != want {
			t.Errorf("%d: %q, want %q", code, got, want)
		}
	}
}

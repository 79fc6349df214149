package crons

import (
	"errors"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"testing"

	"github.com/progressor-engine/progressor/processor/remote"
)

// dialed requests a URL as a cron does, and returns the class of its failure, or "" if the request
// succeeds.
func dialed(e *remote.Egress, to string) string {
	response, err := newHTTPClient(e, nil).Get(to)
	if err != nil {
		return remote.FailureClass(err)
	}
	_ = response.Body.Close()
	return ""
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
		"metadata":       {"http://169.254.169.254/", remote.ErrDeniedAddress.Error()},
	} {
		got := dialed(&remote.Egress{}, tt.url)
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
		// net/http returns this if the banner arrives before the request is sent.
		{errors.New("readLoopPeekFailLocked: %!w(<nil>)"), "the server does not respond with HTTP"},
		{errors.New("10.0.0.2 said secret"), "the request failed"},
	} {
		if got := remote.FailureClass(tt.err); got != tt.want {
			t.Errorf("%v: %q, want %q", tt.err, got, tt.want)
		}
	}
}

// The text of a status does not contain the reason phrase of the response, because the server
// controls this phrase.
func TestStatusHasNoTextOfTheServer(t *testing.T) {
	t.Parallel()
	for code, want := range map[int]string{502: "502 Bad Gateway", 599: "599", 200: "200 OK"} {
		if got := statusText(code); got != want {
			t.Errorf("%d: %q, want %q", code, got, want)
		}
	}
}

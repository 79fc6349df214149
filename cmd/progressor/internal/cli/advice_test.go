package cli

import (
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"connectrpc.com/connect"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/progressor-engine/progressor/client"
	progressorv1 "github.com/progressor-engine/progressor/proto/progressor/v1"
)

// The errors of connections say what is wrong, and which flag helps, for pages and for requests.
func TestAdviceOfConnections(t *testing.T) {
	t.Parallel()
	handler := http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.WriteHeader(http.StatusUnauthorized)
		_, _ = w.Write([]byte("the request has no token: send the header Authorization: Bearer TOKEN"))
	})
	secured, plain := httptest.NewTLSServer(handler), httptest.NewServer(handler)
	t.Cleanup(secured.Close)
	t.Cleanup(plain.Close)
	trusted := x509.NewCertPool()
	trusted.AddCert(secured.Certificate())
	for _, tt := range []struct {
		name, address string
		config        *tls.Config
		want          []string
	}{
		{"unknown authority", secured.URL, nil, []string{"unknown authority", "--tls.ca-file"}},
		{"other name", secured.URL, &tls.Config{RootCAs: trusted, ServerName: "other.example.org"},
			[]string{"other.example.org", "--tls.server-name"}},
		{"http to https", strings.Replace(secured.URL, "https", "http", 1), nil, []string{"use https:// in --address"}},
		{"https to http", strings.Replace(plain.URL, "http", "https", 1), nil, []string{"use http:// in --address"}},
		{"no token", plain.URL, nil, []string{"has no token", "--token-file", "progressor login"}},
	} {
		errs := map[string]error{}
		transport := &http.Transport{TLSClientConfig: tt.config, ForceAttemptHTTP2: true}
		t.Cleanup(transport.CloseIdleConnections)
		_, errs["page"] = pageFrom(t.Context(), transport, tt.address, "/whoami", "")
		c := client.New(tt.address, client.WithRetry(client.Retry{MaxAttempts: 1}),
			client.WithHTTPClient(&http.Client{Transport: transport}))
		_, errs["request"] = c.Namespace.ListNamespaces(t.Context(), &progressorv1.ListNamespacesRequest{})
		for what, err := range errs {
			if what == "request" && tt.name == "no token" {
				err = connect.NewError(connect.CodeUnauthenticated, errors.New("the request has no token: send …"))
			}
			if err == nil {
				t.Errorf("%s, %s: no error", tt.name, what)
				continue
			}
			line := reportOf(err, commandLine{}).line()
			for _, want := range tt.want {
				if !strings.Contains(line, want) {
					t.Errorf("%s, %s: %q is missing in: %s", tt.name, what, want, line)
				}
			}
		}
	}
}

// An error of PostgreSQL names the setting to change. It omits an attempt with TLS that the server
// refused, unless this was the only attempt.
func TestAdviceOfDatabases(t *testing.T) {
	t.Parallel()
	const refused = "h:1 (127.0.0.1): tls error: server refused TLS connection"
	for code, want := range map[string]string{
		"28P01": "--db.password-file", "28000": "pg_hba.conf", "3D000": "create the database",
		"": "check that PostgreSQL runs there",
	} {
		cause := fmt.Errorf("failed to connect to `x`:\n\t%s\n\th:1 (127.0.0.1): server error", refused)
		if code != "" {
			cause = fmt.Errorf("%w: %w", cause, &pgconn.PgError{Code: code})
		}
		c := databaseReport(cause, errorReport{})
		if !strings.Contains(c.Next, want) || strings.Contains(c.Message, "refused TLS") ||
			!strings.Contains(c.Message, "h:1 (127.0.0.1): server error") {
			t.Errorf("%s: %+v", code, c)
		}
	}
	denied := fmt.Errorf("read the schema version: %w", &pgconn.PgError{Code: "42501"})
	if line := reportOf(denied, commandLine{}).line(); !strings.Contains(line, "docs/operations.md#roles") {
		t.Errorf("a denied statement: %s", line)
	}
	if c := databaseReport(errors.New("x:\n\t"+refused), errorReport{}); !strings.Contains(c.Message, refused) {
		t.Errorf("the only attempt is missing: %+v", c)
	}
	const twice = "x:\n\th:1: refused\n\th:1: refused"
	if c := databaseReport(errors.New(twice), errorReport{}); strings.Count(c.Message, "refused") != 1 {
		t.Errorf("an attempt is repeated: %+v", c)
	}
}

// An unknown host name names the flag.
func TestAdviceOfUnknownHosts(t *testing.T) {
	t.Parallel()
	err := connect.NewError(connect.CodeUnavailable,
		fmt.Errorf("dial tcp: %w", &net.DNSError{Err: "no such host", Name: "foo", IsNotFound: true}))
	const want = "Next: check the host name in --address, a URL such as http://127.0.0.1:8080"
	if line := reportOf(err, commandLine{}).line(); !strings.Contains(line, want) {
		t.Errorf("%s, want %s", line, want)
	}
}

package remote

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/progressor-engine/progressor/internal/testca"
	"github.com/progressor-engine/progressor/process"
	"github.com/progressor-engine/progressor/processor"
	progressorv1 "github.com/progressor-engine/progressor/proto/progressor/v1"
)

// guarded is a processor that requires a client certificate.
type guarded struct {
	*httptest.Server
	connections atomic.Int32
	last        atomic.Value // client URI of the last request
}

// guard serves processes with a certificate of servers, to clients with a certificate of clients.
func guard(t *testing.T, servers, clients *testca.Authority) *guarded {
	t.Helper()
	g := &guarded{}
	echo := processor.Handler(processor.Echo())
	g.Server = httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		g.last.Store(r.TLS.PeerCertificates[0].URIs[0].String())
		echo.ServeHTTP(w, r)
	}))
	trusted := x509.NewCertPool()
	trusted.AddCert(clients.Certificate)
	g.EnableHTTP2 = true
	g.TLS = &tls.Config{
		Certificates: []tls.Certificate{servers.Issue(time.Hour)}, ClientCAs: trusted,
		ClientAuth: tls.RequireAndVerifyClientCert, MinVersion: tls.VersionTLS12,
	}
	g.Config.ErrorLog = slog.NewLogLogger(quiet.Handler(), slog.LevelWarn)
	g.Config.ConnState = func(_ net.Conn, state http.ConnState) {
		if state == http.StateNew {
			g.connections.Add(1)
		}
	}
	g.StartTLS()
	t.Cleanup(g.Close)
	return g
}

// A processor has a certificate of a private authority and requires a client certificate. It is
// called with a client certificate, and with a new certificate as soon as the new one is known.
// Connections are reused only with the same certificate.
func TestClientCertificates(t *testing.T) {
	servers, clients := testca.New(t), testca.New(t)
	first, second := clients.IssuePEM("spiffe://example.org/first"), clients.IssuePEM("spiffe://example.org/second")
	eachWay(t, func(t *testing.T, way *progressorv1.ConnectProcessor) {
		g := guard(t, servers, clients)
		way.Url = g.URL
		way.Tls = &progressorv1.TargetTls{CaPem: servers.PEM(), CertificateSecret: "client"}
		var mu sync.Mutex
		var certificate string
		p, err := Dial("shop", way, 10, func(context.Context) (Credentials, error) {
			mu.Lock()
			defer mu.Unlock()
			return Credentials{Certificate: certificate}, nil
		})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = p.(*Processor).Close() })
		use := func(text string) {
			mu.Lock()
			defer mu.Unlock()
			certificate = text
		}
		for n, text := range []string{first, second, first} {
			use(text)
			began := g.connections.Load()
			for range 3 {
				if _, err := p.Process(t.Context(), request()); err != nil {
					t.Fatal(err)
				}
			}
			want := map[string]string{first: "spiffe://example.org/first", second: "spiffe://example.org/second"}[text]
			if opened := g.connections.Load() - began; g.last.Load() != want || opened != 1 {
				t.Errorf("certificate %d: the client is %s, want %s; %d connections", n, g.last.Load(), want, opened)
			}
		}
		use(first)
		if err := p.(*Processor).Reach(t.Context()); err != nil {
			t.Errorf("reach: %v", err)
		}
		for text, want := range map[string]string{
			"":                             "the server requires a client certificate",
			servers.IssuePEM("spiffe://x"): "the server rejects the client certificate",
			"hunter2":                      "must contain a certificate and its private key in PEM",
		} {
			use(text)
			g.last.Store("")
			expectUnreachable(t, p, want)
			if g.last.Load() != "" {
				t.Errorf("%s: the handler was called by %s", want, g.last.Load())
			}
		}
	})
}

// expectUnreachable repeats a call until its error contains want. Sometimes, the connection ends
// before the client reads why the server has rejected it. No call may reach the processor.
func expectUnreachable(t *testing.T, p processor.Processor, want string) {
	t.Helper()
	for limit := time.Now().Add(time.Minute); ; {
		_, err := p.Process(t.Context(), request())
		switch {
		case err == nil || strings.Contains(err.Error(), "hunter2"):
			t.Fatalf("%v, want %s", err, want)
		case processor.Unreachable(err) && strings.Contains(err.Error(), want):
			return
		case time.Now().After(limit):
			t.Fatalf("%v, want %s", err, want)
		}
	}
}

// A server with a certificate of another authority is not called.
func TestAuthorities(t *testing.T) {
	servers, others := testca.New(t), testca.New(t)
	server := httptest.NewUnstartedServer(processor.Handler(processor.Echo()))
	server.EnableHTTP2 = true
	server.TLS = &tls.Config{Certificates: []tls.Certificate{servers.Issue(time.Hour)}, MinVersion: tls.VersionTLS12}
	server.Config.ErrorLog = slog.NewLogLogger(quiet.Handler(), slog.LevelWarn)
	server.StartTLS()
	t.Cleanup(server.Close)
	eachWay(t, func(t *testing.T, way *progressorv1.ConnectProcessor) {
		way.Tls = &progressorv1.TargetTls{CaPem: others.PEM() + servers.PEM()}
		if _, err := dialed(t, way, server.URL).Process(t.Context(), request()); err != nil {
			t.Error(err)
		}
		for _, ca := range []string{others.PEM(), ""} {
			way.Tls = &progressorv1.TargetTls{CaPem: ca}
			_, err := dialed(t, way, server.URL).Process(t.Context(), request())
			const want = "the certificate of the server is signed by an unknown authority"
			if !processor.Unreachable(err) || !strings.Contains(err.Error(), want) {
				t.Errorf("%v, want %s", err, want)
			}
		}
	})
}

// Invalid TLS settings are rejected with the name of the field, without the values of secrets.
func TestInvalidTLS(t *testing.T) {
	ca := testca.New(t)
	_, key, _ := strings.Cut(ca.IssuePEM("spiffe://x"), "-----END CERTIFICATE-----\n")
	const https, notCAs = "https://127.0.0.1:9", "must be certificates in PEM (-----BEGIN CERTIFICATE-----)"
	for _, c := range []struct {
		name  string
		tls   *progressorv1.TargetTls
		urls  []string
		field string
		want  string
	}{
		{"http", &progressorv1.TargetTls{}, []string{"http://127.0.0.1:9"}, "",
			"requires a URL that begins with https://"},
		{"one http", &progressorv1.TargetTls{}, []string{https, "http://127.0.0.1:9"}, "", "requires a URL"},
		{"words", &progressorv1.TargetTls{CaPem: "system"}, []string{https}, ".ca_pem", notCAs},
		{"spaces", &progressorv1.TargetTls{CaPem: " \n"}, []string{https}, ".ca_pem", notCAs},
		{"a key", &progressorv1.TargetTls{CaPem: key}, []string{https}, ".ca_pem", notCAs},
		{"words after", &progressorv1.TargetTls{CaPem: ca.PEM() + "x"}, []string{https}, ".ca_pem", notCAs},
		{"damaged", &progressorv1.TargetTls{CaPem: ca.PEM() + strings.Replace(ca.PEM(), "MII", "AII", 1)},
			[]string{https}, ".ca_pem", "certificate 2: "},
		{"no secrets", &progressorv1.TargetTls{CertificateSecret: "x"}, []string{https}, ".certificate_secret",
			"this node has no secrets"},
	} {
		cfg := &progressorv1.ConnectProcessor{Url: c.urls[0], MoreUrls: c.urls[1:], Tls: c.tls}
		_, err := Dial("shop", cfg, 10, nil)
		bad, ok := errors.AsType[*process.InvalidError](err)
		if !ok || bad.Field != fieldTLS+c.field || !strings.Contains(bad.Message, c.want) {
			t.Errorf("%s: %v, want %s%s: %s", c.name, err, fieldTLS, c.field, c.want)
		}
	}
	for name, text := range map[string]string{
		"a word": "hunter2", "no key": ca.PEM(), "no certificate": key, "another key": ca.PEM() + key,
	} {
		_, err := TLSConfig("tls", &progressorv1.TargetTls{}, text, https)
		bad, ok := errors.AsType[*process.InvalidError](err)
		if !ok || bad.Field != "tls.certificate_secret" || strings.Contains(err.Error(), "hunter2") ||
			!strings.HasPrefix(bad.Message, "must contain a certificate and its private key in PEM") {
			t.Errorf("%s: %v", name, err)
		}
	}
}

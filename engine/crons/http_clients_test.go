package crons

import (
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"io"
	"log"
	"net"
	"net/http"
	"net/http/httptest"
	"sync/atomic"
	"testing"
	"time"

	"github.com/progressor-engine/progressor/internal/testca"
	"github.com/progressor-engine/progressor/processor/remote"
	progressorv1 "github.com/progressor-engine/progressor/proto/progressor/v1"
)

// Crons with the same TLS settings share connections, and other crons do not.
func TestHTTPClientsByTLSSettings(t *testing.T) {
	t.Parallel()
	ca := testca.New(t)
	var connections atomic.Int32
	server := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if len(r.TLS.PeerCertificates) > 0 {
			_, _ = io.WriteString(w, r.TLS.PeerCertificates[0].URIs[0].Host)
		}
	}))
	trusted := x509.NewCertPool()
	trusted.AddCert(ca.Certificate)
	server.TLS = &tls.Config{
		Certificates: []tls.Certificate{ca.Issue(time.Hour)}, ClientCAs: trusted,
		ClientAuth: tls.VerifyClientCertIfGiven, MinVersion: tls.VersionTLS12,
	}
	server.Config.ErrorLog = log.New(io.Discard, "", 0)
	server.Config.ConnState = func(_ net.Conn, state http.ConnState) {
		if state == http.StateNew {
			connections.Add(1)
		}
	}
	server.StartTLS()
	t.Cleanup(server.Close)
	clients := newHTTPClients(&remote.Egress{})
	a, b := ca.IssuePEM("spiffe://a/client"), ca.IssuePEM("spiffe://b/client")
	settings := &progressorv1.TargetTls{CaPem: ca.PEM()}
	get := func(t *testing.T, certificate string) (answer string) {
		t.Helper()
		client, err := clients.client(settings, certificate, server.URL)
		if err != nil {
			t.Fatal(err)
		}
		response, err := client.Get(server.URL)
		if err != nil {
			t.Fatal(err)
		}
		defer response.Body.Close()
		text, err := io.ReadAll(response.Body)
		if err != nil {
			t.Fatal(err)
		}
		return string(text)
	}
	for range 3 {
		for certificate, want := range map[string]string{"": "", a: "a", b: "b"} {
			if got := get(t, certificate); got != want {
				t.Errorf("the client is %q, want %q", got, want)
			}
		}
	}
	if n := connections.Load(); n != 3 {
		t.Errorf("%d connections for three settings", n)
	}
	denied := newHTTPClients(&remote.Egress{})
	denied.egress.DenyListener(server.Listener.Addr())
	client, err := denied.client(settings, a, server.URL)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := client.Get(server.URL); err == nil || remote.FailureClass(err) != remote.ErrOwnAddress.Error() {
		t.Errorf("a denied address: %v", err)
	}
	// The number of clients is limited. The most recently used client remains.
	last, err := clients.client(settings, b, server.URL)
	if err != nil {
		t.Fatal(err)
	}
	for n := range 2 * maxHTTPClients {
		if _, err := clients.client(nil, fmt.Sprint(n), ""); err != nil {
			t.Fatal(err)
		}
		if again, err := clients.client(settings, b, server.URL); err != nil || again != last {
			t.Fatalf("after %d others: another client, %v", n+1, err)
		}
	}
	if len(clients.all) != maxHTTPClients {
		t.Errorf("%d clients, want %d", len(clients.all), maxHTTPClients)
	}
}

package main

import (
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"log"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/progressor-engine/progressor/cmd/progressor/internal/cli"
	"github.com/progressor-engine/progressor/cmd/progressor/internal/cli/clitest"
	"github.com/progressor-engine/progressor/internal/testca"
	"github.com/progressor-engine/progressor/storage/storagetest"
)

// tlsTarget is a server for processor, cron and sink requests. Its certificate is from a private
// authority, and it requires client certificates from another one.
type tlsTarget struct {
	*httptest.Server
	servers, clients *testca.Authority
	caFile           string

	mu   sync.Mutex
	last map[string]string // by path: the client of the last request
}

func newTLSTarget(t *testing.T) *tlsTarget {
	t.Helper()
	g := &tlsTarget{servers: testca.New(t), clients: testca.New(t), last: map[string]string{}}
	g.Server = httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		g.mu.Lock()
		defer g.mu.Unlock()
		g.last[r.URL.Path] = r.TLS.PeerCertificates[0].URIs[0].String()
		w.Header().Set("Content-Type", "application/json")
		_, _ = io.WriteString(w, `{"result":{}}`)
	}))
	trusted := x509.NewCertPool()
	trusted.AddCert(g.clients.Certificate)
	g.TLS = &tls.Config{
		Certificates: []tls.Certificate{g.servers.Issue(time.Hour)}, ClientCAs: trusted,
		ClientAuth: tls.RequireAndVerifyClientCert, MinVersion: tls.VersionTLS12,
	}
	g.Config.ErrorLog = log.New(io.Discard, "", 0)
	g.StartTLS()
	t.Cleanup(g.Close)
	g.caFile = filepath.Join(t.TempDir(), "ca.crt")
	g.servers.WriteAuthority(g.caFile)
	return g
}

// lastFrom returns an error unless client sent the last request to path.
func (g *tlsTarget) lastFrom(path, client string) error {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.last[path] != client {
		return fmt.Errorf("%s was called by %q, want %q", path, g.last[path], client)
	}
	return nil
}

// The engine calls processors, HTTP targets of crons and webhooks with a client certificate, and
// trusts only the configured authority. When the secret is replaced, the engine uses the new
// certificate without a restart.
func TestClientCertificatesOfTargets(t *testing.T) {
	t.Parallel()
	const first, second = "spiffe://example.org/first", "spiffe://example.org/second"
	dsn, to := storagetest.DSN(t), newTLSTarget(t)
	d := background(t, nil, "serve", "--listen", "127.0.0.1:0", "--db.dsn", dsn).Client
	namespace := func(args ...string) []string {
		return append([]string{"namespace", "put", "shop", "--connect-url", to.URL + "/processor", "--encoding", "json",
			"--changes", "lifecycle"}, args...)
	}
	cron := func(args ...string) []string {
		return append([]string{"cron", "create", "shop", "tick", "@yearly", "--http", to.URL + "/cron"}, args...)
	}
	sink := func(settings string) []string {
		file := filepath.Join(t.TempDir(), "sink.yaml")
		text := fmt.Sprintf("sink_id: hook\nwebhook:\n  url: %s/hook\n  tls: {%s}\n", to.URL, settings)
		if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		return []string{"sink", "put", "shop", "-f", file}
	}
	rejects := func(why string, args ...string) {
		t.Helper()
		r := d.Run(t, args...)
		if r.Code != cli.ExitUsage || !strings.Contains(r.Stderr, why) || strings.Contains(r.Stderr, "hunter2") {
			t.Errorf("%v: %+v, want %q", args, r, why)
		}
	}
	put := func(name, value string) {
		t.Helper()
		if r := putSecret(t, dsn, name, "shop", value); r.Code != cli.ExitOK {
			t.Fatalf("%+v", r)
		}
	}
	const missing = "there is no secret client for namespace shop"
	rejects(missing, namespace("--connect-certificate", "client")...)
	put("word", "hunter2")
	put("client", to.clients.IssuePEM(first))
	const notPEM = "the secret word must contain a certificate and its private key in PEM"
	rejects("--connect-certificate: "+notPEM, namespace("--connect-certificate", "word")...)
	rejects("the secret client is in PEM, and can only be used as a certificate_secret",
		namespace("--header", "authorization=${secret:client}")...)
	d.OK(t, namespace("--connect-ca-file", to.caFile, "--connect-certificate", "client")...)
	rejects("--http-certificate: "+notPEM, cron("--http-certificate", "word")...)
	d.OK(t, cron("--http-ca-file", to.caFile, "--http-certificate", "client")...)
	rejects("webhook.tls.certificate_secret", sink("certificate_secret: word")...)
	rejects("webhook.tls.ca_pem: must be certificates in PEM", sink("ca_pem: word")...)
	d.OK(t, sink(fmt.Sprintf("ca_pem: %q, certificate_secret: client", to.servers.PEM()))...)

	// A put that replaces the authorities cannot keep a stored header.
	other := filepath.Join(t.TempDir(), "other.crt")
	to.clients.WriteAuthority(other)
	kept := []string{"--connect-certificate", "client", "--header", "x-key=REDACTED", "--connect-ca-file"}
	d.OK(t, namespace("--connect-ca-file", to.caFile, "--connect-certificate", "client",
		"--header", "x-key=hunter2")...)
	rejects("keeps the stored value only for the same hosts", namespace(append(kept, other)...)...)
	d.OK(t, namespace(append(kept, to.caFile)...)...)

	arrives := func(client, process string) {
		t.Helper()
		clitest.Eventually(t, "the processor gets a request of "+client, func() error {
			if r := d.Run(t, "start", "shop", process); r.Code != cli.ExitOK {
				d.Run(t, "call", "shop", process)
			}
			return to.lastFrom("/processor", client)
		})
		clitest.Eventually(t, "the cron sends a request of "+client, func() error {
			d.OK(t, "cron", "trigger", "shop", "tick")
			return to.lastFrom("/cron", client)
		})
		n := 0
		clitest.Eventually(t, "the webhook gets a request of "+client, func() error {
			n++
			d.OK(t, "start", "shop", fmt.Sprintf("%s-%d", process, n))
			return to.lastFrom("/hook", client)
		})
	}
	arrives(first, "order-1")
	put("client", to.clients.IssuePEM(second))
	arrives(second, "order-2")

	// A server that is not trusted is not called.
	const untrusted = "the certificate of the server is signed by an unknown authority"
	d.OK(t, namespace("--connect-certificate", "client")...)
	d.OK(t, "start", "shop", "order-3", "--accepted")
	clitest.Eventually(t, "the failure is shown", func() error {
		if out := d.OK(t, "explain", "shop", "order-3"); !strings.Contains(out, untrusted) {
			return errors.New(out)
		}
		return nil
	})
}

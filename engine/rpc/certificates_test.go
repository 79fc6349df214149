package rpc

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"io"
	"log/slog"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/progressor-engine/progressor/engine/auth"
	"github.com/progressor-engine/progressor/engine/streams"
	"github.com/progressor-engine/progressor/internal/testca"
)

// secureSite is a site with TLS.
type secureSite struct {
	t            *testing.T
	url, token   string
	keys         *oneKey
	files        CertificateFiles
	servers      *testca.Authority
	clients      *testca.Authority
	certificates *Certificates
	passed       atomic.Int64 // by how much the clock of the certificates is ahead
	log          *strings.Builder
}

func newSecureSite(t *testing.T, required bool) *secureSite {
	t.Helper()
	dir := t.TempDir()
	s := &secureSite{
		t: t, servers: testca.New(t), clients: testca.New(t), log: new(strings.Builder),
		files: CertificateFiles{
			Certificate: filepath.Join(dir, "tls.crt"), Key: filepath.Join(dir, "tls.key"),
			ClientCA: filepath.Join(dir, "ca.crt"), RequireClient: required,
		},
	}
	s.servers.Write(s.servers.Issue(time.Hour), s.files.Certificate, s.files.Key)
	s.clients.WriteAuthority(s.files.ClientCA)
	var err error
	if s.certificates, err = LoadCertificates(s.files, slog.New(slog.NewTextHandler(s.log, nil))); err != nil {
		t.Fatal(err)
	}
	s.certificates.now = func() time.Time { return time.Now().Add(time.Duration(s.passed.Load())) }
	id, token := auth.NewToken()
	s.token, s.keys = token, &oneKey{id: id, hash: auth.Hash(token), grants: map[string]string{}}
	h, err := newHandler(Config{
		Registerer: prometheus.NewRegistry(), Gatherer: prometheus.NewRegistry(), Streams: &streams.Streams{},
		Auth: auth.New(s.keys, "", nil),
	}, scripted(echo()), func() error { return nil })
	if err != nil {
		t.Fatal(err)
	}
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	s.url = "https://" + ln.Addr().String()
	ctx, cancel := context.WithCancel(context.WithoutCancel(t.Context()))
	served := make(chan error, 1)
	go func() { served <- Serve(ctx, ln, h, s.certificates, slog.New(slog.DiscardHandler), time.Second) }()
	t.Cleanup(func() {
		cancel()
		if err := <-served; err != nil {
			t.Error(err)
		}
	})
	return s
}

// get returns the answer to a request for a page by a client with these certificates, over a new
// connection.
func (s *secureSite) get(path, token string, certificates ...tls.Certificate) (status int, text string, err error) {
	s.t.Helper()
	roots := x509.NewCertPool()
	roots.AddCert(s.servers.Certificate)
	transport := &http.Transport{
		TLSClientConfig: &tls.Config{RootCAs: roots, Certificates: certificates}, ForceAttemptHTTP2: true,
	}
	defer transport.CloseIdleConnections()
	request, err := http.NewRequestWithContext(s.t.Context(), http.MethodGet, s.url+path, nil)
	if err != nil {
		s.t.Fatal(err)
	}
	if token != "" {
		request.Header.Set("Authorization", "Bearer "+token)
	}
	response, err := (&http.Client{Transport: transport}).Do(request)
	if err != nil {
		return 0, "", err
	}
	defer response.Body.Close()
	if response.ProtoMajor != 2 {
		s.t.Errorf("%s over HTTP/%d", path, response.ProtoMajor)
	}
	body, err := io.ReadAll(response.Body)
	return response.StatusCode, strings.TrimSpace(string(body)), err
}

const billing = "spiffe://example.org/billing"

// A client with a certificate of a trusted authority is identified by the URI in the certificate,
// and has the grants of that URI. If the certificate does not have exactly one URI, the client
// needs a token. A request with both is rejected.
func TestClientCertificates(t *testing.T) {
	t.Parallel()
	s := newSecureSite(t, false)
	s.keys.grants["cert:"+billing] = "viewer"
	issued := func(a *testca.Authority, life time.Duration, uris ...string) []tls.Certificate {
		return []tls.Certificate{a.Issue(life, uris...)}
	}
	own := issued(s.clients, time.Hour, billing)
	none, long := issued(s.clients, time.Hour), issued(s.clients, time.Hour, "a:"+strings.Repeat("b", 500))
	const refused, ok = http.StatusUnauthorized, http.StatusOK
	for name, tt := range map[string]struct {
		token        string
		certificates []tls.Certificate
		status       int
		contains     string
	}{
		"nothing":                  {"", nil, refused, "has no token"},
		"a token":                  {s.token, nil, ok, "key:" + s.keys.id},
		"a URI":                    {"", own, ok, "cert:" + billing + "\nviewer *"},
		"a URI and a token":        {s.token, own, refused, "use only one"},
		"a URI without grants":     {"", issued(s.clients, time.Hour, billing+"/2"), ok, "cert:"},
		"no URI":                   {"", none, refused, "no token"},
		"no URI, a token":          {s.token, none, ok, "key:"},
		"two URIs":                 {"", issued(s.clients, time.Hour, billing, "a:b"), refused, "no token"},
		"a URI that is too long":   {"", long, refused, "no token"},
		"another authority":        {"", issued(s.servers, time.Hour, billing), 0, ""},
		"an expired certificate":   {"", issued(s.clients, -time.Minute, billing), 0, ""},
		"another authority, token": {s.token, issued(s.servers, time.Hour, billing), 0, ""},
	} {
		status, text, err := s.get("/whoami", tt.token, tt.certificates...)
		if (err != nil) != (tt.status == 0) || status != tt.status || !strings.Contains(text, tt.contains) {
			t.Errorf("%s: status %d, %q, error %v", name, status, text, err)
		}
	}
}

// A listener can require a certificate.
func TestRequiredClientCertificates(t *testing.T) {
	t.Parallel()
	s := newSecureSite(t, true)
	if status, text, err := s.get("/livez", s.token); err == nil {
		t.Errorf("without a certificate: status %d, %s", status, text)
	}
	if status, text, err := s.get("/livez", "", s.clients.Issue(time.Hour)); err != nil || status != http.StatusOK {
		t.Errorf("with a certificate: status %d, %s, error %v", status, text, err)
	}
}

// The context of a request ends when the certificate of the client expires, because the connection
// may last longer.
func TestRequestsEndWithTheCertificate(t *testing.T) {
	t.Parallel()
	leaf := testca.New(t).Issue(time.Hour, billing).Leaf
	keys := &oneKey{grants: map[string]string{"cert:" + billing: "root"}}
	var deadline time.Time
	h := authenticated(auth.New(keys, "", nil), nil, http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		deadline, _ = r.Context().Deadline()
	}))
	r := whoamiRequest(t)
	r.TLS = &tls.ConnectionState{
		PeerCertificates: []*x509.Certificate{leaf}, VerifiedChains: [][]*x509.Certificate{{leaf}},
	}
	if h.ServeHTTP(nil, r); !deadline.Equal(leaf.NotAfter) {
		t.Errorf("the request ends at %s", deadline)
	}
}

func whoamiRequest(t *testing.T) *http.Request {
	t.Helper()
	r, err := http.NewRequestWithContext(t.Context(), http.MethodGet, "/whoami", nil)
	if err != nil {
		t.Fatal(err)
	}
	return r
}

// New certificates in the files apply to new connections. Files that cannot be used leave the
// previous certificates in place.
func TestCertificatesAreReadAgain(t *testing.T) {
	t.Parallel()
	s := newSecureSite(t, false)
	client := s.clients.Issue(time.Hour, billing)
	if status, text, err := s.get("/whoami", "", client); err != nil || status != http.StatusOK {
		t.Fatalf("status %d, %s, error %v", status, text, err)
	}
	first := s.certificates.Config()
	before := expiryOf(t, first)
	s.servers.Write(s.servers.Issue(2*time.Hour), s.files.Certificate, s.files.Key)
	other := testca.New(t)
	other.WriteAuthority(s.files.ClientCA)
	if !expiryOf(t, first).Equal(before) {
		t.Error("the files were read again immediately")
	}
	s.passed.Add(int64(certificateTime))
	if expiryOf(t, first).Equal(before) {
		t.Error("the new certificate is not used")
	}
	if status, text, err := s.get("/whoami", "", client); err == nil {
		t.Errorf("a client of the previous authority: status %d, %s", status, text)
	}
	status, text, err := s.get("/whoami", "", other.Issue(time.Hour, billing))
	if err != nil || status != http.StatusOK {
		t.Errorf("a client of the new authority: status %d, %s, error %v", status, text, err)
	}
	now := expiryOf(t, first)
	registry := prometheus.NewRegistry()
	registry.MustRegister(s.certificates.Collector())
	metrics, err := registry.Gather()
	if err != nil || metrics[0].GetMetric()[0].GetGauge().GetValue() != float64(now.Unix()) {
		t.Errorf("the metric is %v, error %v", metrics, err)
	}
	if err := os.WriteFile(s.files.Key, []byte("half of a"), 0o600); err != nil {
		t.Fatal(err)
	}
	s.passed.Add(int64(certificateTime))
	if !expiryOf(t, first).Equal(now) || !strings.Contains(s.log.String(), s.files.Key) {
		t.Errorf("after an error: expiry %s, log %q", expiryOf(t, first), s.log)
	}
}

// While one connection waits for the file system, others use the previous certificates.
func TestFilesAreReadByOneConnection(t *testing.T) {
	t.Parallel()
	s := newSecureSite(t, false)
	config := s.certificates.Config()
	before := expiryOf(t, config)
	key, err := os.ReadFile(s.files.Key)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.Remove(s.files.Key); err != nil {
		t.Fatal(err)
	}
	if err := syscall.Mkfifo(s.files.Key, 0o600); err != nil {
		t.Fatal(err)
	}
	s.passed.Add(int64(certificateTime))
	slow := make(chan time.Time, 1)
	go func() { slow <- expiryOf(t, config) }()
	var pipe *os.File
	for end := time.Now().Add(time.Minute); pipe == nil; { // opening fails until the other end is open
		pipe, err = os.OpenFile(s.files.Key, os.O_WRONLY|syscall.O_NONBLOCK, 0)
		if err != nil && time.Now().After(end) {
			t.Fatal("no connection reads the changed files: ", err)
		}
	}
	fast := make(chan time.Time, 1)
	go func() { fast <- expiryOf(t, config) }()
	select {
	case expiry := <-fast:
		if !expiry.Equal(before) {
			t.Errorf("another certificate: it expires at %s", expiry)
		}
	case <-time.After(time.Minute):
		t.Error("a connection waits for the files that another one reads")
	}
	if _, err := pipe.Write(key); err != nil {
		t.Error(err)
	}
	if err := pipe.Close(); err != nil {
		t.Error(err)
	}
	if expiry := <-slow; !expiry.Equal(before) {
		t.Errorf("the certificate that was read expires at %s", expiry)
	}
}

// expiryOf returns when the certificate of a new connection expires.
func expiryOf(t *testing.T, config *tls.Config) time.Time {
	t.Helper()
	current, err := config.GetConfigForClient(nil)
	if err != nil {
		t.Fatal(err)
	}
	return current.Certificates[0].Leaf.NotAfter
}

// The errors about files that cannot be used name the files.
func TestBadCertificates(t *testing.T) {
	t.Parallel()
	s := newSecureSite(t, false)
	text := filepath.Join(t.TempDir(), "text")
	if err := os.WriteFile(text, []byte("text"), 0o600); err != nil {
		t.Fatal(err)
	}
	for name, change := range map[string]func(*CertificateFiles) string{
		"no file":          func(f *CertificateFiles) string { f.Certificate = text + "2"; return text + "2" },
		"no certificate":   func(f *CertificateFiles) string { f.Certificate = text; return text },
		"no key":           func(f *CertificateFiles) string { f.Key = text; return text },
		"no authority":     func(f *CertificateFiles) string { f.ClientCA = text; return text },
		"key is no key":    func(f *CertificateFiles) string { f.Key = f.ClientCA; return f.ClientCA },
		"authority absent": func(f *CertificateFiles) string { f.ClientCA = text + "3"; return text + "3" },
	} {
		files := s.files
		named := change(&files)
		if _, err := LoadCertificates(files, nil); err == nil || !strings.Contains(err.Error(), named) {
			t.Errorf("%s: error %v", name, err)
		}
	}
}

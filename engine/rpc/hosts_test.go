package rpc

import (
	"context"
	"fmt"
	"net"
	"net/http"
	"net/netip"
	"net/url"
	"slices"
	"strings"
	"testing"

	"connectrpc.com/connect"

	progressorv1 "github.com/progressor-engine/progressor/proto/progressor/v1"
	"github.com/progressor-engine/progressor/proto/progressor/v1/progressorv1connect"
)

func testHosts(t testing.TB) *Hosts {
	t.Helper()
	hosts, err := NewHosts("Engine.internal:8080", "progressor.example.com", "*.svc.cluster.local", "single", "a_b.c.")
	if err != nil {
		t.Fatal(err)
	}
	return hosts
}

func TestHosts(t *testing.T) {
	t.Parallel()
	hosts := testHosts(t)
	for _, host := range []string{
		"localhost", "LocalHost:8080", "localhost.", "127.0.0.1", "127.0.0.1:8080", "192.0.2.7:80", "[::1]",
		"[::1]:8080", "[::ffff:127.0.0.1]:1", "engine.internal",
		"ENGINE.internal.:9", "progressor.example.com:443", "single:1",
		"a_b.c", "progressor.shop.svc.cluster.local:8080",
	} {
		if !hosts.allow(host) {
			t.Errorf("%q is rejected", host)
		}
	}
	for _, host := range []string{
		"", ":8080", "evil.example", "evil.example:8080", "localhost.evil.example", "127.0.0.1.evil.example",
		"evil.localhost", "xprogressor.example.com", "a.progressor.example.com", "svc.cluster.local",
		".svc.cluster.local", "example.com", "localhost:evil.example",
		"127.0.0.1:80@evil.example", "localhost@evil.example", "2130706433",
		"0x7f.0.0.1", "127.1", "::1:8080:", "[::1", "::1]", "[localhost]", "[localhost]:80", "[::1]evil.example",
		"[::1]evil.example:80", "[::1%evil.example]", "local host", "localhost,evil.example", "single.evil.example",
		" a.svc.cluster.local", "a@b.svc.cluster.local", "evil.example/.svc.cluster.local",
	} {
		if hosts.allow(host) {
			t.Errorf("%q is accepted", host)
		}
	}
	var none *Hosts
	if !none.allow("localhost:1") || !none.allow("10.0.0.1") || none.allow("engine.internal") {
		t.Error("without names, only localhost and addresses are allowed")
	}
}

func TestHostNamesAreChecked(t *testing.T) {
	t.Parallel()
	for _, name := range []string{"", "*", "*.", "a b", "a:80", "http://a", "a/", "-a", "a-", "a..b", "*a.b", "a.*.b",
		"ä.b", "[::1]", strings.Repeat("a", 64), strings.Repeat("a.", 127) + "a"} {
		if _, err := NewHosts(":8080", name); err == nil || len(err.Error()) > 250 {
			t.Errorf("%q: %v", name, err)
		}
	}
	for _, listen := range []string{"", ":8080", "0.0.0.0:8080", "[::]:8080"} {
		if hosts, err := NewHosts(listen); err != nil || hosts.allow("evil.example") || hosts.allow("") {
			t.Errorf("%q: %v", listen, err)
		}
	}
}

// If a Host is accepted, a parser of URLs also finds an IP address or an allowed name in the Host.
func FuzzHost(f *testing.F) {
	for _, host := range []string{"localhost:80", "[::1]:80", "127.0.0.1.evil", "x.svc.cluster.local", "a@b", "[a]",
		"a:b:c", "."} {
		f.Add(host)
	}
	f.Add(" a.svc.cluster.local")
	f.Fuzz(func(t *testing.T, host string) {
		if testHosts(t).allow(host) && !allowedName(host) {
			t.Fatalf("%q is accepted", host)
		}
	})
}

// allowedName reports whether a parser of URLs finds an address, or one of the names of testHosts,
// in a Host.
func allowedName(host string) bool {
	u, err := url.Parse("http://" + host + "/")
	if err != nil || u.User != nil || u.Path != "/" {
		return false
	}
	name := strings.TrimSuffix(strings.ToLower(u.Hostname()), ".")
	if _, err := netip.ParseAddr(name); err == nil || strings.HasSuffix(name, ".svc.cluster.local") {
		return true
	}
	return slices.Contains([]string{localhost, "engine.internal", "progressor.example.com", "single", "a_b.c"}, name)
}

// TestRebinding sends the requests of a page whose DNS name points to the engine. For the browser,
// the page and the engine are one site. The engine rejects and counts all these requests.
func TestRebinding(t *testing.T) {
	t.Parallel()
	s := newSite(t, echo())
	port := s.url[strings.LastIndexByte(s.url, ':'):]
	evil := "evil.example" + port
	attack := &http.Client{Transport: &http.Transport{
		DialContext: func(ctx context.Context, network, _ string) (net.Conn, error) {
			return new(net.Dialer).DialContext(ctx, network, "127.0.0.1"+port)
		},
	}}
	paths := []string{"/", "/metrics", "/livez", "/readyz", "/openapi.yaml", publicKeysPath, callPath,
		"/grpc.health.v1.Health/Check"}
	for _, path := range paths {
		r, err := http.NewRequestWithContext(t.Context(), http.MethodPost, "http://"+evil+path,
			strings.NewReader(`{"namespace":"n","processId":"p"}`))
		if err != nil {
			t.Fatal(err)
		}
		if path == "/metrics" || strings.HasSuffix(path, "z") {
			r.Method = http.MethodGet
		}
		r.Header.Set("Content-Type", "application/json")
		r.Header.Set("Origin", "http://"+evil)
		r.Header.Set("Sec-Fetch-Site", "same-origin")
		answer, err := attack.Do(r)
		if err != nil {
			t.Fatal(err)
		}
		_ = answer.Body.Close()
		if answer.StatusCode != http.StatusForbidden {
			t.Errorf("%s: %s", path, answer.Status)
		}
	}
	h2c := &http.Transport{DialContext: attack.Transport.(*http.Transport).DialContext, Protocols: new(http.Protocols)}
	h2c.Protocols.SetUnencryptedHTTP2(true)
	grpc := progressorv1connect.NewProcessServiceClient(&http.Client{Transport: h2c}, "http://"+evil, connect.WithGRPC())
	_, err := grpc.Call(t.Context(), &progressorv1.CallRequest{Namespace: "n", ProcessId: "p"})
	requireCode(t, err, connect.CodePermissionDenied)
	if !strings.Contains(err.Error(), "--listen-hosts") || !strings.Contains(err.Error(), "evil.example") {
		t.Errorf("error: %v", err)
	}
	_, body := get(t, s.url+"/metrics", "")
	rejected := len(paths) + 1 // with the call by gRPC
	if !strings.Contains(body, fmt.Sprintf("progressor_http_rejected_total{reason=\"host\"} %d\n", rejected)) {
		t.Errorf("not counted: %s", body)
	}
}

// The error of a rejected Host repeats only its beginning.
func TestLongHostIsNotRepeated(t *testing.T) {
	t.Parallel()
	s := newSite(t, echo())
	r, err := http.NewRequestWithContext(t.Context(), http.MethodPost, s.url+callPath, strings.NewReader("{}"))
	if err != nil {
		t.Fatal(err)
	}
	r.Host = strings.Repeat("x", 60_000)
	r.Header.Set("Content-Type", "application/json")
	answer, err := http.DefaultTransport.RoundTrip(r)
	if err != nil {
		t.Fatal(err)
	}
	defer answer.Body.Close()
	var body strings.Builder
	if err := answer.Write(&body); err != nil || answer.StatusCode != http.StatusForbidden || body.Len() > 1000 {
		t.Errorf("%s: %d bytes, %v", answer.Status, body.Len(), err)
	}
}

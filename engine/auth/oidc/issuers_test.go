package oidc

import (
	"bytes"
	"context"
	"crypto/ecdsa"
	"crypto/ed25519"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/rsa"
	"crypto/tls"
	"crypto/x509"
	"encoding/base64"
	"encoding/json"
	"encoding/pem"
	"errors"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/go-jose/go-jose/v4"
	"github.com/prometheus/client_golang/prometheus"

	"github.com/progressor-engine/progressor/internal/testissuer"
)

// config returns the usual configuration of an issuer.
func config(i *testissuer.Issuer) Config {
	return Config{Issuer: i.URL, Audience: testissuer.Audience, GroupsClaim: "groups", NameClaim: "sub"}
}

// accept returns the issuers of configurations.
func accept(t *testing.T, configs ...Config) *Issuers {
	t.Helper()
	all, err := New(configs, slog.New(slog.DiscardHandler), prometheus.NewRegistry())
	if err != nil {
		t.Fatal(err)
	}
	return all
}

// Verify verifies a token of one of the issuers.
func (i *Issuers) Verify(ctx context.Context, token string) (Identity, error) {
	one, err := i.Find(token)
	if err != nil {
		return Identity{}, err
	}
	return one.Verify(ctx, token)
}

// newRSA returns a key for an algorithm.
func newRSA(t *testing.T, keyID string, bits int, algorithm jose.SignatureAlgorithm) jose.JSONWebKey {
	t.Helper()
	key, err := rsa.GenerateKey(rand.Reader, bits)
	if err != nil {
		t.Fatal(err)
	}
	return testissuer.Key(key, keyID, algorithm)
}

// Tokens with RS256, ES256 or EdDSA are verified. Other algorithms are rejected, even if the issuer
// has a key for them. RSA keys with 1024 bits are also rejected.
func TestAlgorithms(t *testing.T) {
	t.Parallel()
	i := testissuer.New(t)
	_, ed, err := ed25519.GenerateKey(rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	p384, err := ecdsa.GenerateKey(elliptic.P384(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	large := newRSA(t, "rsa", 2048, jose.RS256)
	for _, c := range []struct {
		key jose.JSONWebKey
		ok  bool
	}{
		{testissuer.NewKey(t, "ec"), true},
		{testissuer.Key(ed, "ed", jose.EdDSA), true},
		{large, true},
		{testissuer.Key(large.Key, "rsa", jose.RS512), false},
		{testissuer.Key(large.Key, "rsa", jose.PS256), false},
		{newRSA(t, "small", 1024, jose.RS256), false},
		{testissuer.Key(p384, "p384", jose.ES384), false},
	} {
		i.Use(c.key)
		who, err := accept(t, config(i)).Verify(t.Context(), i.Token(nil))
		if (err == nil) != c.ok || c.ok && who.User != i.URL+"#alice" {
			t.Errorf("%s with %T: %+v, %v", c.key.Algorithm, c.key.Key, who, err)
		}
	}
}

// forged returns tokens that the issuer has not signed.
func forged(t *testing.T, i *testissuer.Issuer, key jose.JSONWebKey) map[string]string {
	t.Helper()
	public, err := x509.MarshalPKIXPublicKey(key.Public().Key)
	if err != nil {
		t.Fatal(err)
	}
	text := pem.EncodeToMemory(&pem.Block{Type: "PUBLIC KEY", Bytes: public})
	claims := i.Claims(nil)
	own := testissuer.NewKey(t, key.KeyID)
	encode := func(value any) string {
		text, err := json.Marshal(value)
		if err != nil {
			t.Fatal(err)
		}
		return base64.RawURLEncoding.EncodeToString(text)
	}
	token := i.Token(nil)
	parts := strings.Split(token, ".")
	other := i.Claims(map[string]any{"sub": "root"})
	embedded, err := jose.NewSigner(jose.SigningKey{Algorithm: jose.ES256, Key: own.Key},
		&jose.SignerOptions{EmbedJWK: true})
	if err != nil {
		t.Fatal(err)
	}
	payload, err := json.Marshal(claims)
	if err != nil {
		t.Fatal(err)
	}
	signed, err := embedded.Sign(payload)
	if err != nil {
		t.Fatal(err)
	}
	withKey, err := signed.CompactSerialize()
	if err != nil {
		t.Fatal(err)
	}
	return map[string]string{
		"none":               encode(map[string]string{"alg": "none", "kid": key.KeyID}) + "." + encode(claims) + ".",
		"none, signed":       encode(map[string]string{"alg": "none"}) + "." + encode(claims) + "." + parts[2],
		"HS256 with the key": testissuer.Sign(t, testissuer.Key(text, key.KeyID, jose.HS256), claims),
		"HS256 with DER":     testissuer.Sign(t, testissuer.Key(public, key.KeyID, jose.HS256), claims),
		"another key":        testissuer.Sign(t, own, claims),
		"key in the token":   withKey,
		"other claims":       parts[0] + "." + encode(other) + "." + parts[2],
		"no signature":       parts[0] + "." + parts[1] + ".",
		"cut":                token[:len(token)-4],
		"two parts":          parts[0] + "." + parts[1],
		"not JSON":           parts[0] + ".bm8." + parts[2],
		"not base64":         parts[0] + ".!." + parts[2],
	}
}

// A token that the issuer has not signed is rejected, and the client does not see the reason.
func TestForgedTokens(t *testing.T) {
	t.Parallel()
	i := testissuer.New(t)
	key := i.Rotate()
	all := accept(t, config(i))
	if _, err := all.Verify(t.Context(), i.Token(nil)); err != nil {
		t.Fatal(err)
	}
	for name, token := range forged(t, i, key) {
		who, err := all.Verify(t.Context(), token)
		var shown *ClaimError
		if err == nil || errors.As(err, &shown) || errors.Is(err, ErrUnreachable) {
			t.Errorf("%s: %+v, %v", name, who, err)
		}
	}
}

// A token is valid only with a key of the issuer that it names. Each group has the prefix of its
// issuer.
func TestSeveralIssuers(t *testing.T) {
	t.Parallel()
	a, b, unknown := testissuer.New(t), testissuer.New(t), testissuer.New(t)
	first, second := config(a), config(b)
	first.GroupPrefix, second.GroupPrefix, second.Audience = "a:", "b:", "other"
	all := accept(t, first, second)
	groups := map[string]any{"groups": []string{"admins", "b:admins"}}
	who, err := all.Verify(t.Context(), a.Token(groups))
	if err != nil || !slices.Equal(who.Groups, []string{"a:admins", "a:b:admins"}) {
		t.Errorf("%+v, %v", who, err)
	}
	for name, token := range map[string]string{
		"unknown issuer":               unknown.Token(nil),
		"unknown issuer names another": unknown.Token(map[string]any{"iss": a.URL}),
		"an issuer names another":      b.Token(map[string]any{"iss": a.URL}),
		"issuer with a slash":          a.Token(map[string]any{"iss": a.URL + "/"}),
		"no issuer":                    a.Token(map[string]any{"iss": nil}),
		"audience of another issuer":   b.Token(nil),
	} {
		if who, err := all.Verify(t.Context(), token); err == nil {
			t.Errorf("%s: %+v", name, who)
		}
	}
}

// New keys are used immediately, but tokens with unknown keys do not cause an unlimited number of
// reads.
func TestRotatedKeys(t *testing.T) {
	t.Parallel()
	i := testissuer.New(t)
	all, now := accept(t, config(i)), time.Now()
	all.now = func() time.Time { return now }
	old := i.Token(nil)
	if _, err := all.Verify(t.Context(), old); err != nil {
		t.Fatal(err)
	}
	i.Rotate()
	if _, err := all.Verify(t.Context(), i.Token(nil)); err != nil {
		t.Errorf("the new key: %v", err)
	}
	if _, err := all.Verify(t.Context(), old); !errors.Is(err, errUnknownKey) {
		t.Errorf("the old key: %v", err)
	}
	if i.Reads() != retryBurst {
		t.Fatalf("%d reads", i.Reads())
	}
	for range 20 {
		foreign := testissuer.Sign(t, testissuer.NewKey(t, rand.Text()), i.Claims(nil))
		if _, err := all.Verify(t.Context(), foreign); !errors.Is(err, errUnknownKey) {
			t.Errorf("a key of another issuer: %v", err)
		}
	}
	if i.Reads() != retryBurst {
		t.Errorf("%d reads after keys of another issuer", i.Reads())
	}
	now = now.Add(retryTime)
	i.Rotate()
	if _, err := all.Verify(t.Context(), i.Token(nil)); err != nil || i.Reads() != retryBurst+1 {
		t.Errorf("the next key: %v after %d reads", err, i.Reads())
	}
}

// Keys that the issuer has withdrawn are not used after the next read, even if the issuer has no
// other key. They are still used if the answer is not a set of keys, such as an error page.
func TestWithdrawnKeys(t *testing.T) {
	t.Parallel()
	key, err := ecdsa.GenerateKey(elliptic.P384(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	p384 := testissuer.Key(key, "p384", jose.ES384)
	other, err := json.Marshal(jose.JSONWebKeySet{Keys: []jose.JSONWebKey{p384.Public()}})
	if err != nil {
		t.Fatal(err)
	}
	for name, c := range map[string]struct {
		text      string
		withdrawn bool
	}{
		"no keys":           {`{"keys": []}`, true},
		"another algorithm": {string(other), true},
		"too many keys":     {`{"keys": [` + strings.Repeat("{}, ", maxKeys) + `{}]}`, true},
		"an error":          {`{"error": "busy"}`, false},
		"null":              {`{"keys": null}`, false},
		"an object":         {`{"keys": {}}`, false},
		"a page":            {"<html>", false},
	} {
		i := testissuer.New(t)
		all, token := accept(t, config(i)), i.Token(nil)
		if _, err := all.Verify(t.Context(), token); err != nil {
			t.Fatal(err)
		}
		i.Publish(c.text)
		err := all.all[i.URL].keys.refresh(t.Context(), nil)
		if err == nil || errors.Is(err, errUnusable) != c.withdrawn {
			t.Errorf("%s: the read returns %v", name, err)
		}
		_, err = all.Verify(t.Context(), token)
		if (err != nil) != c.withdrawn || errors.Is(err, ErrUnreachable) {
			t.Errorf("%s: a token with the known key: %v", name, err)
		}
		i.Rotate()
		if _, err := all.Verify(t.Context(), i.Token(nil)); err != nil {
			t.Errorf("%s: a token with the next key: %v", name, err)
		}
	}
}

// readsIn returns progressor_oidc_key_reads_total by outcome.
func readsIn(t *testing.T, registry *prometheus.Registry) map[string]float64 {
	t.Helper()
	families, err := registry.Gather()
	if err != nil || len(families) != 1 || families[0].GetName() != "progressor_oidc_key_reads_total" {
		t.Fatalf("%v, %v", families, err)
	}
	reads := map[string]float64{}
	for _, m := range families[0].GetMetric() {
		reads[m.GetLabel()[1].GetValue()] = m.GetCounter().GetValue()
	}
	return reads
}

// While the issuer is down, known keys work for a day. Other tokens cannot be checked.
func TestIssuerIsDown(t *testing.T) {
	t.Parallel()
	i := testissuer.New(t)
	var logged bytes.Buffer
	registry := prometheus.NewRegistry()
	all, err := New([]Config{config(i)}, slog.New(slog.NewTextHandler(&logged, nil)), registry)
	if err != nil {
		t.Fatal(err)
	}
	now := time.Now()
	all.now = func() time.Time { return now }
	long := i.Token(map[string]any{"exp": now.Add(100 * time.Hour).Unix()})
	i.SetDown(true)
	for range 2 * retryBurst {
		if _, err := all.Verify(t.Context(), long); !errors.Is(err, ErrUnreachable) {
			t.Errorf("down from the start: %v", err)
		}
	}
	if !strings.Contains(logged.String(), "cannot read the keys of the issuer") {
		t.Errorf("log: %s", &logged)
	}
	if got := readsIn(t, registry); got["error"] != retryBurst || got["ok"] != 0 || len(got) != 2 {
		t.Errorf("metrics: %v", got)
	}
	i.SetDown(false)
	now = now.Add(retryTime)
	if _, err := all.Verify(t.Context(), long); err != nil {
		t.Errorf("up again: %v", err)
	}
	i.SetDown(true)
	now = now.Add(staleTime)
	if _, err := all.Verify(t.Context(), long); err != nil {
		t.Errorf("down for a day: %v", err)
	}
	if _, err := all.Verify(t.Context(), testissuer.Sign(t, testissuer.NewKey(t, "new"), i.Claims(nil))); !errors.Is(
		err, ErrUnreachable) {
		t.Errorf("an unknown key while it is down: %v", err)
	}
	now = now.Add(time.Second)
	if _, err := all.Verify(t.Context(), long); !errors.Is(err, ErrUnreachable) {
		t.Errorf("down for more than a day: %v", err)
	}
}

// Run reads the keys before they are needed.
func TestRunReadsKeys(t *testing.T) {
	t.Parallel()
	i := testissuer.New(t)
	all := accept(t, config(i))
	read := make(chan error, 1)
	all.all[i.URL].keys.onRead = func(err error) { read <- err }
	go all.Run(t.Context())
	if err := <-read; err != nil || i.Reads() != 1 {
		t.Errorf("%v, %d reads", err, i.Reads())
	}
	if _, err := all.Verify(t.Context(), i.Token(nil)); err != nil || i.Reads() != 1 {
		t.Errorf("%v, %d reads", err, i.Reads())
	}
}

// The discovery document must belong to the issuer, and its keys must be usable.
func TestDiscovery(t *testing.T) {
	t.Parallel()
	const location = "jwks_uri of the issuer: must be an https URL"
	for _, c := range []struct {
		name, want string
		change     func(map[string]any)
	}{
		{"another issuer", "did not match", func(d map[string]any) { d["issuer"] = "https://login.example.com" }},
		{"no keys", location, func(d map[string]any) { delete(d, "jwks_uri") }},
		{"plain HTTP", location, func(d map[string]any) { d["jwks_uri"] = "http://keys.example.com/" }},
		{"a file", location, func(d map[string]any) { d["jwks_uri"] = "file:///etc/passwd" }},
		{"metadata", "is not allowed", func(d map[string]any) { d["jwks_uri"] = "https://169.254.169.254/keys" }},
		{"too large", "too large", func(d map[string]any) { d["more"] = strings.Repeat("a", maxBody) }},
		{"not found", "404", func(d map[string]any) { d["jwks_uri"] = d["jwks_uri"].(string) + "/none" }},
	} {
		i := testissuer.New(t)
		i.Change(c.change)
		_, err := accept(t, config(i)).Verify(t.Context(), i.Token(nil))
		if !errors.Is(err, ErrUnreachable) || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: %v, want %s", c.name, err, c.want)
		}
	}
	i := testissuer.New(t)
	i.Use(newRSA(t, "small", 1024, jose.RS256))
	if _, err := accept(t, config(i)).Verify(t.Context(), i.Token(nil)); err == nil ||
		!strings.Contains(err.Error(), "no key for RS256") {
		t.Errorf("only a small key: %v", err)
	}
	encryption := testissuer.NewKey(t, "enc")
	encryption.Use = "enc"
	i.Use(encryption, testissuer.NewKey(t, "sig"))
	if _, err := accept(t, config(i)).Verify(t.Context(), i.Token(nil)); !errors.Is(err, errUnknownKey) {
		t.Errorf("a key for encryption: %v", err)
	}
	one, two := testissuer.NewKey(t, "one"), testissuer.NewKey(t, "two")
	nameless := one
	nameless.KeyID = ""
	token := testissuer.Sign(t, nameless, i.Claims(nil))
	i.Use(one)
	if _, err := accept(t, config(i)).Verify(t.Context(), token); err != nil {
		t.Errorf("a token without a kid was rejected with one key: %v", err)
	}
	i.Use(one, two)
	if _, err := accept(t, config(i)).Verify(t.Context(), token); err == nil {
		t.Error("a token without a kid was accepted with two keys")
	}
}

// An issuer with TLS needs a certificate of a trusted authority. A file may contain the
// authorities.
func TestIssuerWithTLS(t *testing.T) {
	t.Parallel()
	i := testissuer.Unstarted(t)
	server := httptest.NewUnstartedServer(i)
	server.TLS = &tls.Config{MinVersion: tls.VersionTLS12}
	server.Config.ErrorLog = slog.NewLogLogger(slog.DiscardHandler, slog.LevelError)
	server.StartTLS()
	t.Cleanup(server.Close)
	i.URL = server.URL
	c := config(i)
	_, err := accept(t, c).Verify(t.Context(), i.Token(nil))
	if !errors.Is(err, ErrUnreachable) || !strings.Contains(err.Error(), "unknown authority") {
		t.Errorf("an unknown authority: %v", err)
	}
	c.CAFile = filepath.Join(t.TempDir(), "ca.crt")
	text := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: server.Certificate().Raw})
	if err := os.WriteFile(c.CAFile, text, 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := accept(t, c).Verify(t.Context(), i.Token(nil)); err != nil {
		t.Error(err)
	}
}

// If an issuer uses TLS, the URL of its keys must also use TLS.
func TestKeysAreReadByTLS(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		issuer, keys string
		ok           bool
	}{
		{"https://a", "https://b/keys", true}, {"https://a", "http://127.0.0.1:8/keys", false},
		{"http://127.0.0.1:8", "http://127.0.0.1:9/keys", true}, {"http://127.0.0.1:8", "http://b/keys", false},
		{"http://127.0.0.1:8", "https://b/keys", true}, {"https://a", "https://u:p@b/keys", false},
		{"https://a", "/keys", false}, {"https://a", "file:///keys", false}, {"https://a", "", false},
	} {
		k := &keys{config: Config{Issuer: c.issuer}}
		if err := k.checkLocation(c.keys); (err == nil) != c.ok {
			t.Errorf("%s has keys at %s: %v", c.issuer, c.keys, err)
		}
	}
}

// Requests to link-local addresses and to addresses of cloud metadata are rejected.
func TestIssuerAddresses(t *testing.T) {
	t.Parallel()
	client, err := Config{}.client()
	if err != nil {
		t.Fatal(err)
	}
	for _, url := range []string{"http://169.254.169.254/keys", "http://[fe80::1]/keys", "http://[fd00:ec2::254]/"} {
		ctx, cancel := context.WithTimeout(t.Context(), readTimeout)
		request, err := http.NewRequestWithContext(ctx, http.MethodGet, url, http.NoBody)
		if err != nil {
			t.Fatal(err)
		}
		response, err := client.Do(request)
		if err == nil {
			_ = response.Body.Close()
		}
		if err == nil || !strings.Contains(err.Error(), "is not allowed") {
			t.Errorf("%s: %v", url, err)
		}
		cancel()
	}
}

// Redirects of an issuer are not followed, because they could lead to other hosts or to plain HTTP.
func TestIssuerRedirects(t *testing.T) {
	t.Parallel()
	i := testissuer.New(t)
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		http.Redirect(w, r, i.URL+r.URL.Path, http.StatusFound)
	}))
	t.Cleanup(server.Close)
	url := server.URL
	i.Change(func(d map[string]any) { d["issuer"] = url })
	c := config(i)
	c.Issuer = url
	_, err := accept(t, c).Verify(t.Context(), i.Token(map[string]any{"iss": url}))
	if !errors.Is(err, ErrUnreachable) || !strings.Contains(err.Error(), errRedirect.Error()) {
		t.Error(err)
	}
}

// Package testissuer is an issuer of OpenID Connect for tests: an HTTP server with its discovery
// document and keys, which signs tokens. Users log in with the device flow or in a browser.
package testissuer

import (
	"crypto"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"net/http"
	"net/http/httptest"
	"sync"
	"testing"
	"time"

	"github.com/go-jose/go-jose/v4"
)

// Audience is the default audience of tokens.
const Audience = "progressor"

// Issuer is an issuer on loopback.
type Issuer struct {
	URL string

	t  testing.TB
	mu sync.Mutex

	key    jose.JSONWebKey   // signs tokens
	public []jose.JSONWebKey // keys that the server shows
	text   string            // shown in place of public if not empty
	down   bool
	reads  int // number of reads of the keys
	change func(document map[string]any)
	device device
	codes  codes
}

// New starts an issuer with a key for ES256.
func New(t testing.TB) *Issuer {
	t.Helper()
	i := Unstarted(t)
	server := httptest.NewServer(i)
	t.Cleanup(server.Close)
	i.URL = server.URL
	return i
}

// Unstarted returns an issuer without a server. Use it as the handler of a test server, and set its
// URL.
func Unstarted(t testing.TB) *Issuer {
	t.Helper()
	i := &Issuer{t: t}
	i.Rotate()
	return i
}

// NewKey returns a key for ES256.
func NewKey(t testing.TB, keyID string) jose.JSONWebKey {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	return jose.JSONWebKey{Key: key, KeyID: keyID, Algorithm: string(jose.ES256), Use: "sig"}
}

// Rotate replaces the key with a new one, which has another ID, and returns it.
func (i *Issuer) Rotate() jose.JSONWebKey {
	key := NewKey(i.t, rand.Text())
	i.Use(key)
	return key
}

// Use replaces the keys of the issuer. The first one signs tokens.
func (i *Issuer) Use(keys ...jose.JSONWebKey) {
	i.mu.Lock()
	defer i.mu.Unlock()
	i.key, i.public, i.text = keys[0], nil, ""
	for _, key := range keys {
		i.public = append(i.public, key.Public())
	}
}

// Publish makes the issuer serve a text instead of the document with the keys.
func (i *Issuer) Publish(text string) {
	i.mu.Lock()
	defer i.mu.Unlock()
	i.text = text
}

// SetDown makes the server fail, or work again.
func (i *Issuer) SetDown(down bool) {
	i.mu.Lock()
	defer i.mu.Unlock()
	i.down = down
}

// Change changes the discovery document before it is sent.
func (i *Issuer) Change(change func(document map[string]any)) {
	i.mu.Lock()
	defer i.mu.Unlock()
	i.change = change
}

// Reads returns how often the keys were read.
func (i *Issuer) Reads() int {
	i.mu.Lock()
	defer i.mu.Unlock()
	return i.reads
}

// ServeHTTP serves the discovery document and the keys.
func (i *Issuer) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	i.mu.Lock()
	defer i.mu.Unlock()
	_, _, hasSecret := r.BasicAuth()
	if r.Header.Get("Authorization") != "" && (!hasSecret || r.URL.Path != "/token") {
		i.t.Errorf("%s has a token, which is for the engine only", r.URL.Path)
	}
	var document any
	status := http.StatusOK
	switch {
	case i.down:
		http.Error(w, "down", http.StatusServiceUnavailable)
		return
	case r.URL.Path == "/.well-known/openid-configuration":
		discovery := map[string]any{
			"issuer": i.URL, "jwks_uri": i.URL + "/keys", "token_endpoint": i.URL + "/token",
			"device_authorization_endpoint": i.URL + "/device", "revocation_endpoint": i.URL + "/revoke",
			"authorization_endpoint":                         i.URL + "/authorize",
			"authorization_response_iss_parameter_supported": true,
		}
		if i.codes.posted {
			discovery["token_endpoint_auth_methods_supported"] = []string{"client_secret_post"}
		}
		if i.change != nil {
			i.change(discovery)
		}
		document = discovery
	case r.URL.Path == "/keys" && i.text != "":
		i.reads++
		_, _ = io.WriteString(w, i.text) // the client may have closed the connection
		return
	case r.URL.Path == "/keys":
		i.reads++
		document = jose.JSONWebKeySet{Keys: i.public}
	case r.URL.Path == "/authorize":
		i.authorize(w, r)
		return
	case r.URL.Path == "/device":
		document = i.begin()
	case r.URL.Path == "/token" && r.FormValue("grant_type") == "authorization_code":
		document, status = i.redeem(r)
	case r.URL.Path == "/token":
		document, status = i.exchange(r)
	case r.URL.Path == "/revoke":
		document, status = i.revoke(r)
	default:
		http.NotFound(w, r)
		return
	}
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	if err := json.NewEncoder(w).Encode(document); err != nil {
		i.t.Error(err)
	}
}

// Claims returns valid claims of a token of alice, changed by others. A nil value removes a claim.
func (i *Issuer) Claims(others map[string]any) map[string]any {
	now := time.Now()
	claims := map[string]any{
		"iss": i.URL, "aud": Audience, "sub": "alice", "iat": now.Unix(), "exp": now.Add(time.Hour).Unix(),
	}
	maps.Copy(claims, others)
	maps.DeleteFunc(claims, func(_ string, value any) bool { return value == nil })
	return claims
}

// Token returns a signed token with Claims.
func (i *Issuer) Token(others map[string]any) string {
	i.t.Helper()
	i.mu.Lock()
	key := i.key
	i.mu.Unlock()
	return Sign(i.t, key, i.Claims(others))
}

// Sign returns a token with claims. A private or shared key signs it with the algorithm of the key.
func Sign(t testing.TB, key jose.JSONWebKey, claims map[string]any) string {
	t.Helper()
	payload, err := json.Marshal(claims)
	if err != nil {
		t.Fatal(err)
	}
	options := (&jose.SignerOptions{}).WithType("JWT")
	signer, err := jose.NewSigner(jose.SigningKey{Algorithm: jose.SignatureAlgorithm(key.Algorithm), Key: key}, options)
	if err != nil {
		t.Fatal(fmt.Errorf("%s with %T: %w", key.Algorithm, key.Key, err))
	}
	signed, err := signer.Sign(payload)
	if err != nil {
		t.Fatal(err)
	}
	text, err := signed.CompactSerialize()
	if err != nil {
		t.Fatal(err)
	}
	return text
}

// Key returns a JSON Web Key.
func Key(key crypto.PrivateKey, keyID string, algorithm jose.SignatureAlgorithm) jose.JSONWebKey {
	return jose.JSONWebKey{Key: key, KeyID: keyID, Algorithm: string(algorithm)}
}

package oidc

import (
	"context"
	"crypto/ecdsa"
	"crypto/ed25519"
	"crypto/elliptic"
	"crypto/rsa"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"sync"
	"time"

	"github.com/coreos/go-oidc/v3/oidc"
	"github.com/go-jose/go-jose/v4"
	"golang.org/x/time/rate"
)

const (
	// refreshTime is the time between two reads of an issuer's keys. A key that the issuer has
	// removed is not accepted after that time.
	refreshTime = 5 * time.Minute
	// retryTime is how long a node waits after it failed to read the keys, and between two reads
	// for tokens with unknown keys.
	retryTime = 10 * time.Second
	// retryBurst is the number of reads for tokens with unknown keys that need not wait.
	retryBurst = 3
	// staleTime is how long keys are used while they cannot be read from the issuer.
	staleTime = 24 * time.Hour
	// readTimeout limits a read of the keys.
	readTimeout = 5 * time.Second
	// maxKeys limits the number of keys of an issuer.
	maxKeys = 100
	// minModulus and maxModulus limit the size of RSA keys in bits.
	minModulus, maxModulus = 2048, 8192
)

// algorithms are the accepted signatures. The keys of an issuer are public, so this list must never
// contain algorithms with a shared secret.
var algorithms = []jose.SignatureAlgorithm{jose.RS256, jose.ES256, jose.EdDSA}

// Errors of signatures. They are logged, and not shown to clients.
var (
	errUnknownKey = errors.New("the issuer has no key with the kid of the token")
	errSignature  = errors.New("the signature does not match the key")
	errUnusable   = errors.New("the keys of the issuer cannot be used")
)

// keys are the public keys of an issuer.
type keys struct {
	config Config
	client *http.Client
	now    func() time.Time
	onRead func(error) // called after each read
	demand *rate.Limiter
	slot   chan struct{} // has an element while the keys are read

	mu       sync.Mutex
	set      []jose.JSONWebKey
	read     time.Time  // when set was read
	reads    int        // number of reads, including those that failed
	err      error      // result of the last read
	document *discovery // the last document that was read, or nil
}

// discovery is the part of an issuer's discovery document that the engine needs.
type discovery struct {
	JWKS          string   `json:"jwks_uri"`
	Authorization string   `json:"authorization_endpoint"`
	Token         string   `json:"token_endpoint"`
	TokenAuth     []string `json:"token_endpoint_auth_methods_supported"`
	NamesIssuer   bool     `json:"authorization_response_iss_parameter_supported"`
}

func newKeys(c Config, client *http.Client, now func() time.Time, onRead func(error)) *keys {
	return &keys{
		config: c, client: client, now: now, onRead: onRead, slot: make(chan struct{}, 1),
		demand: rate.NewLimiter(rate.Every(retryTime), retryBurst),
	}
}

// keep reads the keys every refreshTime until ctx ends.
func (k *keys) keep(ctx context.Context) {
	for ctx.Err() == nil {
		wait := refreshTime
		if k.refresh(ctx, nil) != nil {
			wait = retryTime
		}
		timer := time.NewTimer(wait)
		select {
		case <-ctx.Done():
		case <-timer.C:
		}
		timer.Stop()
	}
}

// verify returns the payload of a token that the issuer has signed.
func (k *keys) verify(ctx context.Context, token string) ([]byte, error) {
	jws, err := jose.ParseSignedCompact(token, algorithms)
	if err != nil {
		return nil, fmt.Errorf("the token is malformed, or its algorithm is not RS256, ES256 or EdDSA: %w", err)
	}
	header := jws.Signatures[0].Header
	candidates, reads := k.find(header)
	if len(candidates) == 0 {
		err := k.refresh(ctx, &reads)
		switch {
		case errors.Is(err, errUnusable):
			return nil, err
		case err != nil:
			return nil, fmt.Errorf("%w: %w", ErrUnreachable, err)
		}
		if candidates, _ = k.find(header); len(candidates) == 0 {
			return nil, errUnknownKey
		}
	}
	if header.KeyID == "" && len(candidates) > 1 {
		return nil, errors.New("the token has no kid, but the issuer has several keys")
	}
	for n := range candidates {
		if payload, err := jws.Verify(candidates[n].Key); err == nil {
			return payload, nil
		}
	}
	return nil, errSignature
}

// find returns the keys that may have been used for a signature, and the number of reads so far.
func (k *keys) find(header jose.Header) (found []jose.JSONWebKey, reads int) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.now().Sub(k.read) > staleTime {
		return nil, k.reads
	}
	for _, key := range k.set {
		if (header.KeyID == "" || key.KeyID == header.KeyID) && algorithmOf(key.Key) == header.Algorithm {
			found = append(found, key)
		}
	}
	return found, k.reads
}

// refresh reads the keys. If known is not nil, it is the number of reads that the caller knows.
// refresh then uses the result of a later read, if there is one, and limits the rate of reads.
func (k *keys) refresh(ctx context.Context, known *int) error {
	select {
	case k.slot <- struct{}{}:
	case <-ctx.Done():
		return ctx.Err()
	}
	defer func() { <-k.slot }()
	if known != nil {
		k.mu.Lock()
		reads, err := k.reads, k.err
		k.mu.Unlock()
		if reads != *known || !k.demand.AllowN(k.now(), 1) {
			return err
		}
	}
	// Other requests wait for this read, so it continues if its client has disconnected.
	reading, cancel := context.WithTimeout(context.WithoutCancel(ctx), readTimeout)
	defer cancel()
	set, err := k.load(reading)
	k.mu.Lock()
	k.reads++
	k.err = err
	if err == nil || errors.Is(err, errUnusable) { // the issuer no longer publishes the other keys
		k.set, k.read = set, k.now()
	}
	k.mu.Unlock()
	k.onRead(err)
	return err
}

// load asks the issuer where its keys are, and reads them.
func (k *keys) load(ctx context.Context) ([]jose.JSONWebKey, error) {
	provider, err := oidc.NewProvider(oidc.ClientContext(ctx, k.client), k.config.Issuer)
	if err != nil {
		return nil, err
	}
	var document discovery
	if err := provider.Claims(&document); err != nil {
		return nil, err
	}
	k.mu.Lock()
	k.document = &document
	k.mu.Unlock()
	if err := k.checkLocation(document.JWKS); err != nil {
		return nil, err
	}
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, document.JWKS, http.NoBody)
	if err != nil {
		return nil, err
	}
	response, err := k.client.Do(request)
	if err != nil {
		return nil, err
	}
	defer response.Body.Close()
	text, err := io.ReadAll(response.Body)
	switch {
	case err != nil:
		return nil, fmt.Errorf("keys at %s: %w", document.JWKS, err)
	case response.StatusCode != http.StatusOK:
		return nil, fmt.Errorf("keys at %s: the server returns %s", document.JWKS, response.Status)
	}
	return parseKeys(text)
}

// discovered returns the discovery document of the issuer, and reads it if necessary.
func (k *keys) discovered(ctx context.Context) (*discovery, error) {
	known := func() (*discovery, int) {
		k.mu.Lock()
		defer k.mu.Unlock()
		return k.document, k.reads
	}
	document, reads := known()
	if document != nil {
		return document, nil
	}
	err := k.refresh(ctx, &reads)
	if document, _ = known(); document == nil {
		return nil, fmt.Errorf("%w: %w", ErrUnreachable, err)
	}
	return document, nil
}

// checkLocation returns an error if the URL of the keys is less protected than the URL of the
// issuer.
func (k *keys) checkLocation(text string) error { return k.checkEndpoint("jwks_uri", text) }

// checkEndpoint returns an error if a URL in the discovery document is less protected than the URL
// of the issuer.
func (k *keys) checkEndpoint(name, text string) error {
	u, err := url.Parse(text)
	if err == nil && u.Host != "" && u.User == nil && (u.Scheme == "https" ||
		u.Scheme == "http" && k.config.local() && isLoopback(u.Hostname())) {
		return nil
	}
	return fmt.Errorf("%s of the issuer: must be an https URL (got %.200q)", name, text)
}

// local reports whether the issuer is on this machine, without TLS.
func (c Config) local() bool {
	u, err := url.Parse(c.Issuer)
	return err == nil && u.Scheme == "http"
}

// parseKeys returns the keys of a set that can verify tokens. It skips others, such as keys for
// encryption and those of algorithms that are not accepted. If the text is a set without an
// accepted key, parseKeys returns errUnusable.
func parseKeys(text []byte) (set []jose.JSONWebKey, err error) {
	var document struct {
		Keys []json.RawMessage `json:"keys"`
	}
	if err := json.Unmarshal(text, &document); err != nil {
		return nil, fmt.Errorf("the keys of the issuer are not a JSON Web Key Set: %w", err)
	}
	switch {
	case document.Keys == nil:
		return nil, errors.New("the keys of the issuer are not a JSON Web Key Set: there is no list of keys")
	case len(document.Keys) > maxKeys:
		return nil, fmt.Errorf("%w: it has %d keys, but at most %d are supported", errUnusable, len(document.Keys),
			maxKeys)
	}
	for _, raw := range document.Keys {
		var key jose.JSONWebKey
		if key.UnmarshalJSON(raw) != nil || key.Use != "" && key.Use != "sig" {
			continue
		}
		algorithm := algorithmOf(key.Key)
		if algorithm == "" || key.Algorithm != "" && key.Algorithm != algorithm {
			continue
		}
		set = append(set, key)
	}
	if len(set) == 0 {
		return nil, fmt.Errorf("%w: it has no key for RS256 (2048 to 8192 bits), ES256 or EdDSA", errUnusable)
	}
	return set, nil
}

// algorithmOf returns the only accepted algorithm for a public key, or "" if there is none.
func algorithmOf(key any) string {
	switch key := key.(type) {
	case *rsa.PublicKey:
		if bits := key.N.BitLen(); bits >= minModulus && bits <= maxModulus {
			return string(jose.RS256)
		}
	case *ecdsa.PublicKey:
		if key.Curve == elliptic.P256() {
			return string(jose.ES256)
		}
	case ed25519.PublicKey:
		return string(jose.EdDSA)
	}
	return ""
}

package oidc

import (
	"context"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"sync"
	"time"

	"github.com/coreos/go-oidc/v3/oidc"
	"github.com/prometheus/client_golang/prometheus"
)

// ErrUnreachable is returned if a token cannot be checked because the keys of its issuer could not
// be read. It is also returned if the issuer does not answer during a login.
var ErrUnreachable = errors.New("the issuer cannot be reached")

// ClaimError is returned for a token that its issuer has signed, but whose claims are not accepted.
// The client may see it.
type ClaimError struct{ Reason string }

func (e *ClaimError) Error() string { return e.Reason }

// Issuers verifies the tokens of issuers. It is safe for concurrent use.
type Issuers struct {
	all    map[string]*Issuer // by URL
	logins []*Issuer          // those with logins to the console, in the order of the configuration
	now    func() time.Time
}

// Issuer verifies the tokens of one issuer. It is safe for concurrent use.
type Issuer struct {
	config Config
	keys   *keys
	now    func() time.Time
}

// New returns the issuers. It does not connect to them. registerer may be nil.
func New(configs []Config, log *slog.Logger, registerer prometheus.Registerer) (*Issuers, error) {
	if err := Check(configs...); err != nil {
		return nil, err
	}
	reads := prometheus.NewCounterVec(prometheus.CounterOpts{
		Name: "progressor_oidc_key_reads_total",
		Help: "Reads of the keys of an issuer by outcome (ok, error).",
	}, []string{"issuer", "outcome"})
	if registerer != nil {
		registerer.MustRegister(reads)
	}
	i := &Issuers{all: map[string]*Issuer{}, now: time.Now}
	now := func() time.Time { return i.now() }
	for _, c := range configs {
		client, err := c.client()
		if err != nil {
			return nil, err
		}
		ok, failed := reads.WithLabelValues(c.Issuer, "ok"), reads.WithLabelValues(c.Issuer, "error")
		onRead := func(err error) {
			if err == nil {
				ok.Inc()
				return
			}
			failed.Inc()
			log.Error("cannot read the keys of the issuer", "issuer", c.Issuer, "error", fmt.Sprintf("%.500s", err))
		}
		one := &Issuer{c, newKeys(c, client, now, onRead), now}
		i.all[c.Issuer] = one
		if c.ClientID != "" {
			i.logins = append(i.logins, one)
		}
	}
	return i, nil
}

// Run keeps the keys of all issuers up to date until ctx ends.
func (i *Issuers) Run(ctx context.Context) {
	var all sync.WaitGroup
	for _, one := range i.all {
		all.Go(func() { one.keys.keep(ctx) })
	}
	all.Wait()
}

// Find returns the issuer in a token. It does not verify the token, so it is fast.
func (i *Issuers) Find(token string) (*Issuer, error) {
	from, err := issuerOf(token)
	if err != nil {
		return nil, err
	}
	one := i.all[from]
	if one == nil {
		return nil, fmt.Errorf("the issuer %.240q is not configured", from)
	}
	return one, nil
}

// Verify returns the user and the groups in a token. The error wraps ErrUnreachable if the keys of
// the issuer cannot be read. It is a ClaimError if the issuer has signed the token but a claim is
// not accepted. If the issuer has not signed the token, it is another error.
func (i *Issuer) Verify(ctx context.Context, token string) (Identity, error) {
	verified, err := i.verify(ctx, token, i.config.Audience)
	if err != nil {
		return Identity{}, err
	}
	return i.config.identify(verified)
}

// verify is Verify for an audience, but does not read the user and the groups.
func (i *Issuer) verify(ctx context.Context, token, audience string) (*oidc.IDToken, error) {
	signature := &signature{keys: i.keys}
	verified, err := oidc.NewVerifier(i.config.Issuer, signature, &oidc.Config{
		ClientID: audience, SupportedSigningAlgs: []string{oidc.RS256, oidc.ES256, oidc.EdDSA}, Now: i.now,
	}).Verify(ctx, token)
	switch {
	case signature.err != nil:
		return nil, signature.err
	case err != nil && signature.valid:
		return nil, &ClaimError{strings.TrimPrefix(err.Error(), "oidc: ")}
	}
	return verified, err
}

// signature checks the signature of one token and keeps the result, because the verifier of the
// library returns only the text of an error.
type signature struct {
	keys  *keys
	valid bool
	err   error
}

// VerifySignature implements oidc.KeySet.
func (s *signature) VerifySignature(ctx context.Context, token string) (payload []byte, err error) {
	payload, s.err = s.keys.verify(ctx, token)
	s.valid = s.err == nil
	return payload, s.err
}

// issuerOf returns the issuer that a token names. It does not verify the token.
func issuerOf(token string) (string, error) {
	parts := strings.Split(token, ".")
	if len(parts) != 3 {
		return "", errors.New("the token is not a JSON Web Token")
	}
	payload, err := base64.RawURLEncoding.DecodeString(parts[1])
	if err != nil {
		return "", fmt.Errorf("the payload of the token: %w", err)
	}
	var claims struct {
		Issuer string `json:"iss"`
	}
	if err := json.Unmarshal(payload, &claims); err != nil {
		return "", fmt.Errorf("the payload of the token: %w", err)
	}
	return claims.Issuer, nil
}

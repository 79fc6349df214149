package login

import (
	"cmp"
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/netip"
	"net/url"
	"os"
	"strings"
	"time"

	"github.com/coreos/go-oidc/v3/oidc"
	"golang.org/x/oauth2"
)

// requestTimeout limits each request to an issuer.
const requestTimeout = 15 * time.Second

// Seconds between two requests for the token of a code (RFC 8628).
const (
	defaultInterval = 5 // used if the issuer sends none
	maxInterval     = 300
)

// Issuer is an OpenID Connect issuer at which a user logs in.
type Issuer struct {
	URL      string   `json:"issuer"`
	ClientID string   `json:"client_id"`
	Scopes   []string `json:"scopes,omitempty"`
	Access   bool     `json:"access_token,omitempty"` // use the access token, not the ID token
	CAFile   string   `json:"ca_file,omitempty"`      // authorities in PEM; "" for those of the system
}

// Code is a code that a user enters at the issuer.
type Code struct {
	URL      string // page of the issuer
	Complete string // the same URL with the code in it, or ""
	Text     string
	Expires  time.Time

	config *oauth2.Config
	auth   *oauth2.DeviceAuthResponse
}

// client returns the HTTP client for the issuer. It follows no redirects: they could send a refresh
// token to another server, even without TLS.
func (i Issuer) client() (*http.Client, error) {
	config := &tls.Config{MinVersion: tls.VersionTLS12}
	if i.CAFile != "" {
		text, err := os.ReadFile(i.CAFile)
		if err != nil {
			return nil, err
		}
		config.RootCAs = x509.NewCertPool()
		if !config.RootCAs.AppendCertsFromPEM(text) {
			return nil, fmt.Errorf("%s must contain certificates in PEM (-----BEGIN CERTIFICATE-----)", i.CAFile)
		}
	}
	transport := http.DefaultTransport.(*http.Transport).Clone() //nolint:forcetypeassert // documented
	transport.TLSClientConfig = config
	return &http.Client{
		Transport: limitedBodies{transport}, Timeout: requestTimeout,
		CheckRedirect: func(*http.Request, []*http.Request) error { return errRedirect },
	}, nil
}

var errRedirect = errors.New("the issuer redirects, which is not supported")

// maxBody is the maximum size of an issuer's response in bytes.
const maxBody = 1 << 20

// limitedBodies limits the bodies of responses to maxBody.
type limitedBodies struct{ next http.RoundTripper }

func (l limitedBodies) RoundTrip(request *http.Request) (*http.Response, error) {
	response, err := l.next.RoundTrip(request)
	if err == nil {
		response.Body = http.MaxBytesReader(nil, response.Body, maxBody)
	}
	return response, err
}

// context returns a context with the HTTP client for the issuer.
func (i Issuer) context(ctx context.Context) (context.Context, error) {
	client, err := i.client()
	if err != nil {
		return nil, err
	}
	return oidc.ClientContext(ctx, client), nil
}

// addresses contains the URLs from the discovery document of an issuer.
type addresses struct {
	*oauth2.Config
	revocation string // "" if the issuer does not revoke tokens
}

// discover finds the addresses of the issuer. ctx contains the HTTP client.
func (i Issuer) discover(ctx context.Context) (addresses, error) {
	provider, err := oidc.NewProvider(ctx, i.URL)
	if err != nil {
		return addresses{}, i.discoveryError(err)
	}
	var document struct {
		Revocation string `json:"revocation_endpoint"`
	}
	if err := provider.Claims(&document); err != nil {
		return addresses{}, i.discoveryError(err)
	}
	endpoint := provider.Endpoint()
	endpoint.AuthStyle = oauth2.AuthStyleInParams // a client without a secret
	for name, address := range map[string]string{
		"token_endpoint": endpoint.TokenURL, "device_authorization_endpoint": endpoint.DeviceAuthURL,
		"revocation_endpoint": document.Revocation,
	} {
		if address != "" && !Private(address) {
			return addresses{}, fmt.Errorf("issuer %s: its %s must be an https URL (got %.200q)", i.URL, name, address)
		}
	}
	config := &oauth2.Config{ClientID: i.ClientID, Endpoint: endpoint, Scopes: i.Scopes}
	return addresses{config, document.Revocation}, nil
}

// discoveryError returns the error of a failed discovery. It includes at most the beginning of the
// response.
func (i Issuer) discoveryError(err error) error {
	if _, ok := errors.AsType[x509.UnknownAuthorityError](err); ok {
		return fmt.Errorf("issuer %s: %w: if its authority is your own, log in with --issuer-ca-file", i.URL, err)
	}
	if _, ok := errors.AsType[*url.Error](err); ok { // there is no answer
		return fmt.Errorf("issuer %s: %w", i.URL, err)
	}
	if other, ok := errors.AsType[*oidc.IssuerMismatchError](err); ok {
		return fmt.Errorf("issuer %s: the discovery document belongs to another issuer: %.300q", i.URL,
			other.Discovered)
	}
	return fmt.Errorf("issuer %s: it has no discovery document: %.300q", i.URL, err.Error())
}

// Private reports whether a URL has TLS or is on this machine.
func Private(address string) bool {
	u, err := url.Parse(address)
	if err != nil || u.Host == "" {
		return false
	}
	ip, err := netip.ParseAddr(u.Hostname())
	return u.Scheme == "https" ||
		u.Scheme == "http" && (u.Hostname() == "localhost" || err == nil && ip.Unmap().IsLoopback())
}

// Check returns an error if a setting of the issuer is invalid.
func (i Issuer) Check() error {
	switch {
	case !Private(i.URL):
		return fmt.Errorf("--issuer: must be an https URL, such as https://login.example.com (got %.200q)", i.URL)
	case i.ClientID == "":
		return errors.New("--client-id: is required")
	}
	return nil
}

// interruptible cancels requests when ctx ends. It is needed because package oauth2 sends the
// request for a code without a context.
type interruptible struct {
	ctx  context.Context //nolint:containedctx // the context of all requests
	next http.RoundTripper
}

func (i interruptible) RoundTrip(request *http.Request) (*http.Response, error) {
	ctx, cancel := context.WithCancel(request.Context())
	stop := context.AfterFunc(i.ctx, cancel)
	response, err := i.next.RoundTrip(request.WithContext(ctx))
	if err != nil {
		stop()
		cancel()
		return nil, err
	}
	response.Body = &interruptibleBody{response.Body, func() { stop(); cancel() }}
	return response, nil
}

// interruptibleBody is the body of a response that ends with a context.
type interruptibleBody struct {
	io.ReadCloser
	done func()
}

func (b *interruptibleBody) Close() error {
	defer b.done()
	return b.ReadCloser.Close()
}

// Begin starts the device flow.
func (i Issuer) Begin(ctx context.Context) (*Code, error) {
	client, err := i.client()
	if err != nil {
		return nil, err
	}
	client.Transport = interruptible{ctx, client.Transport}
	ctx = oidc.ClientContext(ctx, client)
	found, err := i.discover(ctx)
	if err != nil {
		return nil, err
	}
	if found.Endpoint.DeviceAuthURL == "" {
		return nil, fmt.Errorf("issuer %s: it does not support the device flow (no device_authorization_endpoint)",
			i.URL)
	}
	auth, err := found.DeviceAuth(ctx)
	if err != nil {
		return nil, i.requestError("does not start the login", err)
	}
	if auth.DeviceCode == "" || auth.UserCode == "" || !Private(auth.VerificationURI) {
		return nil, fmt.Errorf("issuer %s: its answer has no code, or no https page to enter it", i.URL)
	}
	auth.Interval = min(max(auth.Interval, 0), maxInterval)
	return &Code{
		URL: auth.VerificationURI, Complete: auth.VerificationURIComplete, Text: auth.UserCode, Expires: auth.Expiry,
		config: found.Config, auth: auth,
	}, nil
}

// Wait waits until the user has entered the code, and returns the login. If the response of the
// issuer is invalid, it returns an error and a login that has only the refresh token of that
// response.
func (i Issuer) Wait(ctx context.Context, c *Code) (Login, error) {
	ctx, err := i.context(ctx)
	if err != nil {
		return Login{}, err
	}
	return i.wait(ctx, c)
}

// wait is like Wait, but ctx contains the HTTP client.
func (i Issuer) wait(ctx context.Context, c *Code) (Login, error) {
	auth := *c.auth
	for {
		token, err := c.config.DeviceAccessToken(ctx, &auth)
		failure, _ := errors.AsType[net.Error](err)
		switch {
		case err == nil:
			return i.login(token)
		case ctx.Err() != nil:
			return Login{}, ctx.Err()
		case failure == nil || !failure.Timeout():
			return Login{}, i.requestError("rejects the login", err)
		case !c.Expires.IsZero() && !time.Now().Before(c.Expires):
			return Login{}, errors.New("the code has expired: log in again")
		}
		// A request has timed out. RFC 8628 requires longer intervals in this case.
		auth.Interval = min(2*cmp.Or(auth.Interval, defaultInterval), maxInterval)
	}
}

// refresh returns the login with a new token. If there is an error, it returns the login that must
// be stored, because the issuer may have replaced the refresh token.
func (l Login) refresh(ctx context.Context) (Login, error) {
	ctx, err := l.context(ctx)
	if err != nil {
		return l, err
	}
	found, err := l.discover(ctx)
	if err != nil {
		return l, err
	}
	// If ctx ended now, a new refresh token would be lost, and the previous one may no longer be
	// valid.
	asking, cancel := context.WithTimeout(context.WithoutCancel(ctx), requestTimeout)
	defer cancel()
	token, err := found.TokenSource(asking, &oauth2.Token{RefreshToken: l.Refresh}).Token()
	if err != nil {
		return l, l.requestError("does not refresh the login", err)
	}
	l.Refresh = token.RefreshToken // the previous refresh token if the issuer returns none
	next, err := l.login(token)
	if err != nil {
		return l, err
	}
	return next, nil
}

// login returns the login with a token of the issuer. If there is an error, the returned login has
// only the refresh token.
func (i Issuer) login(token *oauth2.Token) (Login, error) {
	text, kind := token.AccessToken, "access token"
	if !i.Access {
		text, _ = token.Extra("id_token").(string)
		kind = "ID token"
	}
	expires, err := expiryOf(text)
	if err != nil {
		return Login{Issuer: i, Refresh: token.RefreshToken}, fmt.Errorf("issuer %s: its %s %w", i.URL, kind, err)
	}
	return Login{Issuer: i, Token: text, Refresh: token.RefreshToken, Expires: expires}, nil
}

// requestError returns an error of the issuer. It omits the response body unless the body is an
// OAuth error.
func (i Issuer) requestError(what string, err error) error {
	if answer, ok := errors.AsType[*oauth2.RetrieveError](err); ok {
		reason := answer.ErrorCode
		if reason == "" && answer.Response != nil {
			reason = answer.Response.Status
		}
		if answer.ErrorDescription != "" {
			reason += ": " + answer.ErrorDescription
		}
		return fmt.Errorf("issuer %s %s: %.300q", i.URL, what, reason)
	}
	return fmt.Errorf("issuer %s %s: %w", i.URL, what, err)
}

// expiryOf returns when a JSON Web Token expires. Only the engine verifies tokens.
func expiryOf(token string) (time.Time, error) {
	parts := strings.Split(token, ".")
	if token == "" {
		return time.Time{}, errors.New("is missing in the answer")
	}
	var claims struct {
		Expires float64 `json:"exp"`
	}
	if len(parts) == 3 {
		if payload, err := base64.RawURLEncoding.DecodeString(parts[1]); err == nil {
			_ = json.Unmarshal(payload, &claims) // checked below
		}
	}
	if claims.Expires <= 0 {
		return time.Time{}, errors.New("must be a JSON Web Token with an expiry, which the engine can check")
	}
	return time.Unix(int64(claims.Expires), 0), nil
}

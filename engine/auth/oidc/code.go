package oidc

import (
	"context"
	"crypto/rand"
	"crypto/subtle"
	"errors"
	"fmt"
	"net/url"
	"slices"
	"strings"
	"time"

	"github.com/coreos/go-oidc/v3/oidc"
	"golang.org/x/oauth2"
)

// exchangeTimeout limits the request that exchanges a code for a token.
const exchangeTimeout = 10 * time.Second

// ErrState is returned if an issuer answers a login that this browser has not begun.
var ErrState = errors.New("this browser has not begun this login, or began it more than 10 minutes ago")

// LoginError reports that the issuer has rejected a login, or that its answer is invalid. The user
// may see it.
type LoginError struct{ Reason string }

func (e *LoginError) Error() string { return e.Reason }

func loginError(format string, values ...any) error {
	return &LoginError{fmt.Sprintf(format, values...)}
}

// Attempt is a login that a user has begun. The browser of the user keeps it until the issuer
// answers. Another browser does not have the attempt, so it cannot use the answer.
type Attempt struct {
	Issuer   string `json:"i"` // URL
	State    string `json:"s"` // the answer of the issuer must repeat it
	Nonce    string `json:"n"` // the token must contain it
	Verifier string `json:"v"` // for PKCE: the issuer sends the token only to a client that knows it
}

// Logins returns the issuers at which users can log in to the console.
func (i *Issuers) Logins() []*Issuer { return i.logins }

// URL returns the URL of the issuer.
func (i *Issuer) URL() string { return i.config.Issuer }

// Name returns the name of the issuer, or "".
func (i *Issuer) Name() string { return i.config.Name }

// GroupPrefix returns the prefix of all groups of the issuer, or "".
func (i *Issuer) GroupPrefix() string { return i.config.GroupPrefix }

// Begin begins a login of a user with the authorization code flow. It returns the URL of the issuer
// to which the browser goes, and what the browser must keep. The issuer sends the browser back to
// the URL redirect.
func (i *Issuer) Begin(ctx context.Context, redirect string) (string, Attempt, error) {
	flow, _, err := i.flow(ctx, redirect)
	if err != nil {
		return "", Attempt{}, err
	}
	a := Attempt{i.config.Issuer, rand.Text(), rand.Text(), oauth2.GenerateVerifier()}
	return flow.AuthCodeURL(a.State, oidc.Nonce(a.Nonce), oauth2.S256ChallengeOption(a.Verifier)), a, nil
}

// Check returns ErrState unless an answer of this issuer belongs to a login that the browser has
// begun. It makes no request.
func (i *Issuer) Check(a Attempt, answer url.Values) error {
	if a.State == "" || a.Nonce == "" || a.Verifier == "" || a.Issuer != i.config.Issuer ||
		subtle.ConstantTimeCompare([]byte(answer.Get("state")), []byte(a.State)) != 1 {
		return ErrState
	}
	return nil
}

// Finish returns the user who has logged in. answer contains the parameters with which the issuer
// has sent the browser back. Finish returns ErrState, a LoginError, a ClaimError, an error that
// wraps ErrUnreachable, or another error, which the user must not see.
func (i *Issuer) Finish(ctx context.Context, redirect string, a Attempt, answer url.Values) (Identity, error) {
	if err := i.Check(a, answer); err != nil {
		return Identity{}, err
	}
	flow, document, err := i.flow(ctx, redirect)
	if err != nil {
		return Identity{}, err
	}
	// An issuer could send the browser to another issuer, to get a code of that issuer (RFC 9207).
	if from := answer.Get("iss"); from != i.config.Issuer && (from != "" || document.NamesIssuer) {
		return Identity{}, loginError("the answer must come from the issuer %s (iss is %.240q)", i.config.Issuer,
			from)
	}
	if code := answer.Get("error"); code != "" {
		return Identity{}, loginError("the issuer %s rejects the login: %.100q %.300q", i.config.Issuer, code,
			answer.Get("error_description"))
	}
	if answer.Get("code") == "" {
		return Identity{}, loginError("the answer of the issuer %s has no code", i.config.Issuer)
	}
	if err := i.authenticate(flow, document); err != nil {
		return Identity{}, err
	}
	token, err := i.exchange(ctx, flow, a, answer.Get("code"))
	if err != nil {
		return Identity{}, err
	}
	return i.loggedIn(ctx, a, token)
}

// flow returns the OAuth client of the issuer, and the discovery document of the issuer.
func (i *Issuer) flow(ctx context.Context, redirect string) (*oauth2.Config, *discovery, error) {
	document, err := i.keys.discovered(ctx)
	if err != nil {
		return nil, nil, err
	}
	for name, text := range map[string]string{
		"authorization_endpoint": document.Authorization, "token_endpoint": document.Token,
	} {
		if err := i.keys.checkEndpoint(name, text); err != nil {
			return nil, nil, fmt.Errorf("%w: %w", ErrUnreachable, err)
		}
	}
	return &oauth2.Config{
		ClientID: i.config.ClientID, RedirectURL: redirect, Scopes: strings.Fields(i.config.Scopes),
		Endpoint: oauth2.Endpoint{AuthURL: document.Authorization, TokenURL: document.Token},
	}, document, nil
}

// authenticate sets the client secret, if there is one, and the way in which it is sent to the
// issuer.
func (i *Issuer) authenticate(flow *oauth2.Config, document *discovery) error {
	secret, err := i.config.clientSecret()
	if err != nil {
		return fmt.Errorf("client_secret_file: %w", err)
	}
	flow.ClientSecret, flow.Endpoint.AuthStyle = secret, oauth2.AuthStyleInHeader // the default of OpenID Connect
	methods := document.TokenAuth
	if secret == "" || len(methods) > 0 && !slices.Contains(methods, "client_secret_basic") {
		flow.Endpoint.AuthStyle = oauth2.AuthStyleInParams
	}
	return nil
}

// exchange returns the ID token for a code.
func (i *Issuer) exchange(ctx context.Context, flow *oauth2.Config, a Attempt, code string) (string, error) {
	ctx, cancel := context.WithTimeout(ctx, exchangeTimeout)
	defer cancel()
	token, err := flow.Exchange(oidc.ClientContext(ctx, i.keys.client), code, oauth2.VerifierOption(a.Verifier))
	if err != nil {
		if failed, ok := errors.AsType[*oauth2.RetrieveError](err); ok && failed.ErrorCode != "" {
			return "", loginError("the issuer %s rejects the code of the login: %.100q", i.config.Issuer,
				failed.ErrorCode)
		}
		return "", fmt.Errorf("%w: %.500q", ErrUnreachable, err.Error())
	}
	text, _ := token.Extra("id_token").(string)
	if text == "" {
		return "", loginError("the issuer %s has sent no ID token: the scopes must contain openid", i.config.Issuer)
	}
	return text, nil
}

// loggedIn returns the user in an ID token, which must be for this client and this login.
func (i *Issuer) loggedIn(ctx context.Context, a Attempt, text string) (Identity, error) {
	token, err := i.verify(ctx, text, i.config.ClientID)
	if err != nil {
		return Identity{}, err
	}
	if subtle.ConstantTimeCompare([]byte(token.Nonce), []byte(a.Nonce)) != 1 {
		return Identity{}, claimError("nonce", "must be the nonce of this login")
	}
	var claims struct {
		Party string `json:"azp"`
	}
	if err := token.Claims(&claims); err != nil {
		return Identity{}, claimError("azp", "must be a string")
	}
	if claims.Party != "" && claims.Party != i.config.ClientID {
		return Identity{}, claimError("azp", "must be the client_id %.100q (got %.100q)", i.config.ClientID,
			claims.Party)
	}
	return i.config.identify(token)
}

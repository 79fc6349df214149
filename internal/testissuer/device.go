package testissuer

import (
	"crypto/rand"
	"net/http"
	"slices"
	"time"
)

// device is the device flow (RFC 8628) of an issuer. Only one login can be open at a time.
type device struct {
	code     string
	answer   string // error of OAuth, or "" if the user has accepted
	claims   map[string]any
	lifetime time.Duration
	refresh  string // the only valid refresh token
	issued   int    // number of tokens issued for refresh tokens
	revoked  []string
}

// Accept lets the user of the device flow log in. Tokens contain the claims and are valid for
// lifetime.
func (i *Issuer) Accept(claims map[string]any, lifetime time.Duration) {
	i.mu.Lock()
	defer i.mu.Unlock()
	i.device.answer, i.device.claims, i.device.lifetime = "", claims, lifetime
}

// Deny rejects the login of the device flow, and all refresh tokens, with an error of OAuth.
func (i *Issuer) Deny(code string) {
	i.mu.Lock()
	defer i.mu.Unlock()
	i.device.answer, i.device.refresh = code, ""
}

// Refreshes returns the number of tokens that were issued for refresh tokens.
func (i *Issuer) Refreshes() int {
	i.mu.Lock()
	defer i.mu.Unlock()
	return i.device.issued
}

// Revoked returns the refresh tokens that were revoked, in this order.
func (i *Issuer) Revoked() []string {
	i.mu.Lock()
	defer i.mu.Unlock()
	return slices.Clone(i.device.revoked)
}

// revoke ends all refresh tokens, like issuers that revoke those of a user together.
func (i *Issuer) revoke(r *http.Request) (answer map[string]any, status int) {
	if r.FormValue("client_id") != Audience || r.FormValue("token_type_hint") != "refresh_token" {
		return map[string]any{"error": "invalid_request"}, http.StatusBadRequest
	}
	i.device.revoked = append(i.device.revoked, r.FormValue("token"))
	i.device.refresh = ""
	return map[string]any{}, http.StatusOK
}

// begin answers a request for a code.
func (i *Issuer) begin() map[string]any {
	i.device.code, i.device.answer = rand.Text(), "authorization_pending"
	return map[string]any{
		"device_code": i.device.code, "user_code": "WDJB-MJHT", "verification_uri": i.URL + "/enter", "expires_in": 60,
		"interval": 1,
	}
}

// exchange answers a request for a token.
func (i *Issuer) exchange(r *http.Request) (answer map[string]any, status int) {
	failed := func(code string) (map[string]any, int) {
		return map[string]any{"error": code, "error_description": "the answer of the test"}, http.StatusBadRequest
	}
	d := &i.device
	switch grant := r.FormValue("grant_type"); {
	case r.FormValue("client_id") != Audience:
		return failed("invalid_client")
	case grant == "refresh_token":
		if d.refresh == "" || r.FormValue("refresh_token") != d.refresh {
			return failed("invalid_grant")
		}
		d.issued++
	case grant != "urn:ietf:params:oauth:grant-type:device_code" || r.FormValue("device_code") != d.code:
		return failed("invalid_grant")
	case d.answer != "":
		return failed(d.answer)
	}
	d.refresh = rand.Text()
	claims := i.Claims(d.claims)
	claims["exp"] = time.Now().Add(d.lifetime).Unix()
	return map[string]any{
		"access_token": "opaque", "token_type": "Bearer", "refresh_token": d.refresh,
		"id_token": Sign(i.t, i.key, claims),
	}, http.StatusOK
}

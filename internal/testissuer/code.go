package testissuer

import (
	"crypto/rand"
	"net/http"
	"net/url"

	"golang.org/x/oauth2"
)

// codes contains the state of the authorization code flow, by which browsers log in.
type codes struct {
	claims map[string]any        // claims of the user who logs in
	secret string                // secret of the client, or ""
	posted bool                  // the secret is sent in the body
	answer func(url.Values)      // changes the answer to a browser
	open   map[string]url.Values // requests of browsers by code; a code is valid once
	asked  []url.Values          // requests for tokens
}

// LogIn makes each browser log in as a user with these claims.
func (i *Issuer) LogIn(claims map[string]any) {
	i.mu.Lock()
	defer i.mu.Unlock()
	i.codes.claims = claims
}

// Protect gives the client a secret, which it sends in a header, or in the body if posted is true.
func (i *Issuer) Protect(secret string, posted bool) {
	i.mu.Lock()
	defer i.mu.Unlock()
	i.codes.secret, i.codes.posted = secret, posted
}

// Answer sets a function that changes the answers to browsers, or nil to send them unchanged.
func (i *Issuer) Answer(change func(url.Values)) {
	i.mu.Lock()
	defer i.mu.Unlock()
	i.codes.answer = change
}

// Exchanges returns the requests that exchanged a code for a token.
func (i *Issuer) Exchanges() []url.Values {
	i.mu.Lock()
	defer i.mu.Unlock()
	return i.codes.asked
}

// authorize answers a browser whose user logs in at once.
func (i *Issuer) authorize(w http.ResponseWriter, r *http.Request) {
	q := r.URL.Query()
	to, err := url.Parse(q.Get("redirect_uri"))
	if err != nil || q.Get("client_id") != Audience || q.Get("response_type") != "code" || q.Get("state") == "" ||
		q.Get("nonce") == "" || q.Get("code_challenge") == "" || q.Get("code_challenge_method") != "S256" {
		i.t.Errorf("a browser arrives at the issuer with unexpected parameters: %v", q)
		http.Error(w, "bad request", http.StatusBadRequest)
		return
	}
	code := rand.Text()
	if i.codes.open == nil {
		i.codes.open = map[string]url.Values{}
	}
	i.codes.open[code] = q
	answer := url.Values{"code": {code}, "state": {q.Get("state")}, "iss": {i.URL}}
	if i.codes.answer != nil {
		i.codes.answer(answer)
	}
	to.RawQuery = answer.Encode()
	http.Redirect(w, r, to.String(), http.StatusFound)
}

// redeem answers a request that exchanges a code for a token.
func (i *Issuer) redeem(r *http.Request) (answer map[string]any, status int) {
	i.codes.asked = append(i.codes.asked, r.PostForm)
	open, ok := i.codes.open[r.PostForm.Get("code")]
	delete(i.codes.open, r.PostForm.Get("code"))
	id, secret, inHeader := r.BasicAuth()
	if plain, err := url.QueryUnescape(secret); err == nil && inHeader { // RFC 6749 encodes it
		secret = plain
	}
	if !inHeader {
		id, secret = r.PostForm.Get("client_id"), r.PostForm.Get("client_secret")
	}
	verifier := r.PostForm.Get("code_verifier")
	switch {
	case id != Audience || secret != i.codes.secret || secret != "" && inHeader == i.codes.posted:
		return map[string]any{"error": "invalid_client"}, http.StatusUnauthorized
	case !ok || r.PostForm.Get("redirect_uri") != open.Get("redirect_uri") ||
		oauth2.S256ChallengeFromVerifier(verifier) != open.Get("code_challenge"):
		return map[string]any{"error": "invalid_grant"}, http.StatusBadRequest
	}
	claims := map[string]any{"nonce": open.Get("nonce")}
	for name, value := range i.codes.claims {
		claims[name] = value
	}
	return map[string]any{
		"access_token": "opaque", "token_type": "Bearer", "id_token": Sign(i.t, i.key, i.Claims(claims)),
	}, http.StatusOK
}

package oidc

import (
	"context"
	"errors"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/progressor-engine/progressor/internal/testissuer"
)

// callback is the page of the console to which issuers send browsers back.
const callback = "https://progressor.example.com/login/callback"

// withClient returns the configuration of an issuer with logins to the console.
func withClient(i *testissuer.Issuer) Config {
	c := config(i)
	c.Audience, c.ClientID, c.Scopes = "api", testissuer.Audience, "openid groups"
	return c
}

// begin begins a login, and returns it with the answer of the issuer to the browser.
func begin(t *testing.T, i *Issuer) (Attempt, url.Values) {
	t.Helper()
	to, a, err := i.Begin(t.Context(), callback)
	if err != nil {
		t.Fatal(err)
	}
	return a, visit(t, to)
}

// visit requests a page of an issuer like a browser, and returns the parameters with which the
// issuer sends the browser back.
func visit(t *testing.T, to string) url.Values {
	t.Helper()
	request, err := http.NewRequestWithContext(t.Context(), http.MethodGet, to, http.NoBody)
	if err != nil {
		t.Fatal(err)
	}
	response, err := http.DefaultTransport.RoundTrip(request)
	if err != nil {
		t.Fatal(err)
	}
	defer response.Body.Close()
	location := response.Header.Get("Location")
	back, err := url.Parse(location)
	if err != nil || response.StatusCode != http.StatusFound || !strings.HasPrefix(location, callback+"?") {
		t.Fatalf("%s %s, %v", response.Status, location, err)
	}
	return back.Query()
}

// A user logs in with PKCE, state and nonce. The client has no secret, or its secret is sent in a
// way that the issuer supports.
func TestCodeFlow(t *testing.T) {
	t.Parallel()
	secret := filepath.Join(t.TempDir(), "secret")
	if err := os.WriteFile(secret, []byte("s3cret %\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	for name, protect := range map[string]func(*testissuer.Issuer, *Config){
		"public":              func(*testissuer.Issuer, *Config) {},
		"client_secret_basic": func(i *testissuer.Issuer, c *Config) { i.Protect("s3cret %", false) },
		"client_secret_post":  func(i *testissuer.Issuer, c *Config) { i.Protect("s3cret %", true) },
	} {
		issuer := testissuer.New(t)
		issuer.LogIn(map[string]any{"sub": "bob", "groups": []string{"support"}})
		c := withClient(issuer)
		protect(issuer, &c)
		if name != "public" {
			c.ClientSecretFile = secret
		}
		i := accept(t, c).Logins()[0]
		to, _, err := i.Begin(t.Context(), callback)
		if err != nil || !strings.Contains(to, "scope=openid+groups") {
			t.Errorf("%s: %s, %v", name, to, err)
		}
		a, answer := begin(t, i)
		who, err := i.Finish(t.Context(), callback, a, answer)
		if err != nil || who.User != issuer.URL+"#bob" || !slices.Equal(who.Groups, []string{"support"}) {
			t.Errorf("%s: %+v, %v", name, who, err)
		}
		asked := issuer.Exchanges()
		if len(asked) != 1 || asked[0].Get("code_verifier") != a.Verifier || len(a.Verifier) < 43 ||
			asked[0].Get("redirect_uri") != callback {
			t.Errorf("%s: %v", name, asked)
		}
		var shown *LoginError
		if _, err := i.Finish(t.Context(), callback, a, answer); !errors.As(err, &shown) ||
			!strings.Contains(shown.Reason, "invalid_grant") {
			t.Errorf("%s: the same code again: %v", name, err)
		}
	}
}

// An answer must belong to the login that this browser has begun, at this issuer.
func TestAnswersOfOtherLogins(t *testing.T) {
	t.Parallel()
	issuer, other := testissuer.New(t), testissuer.New(t)
	first, second := withClient(issuer), withClient(other)
	first.Name, first.GroupPrefix, second.Name, second.GroupPrefix = "a", "a:", "b", "b:"
	logins := accept(t, first, second).Logins()
	i := logins[0]
	a, answer := begin(t, i)
	b, others := begin(t, i)
	foreign, mixed := begin(t, logins[1])
	for _, c := range []struct {
		name   string
		a      Attempt
		change func(url.Values)
		want   error
	}{
		{"no state", a, func(v url.Values) { v.Del("state") }, ErrState},
		{"another state", a, func(v url.Values) { v.Set("state", b.State) }, ErrState},
		{"another browser", b, func(url.Values) {}, ErrState},
		{"a browser without a login", Attempt{}, func(v url.Values) { v.Del("state") }, ErrState},
		{"no nonce", Attempt{a.Issuer, a.State, "", a.Verifier}, func(url.Values) {}, ErrState},
		{"no verifier", Attempt{a.Issuer, a.State, a.Nonce, ""}, func(url.Values) {}, ErrState},
		{"a login at another issuer", foreign, func(v url.Values) { v.Set("state", foreign.State) }, ErrState},
		{"the issuer is another one", a, func(v url.Values) { v.Set("iss", other.URL) }, nil},
		{"the issuer is not named", a, func(v url.Values) { v.Del("iss") }, nil},
		{"the code of another issuer", a, func(v url.Values) { v.Set("code", mixed.Get("code")) }, nil},
		{"the code of another login", a, func(v url.Values) { v.Set("code", others.Get("code")) }, nil},
		{"no code", a, func(v url.Values) { v.Del("code") }, nil},
		{"refused", a, func(v url.Values) { v.Set("error", "access_denied") }, nil},
	} {
		changed := url.Values{}
		for name := range answer {
			changed.Set(name, answer.Get(name))
		}
		c.change(changed)
		who, err := i.Finish(t.Context(), callback, c.a, changed)
		var shown *LoginError
		if c.want != nil && !errors.Is(err, c.want) || c.want == nil && !errors.As(err, &shown) {
			t.Errorf("%s: %+v, %v", c.name, who, err)
		}
	}
	if _, err := i.Finish(t.Context(), callback, a, answer); err != nil {
		t.Errorf("the unmodified response: %v", err)
	}
	if len(other.Exchanges()) != 0 {
		t.Errorf("another issuer gets a code: %v", other.Exchanges())
	}
}

// The secret is read when it is sent to the issuer, not for each browser that begins a login.
func TestSecretOfAClient(t *testing.T) {
	t.Parallel()
	secret := filepath.Join(t.TempDir(), "secret")
	if err := os.WriteFile(secret, []byte("s3cret"), 0o600); err != nil {
		t.Fatal(err)
	}
	issuer := testissuer.New(t)
	c := withClient(issuer)
	c.ClientSecretFile = secret
	i := accept(t, c).Logins()[0]
	if err := os.Remove(secret); err != nil {
		t.Fatal(err)
	}
	a, answer := begin(t, i)
	if _, err := i.Finish(t.Context(), callback, a, answer); err == nil ||
		!strings.Contains(err.Error(), "client_secret_file: ") || len(issuer.Exchanges()) != 0 {
		t.Errorf("%v", err)
	}
}

// An issuer also works if its answers do not contain its name.
func TestIssuerWithoutName(t *testing.T) {
	t.Parallel()
	issuer := testissuer.New(t)
	issuer.Change(func(d map[string]any) { delete(d, "authorization_response_iss_parameter_supported") })
	issuer.Answer(func(v url.Values) { v.Del("iss") })
	i := accept(t, withClient(issuer)).Logins()[0]
	a, answer := begin(t, i)
	if _, err := i.Finish(t.Context(), callback, a, answer); err != nil {
		t.Error(err)
	}
}

// The token must be for this client and this login.
func TestTokensOfLogins(t *testing.T) {
	t.Parallel()
	issuer := testissuer.New(t)
	i := accept(t, withClient(issuer)).Logins()[0]
	for _, c := range []struct {
		want   string
		claims map[string]any
	}{
		{"nonce", map[string]any{"nonce": "another"}},
		{"nonce", map[string]any{"nonce": nil}},
		{"audience", map[string]any{"aud": "api"}},
		{"expired", map[string]any{"exp": 1}},
		{"azp", map[string]any{"aud": []string{testissuer.Audience, "api"}, "azp": "api"}},
		{"azp", map[string]any{"azp": 1}},
		{"issued by a different provider", map[string]any{"iss": "https://login.example.com"}},
		{`"sub": must have`, map[string]any{"sub": nil}},
	} {
		issuer.LogIn(c.claims)
		a, answer := begin(t, i)
		who, err := i.Finish(t.Context(), callback, a, answer)
		var shown *ClaimError
		if !errors.As(err, &shown) || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%v: %+v, %v", c.claims, who, err)
		}
	}
}

// The endpoints of an issuer must not be less protected than the issuer itself. A login fails with
// ErrUnreachable while the issuer is down.
func TestAddressesOfLogins(t *testing.T) {
	t.Parallel()
	for _, endpoint := range []string{"authorization_endpoint", "token_endpoint"} {
		for _, address := range []string{"http://login.example.com/a", "javascript:alert(1)", ""} {
			issuer := testissuer.New(t)
			issuer.Change(func(d map[string]any) { d[endpoint] = address })
			to, _, err := accept(t, withClient(issuer)).Logins()[0].Begin(t.Context(), callback)
			if err == nil || !strings.Contains(err.Error(), endpoint+" of the issuer: must be an https URL") {
				t.Errorf("%s %q: %s, %v", endpoint, address, to, err)
			}
		}
	}
	issuer := testissuer.New(t)
	i := accept(t, withClient(issuer)).Logins()[0]
	a, answer := begin(t, i)
	issuer.SetDown(true)
	if _, err := i.Finish(t.Context(), callback, a, answer); !errors.Is(err, ErrUnreachable) {
		t.Errorf("the issuer is down: %v", err)
	}
	down := accept(t, withClient(issuer)).Logins()[0]
	if _, _, err := down.Begin(t.Context(), callback); !errors.Is(err, ErrUnreachable) {
		t.Errorf("the issuer is down from the start: %v", err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := i.Finish(ctx, callback, a, answer); !errors.Is(err, ErrUnreachable) {
		t.Errorf("the browser has disconnected: %v", err)
	}
}

// Users can log in only at issuers with a client. These are listed in the order of the
// configuration.
func TestIssuersWithLogins(t *testing.T) {
	t.Parallel()
	a, b, c := testissuer.New(t), testissuer.New(t), testissuer.New(t)
	configs := []Config{withClient(a), config(b), withClient(c)}
	for n, name := range []string{"staff", "", "partners"} {
		configs[n].Name, configs[n].GroupPrefix = name, string(rune('a'+n))
	}
	var names []string
	for _, i := range accept(t, configs...).Logins() {
		names = append(names, i.Name()+" "+i.URL())
	}
	if want := []string{"staff " + a.URL, "partners " + c.URL}; !slices.Equal(names, want) {
		t.Errorf("%v, want %v", names, want)
	}
}

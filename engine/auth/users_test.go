package auth

import (
	"bytes"
	"crypto/rand"
	"errors"
	"log/slog"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"golang.org/x/time/rate"

	"github.com/progressor-engine/progressor/engine/auth/oidc"
	"github.com/progressor-engine/progressor/internal/testissuer"
	"github.com/progressor-engine/progressor/process"
	progressorv1 "github.com/progressor-engine/progressor/proto/progressor/v1"
	"github.com/progressor-engine/progressor/storage"
)

// newUsers is newTest with an issuer.
func newUsers(t *testing.T, log *slog.Logger) (*Authenticator, *table, *clock, *testissuer.Issuer) {
	t.Helper()
	a, keys, at := newTest(t, "")
	i := testissuer.New(t)
	issuers, err := oidc.New([]oidc.Config{
		{Issuer: i.URL, Audience: testissuer.Audience, GroupsClaim: "groups", NameClaim: "sub"},
	}, log, prometheus.NewRegistry())
	if err != nil {
		t.Fatal(err)
	}
	a.Accept(issuers, log)
	return a, keys, at, i
}

// ask authenticates a token.
func ask(t *testing.T, a *Authenticator, token string) (*Principal, error) {
	t.Helper()
	return a.Authenticate(t.Context(), []string{"Bearer " + token}, address)
}

// grant gives a principal a role in a namespace.
func (t *table) grant(principal, role, namespace string) {
	t.set(func(t *table) {
		row := t.rows[principal]
		row.Roles, row.Patterns = append(row.Roles, role), append(row.Patterns, namespace)
		t.rows[principal] = row
	})
}

// A user has the grants of the user and of the groups in the token. A removed grant ends within 10
// s.
func TestUsersAndGroups(t *testing.T) {
	t.Parallel()
	a, keys, at, i := newUsers(t, slog.New(slog.DiscardHandler))
	name := "user:" + i.URL + "#alice"
	keys.grant(name, "viewer", "a")
	keys.grant("group:support", "support", "shop/*")
	keys.grant("group:all", "viewer", "a")
	keys.grant("group:other", "root", "*")
	keys.grant("support", "root", "*")
	token := i.Token(map[string]any{"groups": []string{"support", "all", "none"}})
	p, err := ask(t, a, token)
	if err != nil || p.Name != name || !slices.Equal(p.Grants(), []string{"support shop/*", "viewer a"}) ||
		!slices.Equal(p.Groups(), []string{"group:all", "group:none", "group:support"}) {
		t.Fatalf("%+v, %v", p, err)
	}
	reads := keys.reads
	second := i.Token(map[string]any{"groups": []string{"none", "all", "support"}, "jti": "2"})
	if p, err := ask(t, a, second); err != nil || len(p.Grants()) != 2 || keys.reads != reads {
		t.Errorf("another token: %+v, %v, %d reads", p, err, keys.reads-reads)
	}
	if p, err := ask(t, a, i.Token(nil)); err != nil || !slices.Equal(p.Grants(), []string{"viewer a"}) {
		t.Errorf("a token without groups: %+v, %v", p, err)
	}
	keys.set(func(k *table) { delete(k.rows, "group:support") })
	at.now = at.now.Add(CacheTime)
	const operate = progressorv1.Permission_PERMISSION_PROCESS_OPERATE
	if now, err := ask(t, a, token); err != nil || now.Can(operate, "shop/x") || !p.Can(operate, "shop/x") {
		t.Errorf("a removed grant: %v, %v", now, err)
	}
	now, err := a.Current(t.Context(), p)
	if err != nil || now.Can(operate, "shop/x") || now.Name != name || len(now.Groups()) != 3 {
		t.Errorf("a stream: %+v, %v", now, err)
	}
	keys.set(func(k *table) { k.err = errors.New("down") })
	at.now = at.now.Add(CacheTime + staleTime)
	if _, err := ask(t, a, token); !errors.Is(err, process.ErrUnavailable) || errors.Is(err, ErrIssuer) {
		t.Errorf("without the database: %v", err)
	}
}

// A cached token is accepted without its issuer until it expires, and its streams end at that time.
// A cached token whose key was removed is rejected after tokenTime.
func TestTokensExpire(t *testing.T) {
	t.Parallel()
	a, _, at, i := newUsers(t, slog.New(slog.DiscardHandler))
	token := i.Token(map[string]any{"exp": at.now.Add(2 * time.Minute).Unix()})
	p, err := ask(t, a, token)
	if err != nil {
		t.Fatal(err)
	}
	reads := i.Reads()
	i.SetDown(true) // the token is not verified again
	at.now = at.now.Add(119 * time.Second)
	if _, err := ask(t, a, token); err != nil || i.Reads() != reads {
		t.Errorf("before the end: %v", err)
	}
	if now, err := a.Current(t.Context(), p); err != nil || !now.expires.Equal(p.expires) {
		t.Errorf("a stream before the end: %v, %v", now, err)
	}
	at.now = p.expires
	if _, err := a.Current(t.Context(), p); !errors.Is(err, ErrInvalid) {
		t.Errorf("a stream: %v", err)
	}
	hash := Hash(token)
	if v, ok := a.users.tokens.load(hash); !ok || !v.until.Equal(p.expires) {
		t.Errorf("the token is cached until %s, but expires at %s", v.until, p.expires)
	}
	long := i.Token(map[string]any{"exp": at.now.Add(time.Hour).Unix()})
	if _, err := ask(t, a, long); err != nil {
		t.Fatal(err)
	}
	i.SetDown(false)
	i.Rotate()
	foreign := i.Token(nil) // causes the keys to be read again
	if _, err := ask(t, a, foreign); err != nil {
		t.Fatal(err)
	}
	if _, err := ask(t, a, long); err != nil {
		t.Errorf("a cached token of a removed key: %v", err)
	}
	at.now = at.now.Add(tokenTime)
	if _, err := ask(t, a, long); !errors.Is(err, ErrRejected) {
		t.Errorf("the token of a removed key after %s: %v", tokenTime, err)
	}
}

// If the issuer has removed the key of a token, the streams of the token end after tokenTime. They
// do not end while the issuer is down, and the limits on new tokens do not apply to them.
func TestStreamsVerifyAgain(t *testing.T) {
	t.Parallel()
	a, _, at, i := newUsers(t, slog.New(slog.DiscardHandler))
	p, err := ask(t, a, i.Token(nil))
	if err != nil {
		t.Fatal(err)
	}
	verifies := a.users.verifies
	a.users.verifies = newBudget(0, 0)
	i.SetDown(true)
	at.now = at.now.Add(tokenTime)
	if now, err := a.Current(t.Context(), p); err != nil || now.Name != p.Name {
		t.Errorf("while the issuer is down: %v, %v", now, err)
	}
	i.SetDown(false)
	i.Rotate()
	a.users.verifies = verifies
	if _, err := ask(t, a, i.Token(nil)); err != nil { // causes the keys to be read again
		t.Fatal(err)
	}
	a.users.verifies = newBudget(0, 0)
	if _, err := a.Current(t.Context(), p); err != nil {
		t.Errorf("a cached token of a removed key: %v", err)
	}
	at.now = at.now.Add(tokenTime)
	if now, err := a.Current(t.Context(), p); !errors.Is(err, ErrRejected) {
		t.Errorf("a token of a removed key: %v, %v", now, err)
	}
}

// Tokens that are not valid are rejected, and limited like wrong keys. The log contains the reason,
// but not the payload of the token. Valid tokens of the same address are still accepted.
func TestRejectedTokens(t *testing.T) {
	t.Parallel()
	var logged bytes.Buffer
	a, keys, _, i := newUsers(t, slog.New(slog.NewTextHandler(&logged, nil)))
	good := i.Token(nil)
	if _, err := ask(t, a, good); err != nil {
		t.Fatal(err)
	}
	_, key := keys.add()
	for _, c := range []struct {
		name, token string
		err         error
		text, log   string
	}{
		{"expired", i.Token(map[string]any{"exp": 1}), nil, "the token is not valid: token is expired", "is expired"},
		{"audience", i.Token(map[string]any{"aud": "x"}), nil, "expected audience", "expected audience"},
		{"issuer", i.Token(map[string]any{"iss": "https://x"}), ErrRejected, "", "is not configured"},
		{"key", testissuer.Sign(t, testissuer.NewKey(t, "x"), i.Claims(nil)), ErrRejected, "", "no key with the kid"},
		{"changed", good[:len(good)-8] + "AAAAAAAA", ErrRejected, "", "signature does not match"},
		{"long", i.Token(map[string]any{"x": strings.Repeat("x", maxJWT)}), ErrTooLong, "", ""},
		{"a part", strings.Join(strings.Split(good, ".")[:2], "."), ErrMalformed, "", ""},
	} {
		a.failed = newFailures()
		a.failed.pause = 0
		logged.Reset()
		a.users.logged.SetBurst(rejectionRate)
		p, err := ask(t, a, c.token)
		if err == nil || c.err != nil && !errors.Is(err, c.err) || !strings.Contains(err.Error(), c.text) {
			t.Errorf("%s: %v, %v", c.name, p, err)
		}
		if !strings.Contains(logged.String(), c.log) || strings.Contains(logged.String(), strings.Split(good, ".")[1]) {
			t.Errorf("%s: log %s", c.name, &logged)
		}
	}
	a.failed.budget = newBudget(rate.Every(time.Hour), failureRate)
	for range failureRate {
		if _, err := ask(t, a, i.Token(map[string]any{"exp": 1})); err == nil || errors.Is(err, ErrLimited) {
			t.Fatal(err)
		}
	}
	if _, err := ask(t, a, i.Token(map[string]any{"exp": 1})); !errors.Is(err, ErrLimited) {
		t.Errorf("another failure after %d: %v", failureRate, err)
	}
	if _, err := ask(t, a, i.Token(nil)); err != nil {
		t.Errorf("a new token after %d failures: %v", failureRate, err)
	}
	if _, err := ask(t, a, good); err != nil {
		t.Errorf("a cached token after %d failures: %v", failureRate, err)
	}
	_, err := a.AuthenticateCertificate(t.Context(), "spiffe://a/b", []string{"Bearer " + good}, "192.0.2.9:1")
	if !errors.Is(err, ErrTwo) {
		t.Errorf("with a certificate: %v", err)
	}
	_, err = a.Authenticate(t.Context(), []string{"Bearer " + good, "Bearer " + key}, "192.0.2.10:1")
	if !errors.Is(err, ErrMalformed) {
		t.Errorf("with a key: %v", err)
	}
	if n := counted(t, a, "limited"); n != 1 {
		t.Errorf("%d limited", n)
	}
}

// forge returns a token with a random key that the issuer does not have.
func forge(t *testing.T, i *testissuer.Issuer) string {
	t.Helper()
	return testissuer.Sign(t, testissuer.NewKey(t, rand.Text()), i.Claims(nil))
}

// Clients without a valid token do not lock out users, not even users at the same address, such as
// the address of a proxy. Only very many invalid tokens at an address lock out its new tokens.
func TestAttackersDoNotLockOut(t *testing.T) {
	t.Parallel()
	a, _, _, i := newUsers(t, slog.New(slog.DiscardHandler))
	slow := rate.Every(time.Hour)
	a.failed.budget = newBudget(slow, failureRate)
	a.users.verifies = newBudget(slow, 4*failureRate)
	at := func(address, token string) error {
		_, err := a.Authenticate(t.Context(), []string{"Bearer " + token}, address)
		return err
	}
	for range 2 * failureRate {
		if _, err := a.Authenticate(t.Context(), nil, address); err == nil {
			t.Fatal("a request without a token is accepted")
		}
		if err := at(address, forge(t, i)); err == nil {
			t.Fatal("a forged token is accepted")
		}
	}
	if err := at(address, i.Token(nil)); err != nil {
		t.Errorf("a new token at the address of an attacker: %v", err)
	}
	for range 2*failureRate - 1 {
		if err := at(address, forge(t, i)); !errors.Is(err, ErrLimited) {
			t.Fatal(err)
		}
	}
	if err := at(address, i.Token(nil)); !errors.Is(err, ErrBusy) || errors.Is(err, ErrLimited) {
		t.Errorf("after %d tokens of an address: %v", 4*failureRate, err)
	}
	const other, second = "192.0.2.9:1", "192.0.2.10:1"
	a.users.suspects = rate.NewLimiter(slow, 2)
	for range failureRate {
		_, _ = a.Authenticate(t.Context(), nil, second)
	}
	for range failureRate {
		if err := at(second, i.Token(map[string]any{"iss": "https://x"})); !errors.Is(err, ErrLimited) {
			t.Errorf("an unknown issuer: %v", err)
		}
	}
	for n, want := range []error{nil, nil, ErrBusy} {
		if err := at(second, i.Token(nil)); !errors.Is(err, want) {
			t.Errorf("new token %d at another address with failures: %v, want %v", n, err, want)
		}
	}
	if err := at(other, i.Token(nil)); err != nil {
		t.Errorf("at an address without failures: %v", err)
	}
}

// While the issuer is down, unknown tokens are neither accepted nor reported as invalid. The number
// of unknown tokens of an address is limited. A token of another address is accepted if its key is
// known.
func TestTokensWhileTheIssuerIsDown(t *testing.T) {
	t.Parallel()
	a, _, _, i := newUsers(t, slog.New(slog.DiscardHandler))
	if _, err := ask(t, a, i.Token(nil)); err != nil {
		t.Fatal(err)
	}
	i.SetDown(true)
	a.users.verifies = newBudget(rate.Every(time.Hour), 2*failureRate)
	for range 2 * failureRate {
		p, err := ask(t, a, forge(t, i))
		if !errors.Is(err, ErrIssuer) || !errors.Is(err, process.ErrUnavailable) {
			t.Fatalf("%v, %v", p, err)
		}
	}
	if p, err := ask(t, a, forge(t, i)); !errors.Is(err, ErrBusy) || errors.Is(err, process.ErrUnavailable) {
		t.Errorf("after %d tokens of an address: %v, %v", 2*failureRate, p, err)
	}
	_, err := a.Authenticate(t.Context(), []string{"Bearer " + i.Token(nil)}, "192.0.2.9:1")
	if err != nil {
		t.Errorf("a known key at another address: %v", err)
	}
}

// IsPrincipal accepts the names of certificates, users and groups only.
func TestPrincipals(t *testing.T) {
	t.Parallel()
	for name, want := range map[string]bool{
		"cert:spiffe://a/b": true, "cert:a": false, "user:https://a#b": true, "user:https://a#b#c": true,
		"user:http://127.0.0.1:8#b": true, "user:http://a#b": false, "user:https://a": false, "user:https://a#": false,
		"user:#b": false, "user:https://a#b c": false, "user:https://a#" + strings.Repeat("b", 255): true,
		"user:https://a#" + strings.Repeat("b", 256): false, "group:a": true, "group:Domain Users": true,
		"group:/team/ä": true, "group:": false, "group:a\nb": false, "group:" + strings.Repeat("a", 256): true,
		"group:" + strings.Repeat("a", 257): false, "group:\u202ea": false, "key:a": false, "root": false, "": false,
	} {
		if IsPrincipal(name) != want {
			t.Errorf("%q: %v", name, !want)
		}
	}
}

// The cache of tokens is bounded, evicts expired tokens first, and does not store invalid tokens.
func TestTokenCache(t *testing.T) {
	t.Parallel()
	a, _, at, i := newUsers(t, slog.New(slog.DiscardHandler))
	first, token := i.Token(nil), i.Token(nil)
	if _, err := ask(t, a, first); err != nil {
		t.Fatal(err)
	}
	for n := range maxCached - 1 {
		a.users.tokens.add(Hash(strconv.Itoa(n)), &verified{until: at.now})
	}
	const rest = maxCached * 9 / 10
	if _, err := ask(t, a, token); err != nil || a.users.tokens.count.Load() != rest+1 {
		t.Errorf("%v, %d cached", err, a.users.tokens.count.Load())
	}
	if _, ok := a.users.tokens.load(Hash(first)); !ok {
		t.Error("a valid token is not cached any more")
	}
	for range 3 {
		_, _ = ask(t, a, token)
		_, _ = ask(t, a, i.Token(map[string]any{"aud": "x"}))
	}
	if n := a.users.tokens.count.Load(); n != rest+1 {
		t.Errorf("%d cached", n)
	}
}

// BenchmarkUser measures the cost of a request with a cached token and with an uncached token.
func BenchmarkUser(b *testing.B) {
	i := testissuer.New(b)
	issuers, err := oidc.New([]oidc.Config{
		{Issuer: i.URL, Audience: testissuer.Audience, GroupsClaim: "groups", NameClaim: "sub"},
	}, slog.New(slog.DiscardHandler), nil)
	if err != nil {
		b.Fatal(err)
	}
	a := New(&table{rows: map[string]storage.KeyState{}}, "", nil)
	a.Accept(issuers, slog.New(slog.DiscardHandler))
	token := i.Token(map[string]any{"groups": []string{"a", "b", "c"}})
	for name, run := range map[string]func() error{
		"cached": func() error {
			_, err := a.Authenticate(b.Context(), []string{"Bearer " + token}, address)
			return err
		},
		"verify": func() error {
			issuer, err := issuers.Find(token)
			if err == nil {
				_, err = issuer.Verify(b.Context(), token)
			}
			return err
		},
	} {
		b.Run(name, func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				if err := run(); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}

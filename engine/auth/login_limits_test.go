package auth

import (
	"encoding/base64"
	"errors"
	"fmt"
	"net/netip"
	"net/url"
	"testing"
	"time"

	"golang.org/x/time/rate"

	"github.com/progressor-engine/progressor/engine/auth/oidc"
)

// The number of failed logins from one address is limited. This also limits the requests to the
// issuer. Other addresses are not affected.
func TestFailedLoginsAreLimited(t *testing.T) {
	t.Parallel()
	s := newLoginSite(t)
	s.logins.exchanges.rate = 0
	kept, answer := s.begin(t, "/")
	answer.Set("code", "guessed")
	limited := 0
	for range 50 {
		if _, _, err := s.FinishLogin(t.Context(), "", kept, answer, "", address); errors.Is(err, ErrManyLogins) {
			limited++
		}
	}
	if asked := len(s.issuer.Exchanges()); asked != exchangeBurst || limited != 50-exchangeBurst {
		t.Errorf("%d requests to the issuer, %d responses are limited", asked, limited)
	}
	if _, _, err := s.FinishLogin(t.Context(), "", kept, answer, "", "192.0.2.9:1"); errors.Is(err, ErrManyLogins) {
		t.Errorf("another address: %v", err)
	}
	answer.Set("state", "guessed")
	if _, _, err := s.FinishLogin(t.Context(), "", kept, answer, "", address); !errors.Is(err, oidc.ErrState) {
		t.Errorf("another state: %v", err)
	}
}

// A node exchanges at most maxExchanges codes at the same time. An exchange that has ended releases
// its slot.
func TestExchangesAtTheSameTime(t *testing.T) {
	t.Parallel()
	s := newLoginSite(t)
	s.logins.exchanges = newBudget(rate.Inf, 1)
	kept, answer := s.begin(t, "/")
	answer.Set("code", "guessed")
	for range maxExchanges + 1 {
		if _, _, err := s.FinishLogin(t.Context(), "", kept, answer, "", address); errors.Is(err, ErrManyLogins) {
			t.Fatal(err)
		}
	}
	for range maxExchanges {
		s.logins.slots <- struct{}{}
	}
	if _, _, err := s.FinishLogin(t.Context(), "", kept, answer, "", address); !errors.Is(err, ErrManyLogins) {
		t.Errorf("one exchange too many: %v", err)
	}
	if asked := len(s.issuer.Exchanges()); asked != maxExchanges+1 {
		t.Errorf("%d requests to the issuer", asked)
	}
	if limited := s.count(t, "limited"); limited != 1 {
		t.Errorf("%v logins were limited", limited)
	}
}

// The limits on failed authentications and on reads of keys do not prevent logins from the same
// address.
func TestLoginsAtASharedAddress(t *testing.T) {
	t.Parallel()
	s := newLoginSite(t)
	s.failed.rate, s.failed.burst = 0, 0
	s.lookups.rate, s.lookups.burst = 0, 0
	s.unknown = rate.NewLimiter(0, 0)
	s.login(t)
}

// Logins with invented codes do not use up the limit on reads of keys. They count as failed
// authentications, even if the issuer does not respond.
func TestForgedAttempts(t *testing.T) {
	t.Parallel()
	s := newLoginSite(t)
	s.failed.rate, s.failed.burst = 0, 3
	s.unknown = rate.NewLimiter(0, 1)
	s.begin(t, "/") // the discovery document is read now
	kept := base64.RawURLEncoding.EncodeToString(fmt.Appendf(nil, `{"i":%q,"s":"x","n":"x","v":"x","p":"/","t":%d}`,
		s.issuer.URL, s.at.now.Unix()))
	s.issuer.SetDown(true)
	for range 3 {
		if !s.failed.left(address) {
			t.Error("too many failures were counted")
		}
		_, _, err := s.FinishLogin(t.Context(), "", kept, url.Values{
			"state": {"x"}, "code": {"x"}, "iss": {s.issuer.URL},
		}, "", address)
		if !errors.Is(err, ErrNoAnswer) {
			t.Errorf("an invented code: %v", err)
		}
	}
	if s.failed.left(address) {
		t.Error("too few failures were counted")
	}
	_, token := s.keys.add()
	if _, err := s.Authenticate(t.Context(), []string{"Bearer " + token}, "192.0.2.9:1"); err != nil {
		t.Errorf("a key that is not cached: %v", err)
	}
}

// The cookie of an attempt is valid for 10 minutes, even if the browser keeps it longer.
func TestOldAttempts(t *testing.T) {
	t.Parallel()
	for age, valid := range map[time.Duration]bool{
		-AttemptTime: false, -30 * time.Second: true, 0: true, AttemptTime - time.Minute: true,
		AttemptTime + time.Second: false,
	} {
		s := newLoginSite(t)
		kept, answer := s.begin(t, "/")
		s.at.now = s.at.now.Add(age)
		_, _, err := s.FinishLogin(t.Context(), "", kept, answer, "", address)
		if valid && err != nil || !valid && !errors.Is(err, oidc.ErrState) {
			t.Errorf("after %s: %v", age, err)
		}
	}
}

// A client that begins many logins does not use up the limit on reads of keys, which other clients
// need.
func TestManyLoginsAreBegun(t *testing.T) {
	t.Parallel()
	s := newLoginSite(t)
	s.unknown = rate.NewLimiter(0, 1)
	for range 10 {
		s.begin(t, "/")
	}
	_, token := s.keys.add()
	if _, err := ask(t, s.Authenticator, token); err != nil {
		t.Errorf("a key that is not cached: %v", err)
	}
}

// Even if an address has too many failed authentications, a request whose login has ended gets
// ErrLogin, and a request without a token gets ErrMissing. A malformed token gets ErrLimited.
func TestEndedLoginsAtASharedAddress(t *testing.T) {
	t.Parallel()
	s := newLoginSite(t)
	token := s.login(t)
	if err := s.EndLogin(t.Context(), token, address); err != nil {
		t.Fatal(err)
	}
	s.failed.rate, s.failed.burst = 0, 0
	s.failed.byKey = map[netip.Prefix]*rate.Limiter{}
	if p, err := s.AuthenticateLogin(t.Context(), token, address); !errors.Is(err, ErrLogin) {
		t.Errorf("a login that has ended: %v, %v", p, err)
	}
	if p, err := s.Authenticate(t.Context(), nil, address); !errors.Is(err, ErrMissing) {
		t.Errorf("no login: %v, %v", p, err)
	}
	if p, err := s.Authenticate(t.Context(), []string{"Bearer x"}, address); !errors.Is(err, ErrLimited) {
		t.Errorf("a malformed token: %v, %v", p, err)
	}
}

// A node limits the logins of each user per hour, so that one user cannot fill the audit.
func TestManyLoginsOfAUser(t *testing.T) {
	t.Parallel()
	s := newLoginSite(t)
	s.logins.exchanges = newBudget(rate.Inf, 1)
	s.logins.hourly.rate = 0
	for range maxHourly {
		s.login(t)
	}
	for user, want := range map[string]error{"alice": ErrManyOfUser, "bob": nil} {
		s.issuer.LogIn(map[string]any{"sub": user})
		kept, answer := s.begin(t, "/")
		if _, _, err := s.FinishLogin(t.Context(), "", kept, answer, "", address); !errors.Is(err, want) {
			t.Errorf("%s: %v", user, err)
		}
	}
	if len(s.rows.audit) != maxHourly+1 {
		t.Errorf("%d entries", len(s.rows.audit))
	}
}

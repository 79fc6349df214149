package auth

import (
	"cmp"
	"context"
	"encoding/base64"
	"encoding/json"
	"errors"
	"log/slog"
	"net/url"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/progressor-engine/progressor/engine/auth/oidc"
	"github.com/progressor-engine/progressor/internal/testissuer"
	"github.com/progressor-engine/progressor/process"
	"github.com/progressor-engine/progressor/storage"
)

// go test -fuzz runs a fuzz test in several processes, and sends the inputs of one of them to the
// others. Therefore an input must have the same meaning in each process: it must not contain a
// secret or an address that a process chooses at random.

// fuzzSecret is the secret of the keys of the fuzz tests.
var fuzzSecret = strings.Repeat("5a", secretBytes)

// withoutLimits removes the limits on failures, so that every input is checked.
func withoutLimits(a *Authenticator) {
	const unlimited = 1e9
	a.failed = &failures{newBudget(unlimited, unlimited), 0}
	a.lookups = newBudget(unlimited, unlimited)
	a.unknown.SetLimit(unlimited)
	a.unknown.SetBurst(unlimited)
	if a.users != nil {
		a.users.verifies = newBudget(unlimited, unlimited)
		a.users.suspects.SetLimit(unlimited)
		a.users.suspects.SetBurst(unlimited)
	}
}

// watchedTable is a table that records the IDs of the keys that are read.
type watchedTable struct {
	table
	read []string
}

func (t *watchedTable) ReadKey(ctx context.Context, id string) (storage.KeyState, error) {
	t.read = append(t.read, id)
	return t.table.ReadKey(ctx, id)
}

// FuzzToken checks that exactly the tokens of the keys are accepted. The scheme may be in upper or
// lower case, and white space may surround the token. FuzzToken also checks that only well-formed
// IDs are looked up in the database.
func FuzzToken(f *testing.F) {
	token, root := tokenPrefix+"fuzz_"+fuzzSecret, tokenPrefix+rootID+"_"+fuzzSecret
	hash := Hash(token)
	keys := &watchedTable{table: table{rows: map[string]storage.KeyState{"fuzz": {SecretHash: hash[:]}}}}
	a := New(keys, root, nil)
	withoutLimits(a)
	for _, header := range []string{
		"Bearer " + token, "bearer  " + root + "\t", token, "Bearer", "Basic " + token,
		"Bearer " + token + ", " + token,
		"Bearer " + strings.ToUpper(token), "Bearer pgr_other_" + fuzzSecret, "Bearer pgl_fuzz_" + fuzzSecret,
		"Bearer pgr_fuzz_" + fuzzSecret[1:], "Bearer pgr__" + fuzzSecret, "Bearer pgr_fu\nzz_" + fuzzSecret,
		"Bearer\t" + token, "Bearer eyJ.eyJ.x",
	} {
		f.Add(header, "")
	}
	f.Add("Bearer "+token, "Bearer "+token)
	id := regexp.MustCompile(`^[a-z0-9]{1,32}$`)
	f.Fuzz(func(t *testing.T, first, second string) {
		headers, want := []string{first}, ""
		if second != "" {
			headers = append(headers, second)
		} else if scheme, sent, _ := strings.Cut(first, " "); strings.EqualFold(scheme, "Bearer") {
			want = map[string]string{token: "key:fuzz", root: "root"}[strings.TrimSpace(sent)]
		}
		keys.read = nil
		p, err := a.Authenticate(t.Context(), headers, address)
		switch {
		case want != "" && (err != nil || p.Name != want):
			t.Errorf("%q: %+v, %v", headers, p, err)
		case want == "" && !errors.Is(err, ErrMissing) && !errors.Is(err, ErrMalformed) && !errors.Is(err, ErrInvalid):
			t.Errorf("%q: %+v, %v", headers, p, err)
		case slices.ContainsFunc(keys.read, func(read string) bool { return !id.MatchString(read) }):
			t.Errorf("%q reads the keys %q", headers, keys.read)
		}
	})
}

// newFuzzedUsers returns an Authenticator with an issuer.
func newFuzzedUsers(f *testing.F) (*Authenticator, *testissuer.Issuer) {
	f.Helper()
	i := testissuer.New(f)
	issuers, err := oidc.New([]oidc.Config{
		{Issuer: i.URL, Audience: testissuer.Audience, GroupsClaim: "groups", NameClaim: "sub"},
	}, slog.New(slog.DiscardHandler), nil)
	if err != nil {
		f.Fatal(err)
	}
	a := New(&table{rows: map[string]storage.KeyState{}}, "", nil)
	a.Accept(issuers, slog.New(slog.DiscardHandler))
	withoutLimits(a)
	return a, i
}

// FuzzJWT checks that only tokens that the issuer has signed are accepted. An input is the JSON of
// the header and of the payload, and the signature in base64. Empty parts are replaced with those
// of a valid token.
func FuzzJWT(f *testing.F) {
	a, i := newFuzzedUsers(f)
	parts := strings.Split(i.Token(nil), ".")
	var signed [2]string
	for n := range signed {
		text, err := base64.RawURLEncoding.DecodeString(parts[n])
		if err != nil {
			f.Fatal(err)
		}
		signed[n] = string(text)
	}
	f.Add("", "", "")
	f.Add(`{"alg":"none"}`, "", "")
	f.Add(`{"alg":"none"}`, "", ".")
	f.Add(`{"alg":"HS256","typ":"JWT"}`, "", "")
	f.Add(`{"alg":"ES256","jwk":{"kty":"EC"}}`, "", "")
	f.Add(`{"alg":"ES256","crit":["b64"],"b64":false}`, "", "")
	f.Add("", `{"iss":"ISSUER","aud":"progressor","sub":"root","exp":99999999999}`, "")
	f.Add("", `{"iss":["ISSUER"],"iss":"ISSUER"}`, "AAAA")
	f.Fuzz(func(t *testing.T, header, payload, signature string) {
		payload = strings.ReplaceAll(payload, "ISSUER", i.URL)
		encode := base64.RawURLEncoding.EncodeToString
		header, payload = cmp.Or(header, signed[0]), cmp.Or(payload, signed[1])
		token := encode([]byte(header)) + "." + encode([]byte(payload)) + "." + cmp.Or(signature, parts[2])
		p, err := a.Authenticate(t.Context(), []string{"Bearer " + token}, address)
		unchanged := header == signed[0] && payload == signed[1]
		switch {
		case err == nil && !unchanged:
			t.Errorf("%s is %s", token, p.Name)
		case err != nil && unchanged && signature == "":
			t.Errorf("the token of the issuer: %v", err)
		case errors.Is(err, process.ErrUnavailable):
			t.Errorf("%s: %v", token, err)
		}
	})
}

// FuzzClaims lets the issuer sign arbitrary claims. A user gets only the name and the groups in
// them, and no name or group is split into several.
func FuzzClaims(f *testing.F) {
	a, i := newFuzzedUsers(f)
	key := i.Rotate()
	for _, claims := range []string{
		`{}`, `{"sub":"bob","groups":["a","b"],"email_verified":true}`, `{"groups":"support"}`,
		`{"sub":"a\ngroup:root","groups":["x\ngroup:root","\u2028","ä"]}`, `{"sub":"a#b"}`, `{"sub":1}`, `{"sub":null}`,
		`{"exp":0}`, `{"exp":1e300}`, `{"exp":"soon"}`, `{"nbf":99999999999}`, `{"iat":-1}`,
		`{"aud":["x","progressor"]}`,
		`{"aud":"progressor-test"}`, `{"aud":{}}`, `{"iss":"https://other.example"}`, `{"_claim_names":{"a":"b"}}`,
	} {
		f.Add([]byte(claims))
	}
	f.Fuzz(func(t *testing.T, text []byte) {
		var claims map[string]any
		if json.Unmarshal(text, &claims) != nil {
			return
		}
		all := i.Claims(claims)
		p, err := a.Authenticate(t.Context(), []string{"Bearer " + testissuer.Sign(t, key, all)}, address)
		if err != nil {
			if errors.Is(err, process.ErrUnavailable) || errors.Is(err, ErrInvalid) {
				t.Errorf("%s: %v", text, err)
			}
			return
		}
		if name, ok := all["sub"].(string); !ok || p.Name != "user:"+i.URL+"#"+name || !IsPrincipal(p.Name) {
			t.Errorf("%s: %q", text, p.Name)
		}
		given, _ := all["groups"].([]any)
		for _, group := range p.Groups() {
			name := strings.TrimPrefix(group, "group:")
			if !slices.Contains(append(given, all["groups"]), any(name)) || !IsPrincipal(group) {
				t.Errorf("%s: group %q", text, group)
			}
		}
		if expires, ok := all["exp"].(float64); ok && expires < float64(time.Now().Unix()-1) {
			t.Errorf("%s is accepted after its expiry", text)
		}
	})
}

// FuzzAttempt lets browsers send arbitrary attempts. An attempt is valid only for some time, and
// leads only to a page of the console.
func FuzzAttempt(f *testing.F) {
	now := time.Unix(1_800_000_000, 0)
	for _, kept := range []string{
		`{"i":"https://issuer.example","s":"S","n":"N","v":"V","p":"/processes?ns=shop","t":1800000000}`,
		`{"p":"/","t":1799999400}`, `{"p":"/","t":1799999399}`, `{"p":"/","t":1800000061}`,
		`{"p":"//evil.example","t":1800000000}`, `{"p":"/a?\nb","t":1800000000}`, `{"p":"/","t":1e18}`, `[]`, `null`,
	} {
		f.Add([]byte(kept))
	}
	f.Fuzz(func(t *testing.T, text []byte) {
		begun, ok := attemptIn(base64.RawURLEncoding.EncodeToString(text), now)
		if !ok {
			return
		}
		to, err := url.Parse(consoleURL + "/#" + begun.Page)
		if age := now.Unix() - begun.Begun; err != nil || age > 600 || age < -60 ||
			to.Host != "progressor.example.com" || to.Path != "/p/" || strings.ContainsAny(begun.Page, "\r\n\x00 ") {
			t.Errorf("%s leads to %q, begun at %d", text, begun.Page, begun.Begun)
		}
	})
}

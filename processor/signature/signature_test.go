package signature_test

import (
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/progressor-engine/progressor/processor/signature"
)

func key(t *testing.T, text string) signature.Key {
	t.Helper()
	k, err := signature.ParseKey(text)
	if err != nil {
		t.Fatal(err)
	}
	return k
}

const (
	first  = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"
	second = "whsec_AAECAwQFBgcICQoLDA0ODxAREhMUFRYX"
	third  = "whsec_b3RoZXIgc2VjcmV0IGtleSBmb3IgdGVzdHM="
)

// Sign returns the signature of the example in the specification, and Verify accepts this
// signature.
func TestSignExample(t *testing.T) {
	h := http.Header{}
	body := []byte(`{"test": 2432232314}`)
	at := time.Unix(1614265330, 0)
	signature.Sign(h, "msg_p5jXN8AQM9LWM0D4loKWxJek", at, body, key(t, first))
	if got := h.Get("webhook-signature"); got != "v1,g0hM9SsE+OTPJTGt/tmIKtSyZlE3uFJELVlNIOLJ1OE=" {
		t.Errorf("signature %q", got)
	}
	if err := signature.Verify(h, body, at, key(t, first)); err != nil {
		t.Error(err)
	}
}

func TestVerify(t *testing.T) {
	now := time.Unix(1_700_000_000, 0)
	body := []byte("body")
	one, two := key(t, first), key(t, second)
	for _, c := range []struct {
		name   string
		change func(h http.Header)
		at     time.Duration
		body   string
		keys   []signature.Key
		want   string // "" if the request is accepted
	}{
		{"signed by one key", nil, 0, "body", []signature.Key{one}, ""},
		{"the other key", nil, 0, "body", []signature.Key{two}, "known key"},
		{"old and new key", nil, 0, "body", []signature.Key{two, one}, ""},
		{"no key", nil, 0, "body", nil, "known key"},
		{"another body", nil, 0, "bodY", []signature.Key{one}, "known key"},
		{"another id", set("webhook-id", "y"), 0, "body", []signature.Key{one}, "known key"},
		{"a later timestamp", set("webhook-timestamp", "1700000001"), 0, "body",
			[]signature.Key{one}, "known key"},
		{"no id", set("webhook-id", ""), 0, "body", []signature.Key{one}, "not signed"},
		{"no timestamp", set("webhook-timestamp", ""), 0, "body", []signature.Key{one}, "not signed"},
		{"no signature", set("webhook-signature", ""), 0, "body", []signature.Key{one}, "not signed"},
		{"a time as text", set("webhook-timestamp", "now"), 0, "body", []signature.Key{one},
			"number of seconds"},
		{"a time without end", set("webhook-timestamp", "9223372036854775807"), 0, "body",
			[]signature.Key{one}, "number of seconds"},
		{"a far future", set("webhook-timestamp", "1099511627775"), 0, "body", []signature.Key{one}, "clock"},
		{"300 s later", nil, 300 * time.Second, "body", []signature.Key{one}, ""},
		{"301 s later", nil, 301 * time.Second, "body", []signature.Key{one}, "clock"},
		{"301 s earlier", nil, -301 * time.Second, "body", []signature.Key{one}, "clock"},
		{"a time with a sign", set("webhook-timestamp", "+1700000000"), 0, "body", []signature.Key{one},
			"number of seconds"},
		{"an ID with a dot", set("webhook-id", "x.1700000000"), 0, "body", []signature.Key{one}, "dot"},
		{"no valid key", nil, 0, "body", []signature.Key{{}}, "known key"},
		{"a version that is not known", func(h http.Header) {
			h.Set("webhook-signature", strings.Replace(h.Get("webhook-signature"), "v1,", "v1a,", 1))
		}, 0, "body", []signature.Key{one}, "known key"},
		{"and one of another version", func(h http.Header) {
			h.Set("webhook-signature", "v1a,x "+h.Get("webhook-signature")+" v2,y")
		}, 0, "body", []signature.Key{one}, ""},
	} {
		h := http.Header{}
		signature.Sign(h, "x", now, body, one)
		if c.change != nil {
			c.change(h)
		}
		err := signature.Verify(h, []byte(c.body), now.Add(c.at), c.keys...)
		if (err == nil) != (c.want == "") || err != nil && !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: %v, want %q", c.name, err, c.want)
		}
	}
}

// A request signed with the zero Key, which everyone knows, is not accepted, regardless of the
// number of its signatures.
func TestManySignatures(t *testing.T) {
	now := time.Now()
	h := http.Header{}
	signature.Sign(h, "x", now, []byte("body"), signature.Key{})
	h.Set("webhook-signature", strings.Repeat(h.Get("webhook-signature")+" v1, ", 10_000))
	if err := signature.Verify(h, []byte("body"), now, signature.Key{}, key(t, first)); err == nil {
		t.Error("a request that everyone can sign was accepted")
	}
}

func TestKeyIsNotShown(t *testing.T) {
	for _, text := range []string{"", "hunter2", "whsec_", "whsec_hunter2", "whsec_aHVudGVyMg==", second[6:],
		second + second[6:] + second[6:] + second[6:]} {
		_, err := signature.ParseKey(text)
		if err == nil || text != "" && strings.Contains(strings.ReplaceAll(err.Error(), "whsec_$", ""), "hunter2") {
			t.Errorf("%q: %v", text, err)
		}
	}
	k := key(t, first)
	if text := fmt.Sprintf("%v %+v %#v %s", k, k, k, k); strings.ContainsAny(text, "[0123456789") {
		t.Errorf("a key is shown: %s", text)
	}
}

func TestHandler(t *testing.T) {
	var got string
	h := signature.Handler(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		got = string(body)
	}), 10, key(t, first))
	for _, c := range []struct {
		body   string
		key    string
		status int
		got    string
	}{{"0123456789", first, 200, "0123456789"}, {"", first, 200, ""}, {"x", second, 401, "none"},
		{"01234567890", first, 413, "none"}} {
		got = "none"
		r := httptest.NewRequest(http.MethodPost, "/", strings.NewReader(c.body))
		signature.Sign(r.Header, "id", time.Now(), []byte(c.body), key(t, c.key))
		w := httptest.NewRecorder()
		h.ServeHTTP(w, r)
		if w.Code != c.status || got != c.got {
			t.Errorf("%q: %d and %q, want %d and %q", c.body, w.Code, got, c.status, c.got)
		}
	}
}

package signature_test

import (
	"encoding/base64"
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/progressor-engine/progressor/processor/signature"
)

// Ed25519 keys. The first one, and its signature, are an example of Standard Webhooks.
const (
	private  = "whsk_6Xb/dCcHpPea21PS1N9VY/NZW723CEc77N4rJCubMbfVKIDij2HKpMKkioLlX0dRqSKJp4AJ6p9lMicMFs6Kvg=="
	public   = "whpk_1SiA4o9hyqTCpIqC5V9HUakiiaeACeqfZTInDBbOir4="
	private2 = "whsk_AQEBAQEBAQEBAQEBAQEBAQEBAQEBAQEBAQEBAQEBAQE="
)

func TestSignExampleEd25519(t *testing.T) {
	h := http.Header{}
	body, at := []byte(`{"test": 2432232314}`), time.Unix(1614265330, 0)
	signature.Sign(h, "msg_p5jXN8AQM9LWM0D4loKWxJek", at, body, key(t, private))
	const want = "v1a,hnO3f9T8Ytu9HwrXslvumlUpqtNVqkhqw/enGzPCXe5BdqzCInXqYXFymVJaA7AZdpXwVLPo3mNl8EM+m7TBAg=="
	if got := h.Get("webhook-signature"); got != want {
		t.Errorf("signature %q", got)
	}
	for _, text := range []string{public, private} {
		if err := signature.Verify(h, body, at, key(t, text)); err != nil {
			t.Errorf("%s: %v", text, err)
		}
	}
	for text, want := range map[string]string{private: public, public: public, first: ""} {
		if got := key(t, text).Public(); got != want {
			t.Errorf("the public key is %q, want %q", got, want)
		}
	}
	if key(t, public).CanSign() || !key(t, private).CanSign() || !key(t, first).CanSign() {
		t.Error("a public key can sign, or another key cannot")
	}
}

// Verify accepts a request if one of its signatures was made with one of the given keys. Ed25519
// keys accept only Ed25519 signatures, and shared keys accept only HMAC signatures.
func TestVerifyEd25519(t *testing.T) {
	now, body := time.Now(), []byte("body")
	other := key(t, private2).Public()
	confused := "whsec_" + strings.TrimPrefix(public, "whpk_") // the bytes of a public key, used as a shared key
	for _, c := range []struct {
		name   string
		sign   []string
		keys   []string
		change func(http.Header)
		want   bool
	}{
		{"signed", []string{private}, []string{public}, nil, true},
		{"signed with the new and the old key", []string{private2, private}, []string{public}, nil, true},
		{"also signed with a shared key", []string{first, private}, []string{public}, nil, true},
		{"verified with the shared key", []string{private, first}, []string{first}, nil, true},
		{"signed with one of the known keys", []string{private}, []string{first, other, public}, nil, true},
		{"signed with an unknown key", []string{private2}, []string{public}, nil, false},
		{"signed with the public key as a shared key", []string{confused}, []string{public}, nil, false},
		{"not signed, because a public key cannot sign", []string{public}, []string{public}, nil, false},
		{"changed ID", []string{private}, []string{public}, set("webhook-id", "y"), false},
		{"empty signature", []string{private}, []string{public}, set("webhook-signature", "v1a,"), false},
		{"valid signature after 9 invalid ones", []string{private}, []string{public}, before(9), true},
		{"valid signature after 10 invalid ones", []string{private}, []string{public}, before(10), false},
	} {
		h := http.Header{}
		signature.Sign(h, "x", now, body, keysOf(t, c.sign)...)
		if c.change != nil {
			c.change(h)
		}
		if err := signature.Verify(h, body, now, keysOf(t, c.keys)...); (err == nil) != c.want {
			t.Errorf("%s: %v", c.name, err)
		}
	}
}

// before returns a change that puts n invalid signatures in front of those of a request.
func before(n int) func(http.Header) {
	return func(h http.Header) {
		h.Set("webhook-signature", strings.Repeat("v1a,AAAA ", n)+h.Get("webhook-signature"))
	}
}

func keysOf(t *testing.T, texts []string) (keys []signature.Key) {
	t.Helper()
	for _, text := range texts {
		keys = append(keys, key(t, text))
	}
	return keys
}

// ParseKey rejects malformed keys. Neither its errors nor a formatted Key contain parts of a key.
func TestKeysOfEd25519(t *testing.T) {
	raw, err := base64.StdEncoding.DecodeString(strings.TrimPrefix(private, "whsk_"))
	if err != nil {
		t.Fatal(err)
	}
	raw[63] ^= 1 // the second half is no longer the public key of the seed in the first half
	for _, text := range []string{
		"whsk_", "whsk_hunter2", "whsk_" + first[6:], public + "AAAA", "whpk_", "whpk_" + private[5:],
		"whsk_" + base64.StdEncoding.EncodeToString(raw),
	} {
		_, err := signature.ParseKey(text)
		if err == nil || !strings.HasPrefix(err.Error(), "must be "+text[:5]) ||
			strings.Contains(err.Error(), "hunter2") {
			t.Errorf("%q: %v", text, err)
		}
	}
	k := key(t, private)
	if text := fmt.Sprintf("%v %+v %#v %s", k, k, k, k); strings.ContainsAny(text, "[0123456789") {
		t.Errorf("a formatted key contains the key: %s", text)
	}
}

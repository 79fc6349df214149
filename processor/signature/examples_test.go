package signature_test

import (
	"bytes"
	"fmt"
	"net/http"
	"os/exec"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/progressor-engine/progressor/processor/signature"
)

func set(name, value string) func(http.Header) {
	return func(h http.Header) { h.Set(name, value) }
}

// The verifiers of the SDKs accept what Sign signs, and nothing else.
func TestVerifiersOfSDKs(t *testing.T) {
	body := "\x00\xff{\"a\": 1}\n\nä"
	another := key(t, private2).Public()
	cases := map[string]struct {
		sign   []string // default: first and third
		change func(http.Header)
		at     time.Duration
		body   string
		keys   []string
		want   string // "" if the request is accepted
	}{
		"signed":           {keys: []string{first}},
		"two keys":         {keys: []string{second, first}},
		"the other one":    {keys: []string{third}},
		"another key":      {keys: []string{second}, want: "known key"},
		"another body":     {keys: []string{first}, body: body + " ", want: "known key"},
		"no body":          {keys: []string{first}, body: " ", want: "known key"},
		"almost too old":   {keys: []string{first}, at: -290 * time.Second},
		"too old":          {keys: []string{first}, at: -310 * time.Second, want: "clock"},
		"too new":          {keys: []string{first}, at: 310 * time.Second, want: "clock"},
		"another id":       {keys: []string{first}, change: set("webhook-id", "y"), want: "known key"},
		"not signed":       {keys: []string{first}, change: set("webhook-signature", ""), want: "not signed"},
		"no id":            {keys: []string{first}, change: set("webhook-id", ""), want: "not signed"},
		"an ID with a dot": {keys: []string{first}, change: set("webhook-id", "x.1"), want: "dot"},
		"a huge time": {keys: []string{first}, change: set("webhook-timestamp", strings.Repeat("9", 400)),
			want: "number of seconds"},
		"no key":         {want: "known key"},
		"an empty key":   {keys: []string{"", first}, want: "must be whsec_"},
		"no prefix":      {keys: []string{first[6:]}, want: "must be whsec_"},
		"a short key":    {keys: []string{"whsec_AAEC"}, want: "must be whsec_"},
		"a text as time": {keys: []string{first}, change: set("webhook-timestamp", "1e9"), want: "number of seconds"},
		"another version too": {keys: []string{first}, change: func(h http.Header) {
			h.Set("webhook-signature", "v1a,ä "+h.Get("webhook-signature"))
		}},
		"ed25519":              {sign: []string{private}, keys: []string{public}},
		"ed25519 in rotation":  {sign: []string{private2, private}, keys: []string{public}},
		"ed25519 or shared":    {sign: []string{first, private}, keys: []string{second, public}},
		"ed25519, another key": {sign: []string{private}, keys: []string{another}, want: "known key"},
		"ed25519, another body": {sign: []string{private}, keys: []string{public}, body: body + " ",
			want: "known key"},
		"ed25519, no signature of it": {keys: []string{public}, want: "known key"},
		"ed25519, another version too": {sign: []string{private}, keys: []string{public}, change: func(h http.Header) {
			h.Set("webhook-signature", "v1a,ä v1a, "+h.Get("webhook-signature"))
		}},
		"ed25519, ten signatures": {sign: []string{private}, keys: []string{public}, change: before(9)},
		"ed25519, many signatures": {sign: []string{private}, keys: []string{public}, change: before(10),
			want: "known key"},
		"a public key as a shared one": {sign: []string{"whsec_" + strings.TrimPrefix(public, "whpk_")},
			keys: []string{public}, want: "known key"},
		"a short public key": {keys: []string{"whpk_AAEC"}, want: "must be whpk_"},
	}
	for language, args := range map[string][]string{
		"python3": {"../../sdk/python/tests/verify.py"}, "node": {"../../sdk/typescript/test/verify.mjs"},
	} {
		t.Run(language, func(t *testing.T) {
			if _, err := exec.LookPath(language); err != nil {
				t.Skip(language + " is not installed")
			}
			without := false // Ed25519
			if language == "python3" {
				without = exec.CommandContext(t.Context(), language, "-c", "import cryptography").Run() != nil
			}
			if without {
				t.Log("the package cryptography is not installed: signatures with Ed25519 are not tested")
			}
			for name, c := range cases {
				isPublic := func(key string) bool { return strings.HasPrefix(key, "whpk_") }
				if without && slices.ContainsFunc(c.keys, isPublic) {
					continue
				}
				if c.sign == nil {
					c.sign = []string{first, third}
				}
				h := http.Header{}
				signature.Sign(h, "task_1_2", time.Now().Add(c.at), []byte(body), keysOf(t, c.sign)...)
				if c.change != nil {
					c.change(h)
				}
				var request bytes.Buffer
				for name, values := range h {
					request.WriteString(name + ": " + values[0] + "\n")
				}
				request.WriteString("\n")
				if c.body == "" {
					c.body = body
				}
				request.WriteString(c.body)
				verifier := exec.CommandContext(t.Context(), language, append(args, c.keys...)...)
				verifier.Stdin = &request
				out, err := verifier.CombinedOutput()
				if (err == nil) != (c.want == "") || !strings.Contains(string(out), c.want) {
					t.Errorf("%s: %v, %s, want %q", name, err, out, c.want)
				}
			}
		})
	}
}

// Without the package cryptography, the verifier in Python reports that a public key needs it.
// Other keys work.
func TestPythonWithoutCryptography(t *testing.T) {
	if _, err := exec.LookPath("python3"); err != nil {
		t.Skip("python3 is not installed")
	}
	for text, want := range map[string]string{
		public: "a key that begins with whpk_ needs the package cryptography: pip install cryptography", first: "",
	} {
		h := http.Header{}
		signature.Sign(h, "x", time.Now(), []byte("body"), key(t, private), key(t, first))
		// -S leaves out the directories of packages.
		verifier := exec.CommandContext(t.Context(), "python3", "-S", "../../sdk/python/tests/verify.py", text)
		verifier.Stdin = strings.NewReader(fmt.Sprintf("%s: %s\n%s: %s\n%s: %s\n\nbody", signature.HeaderID,
			h.Get(signature.HeaderID), signature.HeaderTimestamp, h.Get(signature.HeaderTimestamp),
			signature.HeaderSignature, h.Get(signature.HeaderSignature)))
		out, err := verifier.CombinedOutput()
		if (err == nil) != (want == "") || strings.TrimSpace(string(out)) != want {
			t.Errorf("%s: %v, %s", text, err, out)
		}
	}
}

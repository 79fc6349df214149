package signature_test

import (
	"bytes"
	"net/http"
	"os/exec"
	"strings"
	"testing"
	"time"

	"github.com/progressor-engine/progressor/processor/signature"
)

func set(name, value string) func(http.Header) {
	return func(h http.Header) { h.Set(name, value) }
}

// The verifiers of the examples accept what Sign signs, and nothing else.
func TestVerifiersOfExamples(t *testing.T) {
	body := "\x00\xff{\"a\": 1}\n\nä"
	cases := map[string]struct {
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
	}
	for language, args := range map[string][]string{
		"python3": {"../../examples/python/signature.py"}, "node": {"../../examples/node/signature.mjs"},
	} {
		t.Run(language, func(t *testing.T) {
			if _, err := exec.LookPath(language); err != nil {
				t.Skip(language + " is not installed")
			}
			for name, c := range cases {
				h := http.Header{}
				signature.Sign(h, "task_1_2", time.Now().Add(c.at), []byte(body), key(t, first), key(t, third))
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

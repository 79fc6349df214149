package oidc

import (
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/go-jose/go-jose/v4"

	"github.com/progressor-engine/progressor/internal/testissuer"
)

// The claims of a signed token are checked, and the client sees what is wrong.
func TestClaims(t *testing.T) {
	t.Parallel()
	i := testissuer.New(t)
	all := accept(t, config(i))
	at := func(d time.Duration) int64 { return time.Now().Add(d).Unix() }
	many := make([]string, MaxGroups+1)
	for n := range many {
		many[n] = fmt.Sprintf("g%03d", n)
	}
	for name, c := range map[string]struct {
		claims map[string]any
		want   string // error, or ""
		groups []string
	}{
		"usual":                {nil, "", nil},
		"several audiences":    {map[string]any{"aud": []string{"a", testissuer.Audience}}, "", nil},
		"another audience":     {map[string]any{"aud": "a"}, "expected audience", nil},
		"audience as a prefix": {map[string]any{"aud": testissuer.Audience + "2"}, "expected audience", nil},
		"no audience":          {map[string]any{"aud": nil}, "expected audience", nil},
		"expired":              {map[string]any{"exp": at(-time.Second)}, "token is expired", nil},
		"no expiry":            {map[string]any{"exp": nil}, "token is expired", nil},
		"not yet valid":        {map[string]any{"nbf": at(6 * time.Minute)}, "before the nbf", nil},
		"clocks that differ":   {map[string]any{"nbf": at(4 * time.Minute)}, "", nil},
		"no name":              {map[string]any{"sub": nil}, `claim "sub": must have 1 to 255`, nil},
		"empty name":           {map[string]any{"sub": ""}, `claim "sub"`, nil},
		"name with a space":    {map[string]any{"sub": "a b"}, `claim "sub"`, nil},
		"name with two lines":  {map[string]any{"sub": "a\ngroup:b"}, `claim "sub"`, nil},
		"long name":            {map[string]any{"sub": strings.Repeat("a", 256)}, `claim "sub"`, nil},
		"name is a number":     {map[string]any{"sub": 7}, "failed to unmarshal claims", nil},
		"groups":               {map[string]any{"groups": []string{"b", "a", "b"}}, "", []string{"a", "b"}},
		"one group":            {map[string]any{"groups": "Domain Users"}, "", []string{"Domain Users"}},
		"null":                 {map[string]any{"groups": json.RawMessage("null")}, "", nil},
		"bad groups": {
			map[string]any{"groups": []string{"a\nuser:x", "", "\u202eb", strings.Repeat("c", 257), "d"}}, "",
			[]string{"d"},
		},
		"groups as numbers": {map[string]any{"groups": []int{1}}, `claim "groups": must be a list of strings`, nil},
		"groups as object":  {map[string]any{"groups": map[string]int{"a": 1}}, `claim "groups": must be a list`, nil},
		"maximum":           {map[string]any{"groups": many[:MaxGroups]}, "", many[:MaxGroups]},
		"too many groups":   {map[string]any{"groups": many}, `claim "groups": has 201 groups, but at most 200`, nil},
	} {
		who, err := all.Verify(t.Context(), i.Token(c.claims))
		var shown *ClaimError
		switch {
		case c.want == "" && (err != nil || who.User != i.URL+"#alice" || !slices.Equal(who.Groups, c.groups)):
			t.Errorf("%s: %+v, %v", name, who, err)
		case c.want != "" && (!errors.As(err, &shown) || !strings.Contains(err.Error(), c.want)):
			t.Errorf("%s: %v, want %s", name, err, c.want)
		}
	}
}

// If the name is the claim email, the claim email_verified must be true or absent.
func TestNameClaim(t *testing.T) {
	t.Parallel()
	i := testissuer.New(t)
	c := config(i)
	c.NameClaim = "email"
	all := accept(t, c)
	for _, tt := range []struct {
		verified any
		ok       bool
	}{{true, true}, {"true", true}, {nil, true}, {false, false}, {"false", false}, {1, false}} {
		claims := map[string]any{"email": "a@example.com", "email_verified": tt.verified}
		who, err := all.Verify(t.Context(), i.Token(claims))
		if (err == nil) != tt.ok || tt.ok && who.User != i.URL+"#a@example.com" {
			t.Errorf("email_verified %v: %+v, %v", tt.verified, who, err)
		}
	}
	if _, err := all.Verify(t.Context(), i.Token(nil)); err == nil || !strings.Contains(err.Error(), `claim "email"`) {
		t.Errorf("without the claim: %v", err)
	}
}

// TestKubernetesClaims checks a token of a Kubernetes service account, with the claims that the
// Kubernetes documentation shows. It does not use a cluster.
func TestKubernetesClaims(t *testing.T) {
	t.Parallel()
	i := testissuer.New(t)
	i.Use(newRSA(t, "k8s", 2048, jose.RS256))
	now := time.Now()
	who, err := accept(t, config(i)).Verify(t.Context(), i.Token(map[string]any{
		"aud": []string{testissuer.Audience}, "sub": "system:serviceaccount:shop:billing", "nbf": now.Unix(),
		"jti": "ea28ed49-2e11-4280-9ec5-bc3d1d84661a", "kubernetes.io": map[string]any{
			"namespace": "shop", "pod": map[string]any{"name": "billing-7f9c", "uid": "eb0b5f1c"},
			"serviceaccount": map[string]any{"name": "billing", "uid": "14ee3fa4"},
			"warnafter":      now.Add(time.Hour).Unix(),
		},
	}))
	if err != nil || who.User != i.URL+"#system:serviceaccount:shop:billing" || len(who.Groups) > 0 {
		t.Errorf("%+v, %v", who, err)
	}
}

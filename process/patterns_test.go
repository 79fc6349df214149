package process

import (
	"slices"
	"testing"
)

func TestPatterns(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		patterns Patterns
		yes, no  []string
	}{
		{nil, []string{"", "a", "shop/x"}, nil},
		{Patterns{}, nil, []string{"", "a"}},
		{Patterns{"*"}, []string{"", "a"}, nil},
		{Patterns{"shop/*"}, []string{"shop/", "shop/x", "shop/x/y"}, []string{"shop", "shopx", "ashop/x", ""}},
		{Patterns{"shop", "b*"}, []string{"shop", "b", "bx"}, []string{"shop/x", "ab", "sho"}},
	} {
		for _, name := range c.yes {
			if !c.patterns.Match(name) {
				t.Errorf("%q does not match %q", c.patterns, name)
			}
		}
		for _, name := range c.no {
			if c.patterns.Match(name) {
				t.Errorf("%q matches %q", c.patterns, name)
			}
		}
	}
	got, want := (Patterns{"a_b/*", "c%", `d\*`}).Like(), []string{`a\_b/%`, `c\%`, `d\\%`}
	if !slices.Equal(got, want) {
		t.Errorf("LIKE: %q, want %q", got, want)
	}
	if got := Patterns(nil).Like(); !slices.Equal(got, []string{"%"}) {
		t.Errorf("LIKE for all: %q", got)
	}
}

package requestid_test

import (
	"context"
	"strings"
	"testing"

	"github.com/progressor-engine/progressor/internal/requestid"
)

func TestFrom(t *testing.T) {
	for _, id := range []string{
		"1", "4bf92f3577b34da6a3ce929d0e0e4736", "Root=1-67891233-abcdef012345678912345678", "a:b/c+d@e_f.g",
		strings.Repeat("x", 128),
	} {
		if got := requestid.From([]string{id}); got != id {
			t.Errorf("%q becomes %q", id, got)
		}
	}
	seen := map[string]bool{}
	for _, values := range [][]string{
		nil, {""}, {"two", "values"}, {strings.Repeat("x", 129)}, {"a b"}, {"a\nb"}, {`a"b`}, {"ä"}, {"\x00"}, {"a,b"},
	} {
		id := requestid.From(values)
		if len(id) != 32 || seen[id] || requestid.From([]string{id}) != id {
			t.Errorf("%q becomes %q", values, id)
		}
		seen[id] = true
	}
}

func TestContext(t *testing.T) {
	type other struct{}
	ctx := context.WithValue(t.Context(), other{}, "other")
	if id := requestid.Of(ctx); id != "" {
		t.Errorf("a context without a request has the ID %q", id)
	}
	ctx, cancel := context.WithCancel(requestid.In(ctx, "id"))
	if requestid.Of(ctx) != "id" || ctx.Value(other{}) != "other" {
		t.Errorf("ID %q, other value %q", requestid.Of(ctx), ctx.Value(other{}))
	}
	cancel()
	if ctx.Err() == nil {
		t.Error("the context is not cancelled")
	}
}

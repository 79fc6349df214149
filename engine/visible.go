package engine

import (
	"context"
	"slices"

	"github.com/progressor-engine/progressor/process"
)

type visibleKey struct{}

// WithVisible returns a context that restricts requests for all namespaces, such as lists, to the
// namespaces that match patterns.
func WithVisible(ctx context.Context, patterns process.Patterns) context.Context {
	return context.WithValue(ctx, visibleKey{}, patterns)
}

// Visible returns the patterns of WithVisible. Without WithVisible, it returns nil, which matches
// all namespaces.
func Visible(ctx context.Context) process.Patterns {
	patterns, _ := ctx.Value(visibleKey{}).(process.Patterns)
	return patterns
}

// VisibleNames returns the sorted names of the namespaces that match Visible(ctx).
func (e *Engine) VisibleNames(ctx context.Context) []string {
	patterns := Visible(ctx)
	return slices.DeleteFunc(e.NamespaceNames(), func(name string) bool { return !patterns.Match(name) })
}

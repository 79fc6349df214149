package engine

import (
	"context"
	"slices"

	"github.com/progressor-engine/progressor/process"
)

type visibleKey struct{}

// WithVisible returns a context in which lists over all namespaces contain only the namespaces that
// match patterns.
func WithVisible(ctx context.Context, patterns process.Patterns) context.Context {
	return context.WithValue(ctx, visibleKey{}, patterns)
}

// Visible returns the patterns of the namespaces that lists over all namespaces contain.
func Visible(ctx context.Context) process.Patterns {
	patterns, _ := ctx.Value(visibleKey{}).(process.Patterns)
	return patterns
}

// VisibleNames returns the names of the namespaces that are visible in a context, sorted.
func (e *Engine) VisibleNames(ctx context.Context) []string {
	patterns := Visible(ctx)
	return slices.DeleteFunc(e.NamespaceNames(), func(name string) bool { return !patterns.Match(name) })
}

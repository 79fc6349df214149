package process

import (
	"regexp"
	"slices"
	"strings"
)

// Patterns select names, such as names of namespaces. A pattern is NAME, PREFIX* or *. nil selects
// all.
type Patterns []string

// pattern is NAME, PREFIX* or *. Names of namespaces have the same characters.
var pattern = regexp.MustCompile(`^([a-zA-Z0-9._/-]{0,127}\*|[a-zA-Z0-9._/-]{1,128})$`)

// ValidPattern reports whether a pattern is well-formed.
func ValidPattern(text string) bool { return pattern.MatchString(text) }

// MatchNamespace reports whether a pattern matches a namespace.
func MatchNamespace(pattern, namespace string) bool {
	if prefix, ok := strings.CutSuffix(pattern, "*"); ok {
		return strings.HasPrefix(namespace, prefix)
	}
	return pattern == namespace
}

// Match reports whether a name is selected.
func (p Patterns) Match(name string) bool {
	return p == nil ||
		slices.ContainsFunc(p, func(pattern string) bool { return MatchNamespace(pattern, name) })
}

// Like returns the patterns for LIKE ANY in SQL.
func (p Patterns) Like() []string {
	if p == nil {
		return []string{"%"}
	}
	like := make([]string, len(p))
	for n, pattern := range p {
		prefix, begins := strings.CutSuffix(pattern, "*")
		if like[n] = strings.NewReplacer(`\`, `\\`, `_`, `\_`, `%`, `\%`).Replace(prefix); begins {
			like[n] += "%"
		}
	}
	return like
}

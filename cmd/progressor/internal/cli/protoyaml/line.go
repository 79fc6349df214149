package protoyaml

import (
	"strconv"
	"strings"

	"go.yaml.in/yaml/v3"
)

// LineOf returns the line of the value of a path, such as steps[2].input["a b"], or of the nearest
// element that exists.
func LineOf(node *yaml.Node, path string) int {
	if node == nil {
		return 0
	}
	line := node.Line
	for _, token := range PathTokens(path) {
		var next *yaml.Node
		if node.Kind == yaml.AliasNode {
			node = node.Alias
		}
		switch node.Kind {
		case yaml.SequenceNode:
			if i, err := strconv.Atoi(token); err == nil && i >= 0 && i < len(node.Content) {
				next = node.Content[i]
				line = next.Line
			}
		case yaml.MappingNode:
			for i := 0; i+1 < len(node.Content); i += 2 {
				if sameField(node.Content[i].Value, token) {
					next = node.Content[i+1]
					line = node.Content[i].Line
				}
			}
		}
		if next == nil {
			return line
		}
		node = next
	}
	return line
}

// sameField reports whether two names denote the same field: step_id, step-id or stepId. Keys of
// JSON values must be equal.
func sameField(written, name string) bool {
	plain := func(s string) string {
		return strings.ToLower(strings.NewReplacer("_", "", "-", "").Replace(s))
	}
	return written == name || plain(written) == plain(name)
}

// PathTokens splits a path: a.b[2]["c d"] is a, b, 2 and c d.
func PathTokens(path string) []string {
	var tokens []string
	for path != "" {
		switch {
		case path[0] == '.':
			path = path[1:]
		case strings.HasPrefix(path, `["`):
			quoted, err := strconv.QuotedPrefix(path[1:])
			if err != nil {
				return tokens
			}
			token, _ := strconv.Unquote(quoted)
			tokens = append(tokens, token)
			path = strings.TrimPrefix(path[1+len(quoted):], "]")
		case path[0] == '[':
			token, rest, _ := strings.Cut(path[1:], "]")
			tokens = append(tokens, token)
			path = rest
		default:
			end := strings.IndexAny(path, ".[")
			if end < 0 {
				end = len(path)
			}
			tokens = append(tokens, path[:end])
			path = path[end:]
		}
	}
	return tokens
}

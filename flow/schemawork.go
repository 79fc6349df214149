package flow

import (
	"slices"
	"strings"

	"github.com/santhosh-tekuri/jsonschema/v6"
)

const (
	// maxApplied limits how many schemas apply to one value, at 6 µs each. For example, 20
	// definitions that each refer twice to the next one result in 1,000,000 schemas.
	maxApplied = 10_000
	// maxVisited limits how many schemas apply to one value and its nested fields and items. The
	// count stops where a schema contains itself.
	maxVisited = 1_000_000
)

// schemaWork counts the schemas that apply to a value.
type schemaWork struct {
	applied map[*jsonschema.Schema]int
	visited map[*jsonschema.Schema]int
	open    map[*jsonschema.Schema]bool
	circle  string // location of a schema that refers to itself for the same value
}

// tooMuchWork returns the location of a schema whose validation would take too long and the reason,
// or "" if there is none.
func tooMuchWork(s *jsonschema.Schema) (where, message string) {
	w := &schemaWork{applied: map[*jsonschema.Schema]int{}, visited: map[*jsonschema.Schema]int{},
		open: map[*jsonschema.Schema]bool{}}
	var walk func(s *jsonschema.Schema)
	seen := map[*jsonschema.Schema]bool{}
	walk = func(s *jsonschema.Schema) {
		if s == nil || seen[s] || message != "" {
			return
		}
		seen[s] = true
		switch n := w.apply(s); {
		case w.circle != "":
			where, message = w.circle,
				"refers to itself without descending into the value: its validation would never end"
		case n > maxApplied:
			where, message = s.Location,
				"checks one value against more than 10000 schemas: reduce the references to the same schema"
		}
		for _, next := range slices.Concat(inPlace(s), below(s)) {
			walk(next)
		}
	}
	walk(s)
	if message == "" && w.visit(s) > maxVisited {
		where, message = s.Location,
			"checks a value against more than 1000000 schemas: reduce the references to the same schema"
	}
	return strings.TrimPrefix(where, documentURL), message
}

// apply counts the schemas that apply to the same value as s.
func (w *schemaWork) apply(s *jsonschema.Schema) int {
	if n, ok := w.applied[s]; ok {
		return n
	}
	if w.open[s] {
		w.circle = s.Location
		return 1
	}
	w.open[s] = true
	n := 1
	for _, next := range inPlace(s) {
		if next != nil && w.circle == "" {
			n = min(n+w.apply(next), maxApplied+1)
		}
	}
	delete(w.open, s)
	w.applied[s] = n
	return n
}

// visit also counts the schemas below s. It stops where a schema contains itself.
func (w *schemaWork) visit(s *jsonschema.Schema) int {
	if n, ok := w.visited[s]; ok {
		return n
	}
	if w.open[s] {
		return 0
	}
	w.open[s] = true
	n := 1
	for _, next := range slices.Concat(inPlace(s), below(s)) {
		if next != nil {
			n = min(n+w.visit(next), maxVisited+1)
		}
	}
	delete(w.open, s)
	w.visited[s] = n
	return n
}

// inPlace returns the schemas that apply to the same value as s.
func inPlace(s *jsonschema.Schema) []*jsonschema.Schema {
	list := slices.Concat([]*jsonschema.Schema{s.Ref, s.Not, s.If, s.Then, s.Else}, s.AllOf, s.AnyOf, s.OneOf)
	if s.DynamicRef != nil {
		list = append(list, s.DynamicRef.Ref)
	}
	for _, next := range s.DependentSchemas {
		list = append(list, next)
	}
	return list
}

// below returns the schemas that apply to the fields and items of the value.
func below(s *jsonschema.Schema) []*jsonschema.Schema {
	list := slices.Concat([]*jsonschema.Schema{s.PropertyNames, s.UnevaluatedProperties, s.Contains, s.Items2020,
		s.UnevaluatedItems}, s.PrefixItems)
	if next, ok := s.AdditionalProperties.(*jsonschema.Schema); ok {
		list = append(list, next)
	}
	for _, next := range s.Properties {
		list = append(list, next)
	}
	for _, next := range s.PatternProperties {
		list = append(list, next)
	}
	return list
}

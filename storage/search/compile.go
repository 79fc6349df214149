package search

import (
	"strconv"
	"strings"

	"github.com/progressor-engine/progressor/process"
)

// statement is an SQL statement under construction: fragments, which are constants of this package,
// and the values of their parameters.
type statement struct {
	text strings.Builder
	args []any
}

// mark is the placeholder for a parameter in a fragment.
const mark = "$?"

// add appends a fragment and numbers its parameters.
func (s *statement) add(fragment string, args ...any) {
	for _, arg := range args {
		before, after, _ := strings.Cut(fragment, mark)
		s.args = append(s.args, arg)
		s.text.WriteString(before)
		s.text.WriteByte('$')
		s.text.WriteString(strconv.Itoa(len(s.args)))
		fragment = after
	}
	s.text.WriteString(fragment)
}

func (l allOf) compile(s *statement) { compileList(s, l, " AND ") }
func (l anyOf) compile(s *statement) { compileList(s, l, " OR ") }

func compileList(s *statement, list []node, between string) {
	s.add("(")
	for n, child := range list {
		if n > 0 {
			s.add(between)
		}
		child.compile(s)
	}
	s.add(")")
}

func (n not) compile(s *statement) {
	s.add("(NOT ")
	n.of.compile(s)
	s.add(")")
}

func (c *comparison) compile(s *statement) {
	if c.operator == differs {
		positive := *c
		positive.operator = equals
		not{&positive}.compile(s)
		return
	}
	switch v := c.value; {
	case c.field.doc != nil:
		c.compileDocument(s)
	case v.kind == isAnything:
		s.add(c.field.there)
	case v.kind == isPrefix:
		s.add(c.field.prefix, v.text)
	default:
		s.add(c.field.compare[c.operator], v.argument())
	}
}

func (c *comparison) compileDocument(s *statement) {
	doc := c.field.doc
	switch v := c.value; {
	case v.kind == isAnything && len(c.path) == 0:
		s.add(c.field.there)
	case v.kind == isAnything:
		s.add(doc.there, c.path)
	case c.operator == equals:
		s.add(doc.containsOrNot, under(c.path, v.json()))
	case c.operator == has:
		s.add(doc.containsEither, under(c.path, v.json()), under(c.path, append(append([]byte{'['}, v.json()...), ']')))
	case v.kind == isNumber:
		s.add(doc.numbers[c.operator], c.path, c.path, v.text)
	default:
		s.add(c.field.compare[c.operator], c.path, c.path, v.text)
	}
}

// argument returns the value as a parameter.
func (v value) argument() any {
	switch v.kind {
	case isStatus:
		return string(v.status)
	case isTime:
		return v.time
	case isInteger:
		return v.number
	case isTruth:
		return v.truth
	}
	return v.text
}

// conjuncts returns the conditions that must all hold.
func (f Filter) conjuncts() []node {
	switch root := f.root.(type) {
	case nil:
		return nil
	case allOf:
		return root
	default:
		return []node{root}
	}
}

// listStatus returns the statuses that a process can have if n holds. It returns nil if INIT or
// RUNNING is possible.
func listStatus(n node) []string {
	switch n := n.(type) {
	case *comparison:
		if n.field == fieldStatus && n.operator == equals && n.value.status != process.StatusInit &&
			n.value.status != process.StatusRunning {
			return []string{string(n.value.status)}
		}
	case anyOf:
		var all []string
		for _, part := range n {
			one := listStatus(part)
			if one == nil {
				return nil
			}
			all = append(all, one...)
		}
		return all
	}
	return nil
}

// listStatus returns the only status of the processes that match the filter, if there is exactly
// one and it is neither INIT nor RUNNING. Otherwise it returns "".
func (f Filter) listStatus() string {
	for _, n := range f.conjuncts() {
		if statuses := listStatus(n); len(statuses) == 1 {
			return statuses[0]
		}
	}
	return ""
}

// contained writes n in the form for the index of metadata. It returns false if n does not have
// such a form. For OR, every part must have it. If s is nil, contained writes nothing.
func contained(s *statement, n node) bool {
	switch n := n.(type) {
	case *comparison:
		if n.field.name != fieldMetadata.name || n.value.kind == isAnything ||
			(n.operator != equals && n.operator != has) {
			return false
		}
		if s == nil {
			return true
		}
		s.add(n.field.doc.contains, under(n.path, n.value.json()))
		if n.operator == has {
			s.add(" OR "+n.field.doc.contains, under(n.path, append(append([]byte{'['}, n.value.json()...), ']')))
		}
		return true
	case anyOf:
		for _, part := range n {
			if !contained(nil, part) {
				return false
			}
		}
		for k, part := range n {
			if s == nil {
				break
			}
			if k > 0 {
				s.add(" OR ")
			}
			contained(s, part)
		}
		return true
	}
	return false
}

// successor returns the smallest text in byte order that is greater than every text with the
// prefix, or "" if there is none.
func successor(prefix string) string {
	runes := []rune(prefix)
	for n := len(runes) - 1; n >= 0; n-- {
		switch r := runes[n]; r {
		case '\U0010FFFF':
			continue
		case '\uD7FF': // the surrogates that follow are not characters
			runes[n] = '\uE000'
		default:
			runes[n] = r + 1
		}
		return string(runes[:n+1])
	}
	return ""
}

package search

import (
	"encoding/json"
	"strconv"
	"strings"
	"time"

	"github.com/progressor-engine/progressor/process"
)

// The limits of a filter. Its text may have 16 KiB. These limits keep the time to plan its SQL in
// milliseconds.
const (
	maxTerms    = 100 // comparisons
	maxNesting  = 50  // nested parentheses
	maxHeight   = 20  // nested AND, OR and NOT
	maxSegments = 8   // keys in a path into metadata
)

// Filter is a condition on processes. The zero value matches all processes.
type Filter struct{ root node }

// String returns the filter in canonical form. Filters that differ only in spaces or parentheses
// have the same form.
func (f Filter) String() string {
	if f.root == nil {
		return ""
	}
	var b strings.Builder
	f.root.print(&b)
	return b.String()
}

// node is a part of a filter: allOf, anyOf, not or comparison.
type node interface {
	print(b *strings.Builder)
	compile(s *statement)
}

type (
	allOf []node
	anyOf []node
	not   struct{ of node }
)

// comparison is a field, an operator and a value with matching types.
type comparison struct {
	field    *field
	path     []string // into metadata
	operator string
	value    value
}

// value is the operand of a comparison. kind selects the part that applies.
type value struct {
	kind   valueKind
	text   string // text or prefix; a number as it was written
	status process.Status
	time   time.Time
	number int64 // integer
	truth  bool
}

type valueKind int

const (
	isText valueKind = iota
	isPrefix
	isStatus
	isTime
	isInteger
	isNumber
	isTruth
	isState
	isChoice   // one of a set of names
	isAnything // *: any value
)

func (l allOf) print(b *strings.Builder) { printList(b, l, " AND ") }
func (l anyOf) print(b *strings.Builder) { printList(b, l, " OR ") }

func printList(b *strings.Builder, list []node, between string) {
	for n, child := range list {
		if n > 0 {
			b.WriteString(between)
		}
		printNested(b, child)
	}
}

// printNested puts parentheses around everything except comparisons, because OR binds tighter than
// AND, which is unexpected.
func printNested(b *strings.Builder, child node) {
	if c, ok := child.(*comparison); ok {
		c.print(b)
		return
	}
	b.WriteByte('(')
	child.print(b)
	b.WriteByte(')')
}

func (n not) print(b *strings.Builder) {
	b.WriteString("NOT ")
	printNested(b, n.of)
}

func (c *comparison) print(b *strings.Builder) {
	b.WriteString(c.field.name)
	for _, key := range c.path {
		b.WriteByte('.')
		if plainKey(key) {
			b.WriteString(key)
		} else {
			b.WriteString(Quote(key, false))
		}
	}
	if c.operator == has {
		b.WriteString(has)
	} else {
		b.WriteString(" " + c.operator + " ")
	}
	switch v := c.value; v.kind {
	case isText, isPrefix:
		b.WriteString(Quote(v.text, v.kind == isPrefix))
	case isStatus:
		b.WriteString(string(v.status))
	case isTime:
		b.WriteString(Quote(v.time.Format(time.RFC3339Nano), false))
	case isInteger:
		b.WriteString(strconv.FormatInt(v.number, 10))
	case isNumber:
		b.WriteString(v.text)
	case isTruth:
		b.WriteString(strconv.FormatBool(v.truth))
	case isChoice:
		b.WriteString(v.text)
	case isAnything:
		b.WriteByte('*')
	}
}

var escape = strings.NewReplacer(`\`, `\\`, `"`, `\"`, `*`, `\*`)

// Quote returns a text as a filter value. With prefix, it appends *, which matches all texts with
// that prefix.
func Quote(text string, prefix bool) string {
	if prefix {
		return `"` + escape.Replace(text) + `*"`
	}
	return `"` + escape.Replace(text) + `"`
}

// json returns the value as it is stored in metadata.
func (v value) json() json.RawMessage {
	switch v.kind {
	case isNumber:
		return json.RawMessage(v.text)
	case isTruth:
		return json.RawMessage(strconv.FormatBool(v.truth))
	}
	raw, _ := json.Marshal(v.text) // a string
	return raw
}

// under wraps a value of metadata in the objects of a path: {"a":{"b":value}} for the path a.b.
func under(path []string, inner json.RawMessage) string {
	var b strings.Builder
	for _, key := range path {
		raw, _ := json.Marshal(key) // a string
		b.WriteByte('{')
		b.Write(raw)
		b.WriteByte(':')
	}
	b.Write(inner)
	b.WriteString(strings.Repeat("}", len(path)))
	return b.String()
}

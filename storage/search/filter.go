package search

import (
	"encoding/json"
	"strconv"
	"strings"
	"time"

	"github.com/progressor-engine/progressor/process"
)

// The bounds of a filter. The contract has 16 KiB for its text; these keep the time to plan its SQL in milliseconds.
const (
	maxTerms    = 100 // comparisons
	maxNesting  = 50  // parentheses in parentheses
	maxHeight   = 20  // AND, OR and NOT in one another
	maxSegments = 8   // keys in a path into metadata
)

// Filter is a condition on processes. The zero value holds for all.
type Filter struct{ root node }

// String is the filter in its one canonical form: two filters that differ in spaces or parentheses alone have the same.
func (f Filter) String() string {
	if f.root == nil {
		return ""
	}
	var b strings.Builder
	f.root.print(&b)
	return b.String()
}

// A node is a part of a filter: allOf, anyOf, not or comparison.
type node interface {
	print(b *strings.Builder)
	compile(s *statement)
}

type (
	allOf []node
	anyOf []node
	not   struct{ of node }
)

// comparison is a field, an operator and a value whose types agree.
type comparison struct {
	field    *field
	path     []string // into metadata
	operator string
	value    value
}

// value is what a field is compared with. Which of its parts counts says kind.
type value struct {
	kind   valueKind
	text   string // text, prefix; a number as it was written
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
	isChoice   // one of a few names
	isAnything // *: whatever it is, it is there
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

// printNested puts parentheses around all but a comparison: OR binds closer than AND here, and nobody expects it.
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

// Quote writes a text as a filter takes it. prefix: with a * behind it, for all that begins so.
func Quote(text string, prefix bool) string {
	if prefix {
		return `"` + escape.Replace(text) + `*"`
	}
	return `"` + escape.Replace(text) + `"`
}

// json is the value as it stands in metadata.
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

// under wraps a value of metadata in the objects that lead to it: {"a":{"b":value}} for the path a.b.
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

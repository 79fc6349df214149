package flow

import (
	"fmt"
	"maps"
	"math"
	"regexp"
	"slices"
	"strings"

	"cel.dev/cel-go/common/types"
	"google.golang.org/protobuf/types/known/structpb"

	"github.com/progressor-engine/progressor/process"
)

// value is the compiled value of a field that is marked "template" in the API.
type value struct {
	path string
	root node
}

// node is a part of a value. If it is the same in every run, constant is set.
type node struct {
	constant   *structpb.Value
	expression *expression // only for a string that consists of one ${…}
	parts      []part      // only for a string that contains ${…}
	list       []node
	fields     map[string]node
}

// part is an expression or a literal text within a string.
type part struct {
	text       string
	expression *expression
}

// value compiles a value. It also returns the steps that its expressions name.
func (c *compiler) value(path string, v *structpb.Value, at place) (*value, []int) {
	b := &builder{compiler: c, place: at}
	if !c.plain(path, v, 0) {
		return &value{path: path, root: node{constant: null}}, nil
	}
	return &value{path: path, root: b.node(path, v)}, b.steps
}

// builder compiles the nodes of one value.
type builder struct {
	*compiler
	place place
	steps []int
}

func (b *builder) node(path string, v *structpb.Value) node {
	switch kind := v.GetKind().(type) {
	case *structpb.Value_StringValue:
		return b.text(path, v, kind.StringValue)
	case *structpb.Value_ListValue:
		n, constant := node{}, true
		for i, item := range kind.ListValue.GetValues() {
			below := b.node(fmt.Sprintf("%s[%d]", path, i), item)
			n.list = append(n.list, below)
			constant = constant && below.constant == item
		}
		if !constant {
			return n
		}
	case *structpb.Value_StructValue:
		n, constant := node{fields: make(map[string]node, len(kind.StructValue.GetFields()))}, true
		for _, name := range slices.Sorted(maps.Keys(kind.StructValue.GetFields())) {
			field := kind.StructValue.GetFields()[name]
			below := b.node(fieldPath(path, name), field)
			n.fields[name] = below
			constant = constant && below.constant == field
		}
		if !constant {
			return n
		}
	case nil:
		return node{constant: null}
	}
	return node{constant: v}
}

// text splits a string at its expressions.
func (b *builder) text(path string, v *structpb.Value, text string) node {
	if !strings.Contains(text, "${") {
		return node{constant: v}
	}
	var parts []part
	var plain strings.Builder
	for text != "" {
		start := strings.Index(text, "${")
		if start < 0 {
			plain.WriteString(text)
			break
		}
		if start > 0 && text[start-1] == '$' {
			plain.WriteString(text[:start-1] + "${")
			text = text[start+2:]
			continue
		}
		plain.WriteString(text[:start])
		length := closing(text[start+2:])
		if length < 0 {
			b.add(path, "%s: has ${ without }: close it, or write $${ for the text ${", shortened(text[start:]))
			return node{constant: v}
		}
		if plain.Len() > 0 {
			parts = append(parts, part{text: plain.String()})
			plain.Reset()
		}
		e := b.expression(path, text[start+2:start+2+length], b.place, wantValue)
		b.steps = append(b.steps, e.steps...)
		parts = append(parts, part{expression: e})
		text = text[start+2+length+1:]
	}
	if plain.Len() > 0 {
		parts = append(parts, part{text: plain.String()})
	}
	switch {
	case len(parts) == 1 && parts[0].expression != nil:
		return node{expression: parts[0].expression}
	case len(parts) == 1:
		return node{constant: structpb.NewStringValue(parts[0].text)}
	}
	return node{parts: parts}
}

// closing returns the index of the } that ends the expression at the beginning of text, or -1 if
// there is none. It skips braces of maps and within strings.
func closing(text string) int {
	depth := 0
	for i := 0; i < len(text); i++ {
		switch c := text[i]; c {
		case '{':
			depth++
		case '}':
			if depth == 0 {
				return i
			}
			depth--
		case '"', '\'':
			end := quoted(text[i:], isRaw(text[:i]))
			if end < 0 {
				return -1
			}
			i += end - 1
		case '`':
			end := strings.IndexByte(text[i+1:], '`')
			if end < 0 {
				return -1
			}
			i += end + 1
		case '/':
			if !strings.HasPrefix(text[i:], "//") {
				continue
			}
			end := strings.IndexByte(text[i:], '\n')
			if end < 0 {
				return -1
			}
			i += end
		}
	}
	return -1
}

// isRaw reports whether a string that begins after before is a raw string: r"…", br'…'.
func isRaw(before string) bool {
	prefix := before[len(strings.TrimRight(before, "rRbB")):]
	return strings.ContainsAny(prefix, "rR")
}

// quoted returns the length of the CEL string at the beginning of text, or -1 if it has no end.
func quoted(text string, raw bool) int {
	quote := text[:1]
	if strings.HasPrefix(text, strings.Repeat(quote, 3)) {
		quote = text[:3]
	}
	for i := len(quote); i < len(text); i++ {
		switch {
		case text[i] == '\\' && !raw:
			i++
		case strings.HasPrefix(text[i:], quote):
			return i + len(quote)
		}
	}
	return -1
}

var plainKey = regexp.MustCompile(`^[a-zA-Z_][a-zA-Z0-9_-]*$`)

// fieldPath returns the path of a field in an object.
func fieldPath(path, field string) string {
	if !plainKey.MatchString(field) {
		return fmt.Sprintf("%s[%.100q]", path, field)
	}
	if path == "" {
		return field
	}
	return path + "." + field
}

// plain reports whether a value is JSON that can be stored: it is not nested too deeply and
// contains no NaN or infinity.
func (c *compiler) plain(path string, v *structpb.Value, depth int) bool {
	if depth > process.MaxJSONDepth {
		c.add(path, "is nested deeper than %d objects and lists", process.MaxJSONDepth)
		return false
	}
	ok := true
	switch kind := v.GetKind().(type) {
	case *structpb.Value_NumberValue:
		if ok = !math.IsNaN(kind.NumberValue) && !math.IsInf(kind.NumberValue, 0); !ok {
			c.add(path, "is %v, which JSON cannot represent", kind.NumberValue)
		}
	case *structpb.Value_ListValue:
		for i, item := range kind.ListValue.GetValues() {
			ok = c.plain(fmt.Sprintf("%s[%d]", path, i), item, depth+1) && ok
		}
	case *structpb.Value_StructValue:
		for name, field := range kind.StructValue.GetFields() {
			ok = c.plain(fieldPath(path, name), field, depth+1) && ok
		}
	}
	return ok
}

// evaluation is one evaluation of a value. It limits the total size of the results of its
// expressions, because each expression could insert the whole payload.
type evaluation struct {
	variables
	conversion
}

func evaluate(vars variables) *evaluation {
	return &evaluation{variables: vars, conversion: conversion{most: process.MaxPayloadBytes}}
}

// eval evaluates the value. The result shares parts with the template and the scope and must not be
// modified.
func (v *value) eval(t *Template, s *Scope) (*structpb.Value, error) {
	if v.root.constant != nil {
		return v.root.constant, nil
	}
	return evaluate(t.variables(s)).node(&v.root)
}

func (e *evaluation) node(n *node) (*structpb.Value, error) {
	switch {
	case n.constant != nil:
		return n.constant, nil
	case n.expression != nil:
		result, err := n.expression.eval(e)
		if err != nil {
			return nil, err
		}
		converted, err := e.value(result)
		if err != nil {
			return nil, n.expression.errorf("%s", err)
		}
		return converted, nil
	case n.parts != nil:
		return e.parts(n.parts)
	case n.fields != nil:
		object := &structpb.Struct{Fields: make(map[string]*structpb.Value, len(n.fields))}
		for _, name := range slices.Sorted(maps.Keys(n.fields)) {
			field := n.fields[name]
			item, err := e.node(&field)
			if err != nil {
				return nil, err
			}
			object.Fields[name] = item
		}
		return structpb.NewStructValue(object), nil
	}
	list := &structpb.ListValue{Values: make([]*structpb.Value, len(n.list))}
	for i := range n.list {
		item, err := e.node(&n.list[i])
		if err != nil {
			return nil, err
		}
		list.Values[i] = item
	}
	return structpb.NewListValue(list), nil
}

func (e *evaluation) parts(parts []part) (*structpb.Value, error) {
	var b strings.Builder
	for _, p := range parts {
		if p.expression == nil {
			b.WriteString(p.text)
			continue
		}
		result, err := p.expression.eval(e)
		if err != nil {
			return nil, err
		}
		text, err := e.text(result)
		if err != nil {
			return nil, p.expression.errorf("%s", err)
		}
		b.WriteString(text)
	}
	return structpb.NewStringValue(b.String()), nil
}

// string evaluates a value that is written as a string, and returns the text.
func (v *value) string(vars variables) (string, error) {
	if text, ok := v.root.constant.GetKind().(*structpb.Value_StringValue); ok {
		return text.StringValue, nil
	}
	n := v.root
	if n.expression != nil {
		n.parts = []part{{expression: n.expression}}
	}
	text, err := evaluate(vars).parts(n.parts)
	return text.GetStringValue(), err
}

// timestampOf returns a result that is a timestamp, or an error if it has another type.
func timestampOf(e *expression, result any) (types.Timestamp, error) {
	switch result := result.(type) {
	case types.Timestamp:
		return result, nil
	case types.String:
		return types.Timestamp{}, e.errorf("is a string: write timestamp(…) around it")
	case *structpb.Value:
		if _, isText := result.GetKind().(*structpb.Value_StringValue); isText {
			return types.Timestamp{}, e.errorf("is a string: write timestamp(…) around it")
		}
		return types.Timestamp{}, e.errorf("is %s; a delay needs a timestamp", kindOf(result))
	}
	return types.Timestamp{}, e.errorf("is %s; a delay needs a timestamp", typeOf(result))
}

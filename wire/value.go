package wire

import (
	"bytes"
	"encoding/json"
	"fmt"
	"maps"
	"math"
	"slices"
	"strconv"
	"strings"
	"unicode/utf8"

	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/structpb"

	"github.com/progressor-engine/progressor/process"
)

// This file encodes and decodes the args and results of jobs. Every attempt needs this, and
// protojson is slow because it uses reflection: it took 10 of the 17 µs that the engine needs to
// enqueue a job, and 5 of the 30 µs to run one. The loops below handle plain JSON; protojson
// handles the rest, including all errors. BenchmarkValue uses 200 bytes. A read takes 3.6 µs and 62
// allocations (encoding/json and structpb.NewValue: 7.5 µs, 87; protojson: 21 µs, 143). A write
// takes 3.4 µs and 21 allocations (encoding/json: 6.8 µs, 49; protojson and json.Compact: 22 µs,
// 72).
//
// The encoding is also the same in every build. protojson varies its spaces between builds, so a
// request that is repeated to a node of another version would have another fingerprint.

// Value reads a JSON text as it is stored. It returns nil if text is empty.
//
// The database may contain values that a message cannot hold: numbers outside the range of a
// double, and objects and lists that are nested too deeply. Each of them becomes a string with its
// JSON text, so that a list of processes does not fail because of one such value.
func Value(text []byte) (*structpb.Value, error) {
	r := valueReader{text: text}
	if v := r.decode(); v != nil {
		return v, nil
	}
	v, err := read[structpb.Value]("JSON value", text)
	if err == nil && (v == nil || !r.tooDeep) {
		return v, nil
	}
	r = valueReader{text: text, lenient: true}
	if readable := r.decode(); readable != nil {
		return readable, nil
	}
	return v, err
}

// Struct reads a stored JSON object. It returns nil if text is empty. Values that a message cannot
// hold become strings, as in Value.
func Struct(text []byte) (*structpb.Struct, error) {
	if len(text) == 0 {
		return nil, nil
	}
	v, err := Value(text)
	switch {
	case err != nil:
		return nil, fmt.Errorf("metadata: %w", err)
	case v.GetStructValue() == nil:
		return nil, fmt.Errorf("metadata: want a JSON object, got %.40s", text)
	}
	return v.GetStructValue(), nil
}

// ValueJSON returns v as it is stored, or nil if v is nil. Characters that PostgreSQL does not
// accept are replaced.
func ValueJSON(v *structpb.Value) ([]byte, error) {
	if v == nil {
		return nil, nil
	}
	if text := appendValue(make([]byte, 0, 128), v); text != nil {
		return text, nil
	}
	v = structpb.NewListValue(&structpb.ListValue{Values: []*structpb.Value{v}}) // so that a string is also cleaned
	v = proto.CloneOf(v)
	cleanValue(v)
	v = v.GetListValue().GetValues()[0]
	if text := appendValue(nil, v); text != nil {
		return text, nil
	}
	return protojson.Marshal(v) // returns the error
}

// appendValue appends v as protojson writes it, but without spaces. It returns nil if v cannot be
// encoded, or if PostgreSQL would not accept the result.
func appendValue(b []byte, v *structpb.Value) []byte {
	switch kind := v.GetKind().(type) {
	case *structpb.Value_NullValue:
		return append(b, "null"...)
	case *structpb.Value_BoolValue:
		return strconv.AppendBool(b, kind.BoolValue)
	case *structpb.Value_NumberValue:
		return appendNumber(b, kind.NumberValue)
	case *structpb.Value_StringValue:
		return appendText(b, kind.StringValue)
	case *structpb.Value_ListValue:
		b = append(b, '[')
		for n, item := range kind.ListValue.GetValues() {
			if n > 0 {
				b = append(b, ',')
			}
			if b = appendValue(b, item); b == nil {
				return nil
			}
		}
		return append(b, ']')
	case *structpb.Value_StructValue:
		return appendFields(b, kind.StructValue.GetFields())
	}
	return nil
}

func appendFields(b []byte, fields map[string]*structpb.Value) []byte {
	b = append(b, '{')
	for n, name := range slices.Sorted(maps.Keys(fields)) {
		if n > 0 {
			b = append(b, ',')
		}
		if b = appendText(b, name); b == nil {
			return nil
		}
		if b = appendValue(append(b, ':'), fields[name]); b == nil {
			return nil
		}
	}
	return append(b, '}')
}

func appendNumber(b []byte, x float64) []byte {
	if math.IsNaN(x) || math.IsInf(x, 0) {
		return nil
	}
	if size := math.Abs(x); size != 0 && (size < 1e-6 || size >= 1e21) {
		return appendJSON(b, x)
	}
	return strconv.AppendFloat(b, x, 'f', -1, 64)
}

func appendText(b []byte, s string) []byte {
	plain := true
	for n := range len(s) {
		c := s[n]
		if c == 0 {
			return nil
		}
		plain = plain && c >= ' ' && c != '"' && c != '\\'
	}
	switch {
	case !utf8.ValidString(s):
		return nil
	case !plain:
		return appendJSON(b, s)
	}
	return append(append(append(b, '"'), s...), '"')
}

// appendJSON appends a string with escapes or a number with an exponent.
func appendJSON(b []byte, x any) []byte {
	text := bytes.NewBuffer(b)
	encoder := json.NewEncoder(text)
	encoder.SetEscapeHTML(false)
	if err := encoder.Encode(x); err != nil {
		return nil
	}
	return bytes.TrimSuffix(text.Bytes(), []byte{'\n'})
}

// plainDepth is the maximum nesting that valueReader reads. It is one more than that of a value,
// because each attribute in metadata may be as deep as a value.
const plainDepth = process.MaxJSONDepth + 1

// valueReader decodes plain JSON: no number has an exponent or exceeds a double.
type valueReader struct {
	text    []byte
	at      int
	lenient bool // numbers may have exponents; values that a message cannot hold become strings
	tooDeep bool // the value is nested deeper than plainDepth
}

// decode decodes the whole text. It returns nil if the text does not consist of one plain value.
func (r *valueReader) decode() *structpb.Value {
	if v := r.value(0); v != nil && r.next() == 0 && r.at == len(r.text) {
		return v
	}
	return nil
}

// next skips white space and returns the next byte without consuming it, or 0 at the end.
func (r *valueReader) next() byte {
	for ; r.at < len(r.text); r.at++ {
		switch c := r.text[r.at]; c {
		case ' ', '\t', '\n', '\r':
		default:
			return c
		}
	}
	return 0
}

// value decodes one value. It returns nil if the value is not plain.
func (r *valueReader) value(depth int) *structpb.Value {
	switch c := r.next(); {
	case c == '{' && depth < plainDepth:
		return r.fields(depth + 1)
	case c == '[' && depth < plainDepth:
		return r.list(depth + 1)
	case c == '{' || c == '[':
		r.tooDeep = true
		return r.skipped()
	case c == '"':
		if s, ok := r.string(); ok {
			return structpb.NewStringValue(s)
		}
	case c == '-' || c >= '0' && c <= '9':
		return r.number()
	case r.consume("true"):
		return structpb.NewBoolValue(true)
	case r.consume("false"):
		return structpb.NewBoolValue(false)
	case r.consume("null"):
		return structpb.NewNullValue()
	}
	return nil
}

// consume consumes word if it comes next, and reports whether it did.
func (r *valueReader) consume(word string) bool {
	if !bytes.HasPrefix(r.text[r.at:], []byte(word)) {
		return false
	}
	r.at += len(word)
	return true
}

func (r *valueReader) fields(depth int) *structpb.Value {
	fields := map[string]*structpb.Value{}
	for r.at++; ; r.at++ {
		c := r.next()
		if c == '}' && len(fields) == 0 {
			break
		}
		if c != '"' {
			return nil
		}
		name, ok := r.string()
		if _, twice := fields[name]; !ok || twice || r.next() != ':' {
			return nil
		}
		r.at++
		v := r.value(depth)
		if v == nil {
			return nil
		}
		fields[name] = v
		if c = r.next(); c == '}' {
			break
		}
		if c != ',' {
			return nil
		}
	}
	r.at++
	return structpb.NewStructValue(&structpb.Struct{Fields: fields})
}

func (r *valueReader) list(depth int) *structpb.Value {
	list := &structpb.ListValue{}
	for r.at++; ; r.at++ {
		if r.next() == ']' && len(list.Values) == 0 {
			break
		}
		v := r.value(depth)
		if v == nil {
			return nil
		}
		list.Values = append(list.Values, v)
		c := r.next()
		if c == ']' {
			break
		}
		if c != ',' {
			return nil
		}
	}
	r.at++
	return structpb.NewListValue(list)
}

// string decodes a string. It returns false if the string is not plain.
func (r *valueReader) string() (string, bool) {
	begin, ascii := r.at+1, true
	for n := begin; n < len(r.text); n++ {
		switch c := r.text[n]; {
		case c == '"':
			r.at = n + 1
			return string(r.text[begin:n]), ascii || utf8.Valid(r.text[begin:n])
		case c < ' ':
			return "", false
		case c == '\\':
			return r.escaped(begin - 1)
		case c >= utf8.RuneSelf:
			ascii = false
		}
	}
	return "", false
}

// escaped decodes a string with escapes that begins at begin. It leaves invalid UTF-8 and lone
// surrogates to protojson.
func (r *valueReader) escaped(begin int) (s string, ok bool) {
	for n := begin + 1; n < len(r.text); n++ {
		switch r.text[n] {
		case '\\':
			n++
		case '"':
			r.at = n + 1
			err := json.Unmarshal(r.text[begin:r.at], &s)
			if strings.ContainsRune(s, utf8.RuneError) { // an error, unless the text itself has this character
				return s, err == nil && r.lenient && bytes.ContainsRune(r.text[begin:r.at], utf8.RuneError) &&
					utf8.Valid(r.text[begin:r.at])
			}
			return s, err == nil
		}
	}
	return "", false
}

// number decodes a number. It leaves exponents to protojson, unless r is lenient.
func (r *valueReader) number() *structpb.Value {
	begin := r.at
	if r.text[r.at] == '-' {
		r.at++
	}
	whole := r.digits()
	if whole == 0 || whole > 1 && r.text[r.at-whole] == '0' {
		return nil
	}
	if r.at < len(r.text) && r.text[r.at] == '.' {
		if r.at++; r.digits() == 0 {
			return nil
		}
	}
	if r.at < len(r.text) && (r.text[r.at] == 'e' || r.text[r.at] == 'E') && !r.exponent() {
		return nil
	}
	x, err := strconv.ParseFloat(string(r.text[begin:r.at]), 64)
	switch {
	case err == nil:
		return structpb.NewNumberValue(x)
	case r.lenient:
		return structpb.NewStringValue(string(r.text[begin:r.at]))
	}
	return nil
}

// exponent consumes an exponent and reports whether it is allowed.
func (r *valueReader) exponent() bool {
	r.at++
	if r.at < len(r.text) && (r.text[r.at] == '+' || r.text[r.at] == '-') {
		r.at++
	}
	return r.lenient && r.digits() > 0
}

// skipped consumes an object or a list and returns its text as a string, or nil if r is not lenient
// or the text is malformed.
func (r *valueReader) skipped() *structpb.Value {
	begin, open := r.at, 0
	for r.lenient && r.at < len(r.text) {
		switch r.text[r.at] {
		case '"':
			if _, ok := r.string(); !ok {
				return nil
			}
			continue
		case '{', '[':
			open++
		case '}', ']':
			open--
		}
		if r.at++; open == 0 {
			return structpb.NewStringValue(string(r.text[begin:r.at]))
		}
	}
	return nil
}

func (r *valueReader) digits() (n int) {
	for ; r.at < len(r.text) && r.text[r.at] >= '0' && r.text[r.at] <= '9'; r.at++ {
		n++
	}
	return n
}

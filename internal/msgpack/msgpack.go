// Package msgpack writes protobuf messages as MessagePack and reads them, as protojson does for JSON: maps from the fields' names to
// their values.
//
// # Messages
//
// Names are those of protobuf's JSON (processId); the contract's own (process_id) are read, too. What is empty is left out. bytes are
// bin, enums their names (numbers are read, too), integers ints, float and double floats. A duration is text as in JSON ("1.5s"), or,
// read only, a number of seconds. A time is text (RFC 3339, "2026-11-20T12:00:00Z"), or, read only, the timestamp extension (-1).
//
// Everything is read strictly: an unknown field, a field or key given twice, a value of another type, two of one choice, text that is
// not UTF-8, what is nested too deep, bytes behind the message: each is an *Error with the path and what would be right.
//
// # google.protobuf.Value
//
// Nothing is lost between a Value and MessagePack, either way. What JSON cannot hold stands in the Value as an object of one key:
//
//	{"$int": "9007199254740993"}   an integer past 2^53
//	{"$float": 1}                  a float without a fraction, up to 2^53, where JSON would not tell it from the integer;
//	                               "NaN", "Infinity", "-Infinity" and "-0" as text
//	{"$bin": "AQI="}               bin
//	{"$ext": [5, "AQI="]}          an extension: its type and its bytes
//	{"$map": [[1, "a"], …]}        a map with a key that is no string, in its order
//
// An object of one key that begins with $ and comes as MessagePack gets one more $, and loses it on its way back. What only looks like one
// of the above ({"$int": true}) is written as the map that it is. A number past 2^53 in a Value is a float, and so is -0. The width of
// a number or a length, the order of a map with string keys and the bits of a NaN are not kept.
//
// In a google.protobuf.Struct (metadata, details, schemas) the same holds but for two things, because they are searched, and compiled, as
// JSON: a float without a fraction is the number, and only the names above get the further $, so that {"$ref": "…"} of a JSON Schema stays.
package msgpack

import (
	"bytes"
	"fmt"
	"strconv"

	low "github.com/vmihailenco/msgpack/v5"
	"google.golang.org/protobuf/proto"
)

// maxDepth bounds maps and arrays, one in another: twice what a JSON value may have (process.MaxJSONDepth), for the messages around it.
const maxDepth = 200

// maxExact is 2^53: up to it a double holds every integer.
const maxExact = 1 << 53

// Error says what is wrong with a text, and where.
type Error struct {
	Path    string // of the field, as the contract names it; "" for the message as a whole
	Message string
}

func (e *Error) Error() string {
	if e.Path == "" {
		return e.Message
	}
	return e.Path + ": " + e.Message
}

// Marshal writes a message. Equal messages are written alike.
func Marshal(m proto.Message) ([]byte, error) { return MarshalAppend(nil, m) }

// MarshalAppend writes a message behind dst.
func MarshalAppend(dst []byte, m proto.Message) ([]byte, error) {
	buf := bytes.NewBuffer(dst)
	e := &encoder{low.NewEncoder(buf)}
	if err := e.message(m.ProtoReflect()); err != nil {
		return nil, err
	}
	return buf.Bytes(), nil
}

// Unmarshal reads a message, in place of what m holds. The error is an *Error.
func Unmarshal(data []byte, m proto.Message) error {
	proto.Reset(m)
	if len(data) == 0 {
		return fault("an empty body is no MessagePack map: send the byte 0x80 for a message without fields")
	}
	src := bytes.NewReader(data)
	d := &decoder{data: data, src: src, low: low.NewDecoder(src)}
	if err := d.message(m.ProtoReflect(), 0); err != nil {
		return err
	}
	if src.Len() > 0 {
		return fault("%d bytes follow the message: it must be alone", src.Len())
	}
	return nil
}

func fault(format string, args ...any) error { return &Error{Message: fmt.Sprintf(format, args...)} }

// within puts a step before the path of an error.
func within(step string, err error) error {
	if err == nil {
		return nil
	}
	e, ok := err.(*Error) //nolint:errorlint // nothing here wraps one
	if !ok {
		return fmt.Errorf("%s: %w", step, err)
	}
	if e.Path != "" && e.Path[0] != '[' {
		step += "."
	}
	e.Path = step + e.Path
	return e
}

// maxKeyText is how many bytes of a key a path or a message shows.
const maxKeyText = 100

// keyStep is the step of a path to a key of a map: the key where it reads as a name, else ["key"].
func keyStep(key string) string {
	if len(key) > maxKeyText {
		return "[" + strconv.Quote(key[:maxKeyText]) + "…]"
	}
	for i := range len(key) {
		switch c := key[i]; {
		case c == '_', c == '-', c == '$', c >= 'a' && c <= 'z', c >= 'A' && c <= 'Z', c >= '0' && c <= '9':
		default:
			return "[" + strconv.Quote(key) + "]"
		}
	}
	if key == "" {
		return `[""]`
	}
	return key
}

func indexStep(i int) string { return "[" + strconv.Itoa(i) + "]" }

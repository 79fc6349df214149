package digits

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"strconv"
	"strings"

	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"

	"github.com/progressor-engine/progressor/process"
)

// Check returns an error if the JSON text of a message contains an integer above 2^53 inside a
// google.protobuf.Value. The error begins with name, if it is not empty, and the path of the
// integer.
func Check(data []byte, name string, m proto.Message) error {
	if !hasLongDigits(data) {
		return nil
	}
	path, number, found := findLongInteger(data, m)
	switch {
	case !found:
		return nil
	case name != "" && path != "" && path[0] != '[':
		path = "." + path
	}
	if path = name + path; path != "" {
		path += ": "
	}
	return errors.New(path + Lost(number))
}

// Lost returns the error message for an integer above 2^53 in a google.protobuf.Value.
func Lost(number string) string {
	return fmt.Sprintf("the integer %.40s is beyond 2^53 and would lose digits: write it as a string", number)
}

// longDigits is the minimum number of digits of an integer above 2^53.
const longDigits = 16

// hasLongDigits reports whether data contains at least 16 digits in a row, in a number or a string.
// If data has no digits, it reads only every 16th byte. Because of this check, most requests need
// no walk.
func hasLongDigits(data []byte) bool {
	for i := longDigits - 1; i < len(data); {
		if !isDigit(data[i]) {
			i += longDigits
			continue
		}
		begin, end := i, i+1
		for begin > 0 && isDigit(data[begin-1]) && end-begin < longDigits {
			begin--
		}
		for end < len(data) && isDigit(data[end]) && end-begin < longDigits {
			end++
		}
		if end-begin >= longDigits {
			return true
		}
		i = end + longDigits - 1
	}
	return false
}

func isDigit(b byte) bool { return b >= '0' && b <= '9' }

// findLongInteger returns the path and the text of the first number in a google.protobuf.Value
// whose integer part is above 2^53. Numbers in other fields lose no digits.
func findLongInteger(data []byte, m proto.Message) (path, number string, found bool) {
	return Find(data, m.ProtoReflect().Descriptor(), func(token any, free bool) bool {
		n, ok := token.(json.Number)
		return ok && free && pastExact(string(n))
	})
}

// pastExact reports whether the integer part of a JSON number is above 2^53.
func pastExact(number string) bool {
	digits := strings.TrimPrefix(number, "-")
	if end := strings.IndexAny(digits, ".eE"); end >= 0 {
		digits = digits[:end]
	}
	if len(digits) < longDigits {
		return false
	}
	n, err := strconv.ParseUint(digits, 10, 64)
	return err != nil || n > 1<<53
}

// Find walks the JSON text of a message and returns the path and the text of the first token, which
// may be a key, for which bad returns true. free is true inside a google.protobuf.Struct, Value or
// ListValue. Find does not validate the text. It stops at the first syntax error.
func Find(
	data []byte, md protoreflect.MessageDescriptor, bad func(token any, free bool) bool,
) (path, text string, found bool) {
	dec := json.NewDecoder(bytes.NewReader(data))
	dec.UseNumber()
	w := &jsonWalk{dec: dec, bad: bad}
	w.value("", spotOfMessage(md), 0)
	return w.path, w.text, w.found
}

// spot is the type that the schema expects at a position of the JSON text.
type spot struct {
	message protoreflect.MessageDescriptor // type of the object; nil for a scalar or an unknown type
	entry   protoreflect.FieldDescriptor   // type of the values of a map
	free    bool                           // any JSON
}

type jsonWalk struct {
	dec        *json.Decoder
	bad        func(token any, free bool) bool
	path, text string
	found      bool
}

// value reads one value. It returns false to end the walk.
func (w *jsonWalk) value(path string, at spot, depth int) bool {
	token, err := w.dec.Token()
	if err != nil || depth > process.MaxJSONDepth {
		return false
	}
	switch token {
	case json.Delim('{'):
		return w.object(path, at, depth)
	case json.Delim('['):
		for i := 0; w.dec.More(); i++ {
			if !w.value(path+"["+strconv.Itoa(i)+"]", at, depth+1) {
				return false
			}
		}
		_, err = w.dec.Token()
		return err == nil
	}
	return w.look(path, token, at.free)
}

func (w *jsonWalk) object(path string, at spot, depth int) bool {
	for w.dec.More() {
		token, err := w.dec.Token()
		if err != nil {
			return false
		}
		key, ok := token.(string)
		if !ok || !w.look(Key(path, key), token, at.free) {
			return false
		}
		name, next := at.member(key)
		if !w.value(Key(path, name), next, depth+1) {
			return false
		}
	}
	_, err := w.dec.Token()
	return err == nil
}

func (w *jsonWalk) look(path string, token any, free bool) bool {
	if !w.bad(token, free) {
		return true
	}
	w.path, w.found = path, true
	switch t := token.(type) {
	case string:
		w.text = t
	case json.Number:
		w.text = t.String()
	}
	return false
}

// member returns the type of the value of a key, and the name of the key in a path. The name of a
// field is that in the proto file.
func (s spot) member(key string) (string, spot) {
	switch {
	case s.free:
		return key, spot{free: true}
	case s.entry != nil:
		return key, spotOf(s.entry)
	case s.message == nil:
		return key, spot{}
	}
	fields := s.message.Fields()
	fd := fields.ByJSONName(key)
	if fd == nil {
		fd = fields.ByTextName(key)
	}
	if fd == nil {
		return key, spot{}
	}
	if fd.IsMap() {
		return fd.TextName(), spot{entry: fd.MapValue()}
	}
	return fd.TextName(), spotOf(fd)
}

func spotOf(fd protoreflect.FieldDescriptor) spot {
	if md := fd.Message(); md != nil {
		return spotOfMessage(md)
	}
	return spot{}
}

func spotOfMessage(md protoreflect.MessageDescriptor) spot {
	switch md.FullName() {
	case "google.protobuf.Struct", "google.protobuf.Value", "google.protobuf.ListValue":
		return spot{free: true}
	}
	return spot{message: md}
}

// maxKeyText is the number of bytes of a key that a path shows.
const maxKeyText = 100

// Key appends a key to a path: as .key if it is a name, else as ["key"].
func Key(path, key string) string {
	if len(key) > maxKeyText {
		return path + "[" + strconv.Quote(key[:maxKeyText]) + "…]"
	}
	if !isName(key) {
		return path + "[" + strconv.Quote(key) + "]"
	}
	if path == "" {
		return key
	}
	return path + "." + key
}

func isName(key string) bool {
	if key == "" {
		return false
	}
	for i := range len(key) {
		switch c := key[i]; {
		case c == '_', c == '-', c >= 'a' && c <= 'z', c >= 'A' && c <= 'Z', isDigit(c):
		default:
			return false
		}
	}
	return true
}

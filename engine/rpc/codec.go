package rpc

import (
	"errors"
	"fmt"
	"regexp"
	"strings"
	"unicode/utf8"

	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"

	"github.com/progressor-engine/progressor/internal/digits"
	"github.com/progressor-engine/progressor/internal/elements"
	"github.com/progressor-engine/progressor/process"
	progressorv1 "github.com/progressor-engine/progressor/proto/progressor/v1"
)

// The names of the JSON codec in Connect: the content type with an optional charset.
const (
	codecJSON        = "json"
	codecJSONCharset = "json; charset=utf-8"
)

// strictJSON decodes JSON requests strictly. Connect's own codec ignores unknown fields and enum
// names, so a misspelled wait or timeout would silently become its default. This codec returns an
// error that contains the unknown name. Integers that a google.protobuf.Value cannot represent are
// rejected with their path instead of being rounded.
type strictJSON struct {
	name   string
	failed undecodable
}

// Name returns the name of the codec.
func (c strictJSON) Name() string { return c.name }

// Marshal encodes a message as ProtoJSON.
func (strictJSON) Marshal(message any) ([]byte, error) {
	m, ok := message.(proto.Message)
	if !ok {
		return nil, notProto(message)
	}
	return protojson.Marshal(m)
}

// MarshalAppend appends an encoded message to dst. Connect passes a pooled buffer.
func (strictJSON) MarshalAppend(dst []byte, message any) ([]byte, error) {
	m, ok := message.(proto.Message)
	if !ok {
		return nil, notProto(message)
	}
	return protojson.MarshalOptions{}.MarshalAppend(dst, m)
}

// Unmarshal decodes a message from ProtoJSON.
func (c strictJSON) Unmarshal(data []byte, message any) error {
	return c.failed.count(c.decode(data, message))
}

func (strictJSON) decode(data []byte, message any) error {
	m, ok := message.(proto.Message)
	if !ok {
		return notProto(message)
	}
	if len(data) == 0 {
		return errors.New("an empty body is not a JSON object: send {} for a request without fields")
	}
	if err := elements.CheckJSON(data, maxElements(m)); err != nil {
		return err
	}
	if err := protojson.Unmarshal(data, m); err != nil {
		if path, found := findBadUTF8(data, m); found {
			return shortError(fmt.Errorf("%s: not valid UTF-8", path))
		}
		// protojson randomly uses no-break spaces in its errors, depending on the build.
		text := strings.ReplaceAll(shorten(err.Error()), "\u00a0", " ")
		return errors.New(shorten(withKnownValues(text, m)))
	}
	return shortError(digits.Check(data, "", m))
}

// maxElements returns how many fields and elements a request of this type may have.
func maxElements(m proto.Message) int {
	switch m.(type) {
	case *progressorv1.EnqueueBatchRequest, *progressorv1.PutProcessRequest:
		return process.MaxBatchElements
	default:
		return process.MaxElements
	}
}

// shortError returns an error with at most maxErrorText bytes of text. Decoders repeat values of
// the request, which may be megabytes long.
func shortError(err error) error {
	if err == nil || len(err.Error()) <= maxErrorText {
		return err
	}
	return errors.New(shorten(err.Error()))
}

// unknownEnum matches the error of protojson for an unknown enum value.
var unknownEnum = regexp.MustCompile(`invalid value for enum field (\w+): `)

// withKnownValues adds the values of the enum to an error that names an enum field. It returns the
// error unchanged if fields of that name have different types in the message.
func withKnownValues(text string, m proto.Message) string {
	found := unknownEnum.FindStringSubmatch(text)
	if found == nil {
		return text
	}
	enums := map[protoreflect.FullName]protoreflect.EnumDescriptor{}
	findEnums(m.ProtoReflect().Descriptor(), found[1], map[protoreflect.FullName]bool{}, enums)
	if len(enums) != 1 {
		return text
	}
	var names []string
	for _, enum := range enums {
		for i := range enum.Values().Len() {
			if value := enum.Values().Get(i); value.Number() != 0 {
				names = append(names, string(value.Name()))
			}
		}
	}
	return text + "; use one of " + strings.Join(names, ", ")
}

// findEnums collects the types of all enum fields with the given name in a message and its nested
// messages.
func findEnums(m protoreflect.MessageDescriptor, name string, seen map[protoreflect.FullName]bool,
	enums map[protoreflect.FullName]protoreflect.EnumDescriptor,
) {
	if seen[m.FullName()] {
		return
	}
	seen[m.FullName()] = true
	for i := range m.Fields().Len() {
		field := m.Fields().Get(i)
		if enum := field.Enum(); enum != nil && (field.JSONName() == name || string(field.Name()) == name) {
			enums[enum.FullName()] = enum
		}
		if inside := field.Message(); inside != nil {
			findEnums(inside, name, seen, enums)
		}
	}
}

// findBadUTF8 returns the path of the first string that is not valid UTF-8.
func findBadUTF8(data []byte, m proto.Message) (path string, found bool) {
	if utf8.Valid(data) {
		return "", false
	}
	// The decoder replaces invalid bytes with U+FFFD. If the text also contains that character, the
	// path may name a valid string. The request is rejected in any case.
	path, _, found = digits.Find(data, m.ProtoReflect().Descriptor(), func(token any, _ bool) bool {
		s, ok := token.(string)
		return ok && containsReplacement(s)
	})
	return path, found
}

func containsReplacement(s string) bool {
	for _, r := range s {
		if r == utf8.RuneError {
			return true
		}
	}
	return false
}

func notProto(message any) error { return fmt.Errorf("%T is not a protobuf message", message) }

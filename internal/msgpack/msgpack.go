package msgpack

import (
	"bytes"
	"fmt"
	"math"
	"strconv"

	low "github.com/vmihailenco/msgpack/v5"
	"google.golang.org/protobuf/proto"
)

// maxDepth is the maximum nesting of maps and arrays: twice that of a JSON value
// (process.MaxJSONDepth), to allow for the messages around it.
const maxDepth = 200

// maxExact is 2^53: a double can represent every integer up to it.
const maxExact = 1 << 53

// Error is an error with its position.
type Error struct {
	Path    string // path of the field, with names as in the proto files; "" for the whole message
	Message string
}

func (e *Error) Error() string {
	if e.Path == "" {
		return e.Message
	}
	return e.Path + ": " + e.Message
}

// Marshal encodes a message. Equal messages have equal encodings.
func Marshal(m proto.Message) ([]byte, error) { return MarshalAppend(nil, m) }

// MarshalAppend appends the encoding of a message to dst.
func MarshalAppend(dst []byte, m proto.Message) ([]byte, error) {
	buf := bytes.NewBuffer(dst)
	e := &encoder{low.NewEncoder(buf)}
	if err := e.message(m.ProtoReflect()); err != nil {
		return nil, err
	}
	return buf.Bytes(), nil
}

// Unmarshal decodes a message and replaces the content of m. The error is an *Error.
func Unmarshal(data []byte, m proto.Message) error { return UnmarshalMax(data, m, math.MaxInt) }

// UnmarshalMax is like Unmarshal, but returns an error if the message has more than limit values,
// including the keys of maps in a google.protobuf.Value. In this case, it has built at most limit
// values.
func UnmarshalMax(data []byte, m proto.Message, limit int) error {
	proto.Reset(m)
	if len(data) == 0 {
		return fault("an empty body is not a MessagePack map: send the byte 0x80 for a message without fields")
	}
	src := bytes.NewReader(data)
	d := &decoder{data: data, src: src, low: low.NewDecoder(src), limit: limit}
	if err := d.message(m.ProtoReflect(), 0); err != nil {
		return err
	}
	if src.Len() > 0 {
		return fault("must be a single message: %d bytes follow it", src.Len())
	}
	return nil
}

func fault(format string, args ...any) error { return &Error{Message: fmt.Sprintf(format, args...)} }

// within prepends a step to the path of an error.
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

// maxKeyText is the maximum number of bytes of a key in a path or an error.
const maxKeyText = 100

// keyStep returns the path step of a map key: the key if it is a name, otherwise ["key"].
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

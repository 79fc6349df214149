package output

import (
	"bytes"
	"crypto/rand"
	"encoding/base64"
	"encoding/binary"
	"encoding/json"
	"strings"
	"unicode/utf8"

	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"
)

// marshal returns a message as JSON. With Style.Decode, payloads that are JSON or text are shown as
// JSON or text. Other payloads begin with base64:, as in tables.
func (s Style) marshal(m proto.Message) ([]byte, error) {
	if !s.Decode {
		return protojson.Marshal(m)
	}
	// In a copy of the message, marks replace the payloads. In the JSON of the copy, the payloads
	// then replace the marks. This keeps the order of the fields.
	m = proto.Clone(m)
	d := &decoder{}
	_, _ = rand.Read(d.nonce[:]) // never fails
	d.message(m.ProtoReflect())
	text, err := protojson.Marshal(m)
	if err != nil {
		return nil, err
	}
	return []byte(strings.NewReplacer(d.replaced...).Replace(string(text))), nil
}

// decoder replaces the bytes of a message with marks.
type decoder struct {
	nonce    [16]byte // no payload contains it
	replaced []string // pairs of the JSON of a mark and the JSON of its payload
}

func (d *decoder) message(m protoreflect.Message) {
	m.Range(func(f protoreflect.FieldDescriptor, v protoreflect.Value) bool {
		switch {
		case f.IsMap() && f.MapValue().Kind() == protoreflect.MessageKind:
			v.Map().Range(func(_ protoreflect.MapKey, v protoreflect.Value) bool {
				d.message(v.Message())
				return true
			})
		case f.IsList() && f.Kind() == protoreflect.MessageKind:
			for n := range v.List().Len() {
				d.message(v.List().Get(n).Message())
			}
		case f.IsList() && f.Kind() == protoreflect.BytesKind:
			for n := range v.List().Len() {
				v.List().Set(n, d.mark(v.List().Get(n)))
			}
		case f.IsMap() || f.IsList():
		case f.Kind() == protoreflect.MessageKind:
			d.message(v.Message())
		case f.Kind() == protoreflect.BytesKind:
			m.Set(f, d.mark(v))
		}
		return true
	})
}

// mark returns the mark of a payload.
func (d *decoder) mark(v protoreflect.Value) protoreflect.Value {
	if len(v.Bytes()) == 0 {
		return v
	}
	mark := binary.BigEndian.AppendUint64(d.nonce[:], uint64(len(d.replaced)))
	d.replaced = append(d.replaced, `"`+base64.StdEncoding.EncodeToString(mark)+`"`, decoded(v.Bytes()))
	return protoreflect.ValueOfBytes(mark)
}

// decoded returns the JSON of a payload.
func decoded(b []byte) string {
	if json.Valid(b) && utf8.Valid(b) {
		return string(b)
	}
	text := "base64:" + base64.StdEncoding.EncodeToString(b)
	if printable(b) {
		text = string(b)
	}
	var quoted bytes.Buffer
	encoder := json.NewEncoder(&quoted)
	encoder.SetEscapeHTML(false)
	_ = encoder.Encode(text) // cannot fail: text is a string, and quoted is a buffer
	return strings.TrimSuffix(quoted.String(), "\n")
}

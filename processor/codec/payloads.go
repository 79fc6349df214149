package codec

import (
	"bytes"
	"context"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"unicode/utf8"

	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/types/known/structpb"

	"github.com/progressor-engine/progressor/internal/tracing"
)

// EncodedKey is the only member of the JSON object that an encoded message becomes. Its value is
// the result of Codec.Encode in base64. Messages are JSON because the engine passes them on as
// JSON: the result of a process can become a part of the args of a job.
const EncodedKey = "$encoded"

// Payloads encodes and decodes payloads, and messages of the API that contain some. It is safe for
// concurrent use. A nil *Payloads changes nothing.
type Payloads struct {
	codec       Codec
	acceptPlain bool
	decodeOnly  bool
}

// Option configures Payloads.
type Option func(*Payloads)

// AcceptPlain also accepts payloads that are not encoded, and JSON values that are only partly
// encoded. Without it, they are errors. Use it while payloads that are older than the codec are
// stored, and for flows whose templates build values from constants and encoded parts.
func AcceptPlain() Option { return func(p *Payloads) { p.acceptPlain = true } }

// DecodeOnly turns off encoding, and decodes as with AcceptPlain. It is the first step when you
// introduce a codec: until all clients, workers and processors can decode, none of them may encode.
func DecodeOnly() Option { return func(p *Payloads) { p.acceptPlain, p.decodeOnly = true, true } }

// NewPayloads returns Payloads that use c.
func NewPayloads(c Codec, opts ...Option) *Payloads {
	p := &Payloads{codec: c}
	for _, opt := range opts {
		opt(p)
	}
	return p
}

// EncodeBytes encodes a payload for a field of type bytes. A payload without content stays as it
// is. See Payload.Repeat for repeat.
func (p *Payloads) EncodeBytes(ctx context.Context, purpose Purpose, content []byte, repeat string) ([]byte, error) {
	if p == nil || p.decodeOnly || len(content) == 0 {
		return content, nil
	}
	encoded, err := p.encodeWith(ctx, Payload{Content: content, Purpose: purpose, Repeat: repeat})
	if err != nil || purpose != Message {
		return encoded, err
	}
	text := make([]byte, 0, len(`{"":""}`)+len(EncodedKey)+base64.StdEncoding.EncodedLen(len(encoded)))
	text = append(text, `{"`+EncodedKey+`":"`...)
	text = base64.StdEncoding.AppendEncode(text, encoded)
	return append(text, `"}`...), nil
}

// DecodeBytes returns the content of a field of type bytes.
func (p *Payloads) DecodeBytes(ctx context.Context, purpose Purpose, encoded []byte) ([]byte, error) {
	return p.decodeBytes(ctx, purpose, encoded, p.accepted())
}

// accepted returns the form of a value that is not part of a message.
func (p *Payloads) accepted() form {
	if p != nil && p.acceptPlain {
		return encodedOrNot
	}
	return encodedWhole
}

func (p *Payloads) decodeBytes(
	ctx context.Context, purpose Purpose, encoded []byte, accepted form,
) ([]byte, error) {
	switch {
	case p == nil || len(encoded) == 0:
		return encoded, nil
	case purpose == Context && tracing.OfText(encoded).IsValid(): // the engine has written it for its traces
		return encoded, nil
	case purpose == Message:
		return p.decodeText(ctx, encoded, accepted)
	}
	content, err := p.decodeWith(ctx, Payload{Content: encoded, Purpose: purpose})
	if accepted == encodedOrNot && errors.Is(err, ErrPlain) {
		return encoded, nil
	}
	return content, err
}

// decodeText decodes a message in a field of type bytes.
func (p *Payloads) decodeText(ctx context.Context, text []byte, accepted form) ([]byte, error) {
	if bytes.Equal(bytes.TrimSpace(text), []byte("null")) { // EncodeValue does not encode it
		return text, nil
	}
	var value *structpb.Value
	if accepted == compensation || bytes.Contains(text, []byte(`"`+EncodedKey+`"`)) {
		value = new(structpb.Value)
		if value.UnmarshalJSON(text) != nil {
			value = nil // not JSON
		}
	}
	switch encoded, whole := encodedIn(value.GetStructValue()); {
	case whole:
		return p.open(ctx, encoded)
	case accepted == encodedOrNot && !hasEncoded(value):
		return text, nil // encoding it again could change its spaces and its large integers
	case value == nil:
		return nil, ErrPlain
	}
	value, err := p.decodeValue(ctx, value, accepted)
	if err != nil {
		return nil, err
	}
	return valueText(value)
}

// EncodeValue encodes a JSON value, such as the args of a job. null and nil stay as they are.
func (p *Payloads) EncodeValue(ctx context.Context, value *structpb.Value, repeat string) (*structpb.Value, error) {
	if _, null := value.GetKind().(*structpb.Value_NullValue); p == nil || p.decodeOnly || value == nil || null {
		return value, nil
	}
	content, err := valueText(value)
	if err != nil {
		return nil, err
	}
	encoded, err := p.encodeWith(ctx, Payload{Content: content, Purpose: Message, Repeat: repeat})
	if err != nil {
		return nil, err
	}
	return structpb.NewStructValue(&structpb.Struct{Fields: map[string]*structpb.Value{
		EncodedKey: structpb.NewStringValue(base64.StdEncoding.EncodeToString(encoded)),
	}}), nil
}

// DecodeValue returns the JSON value that EncodeValue got. It may modify value.
func (p *Payloads) DecodeValue(ctx context.Context, value *structpb.Value) (*structpb.Value, error) {
	return p.decodeValue(ctx, value, p.accepted())
}

func (p *Payloads) decodeValue(
	ctx context.Context, value *structpb.Value, accepted form,
) (*structpb.Value, error) {
	if _, null := value.GetKind().(*structpb.Value_NullValue); p == nil || value == nil || null {
		return value, nil
	}
	encoded, whole := encodedIn(value.GetStructValue())
	switch {
	case whole:
		content, err := p.open(ctx, encoded)
		if err != nil {
			return nil, err
		}
		return valueOf(content), nil
	case !accepted.accepts(value):
		return nil, ErrPlain
	}
	for name, member := range value.GetStructValue().GetFields() {
		decoded, err := p.decodeValue(ctx, member, accepted.member(name))
		if err != nil {
			return nil, fmt.Errorf("%.100q: %w", name, err)
		}
		value.GetStructValue().Fields[name] = decoded
	}
	for n, item := range value.GetListValue().GetValues() {
		decoded, err := p.decodeValue(ctx, item, accepted.member(""))
		if err != nil {
			return nil, fmt.Errorf("[%d]: %w", n, err)
		}
		value.GetListValue().Values[n] = decoded
	}
	return value, nil
}

// open decodes the member of an encoded message.
func (p *Payloads) open(ctx context.Context, text string) ([]byte, error) {
	encoded, err := base64.StdEncoding.DecodeString(text)
	if err != nil {
		return nil, fmt.Errorf("%w: %s is not base64", ErrInvalid, EncodedKey)
	}
	content, err := p.decodeWith(ctx, Payload{Content: encoded, Purpose: Message})
	if errors.Is(err, ErrPlain) { // the member says that it is encoded
		return nil, fmt.Errorf("%w: %s has no encoded payload", ErrInvalid, EncodedKey)
	}
	return content, err
}

// hasEncoded reports whether a value is or contains an encoded payload.
func hasEncoded(value *structpb.Value) bool {
	if _, whole := encodedIn(value.GetStructValue()); whole {
		return true
	}
	for _, member := range value.GetStructValue().GetFields() {
		if hasEncoded(member) {
			return true
		}
	}
	return slices.ContainsFunc(value.GetListValue().GetValues(), hasEncoded)
}

func (p *Payloads) encodeWith(ctx context.Context, payload Payload) ([]byte, error) {
	encoded, err := p.codec.Encode(ctx, payload)
	return encoded, ofCodec(err)
}

func (p *Payloads) decodeWith(ctx context.Context, payload Payload) ([]byte, error) {
	content, err := p.codec.Decode(ctx, payload)
	return content, ofCodec(err)
}

// encodedIn returns the encoded payload of an object whose only member is EncodedKey. whole is
// false for other objects.
func encodedIn(object *structpb.Struct) (encoded string, whole bool) {
	text, ok := object.GetFields()[EncodedKey].GetKind().(*structpb.Value_StringValue)
	if !ok || len(object.GetFields()) != 1 {
		return "", false
	}
	return text.StringValue, true
}

// valueText returns the JSON of a value. Equal values have equal texts.
func valueText(value *structpb.Value) ([]byte, error) {
	text, err := protojson.Marshal(value)
	if err != nil {
		return nil, err
	}
	var compact bytes.Buffer // protojson writes spaces in some builds
	err = json.Compact(&compact, text)
	return compact.Bytes(), err
}

// valueOf returns a decoded message as a JSON value. If it is not JSON, because it was encoded from
// bytes, it becomes a string, as in the engine: base64 if it is not UTF-8.
func valueOf(content []byte) *structpb.Value {
	value := new(structpb.Value)
	switch {
	case value.UnmarshalJSON(content) == nil:
		return value
	case utf8.Valid(content):
		return structpb.NewStringValue(string(content))
	}
	return structpb.NewStringValue(base64.StdEncoding.EncodeToString(content))
}

package codec

import (
	"context"
	"fmt"
	"strconv"
	"strings"
	"sync"

	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/types/known/structpb"

	progressorv1 "github.com/progressor-engine/progressor/proto/progressor/v1"
)

// Encode returns m with encoded payloads. It does not modify m, and returns m itself if m has no
// payloads.
func (p *Payloads) Encode(ctx context.Context, m proto.Message) (proto.Message, error) {
	if p == nil || p.decodeOnly {
		return m, nil
	}
	plan := planOf(m.ProtoReflect().Descriptor())
	if plan == nil {
		return m, nil
	}
	encoded := proto.Clone(m)
	w := walk{payloads: p, ctx: ctx, change: p.encodeField}
	return encoded, w.message(encoded.ProtoReflect(), plan, "", "")
}

// Decode decodes the payloads in m. It modifies m. If it returns an error, some payloads of m may
// be decoded.
func (p *Payloads) Decode(ctx context.Context, m proto.Message) error {
	if p == nil {
		return nil
	}
	w := walk{payloads: p, ctx: ctx, change: p.decodeField, decodes: true}
	return w.message(m.ProtoReflect(), planOf(m.ProtoReflect().Descriptor()), "", "")
}

func (p *Payloads) encodeField(
	ctx context.Context, f payloadField, value protoreflect.Value, repeat string,
) (protoreflect.Value, error) {
	content, isBytes := value.Interface().([]byte)
	if isBytes {
		encoded, err := p.EncodeBytes(ctx, f.purpose, content, repeat)
		return protoreflect.ValueOfBytes(encoded), err
	}
	switch v := value.Message().Interface().(type) {
	case *structpb.Value:
		encoded, err := p.EncodeValue(ctx, v, repeat)
		return protoreflect.ValueOfMessage(encoded.ProtoReflect()), err
	case *structpb.Struct:
		encoded, err := p.EncodeValue(ctx, structpb.NewStructValue(v), repeat)
		return protoreflect.ValueOfMessage(encoded.GetStructValue().ProtoReflect()), err
	}
	return value, fmt.Errorf("a payload cannot have the type %s", value.Message().Descriptor().FullName())
}

func (p *Payloads) decodeField(
	ctx context.Context, f payloadField, value protoreflect.Value, _ string,
) (protoreflect.Value, error) {
	accepted := f.form
	if p.acceptPlain {
		accepted = encodedOrNot
	}
	content, isBytes := value.Interface().([]byte)
	if isBytes {
		decoded, err := p.decodeBytes(ctx, f.purpose, content, accepted)
		return protoreflect.ValueOfBytes(decoded), err
	}
	switch v := value.Message().Interface().(type) {
	case *structpb.Value:
		decoded, err := p.decodeValue(ctx, v, accepted)
		return protoreflect.ValueOfMessage(decoded.ProtoReflect()), err
	case *structpb.Struct:
		decoded, err := p.decodeValue(ctx, structpb.NewStructValue(v), accepted)
		if err == nil && decoded.GetStructValue() == nil {
			err = fmt.Errorf("%w: it must be an object", ErrInvalid)
		}
		return protoreflect.ValueOfMessage(decoded.GetStructValue().ProtoReflect()), err
	}
	return value, fmt.Errorf("a payload cannot have the type %s", value.Message().Descriptor().FullName())
}

// plan lists what must be visited in the messages of one type.
type plan struct {
	payloads []plannedPayload
	nested   []plannedMessage
}

type plannedPayload struct {
	fd    protoreflect.FieldDescriptor
	field payloadField
}

type plannedMessage struct {
	fd   protoreflect.FieldDescriptor
	plan *plan
}

var plans sync.Map // of *plan, by protoreflect.FullName; nil for messages without payloads

func planOf(md protoreflect.MessageDescriptor) *plan {
	if known, ok := plans.Load(md.FullName()); ok {
		return known.(*plan)
	}
	created := newPlan(md)
	plans.Store(md.FullName(), created)
	return created
}

// newPlan returns nil if messages of this type have no payloads. The recursion ends, because no
// message of the API contains itself.
func newPlan(md protoreflect.MessageDescriptor) *plan {
	p := &plan{}
	for i := range md.Fields().Len() {
		fd := md.Fields().Get(i)
		if field, ok := payloadFields[nameOf(fd)]; ok {
			p.payloads = append(p.payloads, plannedPayload{fd, field})
		} else if mayContainPayloads(fd) {
			if inner := planOf(fd.Message()); inner != nil {
				p.nested = append(p.nested, plannedMessage{fd, inner})
			}
		}
	}
	if len(p.payloads)+len(p.nested) == 0 {
		return nil
	}
	return p
}

// mayContainPayloads reports whether a field contains messages of the API, which may have payloads.
func mayContainPayloads(fd protoreflect.FieldDescriptor) bool {
	return fd.Message() != nil && !fd.IsMap() &&
		fd.Message().ParentFile().Package() == progressorv1.File_progressor_v1_process_proto.Package()
}

// nameOf returns the name of a field as in payloadFields.
func nameOf(fd protoreflect.FieldDescriptor) string {
	return strings.TrimPrefix(string(fd.FullName()), "progressor.v1.")
}

// walk changes the payloads of one message.
type walk struct {
	payloads         *Payloads
	ctx              context.Context
	decodes          bool
	inProcessRequest bool // m is a ProcessRequest or a part of one
	change           func(context.Context, payloadField, protoreflect.Value, string) (protoreflect.Value, error)
}

// message changes the payloads in m. path is the prefix of field names in errors.
func (w walk) message(m protoreflect.Message, plan *plan, path, repeat string) error {
	if plan == nil || w.decodes && !w.inProcessRequest && isStored(m.Interface()) {
		return nil
	}
	if _, ok := m.Interface().(*progressorv1.ProcessRequest); ok {
		w.inProcessRequest = true
	}
	if !w.decodes {
		repeat = repeatOf(m.Interface(), repeat)
	}
	for _, f := range plan.payloads {
		if !m.Has(f.fd) || f.fd.Name() == "args" && isReason(m.Interface()) {
			continue
		}
		field := payloadField{f.field.purpose, f.field.formIn(m.Interface(), f.fd.Name())}
		value, err := w.change(w.ctx, field, m.Get(f.fd), repeat)
		if err != nil {
			return &FieldError{Field: path + string(f.fd.Name()), Err: err}
		}
		m.Set(f.fd, value)
	}
	for _, n := range plan.nested {
		path := path + string(n.fd.Name())
		switch {
		case !m.Has(n.fd):
		case n.fd.IsList():
			list := m.Get(n.fd).List()
			for i := range list.Len() {
				err := w.message(list.Get(i).Message(), n.plan, fmt.Sprintf("%s[%d].", path, i), repeat)
				if err != nil {
					return err
				}
			}
		default:
			if err := w.message(m.Get(n.fd).Message(), n.plan, path+".", repeat); err != nil {
				return err
			}
		}
	}
	return nil
}

// FieldError is an error of Encode or Decode about one field of a message.
type FieldError struct {
	Field string // its path, such as process.aux_state
	Err   error
}

func (e *FieldError) Error() string { return e.Field + ": " + e.Err.Error() }

// Unwrap returns Err.
func (e *FieldError) Unwrap() error { return e.Err }

// repeatOfKey returns the Payload.Repeat of a request with the given idempotency key, or "" if key
// is empty.
func repeatOfKey(method, key string, parts ...string) string {
	if key == "" {
		return ""
	}
	return joinQuoted(append([]string{method, key}, parts...)...)
}

// joinQuoted joins the quoted parts, so that different parts have different results.
func joinQuoted(parts ...string) string {
	var text strings.Builder
	for _, part := range parts {
		text.WriteString(strconv.Quote(part))
	}
	return text.String()
}

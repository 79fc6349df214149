package rpc

import (
	"fmt"
	"strconv"
	"unicode/utf8"

	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"

	"github.com/progressor-engine/progressor/internal/elements"
)

// codecProto is the name of the binary codec in Connect.
const codecProto = "proto"

// binary is like Connect's protobuf codec, but its errors contain the path of a string that is not
// valid UTF-8, which the protobuf library does not report.
type binary struct{ failed undecodable }

// Name returns the name of the codec.
func (binary) Name() string { return codecProto }

// IsBinary returns true, because the encoding is not text.
func (binary) IsBinary() bool { return true }

// Marshal encodes a message.
func (binary) Marshal(message any) ([]byte, error) {
	m, ok := message.(proto.Message)
	if !ok {
		return nil, notProto(message)
	}
	return proto.Marshal(m)
}

// MarshalAppend appends an encoded message to dst. Connect passes a pooled buffer.
func (binary) MarshalAppend(dst []byte, message any) ([]byte, error) {
	m, ok := message.(proto.Message)
	if !ok {
		return nil, notProto(message)
	}
	return proto.MarshalOptions{}.MarshalAppend(dst, m)
}

// MarshalStable encodes a message deterministically.
func (binary) MarshalStable(message any) ([]byte, error) {
	m, ok := message.(proto.Message)
	if !ok {
		return nil, notProto(message)
	}
	return proto.MarshalOptions{Deterministic: true}.Marshal(m)
}

// Unmarshal decodes a message.
func (b binary) Unmarshal(data []byte, message any) error {
	return b.failed.count(b.decode(data, message))
}

func (binary) decode(data []byte, message any) error {
	m, ok := message.(proto.Message)
	if !ok {
		return notProto(message)
	}
	if err := elements.CheckProto(data, m.ProtoReflect().Descriptor(), maxElements(m)); err != nil {
		return err
	}
	// Fields that this version does not know are discarded, because no check limits them.
	err := proto.UnmarshalOptions{DiscardUnknown: true}.Unmarshal(data, m)
	if err == nil {
		return nil
	}
	if path, found := badUTF8(data, m.ProtoReflect().Descriptor(), 0); found {
		return fmt.Errorf("%s: not valid UTF-8", path)
	}
	return err
}

// badUTF8 walks an encoded message and returns the path of the first string that is not valid
// UTF-8. It stops at the first invalid field.
func badUTF8(data []byte, md protoreflect.MessageDescriptor, depth int) (path string, found bool) {
	seen := map[protowire.Number]int{} // list indexes by field
	for len(data) > 0 && depth <= maxJSONDepth {
		number, wireType, n := protowire.ConsumeField(data)
		if n < 0 {
			return "", false
		}
		field := data[:n]
		data = data[n:]
		fd := md.Fields().ByNumber(number)
		if fd == nil || wireType != protowire.BytesType {
			continue
		}
		_, _, tag := protowire.ConsumeTag(field)
		value, _ := protowire.ConsumeBytes(field[tag:])
		name := string(fd.Name())
		if fd.IsList() {
			name += "[" + strconv.Itoa(seen[number]) + "]"
			seen[number]++
		}
		switch fd.Kind() {
		case protoreflect.StringKind:
			if !utf8.Valid(value) {
				return name, true
			}
		case protoreflect.MessageKind:
			if within, found := badUTF8(value, fd.Message(), depth+1); found {
				return name + "." + within, true
			}
		}
	}
	return "", false
}

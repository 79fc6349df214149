package remote

import (
	"fmt"

	"google.golang.org/protobuf/proto"

	"github.com/progressor-engine/progressor/internal/elements"
	"github.com/progressor-engine/progressor/process"
)

// protoCodec is like Connect's codec for protobuf, but rejects responses with too many values
// before it decodes them.
type protoCodec struct{}

// Name returns the name of the codec in Connect.
func (protoCodec) Name() string { return "proto" }

// IsBinary returns true, because the encoding is not text.
func (protoCodec) IsBinary() bool { return true }

// Marshal encodes a message.
func (protoCodec) Marshal(message any) ([]byte, error) {
	return protoCodec{}.MarshalAppend(nil, message)
}

// MarshalAppend appends an encoded message to dst. Connect passes a pooled buffer.
func (protoCodec) MarshalAppend(dst []byte, message any) ([]byte, error) {
	m, ok := message.(proto.Message)
	if !ok {
		return nil, fmt.Errorf("%T is not a protobuf message", message)
	}
	return proto.MarshalOptions{}.MarshalAppend(dst, m)
}

// Unmarshal decodes a message.
func (protoCodec) Unmarshal(data []byte, message any) error {
	m, ok := message.(proto.Message)
	if !ok {
		return fmt.Errorf("%T is not a protobuf message", message)
	}
	if err := elements.CheckProto(data, m.ProtoReflect().Descriptor(), process.MaxElements); err != nil {
		return err
	}
	return proto.Unmarshal(data, m)
}

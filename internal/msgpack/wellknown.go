package msgpack

import (
	"encoding/binary"
	"encoding/json"
	"math"
	"strings"

	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/types/known/durationpb"
	"google.golang.org/protobuf/types/known/fieldmaskpb"
	"google.golang.org/protobuf/types/known/structpb"
	"google.golang.org/protobuf/types/known/timestamppb"
)

const valueName protoreflect.FullName = "google.protobuf.Value"

// extTimestamp is the type of MessagePack's timestamp extension.
const extTimestamp = -1

// Descriptions of valid values of these types.
const (
	durationText = `a duration: a number of seconds, or text such as "1.5s"`
	timeText     = `a time: text such as "2026-11-20T12:00:00Z", or the timestamp extension (-1)`
	maskText     = `the names of fields, such as "priority,tags"`
)

// readKnown decodes a message of a well-known type that is not encoded as a map of its fields. For
// other types, known is false.
func (d *decoder) readKnown(m proto.Message, depth int) (known bool, err error) {
	switch m := m.(type) {
	case *durationpb.Duration:
		return true, d.duration(m)
	case *timestamppb.Timestamp:
		return true, d.timestamp(m)
	case *fieldmaskpb.FieldMask:
		return true, d.jsonText(m, maskText)
	case *structpb.Value:
		v, err := d.value(inValue, depth)
		if err == nil {
			m.Kind = v.Kind
		}
		return true, err
	case *structpb.Struct:
		return true, d.structValue(m, depth)
	case *structpb.ListValue:
		return true, d.listValue(m, inValue, depth)
	}
	return false, nil
}

// writeKnown is the inverse of readKnown.
func (e *encoder) writeKnown(m proto.Message) (known bool, err error) {
	switch m := m.(type) {
	case *durationpb.Duration, *timestamppb.Timestamp, *fieldmaskpb.FieldMask:
		text, err := protojson.Marshal(m)
		if err != nil {
			return true, fault("not a valid %s", m.ProtoReflect().Descriptor().FullName())
		}
		return true, e.text(strings.Trim(string(text), `"`)) // letters, digits and signs need no escapes
	case *structpb.Value:
		return true, e.value(m, inValue)
	case *structpb.Struct:
		return true, e.members(m, inStruct)
	case *structpb.ListValue:
		return true, e.listValue(m, inValue)
	}
	return false, nil
}

// jsonText decodes a value that is also a string in JSON.
func (d *decoder) jsonText(m proto.Message, what string) error {
	s, err := d.text(what)
	if err != nil {
		return err
	}
	text, err := json.Marshal(s)
	if err == nil {
		err = protojson.Unmarshal(text, m)
	}
	if err != nil {
		return fault("must be %s, not %.100q", what, s)
	}
	return nil
}

func (d *decoder) duration(m *durationpb.Duration) error {
	next, err := d.next()
	if err != nil {
		return err
	}
	if next == kindStr {
		return d.jsonText(m, durationText)
	}
	seconds, err := d.anyNumber(durationText)
	if err != nil {
		return err
	}
	if !(math.Abs(seconds) <= maxExact) { // NaN is not equal to itself
		return fault("must be %s, not %v", durationText, seconds)
	}
	whole, part := math.Modf(seconds)
	m.Seconds, m.Nanos = int64(whole), int32(math.Round(part*1e9))
	if m.Nanos == 1e9 || m.Nanos == -1e9 {
		m.Seconds, m.Nanos = m.Seconds+int64(m.Nanos/1e9), 0
	}
	if m.CheckValid() != nil {
		return fault("must be %s (at most 10,000 years), not %v", durationText, seconds)
	}
	return nil
}

func (d *decoder) timestamp(m *timestamppb.Timestamp) error {
	next, err := d.next()
	if err != nil {
		return err
	}
	if next == kindStr {
		return d.jsonText(m, timeText)
	}
	if err := d.expect(kindExt, timeText); err != nil {
		return err
	}
	extType, b, err := d.ext()
	if err != nil {
		return err
	}
	nanos := uint64(0)
	switch {
	case extType != extTimestamp:
		return fault("must be %s, not the extension %d", timeText, extType)
	case len(b) == 4:
		m.Seconds = int64(binary.BigEndian.Uint32(b))
	case len(b) == 8:
		both := binary.BigEndian.Uint64(b)
		nanos, m.Seconds = both>>34, int64(both&(1<<34-1))
	case len(b) == 12:
		nanos, m.Seconds = uint64(binary.BigEndian.Uint32(b)), int64(binary.BigEndian.Uint64(b[4:]))
	default:
		return fault("must be %s with 4, 8 or 12 bytes, not %d", timeText, len(b))
	}
	m.Nanos = int32(min(nanos, math.MaxInt32))
	if m.CheckValid() != nil {
		return fault("must be %s, in the years 1 to 9999 and with fewer than 1e9 nanoseconds", timeText)
	}
	return nil
}

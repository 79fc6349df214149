package format

import (
	"fmt"
	"strconv"
	"strings"
	"time"

	"google.golang.org/protobuf/proto"

	progressorv1 "github.com/progressor-engine/progressor/proto/progressor/v1"
)

// Format is an encoding of changes.
type Format int

const (
	// Structured is one JSON object that contains the attributes of the event and, as data, the
	// change in the JSON of the API.
	Structured Format = iota + 1
	// Binary puts the attributes in headers. The body is the change in the JSON of the API.
	Binary
	// Protobuf puts the attributes in headers. The body is the message progressor.v1.Change.
	Protobuf
)

// Content types of messages.
const (
	structuredType = "application/cloudevents+json"
	jsonType       = "application/json"
	protobufType   = "application/protobuf"
)

// Message is an encoded change.
type Message struct {
	ContentType string // describes Body
	Body        []byte
	attributes  []Header // attributes of the event, by their CloudEvents names; nil if Body contains them
}

// Header is a header of Kafka or HTTP.
type Header struct{ Name, Value string }

// Key returns the key that all changes of a process share: orders:order-1. It is unambiguous,
// because the name of a namespace contains no colon.
func Key(c *progressorv1.Change) string { return c.GetNamespace() + ":" + c.GetProcessId() }

// ID returns the ID of a change: orders:order-1:42. The same change always has the same ID.
func ID(c *progressorv1.Change) string { return id(Key(c), c) }

func id(key string, c *progressorv1.Change) string {
	return key + ":" + strconv.FormatInt(c.GetChangeId(), 10)
}

// Kind returns the name of the kind of a change, such as lifecycle.
func Kind(c *progressorv1.Change) string {
	return strings.ToLower(strings.TrimPrefix(c.GetKind().String(), "CHANGE_KIND_"))
}

// Encode returns a change in a format. The same change always has the same encoding.
func Encode(c *progressorv1.Change, f Format) (*Message, error) {
	switch f {
	case Structured:
		body, err := structured(c)
		if err != nil {
			return nil, err
		}
		return &Message{ContentType: structuredType, Body: body}, nil
	case Binary:
		body, err := changeJSON(c)
		if err != nil {
			return nil, err
		}
		return &Message{ContentType: jsonType, Body: body, attributes: attributes(c)}, nil
	case Protobuf:
		body, err := proto.MarshalOptions{Deterministic: true}.Marshal(c)
		if err != nil {
			return nil, fmt.Errorf("encode change %s: %w", ID(c), err)
		}
		return &Message{ContentType: protobufType, Body: body, attributes: attributes(c)}, nil
	}
	return nil, fmt.Errorf("format: must be Structured, Binary or Protobuf (got %d)", f)
}

// attributes returns the attributes of the event, without datacontenttype.
func attributes(c *progressorv1.Change) []Header {
	key := Key(c)
	return []Header{
		{"specversion", "1.0"},
		{"id", id(key, c)},
		{"source", "/progressor/" + c.GetNamespace()},
		{"type", "progressor." + Kind(c) + "." + c.GetType()},
		{"subject", c.GetProcessId()},
		{"time", c.GetTime().AsTime().Format(time.RFC3339Nano)},
		{"partitionkey", key},
	}
}

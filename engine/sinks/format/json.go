package format

import (
	"bytes"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"strconv"
	"time"
	"unicode/utf8"

	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/types/known/structpb"

	progressorv1 "github.com/progressor-engine/progressor/proto/progressor/v1"
)

// changeJSON returns a change in the JSON of the API. It is the output of protojson without the
// spaces that protojson adds at random, depending on the build. protojson itself would take several
// times as long, and would slow down busy sinks.
func changeJSON(c *progressorv1.Change) ([]byte, error) {
	o := newObject(c)
	o.change(c)
	return o.end(c)
}

// structured returns a CloudEvent in structured mode, as JSON.
func structured(c *progressorv1.Change) ([]byte, error) {
	o := newObject(c)
	for _, a := range attributes(c) {
		o.text(a.Name, a.Value)
	}
	o.text("datacontenttype", jsonType)
	o.name("data")
	o.body = append(o.body, '{')
	o.change(c)
	o.body = append(o.body, '}')
	return o.end(c)
}

// object is a JSON object that is being written.
type object struct {
	body []byte
	err  error // the first error
}

// newObject returns an empty object with enough capacity for an event: attributes is the size of
// all names and short values, and processIDs is how often the process ID occurs.
func newObject(c *progressorv1.Change) *object {
	const attributes, processIDs = 640, 5
	room := attributes + processIDs*len(c.GetProcessId()) + base64.StdEncoding.EncodedLen(len(c.GetPayload()))
	return &object{body: append(make([]byte, 0, room), '{')}
}

func (o *object) end(c *progressorv1.Change) ([]byte, error) {
	if o.err != nil {
		return nil, fmt.Errorf("encode change %s: %w", ID(c), o.err)
	}
	return append(o.body, '}'), nil
}

// change writes the members of a change. As in the JSON of the API, fields without a value are left
// out.
func (o *object) change(c *progressorv1.Change) {
	o.number("changeId", c.GetChangeId())
	if c.GetKind() != progressorv1.ChangeKind_CHANGE_KIND_UNSPECIFIED {
		o.text("kind", c.GetKind().String())
	}
	o.optional("type", c.GetType())
	o.optional("namespace", c.GetNamespace())
	o.optional("processId", c.GetProcessId())
	if c.GetTime() != nil {
		o.time("time", c.GetTime().AsTime())
	}
	o.number("eventId", c.GetEventId())
	o.optional("fromStatus", c.GetFromStatus())
	o.optional("toStatus", c.GetToStatus())
	o.optional("reason", c.GetReason())
	o.object("metadata", c.GetMetadata())
	if len(c.GetPayload()) > 0 {
		o.name("payload")
		o.body = append(o.body, '"')
		o.body = base64.StdEncoding.AppendEncode(o.body, c.GetPayload())
		o.body = append(o.body, '"')
	}
	o.object("details", c.GetDetails())
}

func (o *object) name(name string) {
	if o.body[len(o.body)-1] != '{' {
		o.body = append(o.body, ',')
	}
	o.body = append(o.body, '"')
	o.body = append(o.body, name...)
	o.body = append(o.body, '"', ':')
}

func (o *object) text(name, value string) {
	if !utf8.ValidString(value) && o.err == nil {
		o.err = errors.New(name + " is not valid UTF-8")
	}
	o.name(name)
	o.body = appendText(o.body, value)
}

func (o *object) optional(name, value string) {
	if value != "" {
		o.text(name, value)
	}
}

// number writes a 64-bit integer as a string, like protojson.
func (o *object) number(name string, value int64) {
	if value != 0 {
		o.name(name)
		o.body = append(o.body, '"')
		o.body = strconv.AppendInt(o.body, value, 10)
		o.body = append(o.body, '"')
	}
}

// time writes a time in UTC with 0, 3, 6 or 9 digits after the second.
func (o *object) time(name string, value time.Time) {
	layout := `"2006-01-02T15:04:05.000000000Z"`
	switch ns := value.Nanosecond(); {
	case ns == 0:
		layout = `"2006-01-02T15:04:05Z"`
	case ns%1e6 == 0:
		layout = `"2006-01-02T15:04:05.000Z"`
	case ns%1e3 == 0:
		layout = `"2006-01-02T15:04:05.000000Z"`
	}
	o.name(name)
	o.body = value.AppendFormat(o.body, layout)
}

func (o *object) object(name string, value *structpb.Struct) {
	if value == nil {
		return
	}
	var compact bytes.Buffer
	text, err := protojson.Marshal(value)
	if err == nil {
		err = json.Compact(&compact, text)
	}
	if err != nil && o.err == nil {
		o.err = fmt.Errorf("%s: %w", name, err)
	}
	o.name(name)
	o.body = append(o.body, compact.Bytes()...)
}

// appendText appends a JSON string.
func appendText(b []byte, s string) []byte {
	b = append(b, '"')
	done := 0
	for n := range len(s) {
		c := s[n]
		if c >= ' ' && c != '"' && c != '\\' {
			continue
		}
		b = append(b, s[done:n]...)
		done = n + 1
		switch c {
		case '"', '\\':
			b = append(b, '\\', c)
		case '\b':
			b = append(b, '\\', 'b')
		case '\f':
			b = append(b, '\\', 'f')
		case '\n':
			b = append(b, '\\', 'n')
		case '\r':
			b = append(b, '\\', 'r')
		case '\t':
			b = append(b, '\\', 't')
		default:
			const digits = "0123456789abcdef"
			b = append(b, '\\', 'u', '0', '0', digits[c>>4], digits[c&15])
		}
	}
	b = append(b, s[done:]...)
	return append(b, '"')
}

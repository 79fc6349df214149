// Package elements counts the values of an encoded message before it is decoded. A decoded value
// needs up to 200 times the memory of its encoding, so a limit in bytes alone does not limit the
// memory of a message. Start with CheckJSON.
package elements

import (
	"bytes"
	"fmt"

	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/reflect/protoreflect"
)

// tooMany returns the error of a message with more than limit values. Package msgpack returns the
// same error.
func tooMany(limit int) error {
	return fmt.Errorf("the message has more than %d values: send less at a time, or large lists as one string", limit)
}

// CheckJSON returns an error if a JSON text may have more than limit values. It counts the commas
// and the beginnings of objects and lists outside of strings. It does not validate the text: up to
// a syntax error, a decoder builds no more values than that.
func CheckJSON(data []byte, limit int) error {
	if len(data) <= limit {
		return nil
	}
	n := 0
	for i := 0; i < len(data); i++ {
		switch data[i] {
		case '"':
			i = endOfString(data, i+1)
		case ',', '[', '{':
			if n++; n > limit {
				return tooMany(limit)
			}
		}
	}
	return nil
}

// endOfString returns the position of the quote that ends the string that begins at i, or the end
// of data.
func endOfString(data []byte, i int) int {
	for {
		n := bytes.IndexByte(data[i:], '"')
		if n < 0 {
			return len(data)
		}
		backslashes := 0
		for backslashes < n && data[i+n-1-backslashes] == '\\' {
			backslashes++
		}
		if i += n; backslashes%2 == 0 {
			return i
		}
		i++
	}
}

// CheckProto returns an error if an encoded message has more than limit fields, including those of
// nested messages. Each element of a list counts as a field. A malformed message is counted up to
// the error.
func CheckProto(data []byte, md protoreflect.MessageDescriptor, limit int) error {
	if len(data) <= limit {
		return nil
	}
	left := limit
	if count(data, md, &left, 0); left < 0 {
		return tooMany(limit)
	}
	return nil
}

// maxDepth is the depth at which the protobuf library stops decoding.
const maxDepth = 10_000

// count subtracts the fields of a message from left, and stops below 0.
func count(data []byte, md protoreflect.MessageDescriptor, left *int, depth int) {
	for len(data) > 0 && *left >= 0 && depth <= maxDepth {
		number, wireType, n := protowire.ConsumeField(data)
		if n < 0 {
			return
		}
		field := data[:n]
		data = data[n:]
		*left--
		fd := md.Fields().ByNumber(number)
		if fd == nil || wireType != protowire.BytesType {
			continue
		}
		_, _, tag := protowire.ConsumeTag(field)
		value, _ := protowire.ConsumeBytes(field[tag:])
		switch {
		case fd.Message() != nil:
			count(value, fd.Message(), left, depth+1)
		case fd.IsList() && fd.Kind() != protoreflect.StringKind && fd.Kind() != protoreflect.BytesKind:
			*left -= len(value) // packed: each element takes at least one byte
		}
	}
}

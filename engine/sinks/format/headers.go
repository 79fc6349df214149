package format

import "strings"

// KafkaHeaders returns the headers of a Kafka message, such as ce_id.
func (m *Message) KafkaHeaders() []Header {
	headers := []Header{{"content-type", m.ContentType}}
	for _, a := range m.attributes {
		headers = append(headers, Header{"ce_" + a.Name, a.Value})
	}
	return headers
}

// HTTPHeaders returns the headers of an HTTP request, such as ce-id. Their values are
// percent-encoded, as CloudEvents requires.
func (m *Message) HTTPHeaders() []Header {
	headers := []Header{{"Content-Type", m.ContentType}}
	for _, a := range m.attributes {
		headers = append(headers, Header{"ce-" + a.Name, percentEncode(a.Value)})
	}
	return headers
}

// percentEncode encodes the bytes of s that a header must not contain: everything except printable
// ASCII, and also spaces, quotes and percent signs.
func percentEncode(s string) string {
	const digits = "0123456789ABCDEF"
	var out strings.Builder
	for _, b := range []byte(s) {
		if b > 0x20 && b < 0x7f && b != '"' && b != '%' {
			out.WriteByte(b)
			continue
		}
		out.Write([]byte{'%', digits[b>>4], digits[b&15]})
	}
	return out.String()
}

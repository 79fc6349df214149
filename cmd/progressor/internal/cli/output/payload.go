package output

import (
	"bytes"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"strings"
	"unicode"
	"unicode/utf8"
)

// Payload formats bytes on one line: JSON compactly, text as it is, anything else in base64. It
// escapes control characters. limit is the maximum number of characters; 0 means no limit.
func Payload(b []byte, limit int) string {
	var text string
	var compact bytes.Buffer
	switch {
	case len(b) == 0:
		return ""
	case json.Valid(b) && json.Compact(&compact, b) == nil && utf8.Valid(b):
		text = OneLine(compact.String())
	case printable(b):
		text = OneLine(string(b))
	default:
		text = "base64:" + base64.StdEncoding.EncodeToString(b)
	}
	if limit > 0 && utf8.RuneCountInString(text) > limit {
		return fmt.Sprintf("%s… (%d bytes)", string([]rune(text)[:limit]), len(b))
	}
	return text
}

func printable(b []byte) bool {
	if !utf8.Valid(b) {
		return false
	}
	for _, r := range string(b) {
		if !unicode.IsPrint(r) && r != '\n' && r != '\t' && r != '\r' {
			return false
		}
	}
	return true
}

// OneLine escapes line breaks and control characters. It replaces other kinds of spaces, which
// protobuf uses in its errors, with a space.
func OneLine(s string) string {
	if strings.IndexFunc(s, func(r rune) bool { return !unicode.IsPrint(r) }) < 0 {
		return s
	}
	var b strings.Builder
	for _, r := range s {
		switch {
		case r == '\n':
			b.WriteString(`\n`)
		case r == '\t':
			b.WriteString(`\t`)
		case r == '\r':
			b.WriteString(`\r`)
		case unicode.Is(unicode.Zs, r):
			b.WriteByte(' ')
		case unicode.IsPrint(r):
			b.WriteRune(r)
		default:
			fmt.Fprintf(&b, `\u%04x`, r)
		}
	}
	return b.String()
}

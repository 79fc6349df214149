package main

import (
	"bytes"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"regexp"
	"strings"
	"unicode"
	"unicode/utf8"

	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/structpb"

	"github.com/progressor-engine/progressor/internal/digits"
	"github.com/progressor-engine/progressor/process"
)

// payloadFlags are the args of a task, as text or in base64.
type payloadFlags struct {
	Args       *string `xor:"args" placeholder:"TEXT|@FILE|@-" help:"Args of the task: text, @FILE, or @- for standard input. Write @@ for a text that begins with @."`
	ArgsBase64 *string `name:"args-base64" xor:"args" placeholder:"BASE64" help:"Args of the task in base64."`
}

func (f payloadFlags) args(a *app) ([]byte, error) {
	switch {
	case f.Args != nil:
		return a.payload("--args", *f.Args)
	case f.ArgsBase64 != nil:
		b, err := base64.StdEncoding.DecodeString(*f.ArgsBase64)
		if err != nil {
			return nil, usageError(fmt.Errorf("--args-base64: %w", err))
		}
		return b, atMost("--args-base64", len(b), process.MaxPayloadBytes)
	}
	return nil, nil
}

// payload returns the bytes of a flag, up to the maximum size of a payload.
func (a *app) payload(flag, value string) ([]byte, error) {
	b, err := a.textOrFile(flag, value)
	if err != nil {
		return nil, err
	}
	return b, atMost(flag, len(b), process.MaxPayloadBytes)
}

// atMost returns an error if a value is too large. Otherwise the error might only be that the whole
// message is too large.
func atMost(flag string, size, limit int) error {
	if size <= limit {
		return nil
	}
	return usageError(fmt.Errorf("%[1]s: must have at most %[3]d MiB (got %[2]s bytes)", flag, thousands(int64(size)), limit>>20))
}

// textOrFile returns the bytes of a flag: its text, or the content of a file.
func (a *app) textOrFile(flag, value string) ([]byte, error) {
	switch {
	case strings.HasPrefix(value, "@@"):
		return []byte(value[1:]), nil
	case value == "@-":
		return a.readFile(flag, "-")
	case strings.HasPrefix(value, "@"):
		return a.readFile(flag, value[1:])
	}
	return []byte(value), nil
}

// readFile reads a file, or standard input for "-".
func (a *app) readFile(flag, name string) ([]byte, error) {
	if name == "-" {
		b, err := io.ReadAll(a.Stdin)
		if err != nil {
			return nil, fmt.Errorf("%s: standard input: %w", flag, err)
		}
		return b, nil
	}
	b, err := os.ReadFile(name)
	if err != nil {
		return nil, usageError(fmt.Errorf("%s: %w", flag, err))
	}
	return b, nil
}

// metadata parses a JSON object. It returns nil for "".
func (a *app) metadata(value string) (*structpb.Struct, error) {
	if value == "" {
		return nil, nil
	}
	return a.attributes("--metadata", value)
}

// attributes parses a JSON object.
func (a *app) attributes(flag, value string) (*structpb.Struct, error) {
	text, err := a.textOrFile(flag, value)
	if err != nil {
		return nil, err
	}
	if err := atMost(flag, len(text), process.MaxMessageBytes); err != nil {
		return nil, err
	}
	s := &structpb.Struct{}
	if err := protojson.Unmarshal(text, s); err != nil {
		return nil, usageError(fmt.Errorf("%s: must be a JSON object, such as '{\"tenant\": \"acme\"}': %w", flag, noJSON(err)))
	}
	return s, exactDigits(flag, text, s)
}

// protobuf uses a no-break space or a space in its errors, depending on the build.
var jsonError = regexp.MustCompile(`^proto:[ \x{a0}]+(?:syntax error )?(?:\(line (\d+):(\d+)\): )?`)

// noJSON rewords an error of protojson: its position and its cause.
func noJSON(err error) error {
	text := err.Error()
	m := jsonError.FindStringSubmatch(text)
	if m == nil {
		return err
	}
	if text = text[len(m[0]):]; m[1] != "" {
		text = "line " + m[1] + ", column " + m[2] + ": " + text
	}
	return errors.New(text)
}

// exactDigits returns an error for an integer that would lose digits.
func exactDigits(flag string, text []byte, m proto.Message) error {
	if err := digits.Check(text, strings.TrimPrefix(flag, "--"), m); err != nil {
		return usageError(fmt.Errorf("%s: %w", flag, err))
	}
	return nil
}

// showPayload formats bytes on one line: JSON compactly, text as it is, anything else in base64. It
// escapes control characters. limit is the maximum number of characters; 0: no limit.
func showPayload(b []byte, limit int) string {
	var text string
	var compact bytes.Buffer
	switch {
	case len(b) == 0:
		return ""
	case json.Valid(b) && json.Compact(&compact, b) == nil && utf8.Valid(b):
		text = oneLine(compact.String())
	case printable(b):
		text = oneLine(string(b))
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

// oneLine escapes line breaks and control characters. It replaces other kinds of spaces, which
// protobuf uses in its errors, by a space.
func oneLine(s string) string {
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

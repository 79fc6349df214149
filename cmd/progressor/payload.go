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

// payloadFlags are the args of a task, as text or bytes.
type payloadFlags struct {
	Args       *string `xor:"args" placeholder:"TEXT|@FILE|@-" help:"Args of the task: text, @FILE, or @- for standard input; @@ begins a text with @."`
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

// payload is the bytes that the value of a flag stands for, as many as are stored.
func (a *app) payload(flag, value string) ([]byte, error) {
	b, err := a.textOrFile(flag, value)
	if err != nil {
		return nil, err
	}
	return b, atMost(flag, len(b), process.MaxPayloadBytes)
}

// atMost refuses what no engine takes: of what is larger than a whole message it could say only that.
func atMost(flag string, size, limit int) error {
	if size <= limit {
		return nil
	}
	return usageError(fmt.Errorf("%s: it has %s bytes, and may have %d MiB", flag, thousands(int64(size)), limit>>20))
}

// textOrFile is the bytes that the value of a flag stands for.
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

// metadata reads a JSON object; nil for "".
func (a *app) metadata(value string) (*structpb.Struct, error) {
	if value == "" {
		return nil, nil
	}
	return a.attributes("--metadata", value)
}

// attributes reads a JSON object.
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
		return nil, usageError(fmt.Errorf("%s: want a JSON object, such as '{\"tenant\": \"acme\"}': %w", flag, noJSON(err)))
	}
	return s, exactDigits(flag, text, s)
}

// protobuf puts a no-break space into its errors, or a space, by the build.
var jsonError = regexp.MustCompile(`^proto:[ \x{a0}]+(?:syntax error )?(?:\(line (\d+):(\d+)\): )?`)

// noJSON is an error of protojson in words for people: where it is, and what.
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

// exactDigits refuses an integer that the value of a flag would lose digits of.
func exactDigits(flag string, text []byte, m proto.Message) error {
	if err := digits.Check(text, strings.TrimPrefix(flag, "--"), m); err != nil {
		return usageError(fmt.Errorf("%s: %w", flag, err))
	}
	return nil
}

// showPayload writes bytes for people, on one line: JSON compactly, text as it is, anything else in base64. Control
// characters never reach the terminal. limit cuts what is longer, in characters; 0: no limit.
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

// oneLine escapes what would leave the line or steer a terminal. Any other space than that of the space bar, which protobuf has in its errors,
// becomes one.
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

package cli

import (
	"encoding/base64"
	"fmt"
	"io"
	"os"
	"strings"

	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/structpb"

	"github.com/progressor-engine/progressor/cmd/progressor/internal/cli/output"
	"github.com/progressor-engine/progressor/cmd/progressor/internal/cli/protoyaml"
	"github.com/progressor-engine/progressor/internal/digits"
	"github.com/progressor-engine/progressor/process"
)

// PayloadFlags are the args of a task, as text or in base64.
type PayloadFlags struct {
	Args       *string `xor:"args" placeholder:"TEXT|@FILE|@-" help:"Args of the task: text, @FILE, or @- for standard input. Write @@ for a text that begins with @."`
	ArgsBase64 *string `name:"args-base64" xor:"args" placeholder:"BASE64" help:"Args of the task in base64."`
}

// ArgsFlag returns the name of the flag with the args.
func (f PayloadFlags) ArgsFlag() string {
	if f.ArgsBase64 != nil {
		return "--args-base64"
	}
	return "--args"
}

// ReadArgs returns the args of the flags, or nil if there are none.
func (f PayloadFlags) ReadArgs(a *App) ([]byte, error) {
	switch {
	case f.Args != nil:
		return a.Payload("--args", *f.Args)
	case f.ArgsBase64 != nil:
		b, err := base64.StdEncoding.DecodeString(*f.ArgsBase64)
		if err != nil {
			return nil, UsageError(fmt.Errorf("--args-base64: %w", err))
		}
		return b, atMost("--args-base64", len(b), process.MaxPayloadBytes)
	}
	return nil, nil
}

// Payload returns the bytes of a flag, up to the maximum size of a payload.
func (a *App) Payload(flag, value string) ([]byte, error) {
	b, err := a.TextOrFile(flag, value)
	if err != nil {
		return nil, err
	}
	return b, atMost(flag, len(b), process.MaxPayloadBytes)
}

// atMost returns an error if a value is too large. Without this check, the error might only say
// that the complete message is too large.
func atMost(flag string, size, limit int) error {
	if size <= limit {
		return nil
	}
	return UsageError(fmt.Errorf("%[1]s: must have at most %[3]d MiB (got %[2]s bytes)", flag,
		output.Thousands(int64(size)), limit>>20))
}

// TextOrFile returns the bytes of a flag: its text, or the content of a file.
func (a *App) TextOrFile(flag, value string) ([]byte, error) {
	switch {
	case strings.HasPrefix(value, "@@"):
		return []byte(value[1:]), nil
	case value == "@-":
		return a.ReadFile(flag, "-")
	case strings.HasPrefix(value, "@"):
		return a.ReadFile(flag, value[1:])
	}
	return []byte(value), nil
}

// ReadFile reads a file, or standard input for "-".
func (a *App) ReadFile(flag, name string) ([]byte, error) {
	if name == "-" {
		b, err := io.ReadAll(a.Stdin)
		if err != nil {
			return nil, fmt.Errorf("%s: standard input: %w", flag, err)
		}
		return b, nil
	}
	b, err := os.ReadFile(name)
	if err != nil {
		return nil, UsageError(fmt.Errorf("%s: %w", flag, err))
	}
	return b, nil
}

// Metadata parses a JSON object. It returns nil for "".
func (a *App) Metadata(value string) (*structpb.Struct, error) {
	if value == "" {
		return nil, nil
	}
	return a.Attributes("--metadata", value)
}

// Attributes parses a JSON object.
func (a *App) Attributes(flag, value string) (*structpb.Struct, error) {
	text, err := a.TextOrFile(flag, value)
	if err != nil {
		return nil, err
	}
	if err := atMost(flag, len(text), process.MaxMessageBytes); err != nil {
		return nil, err
	}
	s := &structpb.Struct{}
	if err := protojson.Unmarshal(text, s); err != nil {
		return nil, UsageError(
			fmt.Errorf("%s: must be a JSON object, such as '{\"tenant\": \"acme\"}': %w", flag,
				protoyaml.PlainError(err)))
	}
	return s, exactDigits(flag, text, s)
}

// exactDigits returns an error for an integer that would lose digits.
func exactDigits(flag string, text []byte, m proto.Message) error {
	if err := digits.Check(text, strings.TrimPrefix(flag, "--"), m); err != nil {
		return UsageError(fmt.Errorf("%s: %w", flag, err))
	}
	return nil
}

// JSONValue parses the JSON of a flag. It returns nil for "".
func (a *App) JSONValue(flag, value string) (*structpb.Value, error) {
	if value == "" {
		return nil, nil
	}
	text, err := a.TextOrFile(flag, value)
	if err != nil {
		return nil, err
	}
	if err := atMost(flag, len(text), process.MaxMessageBytes); err != nil {
		return nil, err
	}
	v := &structpb.Value{}
	if err := protojson.Unmarshal(text, v); err != nil {
		return nil, UsageError(
			fmt.Errorf("%s: must be JSON, such as '{\"to\": \"ann\"}' or '\"text\"': %w", flag,
				protoyaml.PlainError(err)))
	}
	return v, exactDigits(flag, text, v)
}

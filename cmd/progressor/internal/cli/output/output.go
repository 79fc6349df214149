package output

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"strconv"
	"strings"
	"time"

	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"

	"github.com/progressor-engine/progressor/internal/durations"
)

// The maximum number of characters of a payload in a cell of a table. TraceLimit is smaller,
// because a row of a trace has two payloads.
const (
	CellLimit  = 100
	TraceLimit = 60
)

// PrintMessage prints a message as one JSON document, in the format of the API.
func PrintMessage(w io.Writer, m proto.Message) error {
	text, err := StyleOf(w).marshal(m)
	if err != nil {
		return fmt.Errorf("write %s as JSON: %w", m.ProtoReflect().Descriptor().Name(), err)
	}
	text = withEmptyList(text, m.ProtoReflect())
	var b bytes.Buffer
	if err := json.Indent(&b, text, "", "  "); err != nil { // protojson's own indentation varies on purpose
		return fmt.Errorf("indent JSON: %w", err)
	}
	b.WriteByte('\n')
	_, err = w.Write(b.Bytes())
	return err
}

// withEmptyList adds an empty list to a response without a list, because {} is unclear to people,
// and jq would return null.
func withEmptyList(text []byte, m protoreflect.Message) []byte {
	name := string(m.Descriptor().Name())
	if !strings.HasPrefix(name, "List") || !strings.HasSuffix(name, "Response") {
		return text
	}
	for i := range m.Descriptor().Fields().Len() {
		f := m.Descriptor().Fields().Get(i)
		if f.IsList() && m.Get(f).List().Len() == 0 {
			rest := bytes.TrimSpace(text[1:])
			comma := ""
			if !bytes.HasPrefix(rest, []byte("}")) {
				comma = ","
			}
			text = fmt.Appendf(nil, "{%q:[]%s%s", f.JSONName(), comma, rest)
		}
	}
	return text
}

// PrintLine prints a message as JSON on one line.
func PrintLine(w io.Writer, m proto.Message) error {
	text, err := StyleOf(w).marshal(m)
	if err != nil {
		return fmt.Errorf("write %s as JSON: %w", m.ProtoReflect().Descriptor().Name(), err)
	}
	var b bytes.Buffer
	if err := json.Compact(&b, text); err != nil { // protojson's own spaces vary on purpose
		return fmt.Errorf("compact JSON: %w", err)
	}
	b.WriteByte('\n')
	_, err = w.Write(b.Bytes())
	return err
}

// PrintJSON prints a value that is not a message as a JSON document.
func PrintJSON(w io.Writer, v any) error {
	encoder := json.NewEncoder(w)
	encoder.SetIndent("", "  ")
	encoder.SetEscapeHTML(false)
	return encoder.Encode(v)
}

// Duration formats a duration exactly, without needless zeros. It returns "" if the duration is not
// set.
func Duration(d time.Duration) string {
	if d == 0 {
		return ""
	}
	return durations.Exact(d)
}

// ID formats an ID. It returns "" for 0.
func ID(id int64) string {
	if id == 0 {
		return ""
	}
	return fmt.Sprint(id)
}

// Message formats a message, such as a JSON value, as JSON on one line. It returns "" for nil.
func Message(m proto.Message, limit int) string {
	if !m.ProtoReflect().IsValid() {
		return ""
	}
	text, err := protojson.Marshal(m)
	if err != nil {
		return "(cannot be shown: " + err.Error() + ")"
	}
	return Payload(text, limit)
}

// Counted returns a number with a noun, which is in the plural unless the number is 1.
func Counted(n int, one string) string {
	if n == 1 {
		return "1 " + one
	}
	return fmt.Sprintf("%d %ss", n, one)
}

// EnumPrefix returns the common prefix of an enum's values: the name of the value 0 without
// UNSPECIFIED.
func EnumPrefix(desc protoreflect.EnumDescriptor) string {
	return strings.TrimSuffix(string(desc.Values().ByNumber(0).Name()), "UNSPECIFIED")
}

// Enum returns the short name of an enum value: RUNNING for PROCESS_STATUS_RUNNING.
func Enum(e protoreflect.Enum) string {
	desc := e.Descriptor()
	value := desc.Values().ByNumber(e.Number())
	switch {
	case e.Number() == 0:
		return ""
	case value == nil:
		return strconv.Itoa(int(e.Number()))
	}
	return strings.TrimPrefix(string(value.Name()), EnumPrefix(desc))
}

// ShellWord quotes a value for a command that people paste into a shell.
func ShellWord(s string) string {
	plain := func(r rune) bool {
		return r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z' || r >= '0' && r <= '9' ||
			strings.ContainsRune("-_./:=@%+,", r)
	}
	if s != "" && strings.IndexFunc(s, func(r rune) bool { return !plain(r) }) < 0 {
		return s
	}
	return "'" + strings.ReplaceAll(s, "'", `'\''`) + "'"
}

// Thousands formats a number with a comma after every third digit.
func Thousands(n int64) string {
	s := strconv.FormatInt(n, 10)
	for k := len(s) - 3; k > 0; k -= 3 {
		s = s[:k] + "," + s[k:]
	}
	return s
}

package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/jedib0t/go-pretty/v6/table"
	"github.com/jedib0t/go-pretty/v6/text"
	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/types/known/timestamppb"

	"github.com/progressor-engine/progressor/internal/durations"
)

// The number of characters of a payload in a cell of a table. A trace has two payloads in a row.
const (
	cellLimit  = 100
	traceLimit = 60
)

// outputFlag selects the output format.
type outputFlag struct {
	Output string `short:"o" enum:"table,json" default:"table" placeholder:"table|json" setting:"" help:"Output format: table for people, json for programs. Default: ${default}."`
}

func (f outputFlag) json() bool { return f.Output == "json" }

// printMessage prints a message as one JSON document, in the format of the API.
func printMessage(w io.Writer, m proto.Message) error {
	text, err := protojson.Marshal(m)
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

// withEmptyList adds an empty list to a response without one, because {} is unclear to people, and
// jq would return null.
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

// printLine prints a JSON document on a line.
func printLine(w io.Writer, m proto.Message) error {
	text, err := protojson.Marshal(m)
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

// printJSON prints a value that is not a message as a JSON document.
func printJSON(w io.Writer, v any) error {
	encoder := json.NewEncoder(w)
	encoder.SetIndent("", "  ")
	encoder.SetEscapeHTML(false)
	return encoder.Encode(v)
}

// printRows prints a table with a header, or that there are no rows. Columns of numbers are aligned
// to the right. numbers lists those whose cells are texts, such as 1,000 or nothing.
func printRows(w io.Writer, header table.Row, rows []table.Row, numbers ...string) error {
	if len(rows) == 0 {
		_, err := fmt.Fprintln(w, "none")
		return err
	}
	t := newTable()
	var columns []table.ColumnConfig
	for _, name := range numbers {
		columns = append(columns, table.ColumnConfig{Name: name, Align: text.AlignRight, AlignHeader: text.AlignRight})
	}
	t.SetColumnConfigs(columns)
	t.AppendHeader(header)
	t.AppendRows(rows)
	_, err := fmt.Fprintln(w, t.Render())
	return err
}

// field is a line of printFields. It is omitted if its value is empty.
type field struct {
	name  string
	value string
}

// printFields prints names and values, one per line.
func printFields(w io.Writer, fields ...field) error {
	t := newTable()
	for _, f := range fields {
		if f.value != "" {
			t.AppendRow(table.Row{f.name, f.value})
		}
	}
	_, err := fmt.Fprintln(w, t.Render())
	return err
}

func newTable() table.Writer {
	t := table.NewWriter()
	style := table.StyleDefault
	style.Options = table.OptionsNoBordersAndSeparators
	style.Box.PaddingLeft, style.Box.PaddingRight = "", "  "
	style.Format.Header = text.FormatUpper
	t.SetStyle(style)
	t.SuppressTrailingSpaces()
	return t
}

func showTime(t *timestamppb.Timestamp) string {
	if t == nil {
		return ""
	}
	return t.AsTime().UTC().Format("2006-01-02T15:04:05.000Z")
}

// showDuration formats a duration exactly, without needless zeros; "" if it is not set.
func showDuration(d time.Duration) string {
	if d == 0 {
		return ""
	}
	return durations.Exact(d)
}

func showID(id int64) string {
	if id == 0 {
		return ""
	}
	return fmt.Sprint(id)
}

// showMessage formats a message, such as a JSON value, as JSON on one line; "" if it is nil.
func showMessage(m proto.Message, limit int) string {
	if !m.ProtoReflect().IsValid() {
		return ""
	}
	text, err := protojson.Marshal(m)
	if err != nil {
		return "(cannot be shown: " + err.Error() + ")"
	}
	return showPayload(text, limit)
}

// counted returns a number with a noun, in the plural unless it is one.
func counted(n int, one string) string {
	if n == 1 {
		return "1 " + one
	}
	return fmt.Sprintf("%d %ss", n, one)
}

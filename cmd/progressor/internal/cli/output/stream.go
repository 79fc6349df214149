package output

import (
	"fmt"
	"io"
	"regexp"
	"strings"
	"time"
	"unicode"

	"github.com/jedib0t/go-pretty/v6/text"
	"google.golang.org/protobuf/types/known/timestamppb"
)

// Stream is standard output or standard error, with the style of the results that are written
// there.
type Stream struct {
	io.Writer
	Style
}

// Style describes how results look on a stream. The zero value is the style of pipes and files: no
// colors, complete cells and exact times.
type Style struct {
	Colors bool
	Size   func() (columns, lines int) // the terminal; nil if the stream is not one
	Zone   *time.Location              // for short times; nil for RFC 3339 in UTC
	Decode bool                        // payloads in JSON documents are JSON or text if possible
	brief  bool                        // short times have no fractions of seconds
}

// File returns the underlying writer.
func File(w io.Writer) io.Writer {
	if s, ok := w.(Stream); ok {
		return s.Writer
	}
	return w
}

// StyleOf returns the style of a stream, or the zero value for another writer.
func StyleOf(w io.Writer) Style {
	if s, ok := w.(Stream); ok {
		return s.Style
	}
	return Style{}
}

// size returns the width and the height of the terminal. A value is 0 if it is not known or not
// limited.
func (s Style) size() (columns, lines int) {
	if s.Size == nil {
		return 0, 0
	}
	return s.Size()
}

// Columns returns the width of the terminal, or 0 if it is not limited.
func (s Style) Columns() int {
	columns, _ := s.size()
	return columns
}

// Moment is a time in a cell, a field or a line. Its format depends on the stream.
type Moment struct {
	t      time.Time // zero if there is none
	layout string    // format in a pipe
}

// Time returns a moment for a time of the API. It is shown as "" if t is nil.
func Time(t *timestamppb.Timestamp) Moment {
	if t == nil {
		return Moment{}
	}
	return Moment{t.AsTime(), "2006-01-02T15:04:05.000Z"}
}

// Second returns a moment that is shown without fractions of a second.
func Second(t time.Time) Moment { return Moment{t, time.RFC3339} }

// Note returns a text as a cell. If it ends with a time, as in "time: 2026-11-28T15:37:51Z", the
// cell shows that time like other times of the stream.
func Note(text string) any {
	text = OneLine(text)
	if what, at, ok := strings.Cut(text, ": "); ok {
		if t, err := time.Parse(time.RFC3339Nano, at); err == nil {
			return Phrase{what + ": ", Moment{t, time.RFC3339Nano}}
		}
	}
	return text
}

// stamps matches the times in the sentences of the engine.
var stamps = regexp.MustCompile(`\b\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z`)

// Sentence returns sentences of the engine as a field. Their times are shown like other times of
// the stream.
func Sentence(text string) Phrase {
	text = OneLine(text)
	var parts Phrase
	end := 0
	for _, at := range stamps.FindAllStringIndex(text, -1) {
		t, err := time.Parse(time.RFC3339Nano, text[at[0]:at[1]])
		if err != nil {
			continue // not a time, such as month 13
		}
		parts = append(parts, text[end:at[0]], Moment{t, "2006-01-02T15:04:05.000Z"})
		end = at[1]
	}
	return append(parts, text[end:])
}

// String formats the time as in a pipe.
func (m Moment) String() string {
	if m.t.IsZero() {
		return ""
	}
	return m.t.UTC().Format(m.layout)
}

// short returns the time of the day, with the date unless it is today. If brief is set, it has no
// fraction of a second.
func (m Moment) short(now time.Time, brief bool) string {
	t := m.t.In(now.Location())
	switch {
	case m.t.IsZero():
		return ""
	case t.Year() != now.Year():
		return t.Format("2006-01-02 15:04:05")
	case t.YearDay() != now.YearDay():
		return t.Format("Jan _2 15:04:05")
	case brief || m.layout == time.RFC3339:
		return t.Format(time.TimeOnly)
	}
	return t.Format("15:04:05.000")
}

// Phrase is a cell or a line with several parts, such as texts and moments.
type Phrase []any

// Text returns a value as text: a moment, a phrase, or anything that fmt can print.
func (s Style) Text(value any) string {
	switch value := value.(type) {
	case Moment:
		if s.Zone != nil {
			return value.short(time.Now().In(s.Zone), s.brief)
		}
		return value.String()
	case Phrase:
		var b strings.Builder
		for _, part := range value {
			b.WriteString(s.Text(part))
		}
		return b.String()
	case nil:
		return ""
	}
	return fmt.Sprint(value)
}

// Color is a color of a text on a terminal.
type Color = text.Color

// The colors that commands use.
const (
	Red    = text.FgRed
	Yellow = text.FgYellow
	Green  = text.FgGreen
	Cyan   = text.FgCyan
	Bold   = text.Bold
)

// Paint colors a text if the stream has colors.
func (s Style) Paint(t string, c Color) string {
	if !s.Colors || t == "" {
		return t
	}
	return text.Escape(t, c.EscapeSeq())
}

// Status colors the first word of a status or state by its meaning. Other words have no color.
func (s Style) Status(name string) string {
	end := strings.IndexFunc(name, func(r rune) bool { return r != '_' && !unicode.IsLetter(r) })
	if end < 0 {
		end = len(name)
	}
	color, ok := statusColors[strings.ToUpper(name[:end])]
	if !ok {
		return name
	}
	return s.Paint(name[:end], color) + name[end:]
}

// statusColors contains the colors of statuses and states. Red means that an operator should act,
// yellow that something is unusual, cyan that work is in progress, and green success. Statuses that
// mean waiting have no color.
var statusColors = map[string]Color{
	"ERROR": Red, "FAILED": Red, "TIMEOUT": Red, "EXPIRED": Red, "DOWN": Red, "BROKEN": Red, "SILENT": Red,
	"MISSED": Red, "DROPPED": Red, "REVOKED": Red, "FAILING": Red,

	"SUSPENDED": Yellow, "PAUSED": Yellow, "RETRYABLE": Yellow, "CANCEL_REQUESTED": Yellow, "CANCELLED": Yellow,
	"COMPENSATING": Yellow, "BLOCKED": Yellow, "DEGRADED": Yellow, "DRAINING": Yellow,
	"DISABLED": Yellow, "DELETING": Yellow, "WAITING_WORKER": Yellow, "SKIPPED_FAILURE": Yellow,

	"INIT": Cyan, "RUNNING": Cyan,

	"COMPLETED": Green, "SUCCEEDED": Green, "FINISHED": Green, "SUCCESS": Green, "FIRED": Green, "OK": Green,
	"ACTIVE": Green, "ALIVE": Green, "VALID": Green, "ENABLED": Green,
}

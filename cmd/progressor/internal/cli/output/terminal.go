package output

import (
	"cmp"
	"fmt"
	"io"
	"strings"

	"github.com/jedib0t/go-pretty/v6/text"
)

// TerminalLine is a line of a terminal that is redrawn. Without a terminal, it prints nothing.
type TerminalLine struct {
	w     io.Writer // nil without a terminal
	shown bool
}

// NewTerminalLine returns a line of w, which prints nothing unless w is a terminal.
func NewTerminalLine(w io.Writer, terminal bool) TerminalLine {
	if terminal {
		return TerminalLine{w: w}
	}
	return TerminalLine{}
}

// Enabled reports whether the line is shown.
func (l *TerminalLine) Enabled() bool { return l.w != nil }

// Write replaces the text of the line.
func (l *TerminalLine) Write(text string) {
	fmt.Fprint(l.w, "\r\x1b[K"+text)
	l.shown = true
}

// End keeps the last line.
func (l *TerminalLine) End() {
	if l.shown {
		fmt.Fprintln(l.w)
	}
}

// ProgressWidth is the width of a progress bar. With its numbers, a line has fewer than 80
// characters.
const ProgressWidth = 24

// Bar draws a bar of some characters. part is the filled fraction, from 0 to 1.
func Bar(part float64, width int) string {
	full := int(part * float64(width))
	return "[" + strings.Repeat("#", full) + strings.Repeat(".", width-full) + "]"
}

// Screen redraws a text in place. Its lines fit the width of the terminal, so that each takes one
// row. A text with more lines than the terminal is cut, because it could not be redrawn.
type Screen struct {
	Style
	W     io.Writer // nil without a terminal
	lines int
}

// The default size of a terminal whose size is not known.
const (
	usualColumns = 80
	usualLines   = 24
)

// NewScreen returns a screen that shows nothing unless w is a terminal.
func NewScreen(w io.Writer, terminal bool) *Screen {
	if terminal {
		return &Screen{W: w, Style: StyleOf(w)}
	}
	return &Screen{}
}

// Enabled reports whether the screen shows anything.
func (s *Screen) Enabled() bool { return s.W != nil }

// Shown reports whether the screen has shown a text since it was cleared.
func (s *Screen) Shown() bool { return s.lines > 0 }

// Show replaces the text.
func (s *Screen) Show(t string) {
	if s.W == nil {
		return
	}
	columns, most := s.size()
	columns, most = cmp.Or(columns, usualColumns), cmp.Or(most, usualLines)-1 // the cursor is below the last line
	lines := strings.Split(strings.TrimSuffix(t, "\n"), "\n")
	if hidden := len(lines) - most; hidden > 0 && most > 0 {
		lines = append(lines[:most-1], fmt.Sprintf("… and %d more", hidden+1))
	}
	var b strings.Builder
	s.up(&b)
	for _, line := range lines {
		b.WriteString("\x1b[K" + text.Snip(line, columns, "…") + "\n")
	}
	b.WriteString("\x1b[J")
	s.lines = len(lines)
	_, _ = io.WriteString(s.W, b.String())
}

func (s *Screen) up(b *strings.Builder) {
	if s.lines > 0 {
		fmt.Fprintf(b, "\x1b[%dA", s.lines)
	}
}

// Clear removes the last text. It is called before the complete result is printed.
func (s *Screen) Clear() {
	if s.W == nil || s.lines == 0 {
		return
	}
	var b strings.Builder
	s.up(&b)
	b.WriteString("\x1b[J")
	_, _ = io.WriteString(s.W, b.String())
	s.lines = 0
}

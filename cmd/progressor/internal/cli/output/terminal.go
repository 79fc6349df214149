package output

import (
	"fmt"
	"io"
	"strings"
	"unicode/utf8"
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

// ProgressWidth is the width of a bar itself. With its numbers, a line has less than 80 characters.
const ProgressWidth = 24

// Bar draws a bar of some characters. part is the full fraction, from 0 to 1.
func Bar(part float64, width int) string {
	full := int(part * float64(width))
	return "[" + strings.Repeat("#", full) + strings.Repeat(".", width-full) + "]"
}

// Screen redraws a text in place. Its lines fit the width of a usual terminal, so that each takes
// one row.
type Screen struct {
	W     io.Writer // nil without a terminal
	lines int
}

// The size of the part of a terminal that is drawn. A text that is higher than the terminal could
// not be redrawn.
const (
	screenWidth = 118
	screenLines = 40
)

// NewScreen returns a screen that shows nothing unless w is a terminal.
func NewScreen(w io.Writer, terminal bool) *Screen {
	if terminal {
		return &Screen{W: w}
	}
	return &Screen{}
}

// Enabled reports whether the screen shows anything.
func (s *Screen) Enabled() bool { return s.W != nil }

// Shown reports whether the screen has shown a text since it was cleared.
func (s *Screen) Shown() bool { return s.lines > 0 }

// Show replaces the text.
func (s *Screen) Show(text string) {
	if s.W == nil {
		return
	}
	lines := strings.Split(strings.TrimSuffix(text, "\n"), "\n")
	if len(lines) > screenLines {
		lines = append(lines[:screenLines-1], fmt.Sprintf("… and %d more", len(lines)-screenLines+1))
	}
	var b strings.Builder
	s.up(&b)
	for _, line := range lines {
		if utf8.RuneCountInString(line) > screenWidth {
			line = string([]rune(line)[:screenWidth-1]) + "…"
		}
		b.WriteString("\x1b[K" + line + "\n")
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

// Clear removes the last text, before the full one is printed.
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

package main

import (
	"fmt"
	"io"
	"strings"
	"unicode/utf8"
)

// terminalLine is a line of a terminal that is redrawn. Without a terminal, it prints nothing.
type terminalLine struct {
	w     io.Writer // nil without a terminal
	shown bool
}

func newTerminalLine(a *app) terminalLine {
	if a.Terminal {
		return terminalLine{w: a.Stderr}
	}
	return terminalLine{}
}

func (l *terminalLine) write(text string) {
	fmt.Fprint(l.w, "\r\x1b[K"+text)
	l.shown = true
}

// end keeps the last line.
func (l *terminalLine) end() {
	if l.shown {
		fmt.Fprintln(l.w)
	}
}

// bar draws a bar with a number of characters, of which a part from 0 to 1 is full.
func bar(part float64, width int) string {
	full := int(part * float64(width))
	return "[" + strings.Repeat("#", full) + strings.Repeat(".", width-full) + "]"
}

// screen redraws a text in place. Its lines fit the width of a usual terminal, so that each takes
// one row.
type screen struct {
	w     io.Writer // nil without a terminal
	lines int
}

// The size of the part of a terminal that is drawn. A text that is higher than the terminal could
// not be redrawn.
const (
	screenWidth = 118
	screenLines = 40
)

func newScreen(a *app) *screen {
	if a.Terminal {
		return &screen{w: a.Stderr}
	}
	return &screen{}
}

func (s *screen) show(text string) {
	if s.w == nil {
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
	_, _ = io.WriteString(s.w, b.String())
}

func (s *screen) up(b *strings.Builder) {
	if s.lines > 0 {
		fmt.Fprintf(b, "\x1b[%dA", s.lines)
	}
}

// clear removes the last text, before the full one is printed.
func (s *screen) clear() {
	if s.w == nil || s.lines == 0 {
		return
	}
	var b strings.Builder
	s.up(&b)
	b.WriteString("\x1b[J")
	_, _ = io.WriteString(s.w, b.String())
	s.lines = 0
}

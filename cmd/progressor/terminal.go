package main

import (
	"fmt"
	"io"
	"strings"
	"unicode/utf8"
)

// terminalLine is a line of a terminal that is written again and again. Elsewhere it shows nothing.
type terminalLine struct {
	w     io.Writer // nil: no terminal
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

// end leaves the last line as it is.
func (l *terminalLine) end() {
	if l.shown {
		fmt.Fprintln(l.w)
	}
}

// bar is a bar of so many characters, part of which is full: 0 to 1.
func bar(part float64, width int) string {
	full := int(part * float64(width))
	return "[" + strings.Repeat("#", full) + strings.Repeat(".", width-full) + "]"
}

// screen draws a text over the one before. It keeps to the width that every terminal has, so that no line takes two rows.
type screen struct {
	w     io.Writer // nil: no terminal
	lines int
}

// The part of a terminal that is drawn on: a screen that is higher cannot be drawn over.
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

// clear takes away what was drawn last: what follows says it in full.
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

package cli

import (
	"strings"
	"time"

	"github.com/progressor-engine/progressor/cmd/progressor/internal/cli/output"
)

// ColorFlag selects whether output has colors. All commands have it.
type ColorFlag struct {
	Color string `enum:"auto,always,never" default:"auto" placeholder:"MODE" help:"Colors: always, never, or auto (on a terminal, unless $$NO_COLOR is set). Default: ${default}, or $$PROGRESSOR_COLOR."`
}

const (
	colorFlag   = "color"
	colorAuto   = "auto"
	colorAlways = "always"
	colorNever  = "never"
)

// colorOf returns the color mode of a command line. The command line may be invalid, because the
// error about it also has colors.
func colorOf(args []string, getenv func(string) (string, bool)) string {
	mode := colorAuto
	if getenv != nil {
		if v, _ := getenv(EnvName(colorFlag)); v != "" {
			mode = v
		}
	}
	for i, arg := range args {
		if value, ok := strings.CutPrefix(arg, "--"+colorFlag+"="); ok {
			mode = value
		} else if arg == "--"+colorFlag && i+1 < len(args) {
			mode = args[i+1]
		}
	}
	return mode
}

// style returns the style of a stream. size is nil unless the stream is a terminal.
func (m Main) style(color string, size func() (columns, lines int)) output.Style {
	s := output.Style{Colors: color == colorAlways, Size: size}
	if size == nil {
		return s
	}
	if s.Zone = m.Zone; s.Zone == nil {
		s.Zone = time.UTC
	}
	if color == colorAuto {
		noColor, _ := m.Getenv("NO_COLOR")
		term, _ := m.Getenv("TERM")
		s.Colors = noColor == "" && term != "dumb"
	}
	return s
}

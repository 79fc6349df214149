package cli

import (
	"errors"
	"fmt"
	"os"
	"regexp"
	"slices"
	"strings"

	"github.com/alecthomas/kong"

	"github.com/progressor-engine/progressor/cmd/progressor/internal/cli/output"
	"github.com/progressor-engine/progressor/internal/spelling"
)

var noDuration = regexp.MustCompile(`expected duration but got ("(?:[^"\\]|\\.)*"): .*?( \(from .*\))?$`)

// plainError rewords errors of the command line parser: it shows the format of durations, similar
// names, and how to pass a file.
func plainError(err error, parser *kong.Kong, at *kong.ParseError) error {
	if at != nil {
		if wrong, ok := errors.AsType[valueError](at); ok {
			return wrong
		}
	}
	text := noDuration.ReplaceAllString(err.Error(), "must be a duration with a unit, such as 30s or 1h (got $1)$2")
	if at == nil || strings.Contains(text, "did you mean") {
		return errors.New(text)
	}
	node := parser.Model.Node
	if selected := at.Context.Selected(); selected != nil {
		node = selected
	}
	var known []string
	unknown, isFlag := strings.CutPrefix(text, "unknown flag ")
	command, isCommand := strings.CutPrefix(text, "unexpected argument ")
	switch {
	case isFlag:
		for _, group := range node.AllFlags(true) {
			for _, flag := range group {
				known = append(known, "--"+flag.Name)
			}
		}
	case isCommand && len(node.Children) == 0:
		return fmt.Errorf("%s%s", text, hint(node, command))
	case isCommand:
		unknown = command
		for _, child := range node.Children {
			if child.Type == kong.CommandNode {
				known = append(known, child.Name)
			}
		}
	}
	if len(known) == 0 {
		return errors.New(text)
	}
	nearest := spelling.Nearest(unknown, known)
	if spelling.Distance(unknown, nearest) > len(unknown)/2 {
		return fmt.Errorf("%s; see %s --help", text, strings.TrimSpace("progressor "+node.Path()))
	}
	return fmt.Errorf("%s; did you mean %s?", text, nearest)
}

// hint returns the flag for which an unexpected argument was probably meant, or "" if it is
// unknown.
func hint(command *kong.Node, argument string) string {
	for _, f := range command.Flags {
		_, err := os.Stat(argument)
		switch {
		case f.Short == 'f' && (err == nil || f.Required):
			return "; pass a file with -f " + argument
		case slices.Contains([]string{"args", "payload", "result"}, f.Name):
			return fmt.Sprintf("; pass the %s with --%s %s", f.Name, f.Name, output.ShellWord(argument))
		}
	}
	return ""
}

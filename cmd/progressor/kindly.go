package main

import (
	"errors"
	"fmt"
	"os"
	"regexp"
	"slices"
	"strings"

	"github.com/alecthomas/kong"
)

var noDuration = regexp.MustCompile(`expected duration but got ("(?:[^"\\]|\\.)*"): .*?( \(from .*\))?$`)

// kindly says in other words what the parser of the command line found wrong: what a duration looks like, what is nearest to a name that
// nobody knows, and how a file is named.
func kindly(err error, parser *kong.Kong, at *kong.ParseError) error {
	if at != nil {
		if wrong, ok := errors.AsType[valueError](at); ok {
			return wrong
		}
	}
	text := noDuration.ReplaceAllString(err.Error(), "want a duration with a unit, such as 30s or 1h, got $1$2")
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
		if _, err := os.Stat(command); err == nil && takesFile(node) {
			return fmt.Errorf("%s; a file is named by -f %s", text, command)
		}
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
	nearest := slices.MinFunc(known, func(a, b string) int { return distance(unknown, a) - distance(unknown, b) })
	if distance(unknown, nearest) > len(unknown)/2 {
		return fmt.Errorf("%s; %s --help lists those that there are", text, strings.TrimSpace("progressor "+node.Path()))
	}
	return fmt.Errorf("%s; the nearest is %s", text, nearest)
}

func takesFile(command *kong.Node) bool {
	return slices.ContainsFunc(command.Flags, func(f *kong.Flag) bool { return f.Short == 'f' })
}

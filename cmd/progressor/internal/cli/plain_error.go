package cli

import (
	"errors"
	"fmt"
	"math"
	"math/big"
	"os"
	"regexp"
	"slices"
	"strconv"
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
	text := plainValue(err.Error())
	if at == nil {
		return errors.New(text)
	}
	node := parser.Model.Node
	if selected := at.Context.Selected(); selected != nil {
		node = selected
	}
	text = kongSuggestion.ReplaceAllString(text, "")
	if unknown, ok := strings.CutPrefix(text, "unknown flag "); ok {
		return fmt.Errorf("%s; %s", text, flagSuggestion(node, strings.TrimLeft(unknown, "-")))
	}
	argument, ok := strings.CutPrefix(text, "unexpected argument ")
	switch {
	case !ok:
		return errors.New(text)
	case len(node.Children) == 0:
		return fmt.Errorf("%s%s", text, hint(node, argument))
	}
	return fmt.Errorf("%s; %s", text, commandSuggestion(node, argument))
}

// kongSuggestion matches the suggestion of kong. Its names may differ in every letter.
var kongSuggestion = regexp.MustCompile(`, did you mean (one of )?".*"\?$`)

// noNumber matches the error of kong for a value that is not a number, or is too large.
var noNumber = regexp.MustCompile(
	`expected a (?:valid (\d+) bit (u?int)|float) but got "((?:[^"\\]|\\.)*)"(?: \(string\))?`)

// plainValue rewords an error about the value of a flag or argument.
func plainValue(text string) string {
	text = noDuration.ReplaceAllString(text, "must be a duration with a unit, such as 30s or 1h (got $1)$2")
	return noNumber.ReplaceAllStringFunc(text, func(found string) string {
		m := noNumber.FindStringSubmatch(found)
		bits, _ := strconv.Atoi(m[1])
		_, whole := new(big.Int).SetString(m[3], 10)
		switch {
		case m[2] == "":
			return fmt.Sprintf("must be a number, such as 0.5 (got %q)", m[3])
		case !whole:
			return fmt.Sprintf("must be a whole number (got %q)", m[3])
		case m[2] == "uint":
			return fmt.Sprintf("must be a whole number from 0 to %d (got %s)", uint64(math.MaxUint64)>>(64-bits), m[3])
		}
		most := int64(math.MaxInt64) >> (64 - bits)
		return fmt.Sprintf("must be a whole number from %d to %d (got %s)", -most-1, most, m[3])
	})
}

// flagSuggestion suggests a flag of a command for an unknown one.
func flagSuggestion(command *kong.Node, unknown string) string {
	var known []string
	for _, group := range command.AllFlags(true) {
		for _, flag := range group {
			known = append(known, flag.Name)
		}
	}
	if similar := spelling.Similar(unknown, known); similar != "" {
		return "did you mean --" + similar + "?"
	}
	return seeHelp(command)
}

// verbs contains groups of verbs that other programs use for the same command.
var verbs = [][]string{
	{"create", "put", "add", "new", "set", "apply", "insert", "enqueue", "start", "update"},
	{"delete", "remove", "rm", "del", "revoke", "end", "erase"},
	{"get", "show", "describe", "info", "inspect", "print"},
	{"list", "ls"},
	{"cancel", "stop", "kill", "abort", "terminate"},
	{"update", "edit", "modify", "change", "put"},
	{"resume", "unpause", "continue"},
	{"pause", "suspend"},
}

// commandSuggestion suggests a subcommand for an unknown one: one with the same meaning, or one
// that is spelled similarly.
func commandSuggestion(parent *kong.Node, unknown string) string {
	var known []string
	for _, child := range parent.Children {
		if child.Type == kong.CommandNode {
			known = append(known, child.Name)
		}
	}
	for _, group := range verbs {
		if !slices.Contains(group, unknown) {
			continue
		}
		for _, verb := range group {
			if slices.Contains(known, verb) {
				return "did you mean " + verb + "?"
			}
		}
	}
	if similar := spelling.Similar(unknown, known); similar != "" {
		return "did you mean " + similar + "?"
	}
	return seeHelp(parent)
}

func seeHelp(command *kong.Node) string {
	return fmt.Sprintf("see %s --help", strings.TrimSpace("progressor "+command.Path()))
}

// hint returns the flag for which an unexpected argument was probably meant, or "" if it is
// unknown.
func hint(command *kong.Node, argument string) string {
	_, err := strconv.ParseInt(argument, 10, 64)
	isNumber := err == nil
	for _, f := range command.Flags {
		_, err := os.Stat(argument)
		switch {
		case f.Short == 'f' && (err == nil || f.Required):
			return "; pass a file with -f " + argument
		case f.Name == "task" && isNumber:
			return "; pass the task with --task " + argument
		case slices.Contains([]string{"args", "payload", "result"}, f.Name):
			return fmt.Sprintf("; pass the %s with --%s %s", f.Name, f.Name, output.ShellWord(argument))
		}
	}
	return ""
}

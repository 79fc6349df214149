package commands_test

import (
	"testing"

	"github.com/alecthomas/kong"

	"github.com/progressor-engine/progressor/cmd/progressor/internal/cli"
	"github.com/progressor-engine/progressor/cmd/progressor/internal/cli/commands"
)

// For the name of a command, New returns a smaller tree, except for version and completion. The
// command is the same in this tree as in the tree of all commands.
func TestCommandsOfOneSubject(t *testing.T) {
	t.Parallel()
	all := parse(t, "")
	for _, want := range all.Children {
		some := parse(t, want.Name)
		if len(some.Children) >= len(all.Children) && want.Name != "version" && want.Name != "completion" {
			t.Errorf("%s: all %d commands", want.Name, len(some.Children))
		}
		var got string
		for _, child := range some.Children {
			if child.Name == want.Name {
				got = describe(child)
			}
		}
		if got != describe(want) {
			t.Errorf("%s: got %s, want %s", want.Name, got, describe(want))
		}
	}
	if some := parse(t, "unknown"); len(some.Children) != len(all.Children) {
		t.Errorf("a name that is not a command: %d commands, want %d", len(some.Children), len(all.Children))
	}
}

func parse(t *testing.T, name string) *kong.Application {
	t.Helper()
	parser, err := cli.Main{Commands: func(string) any { return commands.New(name) }}.Parser()
	if err != nil {
		t.Fatal(err)
	}
	return parser.Model
}

// describe returns the texts of a command and its subcommands.
func describe(node *kong.Node) string {
	text := node.FullPath() + ": " + node.Help + node.Detail
	for _, group := range node.AllFlags(false) {
		for _, flag := range group {
			text += " " + flag.String() + " " + flag.Help
		}
	}
	for _, child := range node.Children {
		text += "\n" + describe(child)
	}
	return text
}

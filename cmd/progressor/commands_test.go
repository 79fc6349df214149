package main

import (
	"os"
	"strings"
	"testing"

	"github.com/alecthomas/kong"

	"github.com/progressor-engine/progressor/cmd/progressor/internal/cli"
	"github.com/progressor-engine/progressor/cmd/progressor/internal/cli/clitest"
)

// Every command has a help text with an example, and the help of a flag has its default.
func TestEveryCommandIsDocumented(t *testing.T) {
	parser, err := cli.Main{Commands: newCommands, Stdout: os.Stdout, Stderr: os.Stderr}.Parser()
	if err != nil {
		t.Fatal(err)
	}
	for _, leaf := range parser.Model.Leaves(true) {
		path := commandPath(leaf)
		if !strings.Contains(leaf.Detail, "progressor "+path) {
			t.Errorf("%s: its help has no example", path)
		}
		for _, flag := range leaf.Flags {
			if !flag.Hidden && !strings.Contains(flag.Help, flag.Default) {
				t.Errorf("%s: the help of --%s does not name its default %s", path, flag.Name, flag.Default)
			}
		}
	}
}

func commandPath(node *kong.Node) string {
	if node.Parent == nil || node.Parent.Type == kong.ApplicationNode {
		return node.Name
	}
	return commandPath(node.Parent) + " " + node.Name
}

func TestHelpVersionAndCompletion(t *testing.T) {
	p := clitest.Program{Commands: newCommands}
	clitest.WantLines(t, p.OK(t, "--help"), "progressor <command>", "Jobs and workers:", "namespace (ns) ")
	clitest.WantLines(t, p.OK(t, "job", "--help"), "job enqueue ", "job list ")
	clitest.WantLines(t, p.OK(t, "serve", "--help"), "$PROGRESSOR_DB_DSN")
	clitest.WantLines(t, p.OK(t, "version"), "progressor ")
	for _, shell := range []string{"bash", "zsh", "fish", "powershell"} {
		clitest.WantLines(t, p.OK(t, "completion", shell),
			"# Completion of progressor for ", "progressor __complete="+shell)
	}
	if r := p.Run(t); r.Code != cli.ExitUsage || !strings.Contains(r.Stdout, "Usage:") {
		t.Errorf("%+v", r)
	}
	if r := p.Run(t, "stat"); r.Code != cli.ExitUsage || !strings.Contains(r.Stderr, "did you mean start?") {
		t.Errorf("%+v", r)
	}
	if r := p.Run(t, "get", "demo"); r.Code != cli.ExitUsage ||
		!strings.Contains(r.Stderr, `expected "<id>", for example: progressor get <ns> <id>`) {
		t.Errorf("%+v", r)
	}
}

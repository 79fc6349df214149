package main

import (
	"os"
	"strings"
	"testing"

	"github.com/progressor-engine/progressor/cmd/progressor/internal/cli"
	"github.com/progressor-engine/progressor/storage/storagetest"
)

// words splits a line like a shell. It supports only single quotes.
func words(line string) (list []string) {
	for n, part := range strings.Split(line, "'") {
		if n%2 == 1 {
			list = append(list, part)
			continue
		}
		list = append(list, strings.Fields(part)...)
	}
	return list
}

// The examples of --help for processes and jobs work on the namespaces of progressor dev, in the
// order in which a new user reads them.
func TestHelpExamples(t *testing.T) {
	t.Parallel()
	d := background(t, nil, "serve", "--listen", "127.0.0.1:0", "--db.dsn", storagetest.DSN(t))
	d.Client.OK(t, "namespace", "put", "demo", "--builtin", "orders")
	d.Client.OK(t, "namespace", "put", "echo", "--builtin", "echo")
	parser, err := cli.Main{Commands: newCommands, Stdout: os.Stdout, Stderr: os.Stderr}.Parser()
	if err != nil {
		t.Fatal(err)
	}
	helps := map[string]string{}
	for _, leaf := range parser.Model.Leaves(true) {
		helps[commandPath(leaf)] = leaf.Detail
	}
	ran := 0
	for _, path := range []string{
		"start", "call", "get", "put", "suspend", "restart-history", "cancel", "remove", "bulk start", "errors",
		"job enqueue", "job get", "job update", "job list", "job cancel", "job result", "job retry",
	} {
		help, ok := helps[path]
		if !ok {
			t.Errorf("the command %s does not exist", path)
		}
		for line := range strings.Lines(help) {
			line, example := strings.CutPrefix(strings.TrimRight(line, "`\n"), "    progressor ")
			left, right, piped := strings.Cut(line, " | progressor ")
			if !example || strings.ContainsAny(line, "@>") && !strings.Contains(line, "created_time") ||
				strings.Contains(line, ".json") || strings.Contains(line, ".ndjson") {
				continue
			}
			ran++
			out := d.Client.OK(t, words(left)...)
			if piped {
				p := d.Client
				p.Stdin = out
				p.OK(t, words(right)...)
			}
		}
	}
	if ran < 30 {
		t.Errorf("%d examples ran, want at least 30", ran)
	}
}

package main

import (
	"io"
	"strings"
	"testing"

	"github.com/progressor-engine/progressor/cmd/progressor/internal/cli"
	"github.com/progressor-engine/progressor/cmd/progressor/internal/cli/clitest"
)

// Flags with the same name have the same meaning in all commands: the timeouts of waits and of
// attempts have different names.
func TestTimeoutsHaveOneMeaning(t *testing.T) {
	parser, err := cli.Main{Commands: newCommands, Stdout: io.Discard, Stderr: io.Discard}.Parser()
	if err != nil {
		t.Fatal(err)
	}
	helps := map[string][]string{
		"timeout":      {"Timeout of an attempt.", "Timeout of a run,"},
		"wait-timeout": {"How long to wait", "Maximum duration of --wait."},
	}
	found := map[string]int{}
	for _, leaf := range parser.Model.Leaves(false) {
		for _, flag := range leaf.Flags {
			begins, ok := helps[flag.Name]
			if !ok {
				continue
			}
			found[flag.Name]++
			known := false
			for _, begin := range begins {
				known = known || strings.HasPrefix(flag.Help, begin)
			}
			if !known {
				t.Errorf("%s --%s: %s", leaf.Path(), flag.Name, flag.Help)
			}
		}
	}
	if len(found) != len(helps) {
		t.Errorf("found %v", found)
	}
	for _, args := range []string{"call demo o-1 --timeout 30", "await demo o-1 --task 1 --timeout 30"} {
		r := (clitest.Program{Commands: newCommands}).Run(t, strings.Fields(args)...)
		if !strings.Contains(r.Stderr, "--wait-timeout: must be a duration") {
			t.Errorf("%s: %s", args, r.Stderr)
		}
	}
}

package main

import (
	"io"
	"os"
	"regexp"
	"strings"
	"testing"

	"github.com/progressor-engine/progressor/cmd/progressor/internal/cli"
	"github.com/progressor-engine/progressor/cmd/progressor/internal/cli/commands"
)

// docs/cli.md is up to date.
func TestPage(t *testing.T) {
	want, err := render()
	if err != nil {
		t.Fatal(err)
	}
	got, err := os.ReadFile("../../../../docs/cli.md")
	if err != nil {
		t.Fatal(err)
	}
	if string(got) != want {
		t.Error("docs/cli.md is out of date: run make generate")
	}
}

// The commands of a section belong to one group of --help.
func TestSectionsEqualGroups(t *testing.T) {
	parser, err := cli.Main{Commands: commands.New, Stdout: io.Discard, Stderr: io.Discard}.Parser()
	if err != nil {
		t.Fatal(err)
	}
	groups := map[string]string{}
	for _, child := range parser.Model.Children {
		if child.Group != nil {
			groups[child.Name] = child.Group.Key
		}
	}
	for section := range strings.SplitSeq(pageTemplate, "\n## ") {
		title, _, _ := strings.Cut(section, "\n")
		group := ""
		for _, m := range regexp.MustCompile(`\{\{command "([a-z-]+)`).FindAllStringSubmatch(section, -1) {
			of := groups[m[1]]
			if group == "" {
				group = of
			}
			if of == "" || of != group {
				t.Errorf("section %s: %s is in group %q, not %q", title, m[1], of, group)
			}
		}
	}
}

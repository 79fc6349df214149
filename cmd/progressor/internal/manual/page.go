package main

import (
	_ "embed"
	"fmt"
	"io"
	"regexp"
	"slices"
	"strings"
	"text/template"

	"github.com/alecthomas/kong"

	"github.com/progressor-engine/progressor/cmd/progressor/internal/cli"
	"github.com/progressor-engine/progressor/cmd/progressor/internal/cli/commands"
)

// pageTemplate is the hand-written part of the page.
//
//go:embed cli.md.tmpl
var pageTemplate string

// sharedCommand is a command with all sharedFlags. These are the flags that nearly all commands
// have. The page describes them once.
const sharedCommand = "get"

var sharedFlags = []string{
	"address", "token", "token-file", "login-file", "output",
	"tls.ca-file", "tls.client-cert-file", "tls.client-key-file", "tls.server-name", "decode", "color",
}

// page is docs/cli.md.
type page struct {
	nodes     map[string]*kong.Node // by the words of the command, such as "job list"
	described map[string]bool
}

// render returns the content of docs/cli.md.
func render() (string, error) {
	parser, err := cli.Main{Commands: commands.New, Stdout: io.Discard, Stderr: io.Discard}.Parser()
	if err != nil {
		return "", fmt.Errorf("parse the commands: %w", err)
	}
	p := &page{nodes: map[string]*kong.Node{}, described: map[string]bool{}}
	for _, leaf := range parser.Model.Leaves(true) {
		p.nodes[words(leaf)] = leaf
	}
	functions := template.FuncMap{"command": p.command, "shared": p.shared,
		"contents": func() string { return contents }}
	parsed, err := template.New("cli.md.tmpl").Funcs(functions).Parse(pageTemplate)
	if err != nil {
		return "", err
	}
	var text strings.Builder
	if err := parsed.Execute(&text, nil); err != nil {
		return "", err
	}
	for command := range p.nodes {
		if !p.described[command] {
			return "", fmt.Errorf("cli.md.tmpl: add {{command %q}}", command)
		}
	}
	return p.withContents(text.String()), nil
}

// words returns the words of a command, without the name of the program.
func words(node *kong.Node) string {
	if node.Parent == nil || node.Parent.Type == kong.ApplicationNode {
		return node.Name
	}
	return words(node.Parent) + " " + node.Name
}

// contents is replaced by the table of the commands in its section.
const contents = "<!-- commands of the section -->"

var headingOfCommand = regexp.MustCompile(`(?m)^### progressor (.*)$`)

// withContents replaces contents in each section with a table of the commands there.
func (p *page) withContents(text string) string {
	sections := strings.Split(text, "\n## ")
	for i, section := range sections {
		rows := []string{"| command | |", "|---|---|"}
		for _, heading := range headingOfCommand.FindAllStringSubmatch(section, -1) {
			rows = append(rows, fmt.Sprintf("| %s | %s |", link(heading[1]), cell(p.nodes[heading[1]].Help)))
		}
		sections[i] = strings.Replace(section, contents, strings.Join(rows, "\n"), 1)
	}
	return strings.Join(sections, "\n## ")
}

// link returns a link to the heading of a command.
func link(command string) string {
	return "[`" + command + "`](#progressor-" + strings.ReplaceAll(command, " ", "-") + ")"
}

// command returns the description of a command: its heading, help, usage, arguments and flags.
// Flags that a command in like describes in the same words are listed only by name.
func (p *page) command(command string, like ...string) (string, error) {
	node := p.nodes[command]
	if node == nil {
		return "", fmt.Errorf("there is no command %q", command)
	}
	p.described[command] = true
	var b strings.Builder
	fmt.Fprintf(&b, "### progressor %s\n\n%s`progressor %s`\n", command, help(node.Detail), node.Summary())
	flags := p.without(node.Flags, sharedCommand, sharedFlags)
	equal := []string{alike("[all commands](#what-all-commands-share)", node.Flags, flags)}
	for _, other := range like {
		if p.nodes[other] == nil {
			return "", fmt.Errorf("there is no command %q", other)
		}
		own := p.without(flags, other, nil)
		equal = append(equal, p.alikeCommand(other, flags, own))
		flags = own
	}
	b.WriteString(table(node.Positional, flags))
	if text := wrap(strings.Join(equal, " ")); text != "\n" {
		b.WriteString("\n" + text)
	}
	return strings.TrimSuffix(b.String(), "\n"), nil
}

// shared returns the table of the flags that nearly all commands have.
func (p *page) shared() (string, error) {
	var flags []*kong.Flag
	node := p.nodes[sharedCommand]
	for _, flag := range slices.Concat(node.Flags, node.Parent.Flags) {
		if slices.Contains(sharedFlags, flag.Name) {
			flags = append(flags, flag)
		}
	}
	if len(flags) != len(sharedFlags) {
		return "", fmt.Errorf("%s does not have all of %v", sharedCommand, sharedFlags)
	}
	return strings.Trim(table(nil, flags), "\n"), nil
}

// without returns the visible flags that the command other does not describe in the same words. If
// names is not nil, only flags with these names are left out.
func (p *page) without(flags []*kong.Flag, other string, names []string) []*kong.Flag {
	same := map[string]bool{}
	for _, flag := range p.nodes[other].Flags {
		if names == nil || slices.Contains(names, flag.Name) {
			same[row(flag)] = true
		}
	}
	return slices.DeleteFunc(slices.Clone(flags), func(flag *kong.Flag) bool {
		return flag.Hidden || same[row(flag)]
	})
}

// alikeCommand returns a sentence with the flags that the command other describes, or "".
func (p *page) alikeCommand(other string, flags, own []*kong.Flag) string {
	all := p.without(p.nodes[other].Flags, sharedCommand, sharedFlags)
	if len(flags)-len(own) == len(all) {
		return fmt.Sprintf("It has all flags of %s.", link(other))
	}
	return alike(link(other), flags, own)
}

// alike returns a sentence about the flags that another section describes, or "".
func alike(place string, flags, own []*kong.Flag) string {
	var names []string
	for _, flag := range flags {
		if !flag.Hidden && !slices.Contains(own, flag) {
			names = append(names, "`--"+flag.Name+"`")
		}
	}
	if len(names) == 0 {
		return ""
	}
	return fmt.Sprintf("As in %s: %s.", place, strings.Join(names, ", "))
}

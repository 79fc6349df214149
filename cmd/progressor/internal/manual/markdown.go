package main

import (
	"fmt"
	"regexp"
	"strings"
	"unicode/utf8"

	"github.com/alecthomas/kong"

	"github.com/progressor-engine/progressor/cmd/progressor/internal/cli"
)

// columns is the column at which lines of text are wrapped.
const columns = 100

// indented begins the lines of an example in a help text.
const indented = "    "

// help returns a help text as Markdown: paragraphs, and examples as code.
func help(text string) string {
	var b strings.Builder
	for block := range strings.SplitSeq(strings.TrimSpace(text), "\n\n") {
		if !strings.HasPrefix(block, indented) {
			b.WriteString(wrap(prose(block)) + "\n")
			continue
		}
		b.WriteString("```\n")
		for line := range strings.SplitSeq(block, "\n") {
			b.WriteString(strings.TrimPrefix(line, indented) + "\n")
		}
		b.WriteString("```\n\n")
	}
	return b.String()
}

// flagInProse matches a flag such as --wait-timeout, or -o json.
var flagInProse = regexp.MustCompile(`(^|[\s(])(--[a-z][a-z0-9.-]*[a-z0-9]|-o json)`)

// prose escapes a text for Markdown, and marks flags as code.
func prose(text string) string {
	text = strings.NewReplacer("<", `\<`, ">", `\>`, "*", `\*`).Replace(text)
	return flagInProse.ReplaceAllString(text, "$1`$2`")
}

// cell returns a text for a cell of a table.
func cell(text string) string { return strings.ReplaceAll(prose(text), "|", `\|`) }

// code returns a text as code in a cell of a table.
func code(text string) string { return "`" + strings.ReplaceAll(text, "|", `\|`) + "`" }

// table returns the table of the arguments and the flags of a command, or "".
func table(arguments []*kong.Positional, flags []*kong.Flag) string {
	var b strings.Builder
	switch {
	case len(arguments)+len(flags) == 0:
		return ""
	case len(flags) == 0:
		b.WriteString("\n| argument | |\n|---|---|\n")
	case len(arguments) == 0:
		b.WriteString("\n| flag | |\n|---|---|\n")
	default:
		b.WriteString("\n| argument or flag | |\n|---|---|\n")
	}
	for _, argument := range arguments {
		fmt.Fprintf(&b, "| %s | %s |\n", code(argument.Summary()), cell(argument.Help))
	}
	for _, flag := range flags {
		b.WriteString(row(flag))
	}
	return b.String()
}

// row returns the row of a flag.
func row(flag *kong.Flag) string {
	name := "--" + flag.Name
	if flag.Tag.Negatable != "" {
		name = "--[no-]" + flag.Name
	}
	if !flag.IsBool() {
		name += "=" + flag.FormatPlaceHolder()
	}
	names := code(name)
	if flag.Short != 0 {
		names = code("-"+string(flag.Short)) + ", " + names
	}
	return fmt.Sprintf("| %s | %s |\n", names, cell(cli.FlagHelp(flag.Value)))
}

// wrap breaks a text at spaces into lines of at most columns columns.
func wrap(text string) string {
	var b strings.Builder
	width := 0
	for _, word := range strings.Fields(text) {
		length := utf8.RuneCountInString(word)
		switch {
		case width == 0:
		case width+1+length > columns:
			b.WriteByte('\n')
			width = 0
		default:
			b.WriteByte(' ')
			width++
		}
		b.WriteString(word)
		width += length
	}
	return b.String() + "\n"
}

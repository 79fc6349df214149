package cli

import (
	"fmt"
	"strings"

	"github.com/alecthomas/kong"
)

// CompletionCmd prints a completion script.
type CompletionCmd struct {
	Shell string `arg:"" enum:"bash,zsh" help:"bash or zsh."`
}

// Help describes the command.
func (CompletionCmd) Help() string {
	return `Completion prints a script that completes commands and flags in a shell.

    source <(progressor completion bash)                                                        # in this shell
    echo 'source <(progressor completion bash)' >> ~/.bashrc                                    # bash, in new shells
    echo 'autoload -Uz compinit && compinit && source <(progressor completion zsh)' >> ~/.zshrc # zsh, in new shells`
}

// Run runs the command.
func (c *CompletionCmd) Run(a *App) error {
	var b strings.Builder
	if c.Shell == "zsh" {
		b.WriteString("autoload -Uz bashcompinit && bashcompinit\n")
	}
	b.WriteString(`_progressor() {
  local word path="" words
  for word in "${COMP_WORDS[@]:1:COMP_CWORD-1}"; do
    case "$path $word" in
`)
	var cases strings.Builder
	addCompletions(a.kong.Model.Node, "", &b, &cases)
	b.WriteString(`    esac
  done
  case "$path" in
`)
	b.WriteString(cases.String())
	b.WriteString(`  esac
  COMPREPLY=($(compgen -W "$words" -- "${COMP_WORDS[COMP_CWORD]}"))
}
complete -o default -F _progressor progressor
`)
	_, err := fmt.Fprint(a.Stdout, b.String())
	return err
}

// addCompletions writes the cases of the script for a command and its subcommands.
func addCompletions(node *kong.Node, path string, steps, cases *strings.Builder) {
	var words []string
	for _, child := range node.Children {
		if child.Type != kong.CommandNode || child.Hidden {
			continue
		}
		words = append(words, child.Name)
		below := path + " " + child.Name
		fmt.Fprintf(steps, "      %q) path=%q ;;\n", below, below)
		addCompletions(child, below, steps, cases)
	}
	for _, flag := range node.Flags {
		if !flag.Hidden {
			words = append(words, "--"+flag.Name)
		}
	}
	fmt.Fprintf(cases, "    %q) words=%q ;;\n", path, strings.Join(words, " "))
}

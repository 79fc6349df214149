package cli

import (
	_ "embed"
	"fmt"
)

// The scripts call the program to get the words that can follow. See complete.go.
var (
	//go:embed completion/bash
	bashCompletion string
	//go:embed completion/zsh
	zshCompletion string
	//go:embed completion/fish
	fishCompletion string
	//go:embed completion/powershell
	powershellCompletion string
)

// CompletionCmd prints a completion script.
type CompletionCmd struct {
	Shell string `arg:"" enum:"bash,zsh,fish,powershell" help:"bash, zsh, fish or powershell."`
}

// Help describes the command.
func (CompletionCmd) Help() string {
	return `Completion prints a script that completes commands, flags and values in a shell: namespaces, IDs of
processes, jobs, runs, crons, templates, bulks, sinks and workers, statuses and other choices, and
files. The script asks an engine for the IDs, with the --address, login and token of the command
line or the environment. It waits for at most a second, and offers nothing if there is no answer.

In this shell:

    source <(progressor completion bash)                                    # bash
    source <(progressor completion zsh)                                     # zsh, after compinit
    progressor completion fish | source                                     # fish
    progressor completion powershell | Out-String | Invoke-Expression       # PowerShell

To load the script in each new shell:

    echo 'source <(progressor completion bash)' >> ~/.bashrc
    echo 'autoload -Uz compinit && compinit && source <(progressor completion zsh)' >> ~/.zshrc
    progressor completion fish > ~/.config/fish/completions/progressor.fish
    Add-Content $PROFILE 'progressor completion powershell | Out-String | Invoke-Expression'`
}

// Run runs the command.
func (c *CompletionCmd) Run(a *App) error {
	script := map[string]string{"bash": bashCompletion, "zsh": zshCompletion, "fish": fishCompletion,
		"powershell": powershellCompletion}[c.Shell]
	_, err := fmt.Fprint(a.Stdout, script)
	return err
}

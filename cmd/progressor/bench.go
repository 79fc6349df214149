package main

import "github.com/progressor-engine/progressor/internal/bench"

// benchCmd gives package bench what it needs of the program.
type benchCmd struct {
	bench.Command
	outputFlag
}

func (c *benchCmd) Run(a *app) error {
	ctx, cancel := a.interruptible()
	defer cancel()
	return c.Command.Run(ctx, bench.Environment{
		Stdin: a.Stdin, Stdout: a.Stdout, Stderr: a.Stderr, Terminal: a.Terminal, JSON: c.json(), Version: buildVersion(),
	})
}

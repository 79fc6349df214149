package main

import "github.com/progressor-engine/progressor/internal/bench"

// benchCmd passes the dependencies of the program to package bench.
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

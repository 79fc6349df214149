package server

import (
	"github.com/progressor-engine/progressor/cmd/progressor/internal/cli"
	"github.com/progressor-engine/progressor/internal/bench"
)

// benchCmd passes the dependencies of the program to package bench.
type benchCmd struct {
	bench.Command
	cli.OutputFlag
}

func (c *benchCmd) Run(a *cli.App) error {
	ctx, cancel := a.Interruptible()
	defer cancel()
	return c.Command.Run(ctx, bench.Environment{
		Stdin: a.Stdin, Stdout: a.Stdout, Stderr: a.Stderr, Terminal: a.Terminal, JSON: c.JSON(),
		Version: cli.BuildVersion(),
	})
}

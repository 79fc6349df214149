// Command progressor is the engine, its command line and its operator's tools in one binary: `progressor dev` runs
// everything, `progressor serve` an engine of a cluster; the other commands are clients of a running engine or look
// after its database.
package main

import (
	"context"
	"os"
	"os/signal"
	"syscall"

	"golang.org/x/term"
)

func main() {
	signals := make(chan os.Signal, 2)
	signal.Notify(signals, os.Interrupt, syscall.SIGTERM)
	m := Main{
		Stdin:    os.Stdin,
		Stdout:   os.Stdout,
		Stderr:   os.Stderr,
		Getenv:   os.LookupEnv,
		Signals:  signals,
		Terminal: term.IsTerminal(int(os.Stderr.Fd())),
	}
	os.Exit(m.Run(context.Background(), os.Args[1:]))
}

// Command progressor is the engine, its command line and its operator's tools in one binary: `progressor dev` runs
// everything, `progressor serve` an engine of a cluster; the other commands are clients of a running engine or look
// after its database.
package main

import (
	"context"
	"os"
	"os/signal"
	"runtime"
	"syscall"

	"golang.org/x/term"
)

// heapFloor is memory that is allocated and never touched: it costs no RAM, but the collector counts it, and so runs once for every
// 32 MiB of garbage instead of every 4 MiB. Without it a quarter of a busy engine's time went into collecting a small heap; a
// higher GOGC would do the same at the price of a multiple of what 10,000 waiting clients hold. (64 MiB were no quicker, and 24 MiB dearer
// with 1,000 calls in flight: 173 MiB instead of 149.)
const heapFloor = 32 << 20

func main() {
	floor := make([]byte, heapFloor)
	signals := make(chan os.Signal, 2)
	signal.Notify(signals, os.Interrupt, syscall.SIGTERM)
	m := Main{
		Stdin:    os.Stdin,
		Stdout:   os.Stdout,
		Stderr:   os.Stderr,
		Getenv:   os.LookupEnv,
		Environ:  os.Environ,
		Signals:  signals,
		Terminal: term.IsTerminal(int(os.Stderr.Fd())),
		Asks:     term.IsTerminal(int(os.Stderr.Fd())) && term.IsTerminal(int(os.Stdin.Fd())),
	}
	code := m.Run(context.Background(), os.Args[1:])
	runtime.KeepAlive(floor)
	os.Exit(code)
}

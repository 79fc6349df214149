package main

import (
	"context"
	"os"
	"os/signal"
	"runtime"
	"syscall"
	"time"

	_ "golang.org/x/crypto/x509roots/fallback" // public certificate authorities, for systems that have none
	"golang.org/x/term"

	"github.com/progressor-engine/progressor/cmd/progressor/internal/cli"
	"github.com/progressor-engine/progressor/cmd/progressor/internal/cli/commands"
)

// heapFloor is allocated but never touched. It uses no RAM, but the garbage collector counts it as
// heap, and therefore runs once per 32 MiB of garbage instead of once per 4 MiB. Without it, a busy
// engine spends a quarter of its time collecting a small heap. A higher GOGC would multiply the
// memory of 10,000 waiting clients. (64 MiB is not faster; 24 MiB needs 173 instead of 149 MiB with
// 1,000 calls in flight.)
const heapFloor = 32 << 20

func main() {
	floor := make([]byte, heapFloor)
	signals := make(chan os.Signal, 2)
	signal.Notify(signals, os.Interrupt, syscall.SIGTERM)
	stderr := sizeOf(os.Stderr)
	m := cli.Main{
		Commands:    commands.New,
		Stdin:       os.Stdin,
		Stdout:      os.Stdout,
		Stderr:      os.Stderr,
		Getenv:      os.LookupEnv,
		Environ:     os.Environ,
		Signals:     signals,
		Terminal:    stderr != nil,
		Interactive: stderr != nil && term.IsTerminal(int(os.Stdin.Fd())),
		Zone:        time.Local,

		StdoutSize: sizeOf(os.Stdout),
		StderrSize: stderr,
	}
	code := m.Run(context.Background(), os.Args[1:])
	runtime.KeepAlive(floor)
	os.Exit(code)
}

// sizeOf returns a function that returns the current size of a terminal, or zeros if the size is
// unknown. sizeOf returns nil if f is not a terminal.
func sizeOf(f *os.File) func() (columns, lines int) {
	if !term.IsTerminal(int(f.Fd())) {
		return nil
	}
	return func() (columns, lines int) {
		columns, lines, err := term.GetSize(int(f.Fd()))
		if err != nil {
			return 0, 0
		}
		return columns, lines
	}
}

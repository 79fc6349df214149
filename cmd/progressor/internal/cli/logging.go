package cli

import (
	"context"
	"errors"
	"log/slog"

	"github.com/lmittmann/tint"

	"github.com/progressor-engine/progressor/cmd/progressor/internal/cli/output"
)

// Logger returns a logger that writes to standard error, as text on a terminal and otherwise as
// JSON.
func (f LogFlags) Logger(a *App) *slog.Logger {
	var level slog.Level
	_ = level.UnmarshalText([]byte(f.Level)) // the flag allows only valid levels
	if f.Format == "json" || f.Format == "auto" && !a.Terminal {
		return slog.New(slog.NewJSONHandler(a.Stderr, &slog.HandlerOptions{Level: level}))
	}
	return slog.New(tint.NewTextHandler(a.Stderr, &tint.Options{
		Level: level, TimeFormat: "15:04:05.000", NoColor: !output.StyleOf(a.Stderr).Colors,
	}))
}

// UntilSignal runs f in a context that ends with the first signal. On a second signal, it returns
// without waiting for f.
func (a *App) UntilSignal(log *slog.Logger, f func(context.Context) error) error {
	ctx, cancel := context.WithCancel(a.ctx)
	defer cancel()
	done := make(chan error, 1)
	go func() { done <- f(ctx) }()
	for stopping := false; ; stopping = true {
		select {
		case err := <-done:
			return err
		case sig := <-a.Signals:
			if stopping {
				return &CodedError{Code: ExitInterrupted, Err: errors.New("second signal: exiting at once")}
			}
			log.Info("stopping: waiting for running tasks; a second signal exits at once", "signal", sig.String())
			cancel()
		}
	}
}

// LogFlags are the flags of the log.
type LogFlags struct {
	Level  string `default:"info" enum:"debug,info,warn,error" placeholder:"LEVEL" setting:"" help:"Log level: debug, info, warn or error. Default: ${default}."`
	Format string `default:"auto" enum:"auto,json,text" placeholder:"FORMAT" setting:"" help:"Log format: json, text, or auto (text on a terminal). Default: ${default}."`
}

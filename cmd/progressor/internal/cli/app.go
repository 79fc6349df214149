package cli

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/alecthomas/kong"

	"github.com/progressor-engine/progressor/cmd/progressor/internal/cli/output"
)

// Main is the program without global state. Its streams, variables and signals are fields, so that
// tests can run any command line.
type Main struct {
	// Commands returns a pointer to a new struct of commands, which kong parses. If name is a
	// command, the struct may lack the commands of other subjects.
	Commands    func(name string) any
	Stdin       io.Reader
	Stdout      io.Writer
	Stderr      io.Writer
	Getenv      func(name string) (value string, set bool)
	Environ     func() []string  // NAME=value
	Signals     <-chan os.Signal // SIGINT and SIGTERM: the first one asks to stop, the second one stops at once
	Terminal    bool             // Stderr is a terminal, so logs are written as text
	Interactive bool             // Stdin is also a terminal, so commands may ask questions
	Zone        *time.Location   // for times on a terminal

	StdoutSize, StderrSize func() (columns, lines int) // nil if it is not a terminal
}

// App is the context of a command, in addition to its flags.
type App struct {
	Main

	ctx      context.Context
	settings *settings

	interrupted chan struct{} // closed by the first signal that a client command gets
	interrupt   sync.Once
}

func newApp(ctx context.Context, m Main, color string) *App {
	m.Stdout = output.Stream{Writer: m.Stdout, Style: m.style(color, m.StdoutSize)}
	m.Stderr = output.Stream{Writer: m.Stderr, Style: m.style(color, m.StderrSize)}
	a := &App{Main: m, ctx: ctx, settings: newSettings(m.Getenv), interrupted: make(chan struct{})}
	a.settings.program = func() *kong.Application { return a.parser("").Model }
	return a
}

// stop is the panic value with the exit code when kong exits, for example after --help.
type stop int

// Run runs a command line without the program's name and returns its exit code (see docs/cli.md).
func (m Main) Run(ctx context.Context, args []string) (code int) {
	defer func() {
		if v := recover(); v != nil {
			s, ok := v.(stop)
			if !ok {
				panic(v)
			}
			code = int(s)
		}
	}()
	a := newApp(ctx, m, colorOf(args, m.Getenv))
	a.settings.environ = m.Environ
	if len(args) > 0 {
		if command, shell, _ := strings.Cut(args[0], "="); command == completeCommand {
			return a.complete(shell, args[1:])
		}
	}
	args = helpAliases(args)
	name := ""
	if len(args) > 0 {
		name = args[0]
	}
	parser := a.parser(name)
	parsed, err := parser.Parse(args)
	if err != nil {
		var parseErr *kong.ParseError
		if errors.As(err, &parseErr) && len(args) == 0 {
			_ = parseErr.Context.PrintUsage(false)
			return ExitUsage
		}
		err = plainError(a.settings.explain(err), parser, parseErr)
		if parseErr != nil && strings.HasPrefix(err.Error(), "expected ") && parseErr.Context.Selected() != nil {
			err = fmt.Errorf("%w, for example: progressor %s", err, parseErr.Context.Selected().Summary())
		}
		return a.fail(UsageError(err), commandLine{}, wantsJSON(args))
	}
	if err := a.decode(parsed); err != nil {
		return a.fail(UsageError(err), commandLine{}, wantsJSON(args))
	}
	if err := parsed.Run(a); err != nil {
		return a.fail(err, commandLine{parsed}, wantsJSON(args))
	}
	return ExitOK
}

// decode applies --decode to standard output.
func (a *App) decode(parsed *kong.Context) error {
	set := map[string]any{}
	for _, flag := range parsed.Flags() {
		set[flag.Name] = parsed.FlagValue(flag)
	}
	stdout, ok := a.Stdout.(output.Stream)
	if stdout.Decode = set["decode"] == true; stdout.Decode && set["output"] != "json" {
		return errors.New("--decode: requires -o json")
	}
	if ok {
		a.Stdout = stdout
	}
	return nil
}

func helpAliases(args []string) []string {
	switch {
	case len(args) > 0 && args[0] == "help":
		return append(slices.Clone(args[1:]), "--help")
	case len(args) > 0 && args[0] == "--version":
		return append([]string{"version"}, args[1:]...)
	}
	return args
}

// Parser returns the parser of all commands. Its Model describes them, for example for docs/cli.md.
func (m Main) Parser() (*kong.Kong, error) {
	return newParser(newApp(context.Background(), m, colorNever), m.Commands(""))
}

// parser returns a parser for a command, or for all commands if name is not a command.
func (a *App) parser(name string) *kong.Kong {
	parser, err := newParser(a, a.Commands(name))
	if err != nil {
		panic(err) // a mistake in the tags of commands
	}
	return parser
}

func newParser(a *App, commands any) (*kong.Kong, error) {
	return kong.New(commands,
		kong.Name("progressor"),
		kong.Description("Durable processes on PostgreSQL. Start with: progressor dev"),
		kong.Writers(output.File(a.Stdout), output.File(a.Stderr)), // kong reads the terminal's width from the writer
		kong.Exit(func(code int) { panic(stop(code)) }),
		kong.ConfigureHelp(kong.HelpOptions{Compact: true, NoExpandSubcommands: true, WrapUpperBound: 110}),
		kong.ValueFormatter(FlagHelp),
		kong.Groups{
			"process": "Processes:", "job": "Jobs and workers:", "cron": "Crons:", "flow": "Flows:",
			"cluster": "State of the engines:", "namespace": "Namespaces and their changes:", "access": "Access:",
			"engine": "Engine and database:", "other": "Other:", "client": "Engine and output:",
		},
		kong.WithHyphenPrefixedParameters(true),
		kong.PostBuild(requireValues),
		kong.WithBeforeResolve(a.settings.load),
		kong.Resolvers(a.settings),
	)
}

// wantsJSON looks for -o json in the arguments, because errors about a command line that cannot be
// parsed also need an output format.
func wantsJSON(args []string) bool {
	for i, arg := range args {
		switch arg {
		case "-ojson", "-o=json", "--output=json":
			return true
		case "-o", "--output":
			return i+1 < len(args) && args[i+1] == "json"
		}
	}
	return false
}

// Interruptible returns a context that ends at the first signal, for client commands. A command may
// have several such contexts, for example one for a request and one for the wait that follows. The
// context that receives the signal notifies the others.
func (a *App) Interruptible() (context.Context, context.CancelFunc) {
	ctx, cancel := context.WithCancel(a.ctx)
	go func() {
		defer cancel()
		select {
		case <-a.Signals:
			a.interrupt.Do(func() { close(a.interrupted) })
		case <-a.interrupted:
		case <-ctx.Done():
		}
	}()
	return ctx, cancel
}

// FlagHelp returns the help of a flag, with the environment variable of a setting.
func FlagHelp(v *kong.Value) string {
	if !IsSetting(v) {
		return v.Help
	}
	return strings.TrimSuffix(v.Help, ".") + " ($" + EnvName(v.Name) + ")."
}

package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"
	"sync"

	"github.com/alecthomas/kong"
)

// Main is the program without its operating system process, so that tests can run any command line.
type Main struct {
	Stdin    io.Reader
	Stdout   io.Writer
	Stderr   io.Writer
	Getenv   func(name string) (value string, set bool)
	Environ  func() []string  // NAME=value
	Signals  <-chan os.Signal // SIGINT and SIGTERM: the first one asks to stop, the second one stops at once
	Terminal bool             // Stderr is a terminal: write logs as text
	Asks     bool             // Stdin is a terminal, too: the user can answer questions
}

// commands is the command line. Each command has its help and an example.
type commands struct {
	Dev     devCmd     `cmd:"" group:"engine" help:"Run an engine with a private PostgreSQL and demo namespaces."`
	Serve   serveCmd   `cmd:"" group:"engine" help:"Run an engine on your PostgreSQL."`
	Migrate migrateCmd `cmd:"" group:"engine" help:"Migrate the schema of the database."`
	Doctor  doctorCmd  `cmd:"" group:"engine" help:"Check a database: versions, invariants, indexes, transactions, settings."`
	Config  configCmd  `cmd:"" group:"engine" help:"Show or check the configuration of serve."`
	Bench   benchCmd   `cmd:"" group:"engine" help:"Measure the engine and, as a baseline, the SQL of the reference."`

	Start          startCmd          `cmd:"" group:"process" help:"Start a process."`
	Call           callCmd           `cmd:"" group:"process" help:"Call a process and print its response."`
	Repair         repairCmd         `cmd:"" group:"process" help:"Take a process out of ERROR."`
	Await          awaitCmd          `cmd:"" group:"process" help:"Wait for the end of a task."`
	Get            getCmd            `cmd:"" group:"process" help:"Show a process, its timers and its history."`
	List           listCmd           `cmd:"" group:"process" help:"List the processes of a namespace."`
	Count          countCmd          `cmd:"" group:"process" help:"Count processes by status."`
	Trace          traceCmd          `cmd:"" group:"process" help:"Show the tasks of a process with their events."`
	Explain        explainCmd        `cmd:"" group:"process" help:"Explain what a process waits for, what happens next, and where its time went."`
	Errors         errorsCmd         `cmd:"" group:"process" help:"Group the processes in ERROR by cause."`
	Watch          watchCmd          `cmd:"" group:"process" help:"Print new events and status changes of a process."`
	Put            putCmd            `cmd:"" group:"process" help:"Import a process with its history."`
	Suspend        suspendCmd        `cmd:"" group:"process" help:"Suspend a process until it is resumed."`
	RestartHistory restartHistoryCmd `cmd:"" group:"process" help:"Start a new, empty history of a process."`
	Resume         resumeCmd         `cmd:"" group:"process" help:"Resume a suspended process."`
	Cancel         cancelCmd         `cmd:"" group:"process" help:"Ask a process to end; after the grace period, the engine ends it."`
	Remove         removeCmd         `cmd:"" group:"process" help:"Delete a process with its tasks and events."`

	Bulk bulkCmd `cmd:"" group:"process" help:"Apply an action to all processes that match a filter."`
	Cron cronCmd `cmd:"" group:"process" help:"Manage crons and their ledger."`
	Job  jobCmd  `cmd:"" group:"process" help:"Enqueue, list, change and cancel jobs."`

	Template templateCmd `cmd:"" group:"process" help:"Manage templates of flows."`
	Run      flowCmd     `cmd:"" group:"process" help:"Start flow runs, follow their steps, and complete waits."`

	Constraint constraintCmd `cmd:"" group:"process" help:"Limit concurrent jobs and their rate."`

	Worker workerCmd `cmd:"" group:"process" help:"Run workers; list and stop them."`

	Overview  overviewCmd  `cmd:"" group:"process" help:"Summarize a namespace, or all, and the nodes."`
	Top       topCmd       `cmd:"" group:"process" help:"Show rates, namespaces, errors and nodes, live."`
	Audit     auditCmd     `cmd:"" group:"process" help:"List commands of operators."`
	Node      nodeCmd      `cmd:"" group:"process" help:"List or drain engines."`
	Namespace namespaceCmd `cmd:"" aliases:"ns" group:"process" help:"Manage namespaces."`

	Completion completionCmd `cmd:"" group:"other" help:"Print a completion script for a shell."`
	Version    versionCmd    `cmd:"" group:"other" help:"Print the version."`
}

// app is the context of a command, in addition to its flags.
type app struct {
	Main

	ctx      context.Context
	kong     *kong.Kong
	settings *settings

	interrupted chan struct{} // closed by the first signal that a client command gets
	interrupt   sync.Once
}

func newApp(ctx context.Context, m Main) *app {
	return &app{Main: m, ctx: ctx, settings: newSettings(m.Getenv), interrupted: make(chan struct{})}
}

// stop carries an exit code through kong, which exits after --help.
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
	var cmds commands
	a := newApp(ctx, m)
	a.settings.environ = m.Environ
	parser, err := newParser(a, &cmds)
	if err != nil {
		panic(err) // a mistake in the tags of commands
	}
	a.kong = parser
	args = helpAliases(args)
	parsed, err := parser.Parse(args)
	if err != nil {
		var parseErr *kong.ParseError
		if errors.As(err, &parseErr) && len(args) == 0 {
			_ = parseErr.Context.PrintUsage(false)
			return exitUsage
		}
		err = plainError(a.settings.explain(err), parser, parseErr)
		if parseErr != nil && strings.HasPrefix(err.Error(), "expected ") && parseErr.Context.Selected() != nil {
			err = fmt.Errorf("%w, for example: progressor %s", err, parseErr.Context.Selected().Summary())
		}
		return a.fail(usageError(err), wantsJSON(args))
	}
	if err := parsed.Run(a); err != nil {
		return a.fail(err, wantsJSON(args))
	}
	return exitOK
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

func newParser(a *app, cmds *commands) (*kong.Kong, error) {
	return kong.New(cmds,
		kong.Name("progressor"),
		kong.Description("Durable processes on PostgreSQL. Start with: progressor dev"),
		kong.Writers(a.Stdout, a.Stderr),
		kong.Exit(func(code int) { panic(stop(code)) }),
		kong.ConfigureHelp(kong.HelpOptions{Compact: true, WrapUpperBound: 110}),
		kong.ValueFormatter(helpWithEnv),
		kong.Groups{"engine": "Engine and database:", "process": "Processes (clients of a running engine):", "other": "Other:"},
		kong.WithHyphenPrefixedParameters(true),
		kong.PostBuild(wantValues),
		kong.WithBeforeResolve(a.settings.load),
		kong.Resolvers(a.settings),
	)
}

// wantsJSON looks for -o json in the arguments, because a command line that cannot be parsed needs
// an output format, too.
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

// interruptible returns the context of a client command, which ends at the first signal. A command
// may have several of them, such as one for a request and one for the wait that follows. The one
// that receives the signal notifies the others.
func (a *app) interruptible() (context.Context, context.CancelFunc) {
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

// helpWithEnv adds the name of the environment variable of a setting to its help.
func helpWithEnv(v *kong.Value) string {
	if !isSetting(v) {
		return v.Help
	}
	return strings.TrimSuffix(v.Help, ".") + " ($" + envName(v.Name) + ")."
}

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

// Main is the program without the process around it, so that a test can run any command line of it.
type Main struct {
	Stdin    io.Reader
	Stdout   io.Writer
	Stderr   io.Writer
	Getenv   func(name string) (value string, set bool)
	Environ  func() []string  // NAME=value, of all of them
	Signals  <-chan os.Signal // SIGINT and SIGTERM: the first asks to stop, the second stops at once
	Terminal bool             // Stderr is a terminal: logs are for people
	Asks     bool             // Stdin is one too: somebody can answer a question
}

// commands is the command line. Every command says its help, and an example, itself.
type commands struct {
	Dev     devCmd     `cmd:"" group:"engine" help:"Run an engine with a private PostgreSQL and demo namespaces."`
	Serve   serveCmd   `cmd:"" group:"engine" help:"Run an engine on a PostgreSQL of yours."`
	Migrate migrateCmd `cmd:"" group:"engine" help:"Bring the database's schema up to date, or a step back."`
	Doctor  doctorCmd  `cmd:"" group:"engine" help:"Examine a database: versions, invariants, indexes, transactions, settings."`
	Config  configCmd  `cmd:"" group:"engine" help:"Show or check the configuration of serve."`
	Bench   benchCmd   `cmd:"" group:"engine" help:"Measure the engine, and the SQL of the reference on the same server."`

	Start          startCmd          `cmd:"" group:"process" help:"Start a process."`
	Call           callCmd           `cmd:"" group:"process" help:"Call a process and print its response."`
	Repair         repairCmd         `cmd:"" group:"process" help:"Take a process out of ERROR."`
	Await          awaitCmd          `cmd:"" group:"process" help:"Wait for a task that was accepted, or whose wait timed out."`
	Get            getCmd            `cmd:"" group:"process" help:"Show a process, its timers and its history."`
	List           listCmd           `cmd:"" group:"process" help:"List the processes of a namespace."`
	Count          countCmd          `cmd:"" group:"process" help:"Count processes by status."`
	Trace          traceCmd          `cmd:"" group:"process" help:"Show every task of a process, each with its events."`
	Explain        explainCmd        `cmd:"" group:"process" help:"Say what a process waits for, what comes next, and where its time went."`
	Errors         errorsCmd         `cmd:"" group:"process" help:"Group the processes in ERROR by what broke them."`
	Watch          watchCmd          `cmd:"" group:"process" help:"Print the events of a process and the changes of its status as they come."`
	Put            putCmd            `cmd:"" group:"process" help:"Import a process with its history."`
	Suspend        suspendCmd        `cmd:"" group:"process" help:"Hold a process until it is resumed."`
	RestartHistory restartHistoryCmd `cmd:"" group:"process" help:"Begin a new history of a process, which keeps its state."`
	Resume         resumeCmd         `cmd:"" group:"process" help:"Let a suspended process go on."`
	Cancel         cancelCmd         `cmd:"" group:"process" help:"Ask a process to end; past the grace the engine ends it."`
	Remove         removeCmd         `cmd:"" group:"process" help:"Delete a process with its tasks and events."`

	Bulk bulkCmd `cmd:"" group:"process" help:"Do something to all processes that match a filter."`
	Cron cronCmd `cmd:"" group:"process" help:"Start runs at cron times, and see what was decided at each."`
	Job  jobCmd  `cmd:"" group:"process" help:"Enqueue jobs, follow them, and change them."`

	Template templateCmd `cmd:"" group:"process" help:"Keep templates of work of several steps."`
	Run      flowCmd     `cmd:"" group:"process" help:"Start runs of templates, follow their steps, and answer what waits."`

	Constraint constraintCmd `cmd:"" group:"process" help:"Limit how many jobs run at a time, and how often they start."`

	Worker workerCmd `cmd:"" group:"process" help:"Run jobs by a command of yours."`

	Overview  overviewCmd  `cmd:"" group:"process" help:"Sum up a namespace, or all, and the nodes."`
	Top       topCmd       `cmd:"" group:"process" help:"Watch the engine: rates, namespaces, errors, nodes."`
	Audit     auditCmd     `cmd:"" group:"process" help:"List what operators have done."`
	Node      nodeCmd      `cmd:"" group:"process" help:"List the engines, or have one drain."`
	Namespace namespaceCmd `cmd:"" aliases:"ns" group:"process" help:"Manage namespaces."`

	Completion completionCmd `cmd:"" group:"other" help:"Print a completion script for a shell."`
	Version    versionCmd    `cmd:"" group:"other" help:"Print the version."`
}

// app is what a command gets beside its own flags.
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

// stop carries an exit code through kong, which wants to end the process after --help.
type stop int

// Run runs one command line (without the program's name) and returns the process's exit code; docs/cli.md lists them.
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
		panic(err) // a mistake in the tags above
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
			err = fmt.Errorf("%w, as in: progressor %s", err, parseErr.Context.Selected().Summary())
		}
		return a.fail(usageError(err), wantsJSON(args))
	}
	if err := parsed.Run(a); err != nil {
		return a.fail(err, wantsJSON(args))
	}
	return exitOK
}

// helpAliases takes what other programs call --help and the command version.
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

// wantsJSON looks for -o json by itself: a command line that cannot be parsed has an output format too.
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

// interruptible is the context of a client command: it ends with the first signal. A command may have several at a time, as that of a request
// and that of the wait which follows: whichever gets the signal tells the others.
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

// helpWithEnv adds the environment's name for a setting to its help.
func helpWithEnv(v *kong.Value) string {
	if !isSetting(v) {
		return v.Help
	}
	return strings.TrimSuffix(v.Help, ".") + " ($" + envName(v.Name) + ")."
}

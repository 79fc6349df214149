// Package bench measures the engine on a PostgreSQL server, and on the same server in the same run the SQL of the reference
// (valitydev/progressor), statement by statement, as the baseline that every rate is also told as a multiple of.
// docs/performance.md says what each workload does and what each column means.
package bench

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"
)

// Command are the flags of `progressor bench`.
type Command struct {
	DSN       string        `name:"dsn" placeholder:"DSN" help:"PostgreSQL server to measure on; the bench makes databases of its own there (the role needs CREATEDB) and drops them. Default: a private server in a temporary directory."`
	Workloads []string      `aliases:"workload" default:"start,call,hot,loop,timers,rpc" placeholder:"NAME" help:"What to measure: start, call, hot, hot-snapshot, loop, timers, crons, crons-down, jobs, jobs-keys, jobs-claims, flows, rpc, flat, retention, idle, memory, search, overload, neighbors. Default: ${default}."`
	Clients   []int         `default:"1,32,128,512" placeholder:"N" help:"Clients at a time, for start, call, hot and loop. Default: ${default}."`
	Duration  time.Duration `default:"10s" placeholder:"DURATION" help:"How long each case is measured. Default: ${default}."`
	Warmup    time.Duration `default:"2s" placeholder:"DURATION" help:"How long each case runs before. Default: ${default}."`
	Rounds    int           `default:"1" placeholder:"N" help:"Measure each case and its baseline N times in turn, and report the round whose ratio (where there is none: whose rate) is the median. On a machine that others share, 3 or 5. Default: ${default}."`
	Keys      string        `default:"both" enum:"off,on,both" placeholder:"off|on|both" help:"An idempotency key on every request of start, call and rpc. Default: ${default}."`
	History   []string      `default:"none" enum:"none,full" placeholder:"none|full" help:"History that the processor is shown with a call. Default: ${default}."`
	Events    int           `default:"40" placeholder:"N" help:"Events that a process has before the calls, with --history full. Default: ${default}."`
	Metadata  bool          `help:"Start processes with searchable attributes."`
	Processes int           `default:"10000" placeholder:"N" help:"Processes that are called, or of search that are there. Default: ${default}."`
	Lanes     int           `default:"2" placeholder:"N" help:"Group-commit lanes of the engine. Default: ${default}."`
	Baseline  bool          `default:"true" negatable:"" help:"Measure the baseline too. Default: ${default}."`

	RPCClients    int           `name:"rpc-clients" default:"64" placeholder:"N" help:"Clients of rpc. Default: ${default}."`
	Timers        int           `default:"50000" placeholder:"N" help:"Timers that are due at once. Default: ${default}."`
	SpreadTimers  int           `default:"2000" placeholder:"N" help:"Timers that are spread over --spread, for their lateness. Default: ${default}."`
	Spread        time.Duration `default:"10s" placeholder:"DURATION" help:"See --spread-timers. Default: ${default}."`
	Crons         int           `default:"10000" placeholder:"N" help:"Crons of crons, which all fire at the same times. Default: ${default}."`
	CronsEvery    time.Duration `default:"1m" placeholder:"DURATION" help:"How often they fire, in whole seconds. Default: ${default}."`
	CronsFires    int           `default:"3" placeholder:"N" help:"How many times each of them fires. Default: ${default}."`
	CronsDown     int           `default:"1000" placeholder:"N" help:"Crons of crons-down, which fire every minute and whose engine was away for an hour. Default: ${default}."`
	Runs          int           `default:"5000" placeholder:"N" help:"Runs of flows. Default: ${default}."`
	Jobs          int           `default:"100000" placeholder:"N" help:"Jobs of jobs, in whole thousands. Default: ${default}."`
	JobEvents     []string      `name:"job-events" default:"all" enum:"all,ends,none" placeholder:"all|ends|none" help:"Events that the namespace of jobs keeps; several are measured in turn. Default: ${default}."`
	FlatProcesses int           `default:"1000000" placeholder:"N" help:"Other processes of flat. Default: ${default}."`
	FlatTasks     int           `default:"5000000" placeholder:"N" help:"Finished tasks of the other processes of flat. Default: ${default}."`
	FlatClients   int           `default:"128" placeholder:"N" help:"Clients of flat. Default: ${default}."`
	FlatWarmup    time.Duration `default:"1m" placeholder:"DURATION" help:"Warm-up of flat. Default: ${default}."`
	FlatDatabase  string        `placeholder:"NAME" help:"Database of flat on the server of --dsn, which stays: runs fill it, each where the one before was interrupted, and measure nothing; those that follow measure in it alone. Default: one of its own, which is dropped."`
	Ended         int           `default:"100000" placeholder:"N" help:"Processes at their end, of retention. Default: ${default}."`
	InFlight      int           `default:"1000" placeholder:"N" help:"Calls of memory that the processor holds. Default: ${default}."`
	Waiting       int           `default:"10000" placeholder:"N" help:"Clients of memory that wait behind those. Default: ${default}."`
	Idle          time.Duration `default:"30s" placeholder:"DURATION" help:"How long idle is watched. Default: ${default}."`

	NeighborStates     []string `placeholder:"NAME" help:"States of the tenant of neighbors: timers, calls, large-calls, queue-fails, queue-suspended, queue-resumed, queue-removed, held-messages, locked-target, many-messages, locked-row, fresh-calls, stored-calls, waiting-clients. Default: all."`
	NeighborTimers     int      `default:"20" placeholder:"N" help:"Timers per second of the namespace that neighbors measures. Default: ${default}."`
	NeighborNamespaces int      `default:"1000" placeholder:"N" help:"Namespaces of the tenant with 300 due timers or waiting calls each. Default: ${default}."`
	NeighborLargeCalls int      `default:"1792" placeholder:"N" help:"Waiting calls of 1 MiB of the tenant. Default: ${default}."`
	NeighborQueue      int      `default:"2000000" placeholder:"N" help:"Waiting notifications or held messages of a process of the tenant. Default: ${default}."`
	NeighborBacklog    int      `default:"100000" placeholder:"N" help:"SQL messages to one process, or stored calls, of the tenant. Default: ${default}."`
	NeighborClients    int      `default:"20000" placeholder:"N" help:"Clients of the tenant that wait in slow processes. Default: ${default}, the node's max_in_flight."`

	Role string `hidden:"" default:"bench" enum:"bench,engine,processor" help:"What a process of the bench's own does."`
}

// Environment is what the program around the bench gives it.
type Environment struct {
	Stdin    io.Reader
	Stdout   io.Writer
	Stderr   io.Writer
	Terminal bool // Stderr is a terminal: there is a progress bar
	JSON     bool // the report is JSON, not tables
	Version  string
}

// Help is shown with the flags.
func (Command) Help() string {
	return `Bench starts engines and clients, measures them, checks the database's invariants after each case, and prints rates,
latencies, bytes of log, CPU and batch sizes, with the rates of the reference's SQL on the same server to compare with.

    progressor bench --workloads start,call --clients 128 --keys off

Neighbors offers calls of one namespace at 40 % of the peak of the same run, with timers and SQL messages, before, while and
after a tenant (other namespaces) is in a state that must not disturb it. The ratio is the calls/s in the state divided by
those while the tenant is quiet. The load is below the peak because the tenant may use its share of the CPU: two namespaces
that both take all they can get cannot each keep 80 % of what one gets alone. The
peak is what the largest number of --clients reaches.`
}

// Run measures and prints the report. What was measured before an error is printed too.
func (c *Command) Run(ctx context.Context, env Environment) error {
	if c.Role != roleBench {
		return serveRole(ctx, c.Role, env)
	}
	if err := c.check(); err != nil {
		return err
	}
	server, err := openServer(ctx, c.DSN, privateSettings)
	if err != nil {
		return err
	}
	r := &runner{command: c, env: env, server: server, baselines: map[variant]*Row{}}
	err = errors.Join(r.measure(ctx), server.close(ctx))
	if len(r.report.Rows) > 0 {
		write := r.report.WriteTable
		if env.JSON {
			write = r.report.WriteJSON
		}
		err = errors.Join(write(env.Stdout), err)
	}
	return err
}

func (c *Command) check() error {
	for _, name := range c.Workloads {
		if !slices.ContainsFunc(workloads, func(w workload) bool { return w.name == name }) {
			return fmt.Errorf("--workloads: %q is none; there are %s", name, strings.Join(workloadNames(), ", "))
		}
	}
	for _, state := range c.NeighborStates {
		if _, ok := neighborStates[state]; !ok {
			return fmt.Errorf("--neighbor-states: no state %q; there are %s", state, strings.Join(neighborNames, ", "))
		}
	}
	if c.DSN != "" {
		if _, err := pgx.ParseConfig(c.DSN); err != nil {
			return errors.New("--dsn: not a connection string") // the cause quotes parts of it
		}
	}
	counts := map[string][]int{
		"clients": c.Clients, "processes": {c.Processes}, "rpc-clients": {c.RPCClients}, "timers": {c.Timers}, "crons": {c.Crons}, "crons-fires": {c.CronsFires}, "crons-down": {c.CronsDown},
		"spread-timers": {c.SpreadTimers}, "flat-processes": {c.FlatProcesses}, "flat-tasks": {c.FlatTasks}, "flat-clients": {c.FlatClients},
		"in-flight": {c.InFlight}, "ended": {c.Ended}, "waiting": {c.Waiting}, "lanes": {c.Lanes}, "neighbor-timers": {c.NeighborTimers}, "neighbor-namespaces": {c.NeighborNamespaces},
		"neighbor-large-calls": {c.NeighborLargeCalls}, "neighbor-queue": {c.NeighborQueue}, "neighbor-backlog": {c.NeighborBacklog},
		"neighbor-clients": {c.NeighborClients}, "events": {c.Events}, "rounds": {c.Rounds},
	}
	for name, values := range counts {
		for _, n := range values {
			if n < 1 {
				return fmt.Errorf("--%s: want 1 or more", name)
			}
		}
	}
	for name, d := range map[string]time.Duration{"duration": c.Duration, "spread": c.Spread, "idle": c.Idle} {
		if d <= 0 {
			return fmt.Errorf("--%s: want more than 0s", name)
		}
	}
	if c.FlatDatabase != "" && c.DSN == "" {
		return errors.New("--flat-database: want --dsn too: a private server ends with the bench")
	}
	if c.Jobs < jobBatch {
		return fmt.Errorf("--jobs: want %d or more", jobBatch)
	}
	if c.CronsEvery < time.Second || c.CronsEvery%time.Second != 0 {
		return errors.New("--crons-every: want 1s or more, in whole seconds")
	}
	if c.Warmup < 0 || c.FlatWarmup < 0 {
		return errors.New("--warmup and --flat-warmup: want 0s or more")
	}
	return nil
}

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

// Command contains the flags of `progressor bench`.
type Command struct {
	DSN       string        `name:"dsn" placeholder:"DSN" help:"PostgreSQL server to measure. The bench creates its own databases there (the role needs CREATEDB) and drops them. Default: a private server in a temporary directory."`
	Workloads []string      `aliases:"workload" default:"start,call,hot,loop,timers,rpc" placeholder:"NAME" help:"Workloads: start, call, hot, hot-snapshot, loop, timers, crons, crons-down, jobs, jobs-keys, jobs-claims, flows, rpc, auth, flat, retention, idle, memory, search, overload, neighbors, attacks, changes, durable. Default: ${default}."`
	Clients   []int         `default:"1,32,128,512" placeholder:"N" help:"Concurrent clients for start, call, hot, loop and durable. Default: ${default}."`
	Duration  time.Duration `default:"10s" placeholder:"DURATION" help:"Duration of each case. Default: ${default}."`
	Warmup    time.Duration `default:"2s" placeholder:"DURATION" help:"Warm-up of each case. Default: ${default}."`
	Rounds    int           `default:"1" placeholder:"N" help:"Measure each case and its baseline N times in alternation, and report the round with the median ratio, or rate. Use 3 or 5 on a shared machine. Default: ${default}."`
	Keys      string        `default:"both" enum:"off,on,both" placeholder:"off|on|both" help:"Idempotency keys in the requests of start, call, rpc and auth. Default: ${default}."`
	History   []string      `default:"none" enum:"none,full" placeholder:"none|full" help:"History that the processor receives with a call. Default: ${default}."`
	Events    int           `default:"40" placeholder:"N" help:"Events of a process before the calls, with --history full. Default: ${default}."`
	Metadata  bool          `help:"Start processes with searchable attributes."`
	Processes int           `default:"10000" placeholder:"N" help:"Number of processes that are called or, for search, that exist. Default: ${default}."`
	Lanes     int           `default:"2" placeholder:"N" help:"Group-commit lanes of the engine. Default: ${default}."`
	Baseline  bool          `default:"true" negatable:"" help:"Also measure the baseline. Default: ${default}."`

	RPCClients    int           `name:"rpc-clients" default:"64" placeholder:"N" help:"Concurrent clients for rpc, auth and the peak of attacks. Default: ${default}."`
	Timers        int           `default:"50000" placeholder:"N" help:"For timers: number of timers that are due at once. Default: ${default}."`
	SpreadTimers  int           `default:"2000" placeholder:"N" help:"For timers: number of timers that are due within --spread, to measure lateness. Default: ${default}."`
	Spread        time.Duration `default:"10s" placeholder:"DURATION" help:"For timers: period in which --spread-timers are due. Default: ${default}."`
	Crons         int           `default:"10000" placeholder:"N" help:"For crons: number of crons with the same fire times. Default: ${default}."`
	CronsEvery    time.Duration `default:"1m" placeholder:"DURATION" help:"For crons: interval of their fires, in whole seconds. Default: ${default}."`
	CronsFires    int           `default:"3" placeholder:"N" help:"For crons: number of fires. Default: ${default}."`
	CronsDown     int           `default:"1000" placeholder:"N" help:"For crons-down: number of crons that fire every minute and that missed an hour. Default: ${default}."`
	Runs          int           `default:"5000" placeholder:"N" help:"For flows: number of runs. Default: ${default}."`
	Jobs          int           `default:"100000" placeholder:"N" help:"For jobs: number of jobs, a multiple of 1,000. Default: ${default}."`
	JobEvents     []string      `name:"job-events" default:"all" enum:"all,ends,none" placeholder:"all|ends|none" help:"For jobs: events that the namespace keeps; several values are measured in sequence. Default: ${default}."`
	FlatProcesses int           `default:"1000000" placeholder:"N" help:"For flat: number of other processes. Default: ${default}."`
	FlatTasks     int           `default:"5000000" placeholder:"N" help:"For flat: number of their finished tasks. Default: ${default}."`
	FlatClients   int           `default:"128" placeholder:"N" help:"Concurrent clients for flat and retention. Default: ${default}."`
	FlatWarmup    time.Duration `default:"1m" placeholder:"DURATION" help:"Warm-up for flat. Default: ${default}."`
	FlatDatabase  string        `placeholder:"NAME" help:"For flat: a database on the server of --dsn that is kept. Interrupted runs continue to fill it without measuring; later runs measure in it. Default: a new database, which is dropped."`
	Ended         int           `default:"100000" placeholder:"N" help:"For retention: number of ended processes. Default: ${default}."`
	InFlight      int           `default:"1000" placeholder:"N" help:"For memory: number of running calls. Default: ${default}."`
	Waiting       int           `default:"10000" placeholder:"N" help:"For memory: number of clients that wait for them. For durable: number of runs that wait. Default: ${default}."`
	Idle          time.Duration `default:"30s" placeholder:"DURATION" help:"For idle: duration. Default: ${default}."`

	neighborFlags
	attackFlags

	Role string `hidden:"" default:"bench" enum:"bench,engine,processor" help:"Role of a child process of the bench."`
}

// neighborFlags are the flags of neighbors.
type neighborFlags struct {
	NeighborStates     []string `placeholder:"NAME" help:"For neighbors: states of the tenant: timers, calls, large-calls, queue-fails, queue-suspended, queue-resumed, queue-removed, held-messages, locked-target, many-messages, locked-row, fresh-calls, stored-calls, waiting-clients. Default: all."`
	NeighborTimers     int      `default:"20" placeholder:"N" help:"For neighbors: timers per second of the measured namespace. Default: ${default}."`
	NeighborNamespaces int      `default:"1000" placeholder:"N" help:"For neighbors: namespaces of the tenant with 300 due timers or waiting calls each. Default: ${default}."`
	NeighborLargeCalls int      `default:"1792" placeholder:"N" help:"For neighbors: waiting calls of 1 MiB of the tenant. Default: ${default}."`
	NeighborQueue      int      `default:"2000000" placeholder:"N" help:"For neighbors: waiting notifications or held messages of a process of the tenant. Default: ${default}."`
	NeighborBacklog    int      `default:"100000" placeholder:"N" help:"For neighbors: SQL messages to one process, or stored calls, of the tenant. Default: ${default}."`
	NeighborClients    int      `default:"9000" placeholder:"N" help:"For neighbors: clients of the tenant that wait for slow processes. Default: ${default}, the share of a namespace in a node."`
}

// attackFlags are the flags of attacks.
type attackFlags struct {
	Attacks    []string `placeholder:"NAME" help:"For attacks: their names: expanding-requests, expanding-responses, long-numbers, patterns, foreign-hosts, tokens, awaits, slow-bodies, connections, watchers, namespaces. Default: all."`
	AttackSize int      `default:"100" placeholder:"PERCENT" help:"For attacks: number of their clients, in percent of the full size. Default: ${default}."`
}

// Environment contains the streams, the output format and the version of the program that runs the
// bench.
type Environment struct {
	Stdin    io.Reader
	Stdout   io.Writer
	Stderr   io.Writer
	Terminal bool // Stderr is a terminal: show a progress bar
	JSON     bool // print the report as JSON
	Version  string
}

// Help is shown with the flags.
func (Command) Help() string {
	return `Bench starts engines and clients, measures them, checks the invariants of the database
after each case, and prints rates, latencies, bytes of WAL, CPU and batch sizes. As a baseline, it
measures the SQL of the reference on the same server.

    progressor bench --workloads start,call --clients 128 --keys off

Neighbors sends calls to one namespace at 40% of the peak of the same run, with timers and SQL
messages. Meanwhile a tenant (other namespaces) enters and leaves a state that must not disturb the
first namespace. The ratio is the calls/s in the state divided by those while the tenant is quiet.
The load is below the peak because the tenant may use its share of the CPU: if both used all the CPU
that they get, neither could keep 80% of the rate that it has alone. The peak is measured with the
largest number of --clients.

Attacks starts progressor serve on all addresses of this machine, with authentication and default
settings, attacks it as a tenant or a stranger, and measures what share of its rate another tenant
keeps. It fails if the engine uses more than 512 MiB, if the other tenant keeps less than 80% of its
rate (calls and jobs at 40% of the peak), if /livez takes more than 5 s, or if no metric shows the
attack.

Auth measures the calls of rpc, alternately without and with authentication by an API key, at two
ports of one engine. The ratio is the calls/s with authentication divided by those without.`
}

// Run measures and prints the report. After an error, it prints what was measured before.
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
	err = errors.Join(r.measure(ctx), server.close(ctx), r.report.broken())
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
			return fmt.Errorf("--workloads: unknown workload %q; use one of %s", name,
				strings.Join(workloadNames(), ", "))
		}
	}
	for _, state := range c.NeighborStates {
		if _, ok := neighborStates[state]; !ok {
			return fmt.Errorf("--neighbor-states: unknown state %q; use one of %s", state,
				strings.Join(neighborNames, ", "))
		}
	}
	for _, name := range c.Attacks {
		if _, ok := attackKinds[name]; !ok {
			return fmt.Errorf("--attacks: unknown attack %q; use one of %s", name, strings.Join(attackNames, ", "))
		}
	}
	if c.DSN != "" {
		if _, err := pgx.ParseConfig(c.DSN); err != nil {
			return errors.New("--dsn: must be a connection string") // the cause quotes parts of it
		}
	}
	counts := map[string][]int{
		"clients": c.Clients, "processes": {c.Processes}, "rpc-clients": {c.RPCClients}, "timers": {c.Timers},
		"crons": {c.Crons}, "crons-fires": {c.CronsFires}, "crons-down": {c.CronsDown},
		"spread-timers": {c.SpreadTimers}, "flat-processes": {c.FlatProcesses}, "flat-tasks": {c.FlatTasks},
		"flat-clients": {c.FlatClients},
		"in-flight":    {c.InFlight}, "ended": {c.Ended}, "waiting": {c.Waiting}, "lanes": {c.Lanes},
		"neighbor-timers": {c.NeighborTimers}, "neighbor-namespaces": {c.NeighborNamespaces},
		"neighbor-large-calls": {c.NeighborLargeCalls}, "neighbor-queue": {c.NeighborQueue},
		"neighbor-backlog": {c.NeighborBacklog},
		"neighbor-clients": {c.NeighborClients}, "attack-size": {c.AttackSize},
		"events": {c.Events}, "rounds": {c.Rounds},
	}
	for name, values := range counts {
		for _, n := range values {
			if n < 1 {
				return fmt.Errorf("--%s: must be at least 1", name)
			}
		}
	}
	for name, d := range map[string]time.Duration{"duration": c.Duration, "spread": c.Spread, "idle": c.Idle} {
		if d <= 0 {
			return fmt.Errorf("--%s: must be more than 0s", name)
		}
	}
	if c.FlatDatabase != "" && c.DSN == "" {
		return errors.New("--flat-database requires --dsn: a private server is deleted")
	}
	if c.Jobs < jobBatch {
		return fmt.Errorf("--jobs: must be at least %d", jobBatch)
	}
	if c.CronsEvery < time.Second || c.CronsEvery%time.Second != 0 {
		return errors.New("--crons-every: must be at least 1s, in whole seconds")
	}
	if c.Warmup < 0 || c.FlatWarmup < 0 {
		return errors.New("--warmup and --flat-warmup: must not be negative")
	}
	return nil
}

package server

import (
	"cmp"
	"errors"
	"fmt"
	"strings"
	"syscall"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/progressor-engine/progressor/cmd/progressor/internal/cli"
	"github.com/progressor-engine/progressor/cmd/progressor/internal/cli/configfile"
	"github.com/progressor-engine/progressor/engine/rpc"
)

var errNoDSN = errors.New("--db.dsn: is required: set the flag, PROGRESSOR_DB_DSN, or db: {dsn: …} in the " +
	"configuration file")

// configFlag is the path of the configuration file, which package cli reads.
type configFlag struct {
	Config string `short:"c" placeholder:"FILE" help:"Configuration file, YAML ($$PROGRESSOR_CONFIG)."`
}

// serveSettings are all settings of serve. docs/configuration.md lists them.
type serveSettings struct {
	Listen      string        `default:"127.0.0.1:8080" placeholder:"ADDR" setting:"" help:"Address of the API, for all protocols. Default: ${default}."`
	ListenHosts string        `placeholder:"NAMES" setting:"" help:"Host names, separated by commas, by which clients address the engine, in addition to IP addresses, localhost and the name of --listen. *.example.com means all subdomains."`
	Console     string        `default:"full" enum:"full,read-only,off" placeholder:"MODE" setting:"" help:"Web console at /: full, read-only (browsers cannot change anything), or off. Default: ${default}."`
	Auth        authFlags     `embed:"" prefix:"auth."`
	Secrets     secretsFlags  `embed:"" prefix:"secrets."`
	TLS         tlsFlags      `embed:"" prefix:"tls."`
	DB          dbFlags       `embed:"" prefix:"db."`
	Engine      engineFlags   `embed:"" prefix:"engine."`
	Log         logFlags      `embed:"" prefix:"log."`
	Tracing     tracingFlags  `embed:"" prefix:"tracing."`
	Outgoing    outgoingFlags `embed:"" prefix:"outgoing."`
	Ops         opsFlags      `embed:"" prefix:"ops."`
	Debug       debugFlags    `embed:"" prefix:"debug."`
}

// logFlags are the flags that configure the log of an engine.
type logFlags struct {
	cli.LogFlags
	Requests string `default:"off" enum:"off,errors,all" placeholder:"WHICH" setting:"" help:"Log requests when they end: off, errors (those that fail), or all, one line each. Default: ${default}."`
}

// dsnFlag contains the DSN and the source of its password.
type dsnFlag struct {
	DSN             string `name:"dsn" placeholder:"DSN" setting:"" help:"PostgreSQL, as a URL or as key=value pairs."`
	PasswordFile    string `placeholder:"FILE" setting:"" help:"File with the password, read for each new connection."`
	PasswordCommand string `placeholder:"COMMAND" setting:"" help:"Shell command that prints the password, run for each new connection. It must end within 5s."`
}

type dbFlags struct {
	dsnFlag
	poolFlags
	Migrate bool          `setting:"" help:"Migrate the schema at startup."`
	Wait    time.Duration `default:"1m" placeholder:"DURATION" setting:"" help:"How long to wait at startup for a database that cannot be reached; 0s to not wait. Default: ${default}."`
}

// maxWait is the longest time that the engine waits for the database at startup.
const maxWait = 24 * time.Hour

func (f dbFlags) check() error {
	if f.Wait < 0 || f.Wait > maxWait {
		return fmt.Errorf("--db.wait: must be 0s to %s (got %s)", maxWait, f.Wait)
	}
	if err := f.dsnFlag.check(); err != nil {
		return err
	}
	return f.poolFlags.check()
}

// maxLinger is the longest time between SIGTERM and the drain.
const maxLinger = 10 * time.Minute

// clientPortion determines the default limit of one client: engine.max_in_flight divided by
// clientPortion.
const clientPortion = 4

// maxPoolConns is the largest pool of connections.
const maxPoolConns = 1000

type poolFlags struct {
	Lanes     int `default:"2" placeholder:"N" setting:"" help:"Group-commit lanes, one connection each. Default: ${default}."`
	ScanConns int `default:"3" placeholder:"N" setting:"" help:"Connections for scans, polls, histories and heartbeats of workers, 2 or more. Default: ${default}."`
	MaxConns  int `default:"2" placeholder:"N" setting:"" help:"Connections for reads, lists and maintenance. Default: ${default}. A node opens at most --db.lanes + --db.scan-conns + --db.max-conns + 2."`
}

type engineFlags struct {
	Address              string        `placeholder:"ADDR" setting:"" help:"Address of this node in the table nodes. Default: host name and port."`
	MaxInFlight          int           `default:"20000" placeholder:"N" setting:"" help:"Maximum number of concurrent requests. The same number may also wait for an event. Further requests get RESOURCE_EXHAUSTED. Default: ${default}."`
	MaxInFlightPerClient int           `default:"0" placeholder:"N" setting:"" help:"Maximum number of concurrent requests of one client. A client is a principal or, if authentication is off, an address. The same number may also wait for an event. Default: ${default}, which means a quarter of --engine.max-in-flight."`
	MaxStreams           int           `default:"1000" placeholder:"N" setting:"" help:"Maximum number of concurrent streams. Default: ${default}."`
	MaxStreamsPerClient  int           `default:"100" placeholder:"N" setting:"" help:"Maximum number of concurrent streams of one client. Default: ${default}."`
	MaxConnections       int           `default:"0" placeholder:"N" setting:"" help:"Maximum number of connections of clients. One client address gets at most half of them. Default: 0, which means 20000, or half of the limit on open files if that is less."`
	MaxNamespaces        int           `default:"1000" placeholder:"N" setting:"" help:"Maximum number of namespaces. The node refuses to create more. Default: ${default}."`
	MaxRunning           int           `default:"10000" placeholder:"N" setting:"" help:"Maximum number of tasks that the node runs concurrently, of all namespaces together. Default: ${default}."`
	RequestsOnly         bool          `setting:"" help:"Take requests and polls of workers, but run no tasks: other nodes run them."`
	ZombieAfter          time.Duration `default:"10s" placeholder:"DURATION" setting:"" help:"A node without a heartbeat for this long is dead. Must be the same on all nodes. Default: ${default}."`
	ZombieMargin         time.Duration `default:"5s" placeholder:"DURATION" setting:"" help:"How long a task of a live node may exceed its deadline before another node takes it over. Default: ${default}."`
	Linger               time.Duration `default:"0s" placeholder:"DURATION" setting:"" help:"How long the engine still accepts requests after SIGTERM while /readyz returns 503, so that load balancers notice. Default: ${default}."`
	DrainTimeout         time.Duration `default:"30s" placeholder:"DURATION" setting:"" help:"How long the engine waits for running tasks after SIGTERM. Default: ${default}."`

	LedgerRetention time.Duration `default:"720h" placeholder:"DURATION" setting:"" help:"How long rows of the cron ledger, and tasks of crons, are kept; at least 1h. Default: ${default}."`
}

type debugFlags struct {
	Listen string `placeholder:"ADDR" setting:"" help:"Serve net/http/pprof at this loopback address. Default: off."`
}

// check returns an error for invalid settings, before anything is opened.
func (s *serveSettings) check(file *configfile.File) error {
	if err := s.DB.check(); err != nil {
		return err
	}
	if err := s.Engine.check(); err != nil {
		return err
	}
	if err := errors.Join(checkListen("--listen", s.Listen), s.Auth.check(), s.TLS.check()); err != nil {
		return err
	}
	if err := s.Auth.checkConsole(s.TLS.scheme(), s.Listen, s.Console); err != nil {
		return err
	}
	if _, err := hosts(s.Listen, s.ListenHosts); err != nil {
		return err
	}
	if err := errors.Join(s.Tracing.check(), s.Outgoing.check(), s.Ops.check(s.Listen), s.Debug.check()); err != nil {
		return err
	}
	return checkFile(file)
}

// hosts returns the names by which clients may address the API: the name of the listener, and the
// names in a list separated by commas.
func hosts(listen, listed string) (*rpc.Hosts, error) {
	var names []string
	for name := range strings.SplitSeq(listed, ",") {
		if name = strings.TrimSpace(name); name != "" {
			names = append(names, name)
		}
	}
	all, err := rpc.NewHosts(listen, names...)
	if err != nil {
		return nil, fmt.Errorf("--listen-hosts: %w", err)
	}
	return all, nil
}

// checkDSN parses a connection string. Its error contains the redacted DSN and the last part of
// pgx's error. The rest of pgx's error quotes the string, which may contain the password.
func checkDSN(dsn string) error {
	_, err := pgxpool.ParseConfig(dsn)
	if err == nil {
		return nil
	}
	reason := "not a connection string"
	if i := strings.LastIndex(err.Error(), "`: "); i >= 0 {
		reason = err.Error()[i+len("`: "):]
	}
	return fmt.Errorf("--db.dsn: cannot parse %s: %s", redactDSN(dsn), reason)
}

func (e engineFlags) check() error {
	switch {
	case e.ZombieAfter < time.Second:
		return errors.New("--engine.zombie-after: must be at least 1s")
	case e.ZombieMargin <= 0:
		return errors.New("--engine.zombie-margin: must be more than 0s")
	case e.Linger < 0 || e.Linger > maxLinger:
		return fmt.Errorf("--engine.linger: must be 0s to %s", maxLinger)
	case e.DrainTimeout <= 0:
		return errors.New("--engine.drain-timeout: must be more than 0s")
	case e.LedgerRetention < time.Hour:
		return errors.New("--engine.ledger-retention: must be at least 1h")
	case e.MaxInFlight < 1:
		return errors.New("--engine.max-in-flight: must be at least 1")
	case e.MaxInFlightPerClient < 0 || e.MaxInFlightPerClient > e.MaxInFlight:
		return errors.New("--engine.max-in-flight-per-client: must be 0 to --engine.max-in-flight")
	case e.MaxStreams < 1:
		return errors.New("--engine.max-streams: must be at least 1")
	case e.MaxStreamsPerClient < 1:
		return errors.New("--engine.max-streams-per-client: must be at least 1")
	case e.MaxConnections < 0:
		return errors.New("--engine.max-connections: must not be negative")
	case e.MaxNamespaces < 1:
		return errors.New("--engine.max-namespaces: must be at least 1")
	case e.MaxRunning < 1:
		return errors.New("--engine.max-running: must be at least 1")
	}
	return nil
}

// defaultConnections is the maximum number of connections by default, if the limit on open files is
// high enough.
const defaultConnections = 20_000

// maxConnections returns the maximum number of connections of clients. The default leaves file
// descriptors for the connections to processors.
func (e engineFlags) maxConnections() int {
	if e.MaxConnections > 0 {
		return e.MaxConnections
	}
	var files syscall.Rlimit
	if err := syscall.Getrlimit(syscall.RLIMIT_NOFILE, &files); err != nil {
		return defaultConnections
	}
	return max(1, int(min(defaultConnections, files.Cur/2)))
}

// limits returns the limits of clients.
func (e engineFlags) limits() rpc.Limits {
	return rpc.Limits{
		ClientRequests: cmp.Or(e.MaxInFlightPerClient, max(1, e.MaxInFlight/clientPortion)),
		ClientStreams:  e.MaxStreamsPerClient, Streams: e.MaxStreams,
	}
}

func (p poolFlags) check() error {
	switch {
	case p.Lanes < 1 || p.Lanes > 64:
		return errors.New("--db.lanes: must be 1 to 64")
	case p.ScanConns < 2 || p.ScanConns > maxPoolConns:
		return fmt.Errorf("--db.scan-conns: must be 2 to %d (got %d)", maxPoolConns, p.ScanConns)
	case p.MaxConns < 1 || p.MaxConns > maxPoolConns:
		return fmt.Errorf("--db.max-conns: must be 1 to %d (got %d)", maxPoolConns, p.MaxConns)
	}
	return nil
}

func (d debugFlags) check() error {
	if d.Listen == "" {
		return nil
	}
	if !isLoopback(d.Listen) {
		return fmt.Errorf("--debug.listen: must be a loopback address, such as 127.0.0.1:6060 (got %s)", d.Listen)
	}
	return nil
}

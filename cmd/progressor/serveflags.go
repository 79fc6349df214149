package main

import (
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/progressor-engine/progressor/engine/rpc"
)

var errNoDSN = errors.New("--db.dsn is missing; it can also be PROGRESSOR_DB_DSN, or db: {dsn: …} in the configuration file")

// configFlag names the configuration file. Its settings are resolved by type settings.
type configFlag struct {
	Config string `short:"c" placeholder:"FILE" help:"Configuration file, YAML ($$PROGRESSOR_CONFIG)."`
}

// serveSettings is everything that serve can be told. docs/configuration.md lists it.
type serveSettings struct {
	Listen   string       `default:"127.0.0.1:8080" placeholder:"ADDR" setting:"" help:"Address of the API, for all protocols. Default: ${default}."`
	Insecure bool         `setting:"" help:"Allow --listen on an address that is not loopback, although nobody is authenticated."`
	Console  string       `default:"full" enum:"full,read-only,off" placeholder:"MODE" setting:"" help:"Web console at /: full, read-only (browsers change nothing), or off. Default: ${default}."`
	DB       dbFlags      `embed:"" prefix:"db."`
	Engine   engineFlags  `embed:"" prefix:"engine."`
	Log      logFlags     `embed:"" prefix:"log."`
	Tracing  tracingFlags `embed:"" prefix:"tracing."`
	Debug    debugFlags   `embed:"" prefix:"debug."`
}

// dsnFlag says where the database is, and how its password is read.
type dsnFlag struct {
	DSN             string `name:"dsn" placeholder:"DSN" setting:"" help:"PostgreSQL, as a URL or as key=value pairs."`
	PasswordFile    string `placeholder:"FILE" setting:"" help:"File with the password, read for each new connection."`
	PasswordCommand string `placeholder:"COMMAND" setting:"" help:"Shell command that prints the password, run for each new connection. It must end within 5s."`
}

type dbFlags struct {
	dsnFlag
	poolFlags
	Migrate bool `setting:"" help:"Bring the schema up to date before the start."`
}

// maxPoolConns is the largest pool of connections.
const maxPoolConns = 1000

type poolFlags struct {
	Lanes     int `default:"2" placeholder:"N" setting:"" help:"Group-commit lanes, one connection each. Default: ${default}."`
	ScanConns int `default:"3" placeholder:"N" setting:"" help:"Connections for scans, polls, histories and heartbeats of workers, 2 or more. Default: ${default}."`
	MaxConns  int `default:"2" placeholder:"N" setting:"" help:"Connections for reads, lists and maintenance. Default: ${default}. A node opens at most --db.lanes + --db.scan-conns + --db.max-conns + 2."`
}

type engineFlags struct {
	Address      string        `placeholder:"ADDR" setting:"" help:"How this node is called in the table nodes. Default: host name and port."`
	MaxInFlight  int           `default:"20000" placeholder:"N" setting:"" help:"Requests at a time, the ones that wait included; past it RESOURCE_EXHAUSTED. Default: ${default}."`
	MaxRunning   int           `default:"10000" placeholder:"N" setting:"" help:"Tasks that the node runs at a time, of all namespaces together. Default: ${default}."`
	ZombieAfter  time.Duration `default:"10s" placeholder:"DURATION" setting:"" help:"A node that has not beaten for so long is dead. The same on every node. Default: ${default}."`
	ZombieMargin time.Duration `default:"5s" placeholder:"DURATION" setting:"" help:"How long past its deadline a node that lives may hold a task before others take it. Default: ${default}."`
	DrainTimeout time.Duration `default:"30s" placeholder:"DURATION" setting:"" help:"How long a stop waits for what runs. Default: ${default}."`

	LedgerRetention time.Duration `default:"720h" placeholder:"DURATION" setting:"" help:"How long rows of the ledger of crons, and the tasks of crons, are kept; at least 1h. Default: ${default}."`
}

type logFlags struct {
	Level  string `default:"info" enum:"debug,info,warn,error" placeholder:"LEVEL" setting:"" help:"debug, info, warn or error. Default: ${default}."`
	Format string `default:"auto" enum:"auto,json,text" placeholder:"FORMAT" setting:"" help:"json, text, or auto: text on a terminal. Default: ${default}."`
}

type debugFlags struct {
	Listen string `placeholder:"ADDR" setting:"" help:"Serve net/http/pprof at this loopback address. Default: nowhere."`
}

// check refuses what cannot work, before anything is opened.
func (s *serveSettings) check(file *settings) error {
	if err := s.DB.dsnFlag.check(); err != nil {
		return err
	}
	if err := s.Engine.check(); err != nil {
		return err
	}
	if err := s.DB.poolFlags.check(); err != nil {
		return err
	}
	if err := rpc.CheckListen(s.Listen, s.Insecure); err != nil {
		return fmt.Errorf("--listen: %w", err)
	}
	if err := errors.Join(s.Tracing.check(), s.Debug.check()); err != nil {
		return err
	}
	return file.check()
}

// checkDSN parses a connection string. Of pgx's error only the reason is told: where the string is malformed, what it
// quotes can have a part of the password.
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
		return errors.New("--engine.zombie-after: want at least 1s")
	case e.ZombieMargin <= 0:
		return errors.New("--engine.zombie-margin: want more than 0s")
	case e.DrainTimeout <= 0:
		return errors.New("--engine.drain-timeout: want more than 0s")
	case e.LedgerRetention < time.Hour:
		return errors.New("--engine.ledger-retention: want at least 1h")
	case e.MaxInFlight < 1:
		return errors.New("--engine.max-in-flight: want 1 or more")
	case e.MaxRunning < 1:
		return errors.New("--engine.max-running: want 1 or more")
	}
	return nil
}

func (p poolFlags) check() error {
	switch {
	case p.Lanes < 1 || p.Lanes > 64:
		return errors.New("--db.lanes: want 1 to 64")
	case p.ScanConns < 2 || p.ScanConns > maxPoolConns:
		return fmt.Errorf("--db.scan-conns: want 2 to %d (got %d)", maxPoolConns, p.ScanConns)
	case p.MaxConns < 1 || p.MaxConns > maxPoolConns:
		return fmt.Errorf("--db.max-conns: want 1 to %d (got %d)", maxPoolConns, p.MaxConns)
	}
	return nil
}

func (d debugFlags) check() error {
	if d.Listen == "" {
		return nil
	}
	if err := rpc.CheckListen(d.Listen, false); err != nil {
		return fmt.Errorf("--debug.listen %s: profiles are served on loopback only, such as 127.0.0.1:6060", d.Listen)
	}
	return nil
}

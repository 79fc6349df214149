package server

import (
	"errors"

	"github.com/progressor-engine/progressor/cmd/progressor/internal/cli"
	"github.com/progressor-engine/progressor/engine/rpc"
)

type serveCmd struct {
	configFlag
	serveSettings
}

func (serveCmd) Help() string {
	return `Serve runs an engine on your PostgreSQL. Several engines can use one database. Every setting can be
a flag, an environment variable or a key of the configuration file, in this order. Namespaces,
templates and crons of the file are stored at each startup. On SIGTERM, the engine finishes running
tasks and releases the rest.

    progressor migrate up --db.dsn postgres://progressor@db/progressor
    progressor serve --db.dsn postgres://progressor@db/progressor
    progressor serve -c /etc/progressor.yaml --log.level debug`
}

func (c *serveCmd) Run(a *cli.App) error {
	if err := c.check(a.ConfigFile()); err != nil {
		return cli.UsageError(err)
	}
	log := c.Log.Logger(a)
	for _, u := range a.UnknownVariables() {
		log.Warn("unknown environment variable ignored", "name", u.Name, "nearest", u.Similar)
	}
	names, err := hosts(c.Listen, c.ListenHosts)
	if err != nil {
		return err
	}
	certificates, err := c.TLS.open(log)
	if err != nil {
		return err
	}
	listener, err := listen("--listen", c.Listen)
	if err != nil {
		return err
	}
	ops, err := c.Ops.open(names)
	if err != nil {
		return errors.Join(err, listener.Close())
	}
	n := &node{
		log: log, listener: listener, ops: ops, db: c.DB, engine: c.Engine,
		tracing: c.Tracing, getenv: a.Getenv, debug: c.Debug, auth: c.Auth.authentication(c.TLS.scheme(), c.Listen),
		secrets: c.Secrets, outgoing: c.Outgoing,
		certificates: certificates,
		api:          apiSettings{rpc.RequestLog(c.Log.Requests), names, rpc.Console(c.Console)},
		file:         a.ConfigFile(),
		ready: func() {
			log.Info("ready", "version", cli.BuildVersion(), "url", c.TLS.scheme()+"://"+listener.Addr().String())
		},
	}
	return a.UntilSignal(log, n.run)
}

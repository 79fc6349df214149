package server

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"
	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/progressor-engine/progressor/cmd/progressor/internal/cli"
	"github.com/progressor-engine/progressor/cmd/progressor/internal/cli/configfile"
	"github.com/progressor-engine/progressor/engine"
	"github.com/progressor-engine/progressor/engine/rpc"
	"github.com/progressor-engine/progressor/internal/pgembed"
	"github.com/progressor-engine/progressor/process"
	progressorv1 "github.com/progressor-engine/progressor/proto/progressor/v1"
	"github.com/progressor-engine/progressor/storage"
)

const (
	stopPostgres = 30 * time.Second // limits the final checkpoint
	restartPause = 300 * time.Millisecond
	restartTries = 10
)

type devCmd struct {
	configFlag
	Listen      string        `default:"127.0.0.1:8080" placeholder:"ADDR" setting:"" help:"Address of the API, for all protocols. Default: ${default}."`
	ListenHosts string        `placeholder:"NAMES" setting:"" help:"Host names, separated by commas, by which clients address the engine, in addition to IP addresses, localhost and the name of --listen. *.example.com means all subdomains."`
	Console     string        `default:"full" enum:"full,read-only,off" placeholder:"MODE" setting:"" help:"Web console at /: full, read-only (browsers cannot change anything), or off. Default: ${default}."`
	DataDir     string        `default:".progressor" placeholder:"DIR" setting:"" help:"Directory for all data. Default: ${default}."`
	DemoFlow    bool          `setting:"" help:"Also store a flow in the namespace demo and start three runs of it, unless the flow exists."`
	Auth        authFlags     `embed:"" prefix:"auth."`
	Secrets     secretsFlags  `embed:"" prefix:"secrets."`
	Kafka       devKafkaFlags `embed:""`
	DB          poolFlags     `embed:"" prefix:"db."`
	Engine      engineFlags   `embed:"" prefix:"engine."`
	Log         logFlags      `embed:"" prefix:"log."`
	Tracing     tracingFlags  `embed:"" prefix:"tracing."`
	Outgoing    outgoingFlags `embed:"" prefix:"outgoing."`
	Debug       debugFlags    `embed:"" prefix:"debug."`
}

func (devCmd) Help() string {
	return `Dev runs everything on this machine: a private PostgreSQL in the data directory, an engine, and two
namespaces to try: demo (orders of a shop) and echo. Ctrl-C stops the engine and its PostgreSQL; the
data is kept. When dev starts, it stores the namespaces, templates and crons of the configuration
file, but it ignores db.dsn. With --kafka, it also runs a Kafka broker without authentication, to try
sinks.

    progressor dev
    progressor dev --listen 127.0.0.1:9090 --data-dir /tmp/play
    progressor dev --kafka
    progressor dev -c progressor.yaml`
}

func (c *devCmd) Run(a *cli.App) error {
	if err := errors.Join(c.check(), checkFile(a.ConfigFile())); err != nil {
		return cli.UsageError(err)
	}
	log := c.Log.Logger(a)
	for _, u := range a.UnknownVariables() {
		log.Warn("unknown environment variable ignored", "name", u.Name, "nearest", u.Similar)
	}
	listener, err := listen("--listen", c.Listen) // before PostgreSQL is started
	if err != nil {
		return err
	}
	return a.UntilSignal(log, func(ctx context.Context) error { return c.serve(ctx, a, log, listener) })
}

func (c *devCmd) check() error {
	if c.DataDir == "" {
		return errors.New("--data-dir: must be a directory")
	}
	if err := errors.Join(checkListen("--listen", c.Listen), c.Auth.check()); err != nil {
		return err
	}
	if _, err := hosts(c.Listen, c.ListenHosts); err != nil {
		return err
	}
	if err := c.Auth.checkConsole("http", c.Listen, c.Console); err != nil {
		return err
	}
	return errors.Join(c.Kafka.check(c.Auth.Mode), c.DB.check(), c.Engine.check(), c.Tracing.check(),
		c.Outgoing.check(), c.Debug.check())
}

// serve starts PostgreSQL before the engine and stops it after the engine, so that the engine can
// drain.
func (c *devCmd) serve(ctx context.Context, a *cli.App, log *slog.Logger, listener net.Listener) (err error) {
	defer listener.Close()
	names, err := hosts(c.Listen, c.ListenHosts)
	if err != nil {
		return err
	}
	dir, err := filepath.Abs(c.DataDir)
	if err != nil {
		return fmt.Errorf("--data-dir: %w", err)
	}
	kafka, stopKafka, err := c.Kafka.start()
	if err != nil {
		return err
	}
	defer stopKafka()
	server, err := pgembed.Start(ctx, pgembed.Config{Dir: filepath.Join(dir, "postgres"), Logger: log})
	if errors.Is(err, pgembed.ErrInUse) {
		return &cli.CodedError{Err: fmt.Errorf("--data-dir: %w", err), Code: cli.ExitConflict,
			Next: "stop the progressor dev that runs there, or use another --data-dir and --listen"}
	}
	if err != nil {
		return err
	}
	defer func() {
		stopping, cancel := context.WithTimeout(context.WithoutCancel(ctx), stopPostgres)
		defer cancel()
		err = errors.Join(err, server.Stop(stopping))
	}()
	if err := prepareDatabase(ctx, server.DSN(), filepath.Join(dir, "dsn")); err != nil {
		return err
	}
	clients := c.Auth.authentication("http", c.Listen)
	if c.Auth.KeyFile == "" {
		clients.keyFile = filepath.Join(dir, "token")
	}
	engineCtx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	go keepPostgres(engineCtx, cancel, server, log)
	n := &node{
		log: log, listener: listener, db: dbFlags{dsnFlag: dsnFlag{DSN: server.DSN()}, poolFlags: c.DB},
		engine: c.Engine, tracing: c.Tracing, outgoing: outgoingFlags{Allow: "loopback," + c.Outgoing.Allow},
		getenv: a.Getenv, debug: c.Debug, auth: clients, secrets: c.Secrets,
		api:     apiSettings{rpc.RequestLog(c.Log.Requests), names, rpc.Console(c.Console)},
		file:    a.ConfigFile(),
		prepare: putDemoNamespaces,
		ready: func() {
			fmt.Fprint(a.Stdout,
				c.banner(listener.Addr().String(), kafka, server.Version(), a.ConfigFile().Namespaces))
			fmt.Fprint(a.Stdout, clients.notice(c.DataDir))
		},
	}
	if c.DemoFlow {
		n.begin = beginDemoFlow
	}
	if err := n.run(engineCtx); err != nil {
		return err
	}
	if cause := context.Cause(engineCtx); cause != nil && ctx.Err() == nil {
		return cause
	}
	return nil
}

// prepareDatabase migrates the schema, adds it to the search_path for psql, and writes the DSN to a
// file.
func prepareDatabase(ctx context.Context, dsn, file string) error {
	if err := storage.Migrate(ctx, dsn); err != nil {
		return err
	}
	conn, err := pgx.Connect(ctx, dsn)
	if err != nil {
		return fmt.Errorf("connect to the private PostgreSQL: %w", err)
	}
	defer conn.Close(context.WithoutCancel(ctx)) //nolint:errcheck // nothing is left to do on the connection
	if _, err := conn.Exec(ctx, "ALTER DATABASE postgres SET search_path = progressor, public"); err != nil {
		return fmt.Errorf("set search_path: %w", err)
	}
	if err := os.WriteFile(file, []byte(dsn+"\n"), 0o600); err != nil {
		return fmt.Errorf("write the DSN to a file: %w", err)
	}
	return nil
}

// keepPostgres restarts the server if it exits, as an init system would, until ctx ends. If a
// restart fails, it calls fail.
func keepPostgres(ctx context.Context, fail func(error), server *pgembed.Server, log *slog.Logger) {
	for {
		select {
		case <-ctx.Done():
			return
		case <-server.Dead():
		}
		if ctx.Err() != nil {
			return
		}
		log.Warn("the private PostgreSQL exited; restarting it", "dir", server.Dir())
		if err := restartPostgres(ctx, server); err != nil {
			fail(fmt.Errorf("the private PostgreSQL exited and cannot be restarted: %w", err))
			return
		}
	}
}

// restartPostgres retries for a while, because the child processes of a killed postmaster hold its
// shared memory until they notice its death.
func restartPostgres(ctx context.Context, server *pgembed.Server) error {
	ticker := time.NewTicker(restartPause)
	defer ticker.Stop()
	for try := 1; ; try++ {
		err := server.Restart(ctx, "fast")
		if err == nil || try == restartTries || ctx.Err() != nil {
			return err
		}
		<-ticker.C
	}
}

// devRetention is how long the demo namespaces keep ended processes.
const devRetention = 7 * 24 * time.Hour

// putDemoNamespaces creates missing demo namespaces. It does not change existing ones.
func putDemoNamespaces(ctx context.Context, eng *engine.Engine) error {
	for namespace, builtin := range map[string]string{"demo": "orders", "echo": "echo"} {
		_, err := eng.GetNamespace(ctx, namespace)
		if errors.Is(err, process.ErrNamespaceNotFound) {
			_, err = eng.PutNamespace(ctx, &progressorv1.Namespace{
				Namespace: namespace,
				Processor: &progressorv1.ProcessorConfig{Transport: &progressorv1.ProcessorConfig_Builtin{
					Builtin: &progressorv1.BuiltinProcessor{Name: builtin},
				}}, Retention: durationpb.New(devRetention),
			})
		}
		if err != nil {
			return fmt.Errorf("namespace %s: %w", namespace, err)
		}
	}
	return nil
}

// invocation returns the command that runs this program in a shell in this directory.
func invocation() string {
	if strings.ContainsRune(os.Args[0], filepath.Separator) {
		return os.Args[0]
	}
	return "progressor"
}

// banner returns the addresses and files of the running program, with commands to paste. kafka is
// the address of the Kafka broker, or "".
func (c *devCmd) banner(address, kafka string, postgres int, own []configfile.Namespace) string {
	url, flag := "http://"+address, ""
	if address != "127.0.0.1:8080" {
		flag = " --address " + url
	}
	shown := url + "/"
	switch rpc.Console(c.Console) {
	case rpc.ConsoleReadOnly:
		shown += "  (read-only)"
	case rpc.ConsoleOff:
		shown = "off (--console full)"
	}
	namespaces := "demo (orders of a shop), echo"
	for _, ns := range own {
		if name := ns.GetNamespace(); name != "demo" && name != "echo" {
			namespaces += ", " + name
		}
	}
	if kafka != "" {
		kafka = "\n  kafka       " + kafka + "  (messages are in memory)"
	}
	text := `
Progressor ${version} is ready. Ctrl-C stops it; the data stays.

  console     ${console}${kafka}
  API         ${url}  (Connect, gRPC, gRPC-Web, JSON)
  metrics     ${url}/metrics
  database    psql "$(cat ${dir}/dsn)"  (PostgreSQL ${postgres}; the DSN is in ${dir}/dsn)
  namespaces  ${namespaces}

To try, in another terminal:

  ${program} start demo my-order --args '{"order":"A-7","customer":"ada","items":[{"sku":"tea","quantity":2}]}'${flag}
  ${program} call demo my-order --args '{"pay":200}'${flag}
  ${program} get demo my-order${flag}

  curl -w '\n' ${url}/progressor.v1.ProcessService/GetProcess -H 'Content-Type: application/json' \
    -d '{"namespace":"demo","processId":"my-order"}'

`
	return strings.NewReplacer(
		"${program}", invocation(), "${version}", cli.BuildVersion(), "${console}", shown, "${url}", url,
		"${dir}", c.DataDir, "${flag}", flag, "${kafka}", kafka, "${postgres}", fmt.Sprint(postgres),
		"${namespaces}", namespaces,
	).Replace(text)
}

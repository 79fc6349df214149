// Package storage is the engine's only way to PostgreSQL. Every operation that moves a task is one item of a group commit: see
// lane.go for the mechanism, and the file named after an operation for its statement.
package storage

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync/atomic"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/prometheus/client_golang/prometheus"

	"github.com/progressor-engine/progressor/process"
	"github.com/progressor-engine/progressor/storage/internal/dbsqlc"
)

// Rows of the tables are handed out as sqlc generates them.
type (
	// Process is a row of processes.
	Process = dbsqlc.GetProcessRow
	// Task is a task at any point of its life.
	Task = dbsqlc.GetTaskRow
	// Event is a row of events as a trace shows it.
	Event = dbsqlc.TraceEventsRow
	// Timer is a pending timer of a process.
	Timer = dbsqlc.GetTimersRow
	// Namespace is a row of namespaces.
	Namespace = dbsqlc.Namespace
	// Node is a row of nodes, with how many tasks it runs.
	Node = dbsqlc.ListNodesRow
	// Request is a row of requests.
	Request = dbsqlc.Request
	// Claim is a task that was handed to this node to run, with its process as it was at that moment.
	Claim = dbsqlc.SearchCallsRow
	// DB is what a query needs: a connection, a pool or a transaction.
	DB = dbsqlc.DBTX
)

// Config says how to reach the database.
type Config struct {
	// DSN is a connection string as libpq reads it. The store sets search_path to progressor by itself.
	DSN string
	// Lanes is the number of group-commit lanes, each with a connection of its own. Default 2; more lose: their flushes
	// wait for each other in the log.
	Lanes int
	// MaxConns bounds the general pool (reads, lists, imports). Default 8.
	MaxConns int
	// Logger for lost connections and recoveries. Default: slog.Default.
	Logger *slog.Logger
	// Registerer of the store's metrics; nil: none.
	Registerer prometheus.Registerer
}

// Store is one database.
type Store struct {
	log         *slog.Logger
	q           *dbsqlc.Queries
	lanes       []*lane
	pending     atomic.Int64  // operations under way in the lanes
	hot         *pgxpool.Pool // scans, with the hot path's plans
	general     *pgxpool.Pool // reads, lists, imports: default plans
	kept        *pgxpool.Pool // heartbeats, answers, what is watched, and recovery: never starved by the others
	metrics     *metrics
	histories   histories
	lines       lines
	nodeID      atomic.Int64
	generations generations
	wholes      bool // for tests: no item takes a quick statement
	listen      *pgx.ConnConfig
	adopt       atomic.Pointer[func([]Claim)]
	deliver     atomic.Pointer[func([]process.Key, bool)]
	eventMode   atomic.Pointer[func(string) EventMode]
	stop        context.CancelFunc
	stopped     context.Context
}

// hotSettings keep the statements of the hot path on the plans that were measured: reached by primary key or partial index,
// whatever a statistic from an empty table says. 50,000 due timers: 8,700/s without them, 19,000/s with them.
var hotSettings = map[string]string{
	"plan_cache_mode":               "force_generic_plan",
	"jit":                           "off",
	"enable_seqscan":                "off",
	"enable_hashjoin":               "off",
	"enable_mergejoin":              "off",
	"enable_material":               "off",
	"enable_bitmapscan":             "off",
	"lock_timeout":                  "250",
	"statement_timeout":             "10000",
	"synchronous_commit":            "on",
	"default_transaction_isolation": "read committed",
}

// calmSettings are for everything else.
var calmSettings = map[string]string{
	"statement_timeout": "60000",
	"lock_timeout":      "5000",
}

// Open connects to the database and checks that this program can work with its schema.
func Open(ctx context.Context, cfg Config) (*Store, error) {
	if cfg.Lanes <= 0 {
		cfg.Lanes = 2
	}
	if cfg.MaxConns <= 0 {
		cfg.MaxConns = 8
	}
	if cfg.Logger == nil {
		cfg.Logger = slog.Default()
	}
	s := &Store{log: cfg.Logger, q: dbsqlc.New(), metrics: newMetrics(cfg.Registerer)}
	s.lines.wait, s.lines.visits = lineWait, map[process.Key]*visit{}
	s.stopped, s.stop = context.WithCancel(context.Background())
	pools := []struct {
		into     **pgxpool.Pool
		max      int
		settings map[string]string
		name     string
	}{
		{&s.hot, 4, hotSettings, "hot"}, {&s.general, cfg.MaxConns, calmSettings, "general"}, {&s.kept, 3, hotSettings, "kept"},
	}
	var watched []namedPool
	for _, p := range pools {
		pool, err := s.openPool(ctx, cfg.DSN, p.max, p.settings, "progressor "+p.name, p.into == &s.general, p.into == &s.hot)
		if err != nil {
			s.closePools()
			return nil, fmt.Errorf("open pool %s: %w", p.name, err)
		}
		*p.into = pool
		watched = append(watched, namedPool{pool, p.name})
	}
	s.metrics.watchPools(watched)
	have, err := CheckSchema(ctx, s.general)
	if err != nil {
		s.closePools()
		return nil, err
	}
	if want := SchemaVersion(); have > want {
		s.log.WarnContext(ctx, "the schema is newer than this program, and says that both agree", "schema", have, "program", want)
	}
	laneConfig, err := connConfig(cfg.DSN, hotSettings, "progressor lane")
	if err == nil {
		s.listen, err = connConfig(cfg.DSN, calmSettings, "progressor listen")
	}
	if err != nil {
		s.closePools()
		return nil, err
	}
	for n := range cfg.Lanes {
		l := newLane(s, n, laneConfig)
		s.lanes = append(s.lanes, l)
		go l.run()
	}
	s.metrics.watchLanes(s.lanes)
	return s, nil
}

// Close stops the lanes and closes every connection. Operations that are under way are answered ErrUnavailable.
func (s *Store) Close() {
	s.stop()
	for _, l := range s.lanes {
		<-l.gone
	}
	s.closePools()
}

func (s *Store) closePools() {
	for _, p := range []*pgxpool.Pool{s.hot, s.general, s.kept} {
		if p != nil {
			p.Close()
		}
	}
}

// OnAdopt sets who runs claims that turned up in the database after a commit whose answer was lost. One that runs already is to be
// known by its fencing token, and left alone.
func (s *Store) OnAdopt(run func([]Claim)) { s.adopt.Store(&run) }

// Ping tells whether the database answers.
func (s *Store) Ping(ctx context.Context) error {
	if err := s.kept.Ping(ctx); err != nil {
		return unavailable("ping", err)
	}
	return nil
}

func connConfig(dsn string, settings map[string]string, name string) (*pgx.ConnConfig, error) {
	cfg, err := pgx.ParseConfig(dsn)
	if err != nil {
		return nil, fmt.Errorf("dsn: %w", redact(err))
	}
	tune(&cfg.Config, settings, name)
	return cfg, nil
}

// tune sets what every connection has: the schema, UTC, and bounds on what a dead peer or a frozen client can hold up.
func tune(cfg *pgconn.Config, settings map[string]string, name string) {
	cfg.ConnectTimeout = 5 * time.Second
	cfg.OnNotice = noteCancelledWait
	p := cfg.RuntimeParams
	p["search_path"] = "progressor"
	p["timezone"] = "UTC"
	p["application_name"] = name
	p["idle_in_transaction_session_timeout"] = "10000"
	p["tcp_keepalives_idle"] = "10"
	p["tcp_keepalives_interval"] = "5"
	p["tcp_keepalives_count"] = "3"
	for k, v := range settings {
		p[k] = v
	}
}

// openPool opens a pool. pings: a connection that has not been used for a while is tried before it is: after a restart of the
// database nobody's read fails for a connection that broke while it rested. counts: its transactions count jobs, and each connection takes a
// number of a lane: no claim waits for another's commit.
func (s *Store) openPool(ctx context.Context, dsn string, size int, settings map[string]string, name string, pings, counts bool) (*pgxpool.Pool, error) {
	cfg, err := pgxpool.ParseConfig(dsn)
	if err != nil {
		return nil, fmt.Errorf("dsn: %w", redact(err))
	}
	tune(&cfg.ConnConfig.Config, settings, name)
	cfg.MaxConns = int32(size) //nolint:gosec // a handful of connections
	cfg.AfterConnect = func(ctx context.Context, conn *pgx.Conn) error {
		if err := s.confirm(ctx, conn); err != nil || !counts {
			return err
		}
		return s.q.TakeLane(ctx, conn, laneLocks)
	}
	cfg.ShouldPing = func(_ context.Context, p pgxpool.ShouldPingParams) bool {
		// At rest pings would double the queries of the pollers. A dead connection shows at their next query, which comes again.
		return pings && p.IdleDuration > 50*time.Millisecond
	}
	pool, err := pgxpool.NewWithConfig(ctx, cfg)
	if err != nil {
		return nil, err
	}
	if err := pool.Ping(ctx); err != nil {
		pool.Close()
		return nil, redact(err)
	}
	return pool, nil
}

// redact keeps passwords out of errors: pgconn masks them in its own messages, other errors are passed on.
func redact(err error) error {
	var parse *pgconn.ParseConfigError
	if errors.As(err, &parse) {
		return errors.New(parse.Error())
	}
	return err
}

package storage

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"net"
	"strconv"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"
)

// connectTimeout limits one attempt to connect, including the password command.
const connectTimeout = 5 * time.Second

// hostTimeout replaces connectTimeout if there are several hosts. A host that does not answer
// delays the others by this time.
const hostTimeout = 2 * time.Second

// planSettings make PostgreSQL use primary keys and partial indexes for the statements of lanes and
// pools, regardless of the statistics. These may be from a time when a table was empty. If one
// process has a million waiting tasks, the planner may expect as many for each process. It would
// then read whole tables for a single row, or start parallel workers.
var planSettings = map[string]string{
	"jit":                             "off",
	"enable_seqscan":                  "off",
	"enable_hashjoin":                 "off",
	"enable_mergejoin":                "off",
	"enable_material":                 "off",
	"enable_bitmapscan":               "off",
	"max_parallel_workers_per_gather": "0",
}

// hotSettings are the settings of connections for the hot path. With 50,000 due timers, an engine
// ran 8,700 timers/s without generic plans and planSettings, and 19,000 timers/s with them.
var hotSettings = withPlans(map[string]string{
	"plan_cache_mode":               "force_generic_plan",
	"lock_timeout":                  "250",
	"statement_timeout":             "10000",
	"synchronous_commit":            "on",
	"default_transaction_isolation": "read committed",
})

// backgroundSettings are the settings of migrations and of the connection that listens. JIT
// compilation is off, because it takes longer than their statements.
var backgroundSettings = map[string]string{
	"jit":                "off",
	"statement_timeout":  "60000",
	"lock_timeout":       "5000",
	"synchronous_commit": "on",
}

// generalSettings are the settings of connections for reads, lists and maintenance.
var generalSettings = withPlans(backgroundSettings)

// withPlans returns settings with planSettings.
func withPlans(settings map[string]string) map[string]string {
	all := maps.Clone(settings)
	maps.Copy(all, planSettings)
	return all
}

// connConfig parses a connection string for a connection that is not in a pool.
func connConfig(dsn string, settings map[string]string, name string) (*pgx.ConnConfig, error) {
	cfg, err := pgx.ParseConfig(dsn)
	if err != nil {
		return nil, fmt.Errorf("dsn: %w", redact(err))
	}
	applySettings(&cfg.Config, settings, name)
	return cfg, nil
}

// applySettings applies the settings that all connections have in common: the schema, UTC, limits
// for dead peers and frozen clients, and which servers are accepted.
func applySettings(cfg *pgconn.Config, settings map[string]string, name string) {
	cfg.ConnectTimeout = connectTimeout
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
	RequireWritable(cfg)
	if cfg.ValidateConnect == nil {
		// target_session_attrs is not set. A standby would answer reads with old rows.
		cfg.ValidateConnect = pgconn.ValidateConnectTargetSessionAttrsPrimary
	}
	closes := cfg.OnPgError
	cfg.OnPgError = func(conn *pgconn.PgConn, err *pgconn.PgError) bool {
		// A session that began read-only stays read-only when the server is writable again.
		return err.Code != stateReadOnly && closes(conn, err)
	}
}

// RequireWritable makes a connection string with several hosts accept only a writable server,
// unless target_session_attrs is set. Each host is tried for hostTimeout.
func RequireWritable(cfg *pgconn.Config) {
	if !hasSeveralHosts(cfg) {
		return
	}
	cfg.ConnectTimeout = hostTimeout
	if cfg.ValidateConnect == nil {
		cfg.ValidateConnect = pgconn.ValidateConnectTargetSessionAttrsReadWrite
	}
}

// hasSeveralHosts reports whether a connection string names more than one server. A host that is
// tried with and without TLS counts once.
func hasSeveralHosts(cfg *pgconn.Config) bool {
	first := net.JoinHostPort(cfg.Host, strconv.Itoa(int(cfg.Port)))
	for _, f := range cfg.Fallbacks {
		if net.JoinHostPort(f.Host, strconv.Itoa(int(f.Port))) != first {
			return true
		}
	}
	return false
}

// connect opens a connection that is not in a pool.
func (s *Store) connect(ctx context.Context, cfg *pgx.ConnConfig) (*pgx.Conn, error) {
	cfg = cfg.Copy()
	if err := s.setPassword(ctx, cfg); err != nil {
		return nil, err
	}
	conn, err := pgx.ConnectConfig(ctx, cfg)
	return conn, redact(err)
}

// setPassword replaces the password of the DSN with the current one if Config.Password is set.
func (s *Store) setPassword(ctx context.Context, cfg *pgx.ConnConfig) error {
	if s.password == nil {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, connectTimeout)
	defer cancel()
	password, err := s.password(ctx)
	if err != nil {
		return err
	}
	cfg.Password = password
	return nil
}

// poolConfig describes one of the store's pools.
type poolConfig struct {
	name     string
	size     int
	settings map[string]string
	// pings makes the pool check an idle connection before use, so that after a restart of the
	// database no read fails because of a connection that broke while idle.
	pings bool
	// takesLane gives each connection the number of a lane, because its transactions update
	// counters of jobs. With separate counters, no claim waits for the commit of another claim.
	takesLane bool
	// limited pools share the limit of reconnects. Heartbeats are not limited, because a node
	// without heartbeats stops its tasks.
	limited bool
}

func (s *Store) openPool(ctx context.Context, dsn string, p poolConfig) (*pgxpool.Pool, error) {
	cfg, err := pgxpool.ParseConfig(dsn)
	if err != nil {
		return nil, fmt.Errorf("dsn: %w", redact(err))
	}
	applySettings(&cfg.ConnConfig.Config, p.settings, "progressor "+p.name)
	cfg.MaxConns = int32(p.size)
	cfg.BeforeConnect = s.setPassword
	if p.limited {
		cfg.BeforeConnect, cfg.ConnConfig.Tracer = s.beforeLimitedConnect, &s.reconnects
	}
	cfg.AfterConnect = func(ctx context.Context, conn *pgx.Conn) error {
		began := time.Now()
		err := s.confirm(ctx, conn)
		if p.limited {
			s.reconnects.end(ctx, began, err)
		}
		if err != nil || !p.takesLane {
			return err
		}
		return s.q.TakeLane(ctx, conn, laneLocks)
	}
	cfg.ShouldPing = func(_ context.Context, idle pgxpool.ShouldPingParams) bool {
		// In an idle engine, pings would double the queries of the pollers. A poller that gets a
		// dead connection repeats its query.
		return p.pings && idle.IdleDuration > 50*time.Millisecond
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

// beforeLimitedConnect prepares an attempt of a pool whose attempts are limited.
func (s *Store) beforeLimitedConnect(ctx context.Context, cfg *pgx.ConnConfig) error {
	if err := s.reconnects.begin(ctx); err != nil {
		return err
	}
	began := time.Now()
	err := s.setPassword(ctx, cfg)
	if err != nil {
		s.reconnects.end(ctx, began, err)
	}
	return err
}

// redact removes passwords from errors. It keeps only the message of a pgconn.ParseConfigError,
// because the error itself contains the connection string. pgconn masks the password in the
// message. Other errors are returned unchanged.
func redact(err error) error {
	var parse *pgconn.ParseConfigError
	if errors.As(err, &parse) {
		return errors.New(parse.Error())
	}
	return err
}

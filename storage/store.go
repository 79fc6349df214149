package storage

import (
	"context"
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

// The types of rows, as sqlc generates them.
type (
	// Process is a row of processes.
	Process = dbsqlc.GetProcessRow
	// Task is a task in any status.
	Task = dbsqlc.GetTaskRow
	// Event is a row of events, as in a trace.
	Event = dbsqlc.TraceEventsRow
	// Timer is a pending timer of a process.
	Timer = dbsqlc.GetTimersRow
	// Namespace is a row of namespaces.
	Namespace = dbsqlc.Namespace
	// Node is a row of nodes, with the number of tasks that it runs.
	Node = dbsqlc.ListNodesRow
	// Request is a row of requests.
	Request = dbsqlc.Request
	// Claim is a task that was assigned to this node, with its process as it was at that time. If
	// its kind has its own row for the process, KindName and the fields after it contain that row.
	Claim = dbsqlc.SearchCallsRow
	// DB runs queries. It is a connection, a pool or a transaction.
	DB = dbsqlc.DBTX
)

// Config configures a Store.
type Config struct {
	// DSN is a libpq connection string. The store sets search_path to progressor itself.
	DSN string
	// Password returns the password of a new connection, in place of the password of the DSN. It is
	// called for every connection, with a timeout of 5 s. Nil means the password of the DSN.
	Password func(context.Context) (string, error)
	// Lanes is the number of group-commit lanes, each with its own connection. The default is 2.
	// More lanes are slower, because their flushes wait for each other in the WAL.
	Lanes int
	// ScanConns is the size of the pool for scans, polls, histories, leases and answers. It must be
	// at least 2. The default is 3.
	ScanConns int
	// MaxConns is the size of the pool for reads, lists and maintenance. The default is 2.
	MaxConns int
	// WithoutFastPath turns the fast path off: all calls and results use the general statements,
	// which is slower. Tests use it, because everything must work without the fast path.
	WithoutFastPath bool
	// Logger logs lost connections and recoveries. The default is slog.Default().
	Logger *slog.Logger
	// Registerer registers the metrics of the store. If it is nil, they are not registered.
	Registerer prometheus.Registerer
}

// withDefaults returns c with defaults for settings that are not set.
func (c Config) withDefaults() Config {
	if c.Lanes <= 0 {
		c.Lanes = 2
	}
	if c.ScanConns <= 0 {
		c.ScanConns = 3
	}
	c.ScanConns = max(c.ScanConns, 2) // scans never take the last connection
	if c.MaxConns <= 0 {
		c.MaxConns = 2
	}
	if c.Logger == nil {
		c.Logger = slog.Default()
	}
	return c
}

// connections returns the maximum number of connections of a node: those of the pools, one per
// lane, one for the heartbeat of the node and one for LISTEN.
func (c Config) connections() int { return c.Lanes + c.ScanConns + c.MaxConns + 2 }

// Store stores the processes of an engine in a PostgreSQL database. It is safe for concurrent use.
type Store struct {
	connections
	hooks
	log        *slog.Logger
	q          *dbsqlc.Queries
	lanes      []*lane
	pending    atomic.Int64 // operations in progress in the lanes
	metrics    *metrics
	histories  histories
	callQueues callQueues
	// changeReaders are woken by commits.
	changeReaders changeReaders
	purges        purges
	forgotten     forgotten
	nodeID        atomic.Int64
	generations   generations
	generalOnly   bool // no item uses the fast path, see Config.WithoutFastPath
	// portable is the setting progressor.portable: the database may lack NOTIFY, advisory locks and
	// the features that the fast path uses.
	portable bool
	// hasFlushed is set if this store has flushed since it merged the index of metadata.
	hasFlushed atomic.Bool
	// waitsForLocks makes flushes wait for the locks of their processes, for tests in which two
	// transactions meet.
	waitsForLocks bool
	stop          context.CancelFunc
	stopped       context.Context
}

// connections are the connections of a node to the database, except those of its lanes.
type connections struct {
	shared *pgxpool.Pool // used by hot and kept, with the settings for the hot path
	hot    *share        // scans, polls and histories
	// kept is for heartbeats of workers, answers, watchers and recovery. The work on hot cannot
	// starve it.
	kept    *share
	general *pgxpool.Pool // reads, lists and maintenance
	// slow is the part of general for lists and searches, which may take a long time, and for
	// batches, which may wait for the lock of a process.
	slow *share
	// beats has one connection for the heartbeats of the node, because a node without heartbeats
	// must stop its tasks.
	beats          *pgxpool.Pool
	listen         *pgx.ConnConfig
	password       func(context.Context) (string, error)
	reconnects     reconnects
	maxConnections int // number of connections of this node, including those of the lanes
}

// hooks are functions of the engine. A hook that is not set is nil.
type hooks struct {
	adopt     atomic.Pointer[func([]Claim)]
	deliver   atomic.Pointer[func([]process.Key, bool)]
	eventMode atomic.Pointer[func(string) EventMode]
}

// Open connects to the database and checks that its schema is compatible with this program.
func Open(ctx context.Context, cfg Config) (*Store, error) {
	cfg = cfg.withDefaults()
	s := &Store{
		log: cfg.Logger, q: dbsqlc.New(), metrics: newMetrics(cfg.Registerer), generalOnly: cfg.WithoutFastPath,
		connections: connections{password: cfg.Password, maxConnections: cfg.connections()},
	}
	s.callQueues.wait, s.callQueues.byProcess = callQueueWait, map[process.Key]*processQueue{}
	s.stopped, s.stop = context.WithCancel(context.Background())
	if err := s.openPools(ctx, cfg); err != nil {
		s.closePools()
		return nil, err
	}
	laneConfig, err := connConfig(cfg.DSN, hotSettings, "progressor lane")
	if err == nil {
		s.listen, err = connConfig(cfg.DSN, backgroundSettings, "progressor listen")
	}
	if err != nil {
		s.closePools()
		return nil, err
	}
	// A lane only writes. The pools can still read while the server is read-only.
	laneConfig.ValidateConnect = pgconn.ValidateConnectTargetSessionAttrsReadWrite
	for n := range cfg.Lanes {
		l := newLane(s, n, laneConfig)
		s.lanes = append(s.lanes, l)
		go l.run()
	}
	s.metrics.watchLanes(s.lanes)
	return s, nil
}

// openPools opens the pools. It opens general first and checks the schema, because the other pools
// need functions of the current schema.
func (s *Store) openPools(ctx context.Context, cfg Config) error {
	pools := []struct {
		into   **pgxpool.Pool
		opened func(context.Context) error
		poolConfig
	}{
		{&s.general, s.checkDatabase, poolConfig{
			name: "general", size: cfg.MaxConns, settings: generalSettings, pings: true, limited: true,
		}},
		{&s.shared, nil, poolConfig{
			name: "hot", size: cfg.ScanConns, settings: hotSettings, takesLane: true, limited: true,
		}},
		{&s.beats, nil, poolConfig{name: "heartbeat", size: 1, settings: hotSettings}},
	}
	var watched []namedPool
	for _, p := range pools {
		pool, err := s.openPool(ctx, cfg.DSN, p.poolConfig)
		if err != nil {
			return fmt.Errorf("open pool %s: %w", p.name, err)
		}
		*p.into = pool
		watched = append(watched, namedPool{pool, p.name})
		if p.opened != nil {
			if err := p.opened(ctx); err != nil {
				return err
			}
		}
	}
	s.hot, s.kept = newShare("scans", s.shared), newShare("answers", s.shared)
	s.slow = newShare("searches", s.general)
	s.metrics.watchPools(watched, s.hot, s.kept, s.slow)
	return nil
}

// checkDatabase checks the schema and reads whether the database is portable.
func (s *Store) checkDatabase(ctx context.Context) error {
	have, err := CheckSchema(ctx, s.general)
	if err != nil {
		return err
	}
	if want := SchemaVersion(); have > want {
		s.log.WarnContext(ctx, "the schema is newer than this program, and declares itself compatible", "schema", have,
			"program", want)
	}
	if s.portable, err = s.q.IsPortable(ctx, s.general); err != nil {
		return mapped("setting progressor.portable: must be on or off", err)
	}
	s.generalOnly = s.generalOnly || s.portable
	return nil
}

// Close stops the lanes and closes all connections. Operations in progress return ErrUnavailable.
func (s *Store) Close() {
	s.stop()
	for _, l := range s.lanes {
		<-l.gone
	}
	s.closePools()
}

func (s *Store) closePools() {
	for _, p := range []*pgxpool.Pool{s.shared, s.general, s.beats} {
		if p != nil {
			p.Close()
		}
	}
}

// resetPools closes the connections of the pools shared and general. Connections in use are closed
// when they are released.
func (s *Store) resetPools() {
	for _, p := range []*pgxpool.Pool{s.shared, s.general} {
		p.Reset()
	}
}

// OnAdopt sets the function that runs claims which were committed although the response was lost.
// It must ignore claims that already run; their fencing tokens identify them.
func (s *Store) OnAdopt(run func([]Claim)) { s.adopt.Store(&run) }

// Ready returns an error if a lane cannot write to the database. The error names the lane and the
// time of its first failure.
func (s *Store) Ready() error {
	for _, l := range s.lanes {
		if f := l.failure.Load(); f != nil {
			return fmt.Errorf("lane %d has been unable to write to the database since %s: %w",
				l.number, f.since.UTC().Format(time.RFC3339), f.err)
		}
	}
	return nil
}

// Ping returns an error if the database does not answer.
func (s *Store) Ping(ctx context.Context) error {
	if err := s.kept.Ping(ctx); err != nil {
		return unavailable("ping", err)
	}
	return nil
}

// Pending returns the number of operations that wait in the lanes or are being stored.
func (s *Store) Pending() int64 { return s.pending.Load() }

// PutAside returns the number of pending operations that wait for a row that another session has
// locked.
func (s *Store) PutAside() (n int64) {
	for _, l := range s.lanes {
		n += l.aside.Load()
	}
	return n
}

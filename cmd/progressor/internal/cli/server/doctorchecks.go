package server

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/progressor-engine/progressor/cmd/progressor/internal/cli/output"
	"github.com/progressor-engine/progressor/migrations"
)

// These types contain facts from PostgreSQL's own views. The role of doctor needs pg_read_all_stats
// (or pg_monitor) to see other sessions.

type serverFacts struct {
	Version  string    `json:"version"`
	Database string    `json:"database"`
	Started  time.Time `json:"started"`
}

func (e *examination) checkServer(ctx context.Context, conn *pgx.Conn) error {
	return conn.QueryRow(ctx,
		`SELECT current_setting('server_version'), current_database(), pg_postmaster_start_time()`).
		Scan(&e.Server.Version, &e.Server.Database, &e.Server.Started)
}

// setting is a relevant setting of the server, with a remark if its value has a disadvantage.
type setting struct {
	Name   string `json:"name"`
	Value  string `json:"value"`
	Remark string `json:"remark,omitempty"`
}

// settingRemarks describe the disadvantage of a value. If data is at risk, the remark is also a
// warning.
var settingRemarks = []struct {
	name  string
	costs string // the value with the disadvantage; "" if there is none
	cost  string
	want  string // the recommended value; "" if the remark is sufficient
}{
	{"fsync", "off", "a crash can destroy the database", "on"},
	{"synchronous_commit", "off", "a crash loses acknowledged transactions", "on"},
	{"full_page_writes", "off", "a crash can destroy pages, unless the file system writes them atomically", "on"},
	{"default_transaction_read_only", "on", "new connections cannot write", "off"},
	{"autovacuum", "off", "the hot tables grow without limit", "on"},
	{"wal_init_zero", "on",
		"stalls of 60 to 90 ms for new WAL segments: turn it off, or set min_wal_size to an hour of WAL", ""},
	{"idle_in_transaction_session_timeout", "0", "an abandoned transaction blocks vacuum without limit", ""},
	{"min_wal_size", "", "", ""},
	{"max_wal_size", "", "", ""},
	{"wal_level", "", "", ""},
	{"shared_buffers", "", "", ""},
}

func (e *examination) checkSettings(ctx context.Context, conn *pgx.Conn) error {
	for _, s := range settingRemarks {
		found := setting{Name: s.name}
		if err := conn.QueryRow(ctx, `SELECT coalesce(current_setting($1, true), '')`,
			s.name).Scan(&found.Value); err != nil {
			return fmt.Errorf("setting %s: %w", s.name, err)
		}
		if found.Value == s.costs && s.costs != "" {
			found.Remark = s.cost
			if s.want != "" {
				next := fmt.Sprintf("ALTER SYSTEM SET %s = %s; SELECT pg_reload_conf()", s.name, s.want)
				e.warn(next, "%s is %s: %s", s.name, found.Value, s.cost)
			}
		}
		e.Settings = append(e.Settings, found)
	}
	return nil
}

type connections struct {
	Used       int `json:"used"`
	Progressor int `json:"progressor"`
	Max        int `json:"max"`     // without reserved connections
	Engines    int `json:"engines"` // the maximum number of connections that all live nodes can open
}

func (e *examination) checkConnections(ctx context.Context, conn *pgx.Conn) error {
	c := &e.Connections
	err := conn.QueryRow(ctx, `
		SELECT current_setting('max_connections')::int - current_setting('superuser_reserved_connections')::int
		       - coalesce(nullif(current_setting('reserved_connections', true), '')::int, 0),
		       count(*), count(*) FILTER (WHERE application_name LIKE 'progressor%')
		FROM pg_stat_activity WHERE backend_type = 'client backend'`).Scan(&c.Max, &c.Used, &c.Progressor)
	if err != nil {
		return err
	}
	if c.Used*10 > c.Max*9 {
		e.warn("raise max_connections, or lower --db.max-conns", "%d of %d connections are used", c.Used, c.Max)
	}
	if e.Schema.Version == 0 {
		return nil
	}
	var nodes int
	err = conn.QueryRow(ctx, `
		SELECT count(*), coalesce(sum(coalesce(max_connections, $2)), 0)
		FROM progressor.nodes
		WHERE beat_time > statement_timestamp() - make_interval(secs => $1)`,
		output.SilentAfter.Seconds(), formerMaxConnections).Scan(&nodes, &c.Engines)
	if err == nil && c.Engines > c.Max {
		e.warn("raise max_connections, or lower --db.scan-conns, --db.max-conns or the number of nodes",
			"%s may open %d connections together, but PostgreSQL accepts %d", output.Counted(nodes, "node"), c.Engines,
			c.Max)
	}
	return err
}

// formerMaxConnections is the maximum number of connections of a node whose version does not report
// it.
const formerMaxConnections = 19

// namedIndex matches the statements of migrations that create and drop indexes. An index that is
// built concurrently is dropped first, in case an earlier attempt failed.
var namedIndex = regexp.MustCompile(
	`(?i)(CREATE|DROP)\s+(?:UNIQUE\s+)?INDEX\s+(?:CONCURRENTLY\s+)?(?:IF\s+(?:NOT\s+)?EXISTS\s+)?(\w+)`)

// expectedIndexes returns the named indexes of the migrations up to a version.
func expectedIndexes(version int64) ([]string, error) {
	files, err := fs.Glob(migrations.FS, "*.sql")
	if err != nil {
		return nil, err
	}
	var names []string
	for _, file := range files {
		var number int64
		if _, err := fmt.Sscanf(file, "%d_", &number); err != nil || number > version {
			continue
		}
		text, err := fs.ReadFile(migrations.FS, file)
		if err != nil {
			return nil, err
		}
		up, _, _ := strings.Cut(string(text), "-- +goose Down")
		for _, m := range namedIndex.FindAllStringSubmatch(up, -1) {
			if strings.EqualFold(m[1], "CREATE") {
				names = append(names, m[2])
				continue
			}
			names = slices.DeleteFunc(names, func(n string) bool { return n == m[2] })
		}
	}
	return names, nil
}

func (e *examination) checkIndexes(ctx context.Context, conn *pgx.Conn) error {
	rows, err := conn.Query(ctx, `
		SELECT c.relname, i.indisvalid AND i.indisready
		FROM pg_index i JOIN pg_class c ON c.oid = i.indexrelid JOIN pg_namespace n ON n.oid = c.relnamespace
		WHERE n.nspname = 'progressor'`)
	if err != nil {
		return err
	}
	valid := map[string]bool{}
	var name string
	var good bool
	if _, err := pgx.ForEachRow(rows, []any{&name, &good},
		func() error { valid[name] = good; return nil }); err != nil {
		return err
	}
	for name, good := range valid {
		if !good {
			e.violate("REINDEX INDEX CONCURRENTLY progressor."+name, "index %s is invalid", name)
		}
	}
	if e.Schema.Version > e.Schema.Newest {
		return nil // a newer migration may have dropped some
	}
	expected, err := expectedIndexes(e.Schema.Version)
	if err != nil {
		return fmt.Errorf("read the migrations: %w", err)
	}
	for _, name := range expected {
		if _, there := valid[name]; !there {
			e.violate("create it with the statement of the migration", "index %s is missing", name)
		}
	}
	return nil
}

// tableFigures are the statistics of a table.
type tableFigures struct {
	Name       string     `json:"name"`
	Live       int64      `json:"live_rows"`
	Dead       int64      `json:"dead_rows"`
	Bytes      int64      `json:"bytes"`
	IndexBytes int64      `json:"index_bytes"`
	Size       string     `json:"size"`
	IndexSize  string     `json:"index_size"`
	Updates    int64      `json:"updates"`
	HotUpdates int64      `json:"hot_updates"`
	Vacuumed   *time.Time `json:"last_vacuum"`
	XIDAge     int64      `json:"xid_age"`
}

func (t tableFigures) hot() string {
	if t.Updates == 0 {
		return ""
	}
	return fmt.Sprintf("%d %%", 100*t.HotUpdates/t.Updates)
}

func (t tableFigures) lastVacuum() any {
	if t.Vacuumed == nil {
		return "never"
	}
	return output.Second(*t.Vacuumed)
}

func (e *examination) checkTables(ctx context.Context, conn *pgx.Conn) error {
	rows, err := conn.Query(ctx, `
		SELECT s.relname, n_live_tup, n_dead_tup, pg_table_size(relid), pg_indexes_size(relid),
		       pg_size_pretty(pg_table_size(relid)), pg_size_pretty(pg_indexes_size(relid)), n_tup_upd, n_tup_hot_upd,
		       greatest(last_vacuum, last_autovacuum), age(c.relfrozenxid)
		FROM pg_stat_user_tables s JOIN pg_class c ON c.oid = s.relid WHERE s.schemaname = 'progressor'
		  ORDER BY s.relname`)
	if err != nil {
		return err
	}
	e.Tables, err = pgx.CollectRows(rows, pgx.RowToStructByPos[tableFigures])
	if err != nil {
		return err
	}
	for _, t := range e.Tables {
		if t.Dead > 100_000 && t.Dead > 2*t.Live {
			e.warn("check the oldest xmin below, and autovacuum", "table %s has %d dead rows and %d live ones", t.Name,
				t.Dead, t.Live)
		}
	}
	return nil
}

// nodeFacts is a row of nodes.
type nodeFacts struct {
	ID           int64     `json:"node_id"`
	Address      string    `json:"address"`
	Version      string    `json:"version"`
	Started      time.Time `json:"started_time"`
	BeatAge      float64   `json:"beat_age_seconds"`
	Draining     bool      `json:"draining"`
	RequestsOnly bool      `json:"requestsOnly"`
}

func (e *examination) checkNodes(ctx context.Context, conn *pgx.Conn) error {
	e.Nodes = []nodeFacts{}
	if e.Schema.Version == 0 {
		return nil
	}
	rows, err := conn.Query(ctx, `
		SELECT node_id, address, version, started_time,
		  extract(epoch FROM statement_timestamp() - beat_time)::float8, draining,
		       coalesce((to_jsonb(n)->>'requests_only')::boolean, false) -- older schemas have no such column
		FROM progressor.nodes n ORDER BY node_id`)
	if err != nil {
		return err
	}
	e.Nodes, err = pgx.CollectRows(rows, pgx.RowToStructByPos[nodeFacts])
	return err
}

// transaction is a transaction that has been open for a long time.
type transaction struct {
	PID         int32   `json:"pid"`
	Age         float64 `json:"age_seconds"`
	State       string  `json:"state"`
	User        string  `json:"user"`
	Application string  `json:"application"`
	Client      string  `json:"client"`
}

// checkTransactions finds transactions that have been open for longer than long, and the holder of
// the oldest xmin. It ignores autovacuum, whose transactions do not hold back vacuum and must not
// be ended.
func (e *examination) checkTransactions(ctx context.Context, conn *pgx.Conn, long time.Duration) error {
	rows, err := conn.Query(ctx, `
		SELECT pid, extract(epoch FROM statement_timestamp() - xact_start)::float8, coalesce(state, ''),
		  coalesce(usename, ''),
		       coalesce(application_name, ''), coalesce(client_addr::text, 'local')
		FROM pg_stat_activity
		WHERE xact_start < statement_timestamp() - make_interval(secs => $1) AND pid <> pg_backend_pid()
		  AND backend_type NOT IN ('walsender', 'autovacuum worker')
		ORDER BY xact_start`, long.Seconds())
	if err != nil {
		return err
	}
	e.Transactions, err = pgx.CollectRows(rows, pgx.RowToStructByPos[transaction])
	if err != nil {
		return err
	}
	for _, t := range e.Transactions {
		e.warn(fmt.Sprintf("end it: pg_terminate_backend(%d)", t.PID),
			"a transaction of %s (%s) has been open for %.0f s: it holds back vacuum", t.User, t.Application, t.Age)
	}
	return e.checkXmin(ctx, conn)
}

// xminHolder holds the oldest xmin. Vacuum keeps all rows that the holder may still see.
type xminHolder struct {
	Age  int64  `json:"age"` // in transactions
	Kind string `json:"kind"`
	Who  string `json:"who"`
}

func (x *xminHolder) String() string {
	if x == nil {
		return "not held"
	}
	age := output.Counted(int(x.Age), "transaction")
	return fmt.Sprintf("%s old, held by %s %s", age, x.Kind, output.OneLine(x.Who))
}

func (e *examination) checkXmin(ctx context.Context, conn *pgx.Conn) error {
	var x xminHolder
	err := conn.QueryRow(ctx, `
		SELECT age(xmin), kind, who FROM (
		  SELECT backend_xmin, 'backend', format('pid %s (%s)', pid, application_name) FROM pg_stat_activity
		    WHERE pid <> pg_backend_pid() AND backend_type <> 'autovacuum worker'
		  UNION ALL SELECT backend_xid, 'backend', format('pid %s (%s)', pid, application_name)
		    FROM pg_stat_activity WHERE pid <> pg_backend_pid() AND backend_type <> 'autovacuum worker'
		  UNION ALL SELECT xmin, 'replication slot', slot_name FROM pg_replication_slots
		  UNION ALL SELECT catalog_xmin, 'replication slot', slot_name FROM pg_replication_slots
		  UNION ALL SELECT transaction, 'prepared transaction', gid FROM pg_prepared_xacts
		) AS holders(xmin, kind, who) WHERE xmin IS NOT NULL ORDER BY age(xmin) DESC LIMIT 1`).Scan(&x.Age, &x.Kind,
		&x.Who)
	switch {
	case errors.Is(err, pgx.ErrNoRows):
		return nil
	case err != nil:
		return err
	}
	e.OldestXmin = &x
	if x.Age > 1_000_000 {
		e.warn("end its holder", "the oldest xmin is %s", x.String())
	}
	return nil
}

package server

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jedib0t/go-pretty/v6/table"

	"github.com/progressor-engine/progressor/cmd/progressor/internal/cli"
	"github.com/progressor-engine/progressor/cmd/progressor/internal/cli/output"
	progressorv1 "github.com/progressor-engine/progressor/proto/progressor/v1"
	"github.com/progressor-engine/progressor/storage"
)

// doctorTimeout limits the complete check, because the check holds a snapshot.
const doctorTimeout = 10 * time.Minute

type doctorCmd struct {
	databaseFlags
	cli.OutputFlag
	LongTransaction time.Duration `default:"1m" placeholder:"DURATION" help:"Show transactions that have been open for longer. Default: ${default}."`
	AuditHead       string        `placeholder:"POSITION:HASH" help:"Also check that the audit still has this entry: a head that doctor printed earlier."`
}

func (doctorCmd) Help() string {
	return `Doctor checks a database and changes nothing. Engines can run at the same time: the invariants are
checked on one snapshot, and the hash chain of the audit in batches of one snapshot each. Do not run
a migration at the same time, because doctor reports an index in construction as invalid. Doctor
reads all rows, and its snapshot holds back vacuum. It ends with an error after 10 minutes. Run it
on a standby if the database is large.

The exit code is 1 if an invariant is violated, the hash chain of the audit is broken, an index is
missing or invalid, or this binary cannot use the schema. Warnings do not change the exit code.

    progressor doctor --db.dsn "$(cat .progressor/dsn)"
    progressor doctor -c /etc/progressor.yaml -o json`
}

func (c *doctorCmd) Run(a *cli.App) error {
	if err := c.check(); err != nil {
		return err
	}
	known, err := parseAuditHead(c.AuditHead)
	if err != nil {
		return cli.UsageError(err)
	}
	ctx, cancelSignal := a.Interruptible()
	defer cancelSignal()
	ctx, cancel := context.WithTimeout(ctx, doctorTimeout)
	defer cancel()
	dsn, err := c.DB.current(ctx)
	if err != nil {
		return err
	}
	found, err := examine(ctx, dsn, examineOptions{long: c.LongTransaction, auditHead: known})
	if err != nil {
		return err
	}
	if c.JSON() {
		err = output.PrintJSON(a.Stdout, found)
	} else {
		err = found.print(a)
	}
	if err != nil {
		return err
	}
	if n := len(found.Violations); n > 0 {
		return &cli.CodedError{Code: cli.ExitFailed, Err: fmt.Errorf("doctor found %s", output.Counted(n, "violation"))}
	}
	return nil
}

// examination is the result of doctor.
type examination struct {
	Version      string         `json:"version"` // version of this binary
	Server       serverFacts    `json:"server"`
	Schema       schemaFacts    `json:"schema"`
	Violations   []finding      `json:"violations"`
	Warnings     []finding      `json:"warnings"`
	Invariants   []invariant    `json:"invariants"`
	Transactions []transaction  `json:"transactions"` // open for a long time
	OldestXmin   *xminHolder    `json:"oldest_xmin"`
	Frozen       frozen         `json:"frozen"`
	Settings     []setting      `json:"settings"`
	Connections  connections    `json:"connections"`
	Tables       []tableFigures `json:"tables"`
	Nodes        []nodeFacts    `json:"nodes"`

	Audit *storage.AuditChain `json:"audit"` // nil if it was not checked
}

// finding is a problem with the next step to solve it.
type finding struct {
	What string `json:"what"`
	Next string `json:"next,omitempty"`
}

type invariant struct {
	Name       string `json:"name"`
	Looked     int64  `json:"looked"` // number of checked rows
	Violations int    `json:"violations"`
}

func (e *examination) violate(next, format string, args ...any) {
	e.Violations = append(e.Violations, finding{What: fmt.Sprintf(format, args...), Next: next})
}

func (e *examination) warn(next, format string, args ...any) {
	e.Warnings = append(e.Warnings, finding{What: fmt.Sprintf(format, args...), Next: next})
}

// examineOptions are the flags of doctor.
type examineOptions struct {
	long      time.Duration      // minimum age of a transaction that is shown
	auditHead *storage.AuditHead // an entry that the audit must contain, or nil
}

// examine runs all checks.
func examine(ctx context.Context, dsn string, o examineOptions) (*examination, error) {
	states, err := storage.MigrationStatus(ctx, dsn)
	if err != nil {
		return nil, err
	}
	e := &examination{Version: cli.BuildVersion(), Violations: []finding{}, Warnings: []finding{}}
	e.Schema = schemaFacts{Version: schemaVersion(states), Newest: storage.SchemaVersion()}
	cfg, err := pgx.ParseConfig(dsn)
	if err != nil {
		return nil, checkDSN(dsn)
	}
	cfg.RuntimeParams["search_path"] = "progressor"
	cfg.RuntimeParams["timezone"] = "UTC"
	cfg.RuntimeParams["application_name"] = "progressor doctor"
	storage.RequireWritable(&cfg.Config)
	conn, err := pgx.ConnectConfig(ctx, cfg)
	if err != nil {
		return nil, fmt.Errorf("connect: %w", err)
	}
	defer conn.Close(context.WithoutCancel(ctx)) //nolint:errcheck // nothing is left to do on the connection
	if err := e.checkSchema(ctx, conn); err != nil {
		return nil, err
	}
	if e.Schema.isCurrent() {
		if err := e.checkInvariants(ctx, conn); err != nil {
			return nil, err
		}
	}
	checks := []struct {
		subject string
		run     func(context.Context, *pgx.Conn) error
	}{
		{"server", e.checkServer}, {"settings", e.checkSettings}, {"connections", e.checkConnections},
		{"indexes", e.checkIndexes}, {"tables", e.checkTables}, {"nodes", e.checkNodes},
		{"transaction IDs", e.checkFreezing}, {"queues", e.checkQueues}, {"idempotency keys", e.checkKeys},
		{"failing tasks", e.checkFailing}, {"sinks", e.checkSinks},
		{"rights to the audit", e.checkAuditRoles},
		{"audit", func(ctx context.Context, conn *pgx.Conn) error { return e.checkAudit(ctx, conn, o.auditHead) }},
		{"transactions", func(ctx context.Context, conn *pgx.Conn) error {
			return e.checkTransactions(ctx, conn, o.long)
		}},
	}
	for _, c := range checks {
		err := c.run(ctx, conn)
		if e.Schema.isMissingObject(err) {
			e.warn("", "cannot check the %s: %v", c.subject, err)
			continue
		}
		if err != nil {
			return nil, fmt.Errorf("check the %s: %w", c.subject, err)
		}
	}
	return e, nil
}

// schemaFacts compares the database's schema with this binary's.
type schemaFacts struct {
	Version int64 `json:"version"` // newest migration in the database
	Newest  int64 `json:"newest"`  // newest migration of this binary
}

// isCurrent reports whether the schema version is that of this binary.
func (s schemaFacts) isCurrent() bool { return s.Version == s.Newest }

// isMissingObject reports whether an error means that an object is missing in the schema of another
// version.
func (s schemaFacts) isMissingObject(err error) bool {
	const syntaxOrAccess = "42"
	var pg *pgconn.PgError
	return !s.isCurrent() && errors.As(err, &pg) && strings.HasPrefix(pg.Code, syntaxOrAccess)
}

// checkSchema checks that this binary can use the schema. The invariants are checked only if the
// schema has the version of this binary. For another version, some invariants would be missing or
// wrong.
func (e *examination) checkSchema(ctx context.Context, conn *pgx.Conn) error {
	_, err := storage.CheckSchema(ctx, conn)
	var refused *storage.SchemaError
	switch {
	case errors.As(err, &refused) && refused.Have < refused.Want:
		e.violate("progressor migrate up",
			"the schema has version %d, this binary needs %d: the invariants were not checked", refused.Have,
			refused.Want)
	case errors.As(err, &refused):
		e.violate("run a newer progressor",
			"this binary, of schema version %d, cannot work with the schema, which has version %d: the invariants "+
				"were not checked",
			refused.Want, refused.Have)
	case err != nil:
		return err
	case !e.Schema.isCurrent():
		e.warn("run the doctor of a newer progressor",
			"the schema has version %d, newer than this binary's %d but compatible: the invariants were not checked",
			e.Schema.Version, e.Schema.Newest)
	}
	return nil
}

func (e *examination) checkInvariants(ctx context.Context, conn *pgx.Conn) error {
	report, err := storage.CheckInvariants(ctx, conn)
	if err != nil {
		return err
	}
	broken := map[string]int{}
	for _, v := range report.Violations {
		broken[v.Invariant]++
		e.violate("keep a copy of the database, and report a bug", "%s: %s: %s", v.Invariant, processName(v), v.Detail)
	}
	for _, name := range slices.Sorted(maps.Keys(report.Checked)) {
		e.Invariants = append(e.Invariants,
			invariant{Name: name, Looked: report.Checked[name], Violations: broken[name]})
	}
	return nil
}

func processName(v storage.Violation) string {
	if v.Namespace == "" && v.ProcessID == "" {
		return "database"
	}
	return v.Namespace + "/" + v.ProcessID
}

// print writes the result for people. The problems come last, so that they are visible without
// scrolling.
func (e *examination) print(a *cli.App) error {
	err := output.PrintFields(a.Stdout,
		output.Field{"progressor", e.Version},
		output.Field{"PostgreSQL", e.Server.Version},
		output.Field{"database",
			output.Phrase{e.Server.Database, ", up since ", output.Second(e.Server.Started)}},
		output.Field{"schema", fmt.Sprintf("version %d of %d", e.Schema.Version, e.Schema.Newest)},
		output.Field{"connections",
			fmt.Sprintf("%d of %d, %d of them progressor's", e.Connections.Used, e.Connections.Max,
				e.Connections.Progressor)},
		output.Field{"oldest xmin", e.OldestXmin.String()},
		output.Field{"xid age", fmt.Sprintf("%d transactions, frozen at %d", e.Frozen.Age, e.Frozen.MaxAge)},
		output.Field{"audit", e.auditText()},
	)
	if err != nil {
		return err
	}
	for _, section := range e.sections() {
		fmt.Fprintf(a.Stdout, "\n%s\n", section.title)
		if err := output.PrintRows(a.Stdout, section.header, section.rows); err != nil {
			return err
		}
	}
	for _, list := range []struct {
		title    string
		findings []finding
	}{{"warnings", e.Warnings}, {"violations", e.Violations}} {
		fmt.Fprintf(a.Stdout, "\n%s: %d\n", list.title, len(list.findings))
		for _, f := range list.findings {
			text := "- " + output.OneLine(f.What)
			if f.Next != "" {
				text += ". Next: " + output.OneLine(f.Next)
			}
			fmt.Fprintln(a.Stdout, text)
		}
	}
	return nil
}

type section struct {
	title  string
	header table.Row
	rows   []table.Row
}

func (e *examination) sections() []section {
	nodes := section{"nodes", table.Row{"node", "address", "version", "started", "last beat", "state"}, nil}
	for _, n := range e.Nodes {
		nodes.rows = append(nodes.rows, table.Row{
			n.ID, output.OneLine(n.Address), output.OneLine(n.Version), output.Second(n.Started),
			fmt.Sprintf("%.1f s ago", n.BeatAge),
			output.NodeState(time.Duration(n.BeatAge*float64(time.Second)), &progressorv1.Node{
				Draining: n.Draining, RequestsOnly: n.RequestsOnly,
			}),
		})
	}
	tables := section{"tables", table.Row{"table", "rows", "dead", "size", "indexes", "HOT updates", "last vacuum"},
		nil}
	for _, t := range e.Tables {
		tables.rows = append(tables.rows,
			table.Row{t.Name, t.Live, t.Dead, t.Size, t.IndexSize, t.hot(), t.lastVacuum()})
	}
	settings := section{"settings", table.Row{"setting", "value", "remark"}, nil}
	for _, s := range e.Settings {
		settings.rows = append(settings.rows, table.Row{s.Name, s.Value, s.Remark})
	}
	transactions := section{"long transactions", table.Row{"pid", "open for", "state", "user", "application", "client"},
		nil}
	for _, t := range e.Transactions {
		transactions.rows = append(transactions.rows, table.Row{
			t.PID, fmt.Sprintf("%.0f s", t.Age), t.State, output.OneLine(t.User), output.OneLine(t.Application),
			output.OneLine(t.Client),
		})
	}
	invariants := section{"invariants", table.Row{"invariant", "rows looked at", "violations"}, nil}
	for _, i := range e.Invariants {
		invariants.rows = append(invariants.rows, table.Row{i.Name, i.Looked, i.Violations})
	}
	return []section{nodes, tables, settings, transactions, invariants}
}

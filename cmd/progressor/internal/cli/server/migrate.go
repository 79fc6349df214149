package server

import (
	"errors"
	"fmt"
	"time"

	"github.com/jedib0t/go-pretty/v6/table"

	"github.com/progressor-engine/progressor/cmd/progressor/internal/cli"
	"github.com/progressor-engine/progressor/cmd/progressor/internal/cli/output"
	"github.com/progressor-engine/progressor/storage"
)

type migrateCmd struct {
	Up     migrateUpCmd     `cmd:"" help:"Apply missing migrations."`
	Down   migrateDownCmd   `cmd:"" help:"Revert the newest migration."`
	Status migrateStatusCmd `cmd:"" help:"Show the applied migrations."`
}

// databaseFlags select the database of a command.
type databaseFlags struct {
	configFlag
	DB dsnFlag `embed:"" prefix:"db."`
}

func (f databaseFlags) check() error {
	if err := f.DB.check(); err != nil {
		return cli.UsageError(err)
	}
	return nil
}

type migrateUpCmd struct {
	databaseFlags
	LockWait time.Duration `default:"10m" placeholder:"DURATION" help:"How long to retry if a table is locked by another session. Default: ${default}."`
}

func (migrateUpCmd) Help() string {
	return `Up applies missing migrations, even while engines run. Concurrent runs wait for each other. If
another transaction has locked a table that must change, the command names it, backs off after 0.1
s, so that engines do not queue behind it, and retries. Only the build of an index, which blocks
no other statement, waits until older transactions have ended; the command reports this every
second.

    progressor migrate up --db.dsn postgres://owner@db/progressor`
}

func (c *migrateUpCmd) Run(a *cli.App) error {
	if err := c.check(); err != nil {
		return err
	}
	ctx, cancel := a.Interruptible()
	defer cancel()
	if c.LockWait <= 0 {
		return cli.UsageError(errors.New("--lock-wait: must be more than 0s"))
	}
	waiting := func(holder string) { fmt.Fprintln(a.Stderr, "waiting for a table, "+output.OneLine(holder)) }
	dsn, err := c.DB.current(ctx)
	if err != nil {
		return err
	}
	if err := (storage.Migration{DSN: dsn, LockWait: c.LockWait, Waiting: waiting}).Up(ctx); err != nil {
		return err
	}
	states, err := storage.MigrationStatus(ctx, dsn)
	if err != nil {
		return err
	}
	if have, want := schemaVersion(states), storage.SchemaVersion(); have > want {
		_, err = fmt.Fprintf(a.Stdout, "nothing to do: the schema has version %d, newer than this program's %d\n", have,
			want)
		return err
	}
	_, err = fmt.Fprintf(a.Stdout, "the schema is up to date: version %d\n", schemaVersion(states))
	return err
}

type migrateDownCmd struct {
	databaseFlags
	Yes bool `short:"y" help:"Confirm that the tables and columns of the migration are deleted with their data."`
}

func (migrateDownCmd) Help() string {
	return `Down reverts the newest migration and deletes the data in its tables and columns. The
oldest schema of this binary cannot be reverted. Stop all engines first.

    progressor migrate down --yes --db.dsn postgres://owner@db/progressor`
}

func (c *migrateDownCmd) Run(a *cli.App) error {
	if err := c.check(); err != nil {
		return err
	}
	if !c.Yes {
		return cli.UsageError(
			errors.New("down deletes the data in the tables and columns of the newest migration: confirm with --yes"))
	}
	ctx, cancel := a.Interruptible()
	defer cancel()
	dsn, err := c.DB.current(ctx)
	if err != nil {
		return err
	}
	if err := storage.MigrateDown(ctx, dsn); err != nil {
		return err
	}
	states, err := storage.MigrationStatus(ctx, dsn)
	if err != nil {
		return err
	}
	_, err = fmt.Fprintf(a.Stdout, "the schema has version %d\n", schemaVersion(states))
	return err
}

type migrateStatusCmd struct {
	databaseFlags
	cli.OutputFlag
}

func (migrateStatusCmd) Help() string {
	return `Status shows the migrations of this binary, and when each was applied.

    progressor migrate status --db.dsn postgres://owner@db/progressor`
}

func (c *migrateStatusCmd) Run(a *cli.App) error {
	if err := c.check(); err != nil {
		return err
	}
	ctx, cancel := a.Interruptible()
	defer cancel()
	dsn, err := c.DB.current(ctx)
	if err != nil {
		return err
	}
	states, err := storage.MigrationStatus(ctx, dsn)
	if err != nil {
		return err
	}
	if c.JSON() {
		return output.PrintJSON(a.Stdout, migrationsOf(states))
	}
	var rows []table.Row
	for _, s := range migrationsOf(states) {
		var applied any = "not yet"
		if s.AppliedTime != nil {
			applied = output.Second(*s.AppliedTime)
		}
		name := s.Name
		if name == "" {
			name = "of a newer progressor"
		}
		rows = append(rows, table.Row{s.Version, name, applied})
	}
	return output.PrintRows(a.Stdout, table.Row{"version", "name", "applied"}, rows)
}

// migration is a migration in the JSON output.
type migration struct {
	Version     int64      `json:"version"`
	Name        string     `json:"name"`
	AppliedTime *time.Time `json:"applied_time"`
}

func migrationsOf(states []storage.MigrationState) []migration {
	all := make([]migration, 0, len(states))
	for _, s := range states {
		all = append(all, migration{s.Version, s.Name, s.AppliedTime})
	}
	return all
}

// schemaVersion returns the newest applied migration, or 0 if there is none.
func schemaVersion(states []storage.MigrationState) int64 {
	var newest int64
	for _, s := range states {
		if s.AppliedTime != nil {
			newest = max(newest, s.Version)
		}
	}
	return newest
}

package main

import (
	"errors"
	"fmt"
	"time"

	"github.com/jedib0t/go-pretty/v6/table"

	"github.com/progressor-engine/progressor/storage"
)

type migrateCmd struct {
	Up     migrateUpCmd     `cmd:"" help:"Bring the schema up to date."`
	Down   migrateDownCmd   `cmd:"" help:"Take the newest migration back."`
	Status migrateStatusCmd `cmd:"" help:"Show which migrations are applied."`
}

// databaseFlags say which database a command is about.
type databaseFlags struct {
	configFlag
	DB dsnFlag `embed:"" prefix:"db."`
}

func (f databaseFlags) check() error {
	if err := f.DB.check(); err != nil {
		return usageError(err)
	}
	return nil
}

type migrateUpCmd struct {
	databaseFlags
	Patience time.Duration `default:"10m" placeholder:"DURATION" help:"How long to try to lock what somebody else holds, such as a table that a transaction has read which is still open. Default: ${default}."`
}

func (migrateUpCmd) Help() string {
	return `Up applies the migrations that are missing; engines may run meanwhile. Several at once wait for each other. Where a transaction
holds what has to be changed, up says which, gives way after a tenth of a second, so that engines do not queue behind it, and tries again.
Only the build of an index, behind which nobody queues, waits for as long as older transactions last; up says every second for which.

    progressor migrate up --db.dsn postgres://owner@db/progressor`
}

func (c *migrateUpCmd) Run(a *app) error {
	if err := c.check(); err != nil {
		return err
	}
	ctx, cancel := a.interruptible()
	defer cancel()
	if c.Patience <= 0 {
		return usageError(errors.New("--patience: want more than 0s"))
	}
	waiting := func(holder string) { fmt.Fprintln(a.Stderr, "waiting for a table, "+oneLine(holder)) }
	dsn, err := c.DB.current(ctx)
	if err != nil {
		return err
	}
	if err := (storage.Migration{DSN: dsn, LockWait: c.Patience, Waiting: waiting}).Up(ctx); err != nil {
		return err
	}
	states, err := storage.MigrationStatus(ctx, dsn)
	if err != nil {
		return err
	}
	if have, want := schemaVersion(states), storage.SchemaVersion(); have > want {
		_, err = fmt.Fprintf(a.Stdout, "nothing to do: the schema has version %d, newer than this program's %d\n", have, want)
		return err
	}
	_, err = fmt.Fprintf(a.Stdout, "the schema is up to date: version %d\n", schemaVersion(states))
	return err
}

type migrateDownCmd struct {
	databaseFlags
	Yes bool `help:"Really: what the migration made is lost, with its rows."`
}

func (migrateDownCmd) Help() string {
	return `Down takes the newest migration back, with everything that is stored in what it made. Taking the first one back
deletes all processes. Stop every engine before.

    progressor migrate down --yes --db.dsn postgres://owner@db/progressor`
}

func (c *migrateDownCmd) Run(a *app) error {
	if err := c.check(); err != nil {
		return err
	}
	if !c.Yes {
		return usageError(errors.New("down deletes what is stored in what the newest migration made: say --yes"))
	}
	ctx, cancel := a.interruptible()
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
	outputFlag
}

func (migrateStatusCmd) Help() string {
	return `Status shows the migrations that this binary has, and when each was applied.

    progressor migrate status --db.dsn postgres://owner@db/progressor`
}

func (c *migrateStatusCmd) Run(a *app) error {
	if err := c.check(); err != nil {
		return err
	}
	ctx, cancel := a.interruptible()
	defer cancel()
	dsn, err := c.DB.current(ctx)
	if err != nil {
		return err
	}
	states, err := storage.MigrationStatus(ctx, dsn)
	if err != nil {
		return err
	}
	if c.json() {
		return printJSON(a.Stdout, migrationsOf(states))
	}
	var rows []table.Row
	for _, s := range migrationsOf(states) {
		applied := "not yet"
		if s.AppliedTime != nil {
			applied = s.AppliedTime.UTC().Format(time.RFC3339)
		}
		name := s.Name
		if name == "" {
			name = "of a newer progressor"
		}
		rows = append(rows, table.Row{s.Version, name, applied})
	}
	return printRows(a.Stdout, table.Row{"version", "name", "applied"}, rows)
}

// migration is a migration as programs read it.
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

// schemaVersion is the newest migration that is applied; 0: none.
func schemaVersion(states []storage.MigrationState) int64 {
	var newest int64
	for _, s := range states {
		if s.AppliedTime != nil {
			newest = max(newest, s.Version)
		}
	}
	return newest
}

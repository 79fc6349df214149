package main

import (
	"fmt"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"

	"github.com/progressor-engine/progressor/cmd/progressor/internal/cli"
	"github.com/progressor-engine/progressor/cmd/progressor/internal/cli/clitest"
	"github.com/progressor-engine/progressor/storage/storagetest"
)

// With several hosts, commands that connect to the database accept only a writable server.
func TestDoctorOfSeveralHosts(t *testing.T) {
	t.Parallel()
	dsn, program := storagetest.DSN(t), clitest.Program{Commands: newCommands}
	program.OK(t, "migrate", "up", "--db.dsn", dsn)
	cfg, err := pgx.ParseConfig(dsn)
	if err != nil {
		t.Fatal(err)
	}
	several := fmt.Sprintf("%s host=%[2]s,/nowhere port=%[3]d,1", dsn, cfg.Host, cfg.Port)
	program.OK(t, "doctor", "--db.dsn", several)
	program.OK(t, "key", "list", "--db.dsn", several)
	pool := storagetest.Connect(t, dsn)
	readOnly := func(value string) {
		storagetest.Exec(t, pool,
			fmt.Sprintf("ALTER DATABASE %q SET default_transaction_read_only = %s", cfg.Database, value))
	}
	readOnly("on")
	defer readOnly("off")
	for _, command := range [][]string{{"doctor"}, {"key", "list"}} {
		r := program.Run(t, append(command, "--db.dsn", several)...)
		if r.Code == cli.ExitOK || !strings.Contains(r.Stderr, "read only") {
			t.Errorf("%v on a read-only server: %+v", command, r)
		}
	}
}

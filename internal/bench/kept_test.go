package bench

import (
	"bytes"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"

	"github.com/progressor-engine/progressor/storage/storagetest"
)

func TestRetention(t *testing.T) {
	report := runShort(t, "--workloads=retention", "--ended=200")
	if len(report.Rows) != 2 || report.Rows[0].Operations == 0 || report.Rows[1].Operations == 0 ||
		report.Rows[1].Checked["counts_agree"] == 0 {
		t.Errorf("%+v", report.Rows)
	}
	if !strings.Contains(report.Rows[1].Note, "of 200 removed") {
		t.Errorf("the note is %q", report.Rows[1].Note)
	}
}

// The first run of flat fills a database and keeps it. Later runs measure in it.
func TestFlatDatabase(t *testing.T) {
	dsn := storagetest.DSN(t, storagetest.WithoutInvariants())
	const name = "flat_that_stays"
	run := func() string {
		var stdout bytes.Buffer
		var stderr lockedBuffer
		c := parse(t, append(append([]string{"--dsn", dsn}, short...), "--workloads=flat", "--flat-database="+name)...)
		if err := c.Run(t.Context(),
			Environment{Stdin: strings.NewReader(""), Stdout: &stdout, Stderr: &stderr}); err != nil {
			t.Fatalf("%v\n%s", err, &stderr)
		}
		return stdout.String()
	}
	if out := run(); !strings.Contains(out, "database "+name+" was filled with") {
		t.Error(out)
	}
	if out := run(); strings.Contains(out, "was filled") || !strings.Contains(out, "among 20 processes with 60 tasks") {
		t.Error(out)
	}
	kept, err := dsnWith(dsn, name)
	if err != nil {
		t.Fatal(err)
	}
	storagetest.Invariants(t, kept)
	conn, err := pgx.Connect(t.Context(), dsn)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close(t.Context())
	if _, err := conn.Exec(t.Context(), "DROP DATABASE "+name+" WITH (FORCE)"); err != nil {
		t.Error(err)
	}
}

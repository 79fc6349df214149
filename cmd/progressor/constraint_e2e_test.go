package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/progressor-engine/progressor/cmd/progressor/internal/cli"
	"github.com/progressor-engine/progressor/storage/storagetest"
)

// Constraints of a namespace are put with flags and files, listed as text and JSON, and deleted.
func TestConstraints(t *testing.T) {
	t.Parallel()
	d := background(t, nil, "serve", "--listen", "127.0.0.1:0", "--db.dsn", storagetest.DSN(t))
	d.Client.OK(t, "namespace", "put", "mail", "--pull")
	file := filepath.Join(t.TempDir(), "region.yaml")
	if err := os.WriteFile(file,
		[]byte("match: job.name == \"send\"\nkey: job.args.region\nrate: {count: 5, per: 1m}\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	d.Client.OK(t, "constraint", "put", "mail", "region", "-f", file, "--max-running", "2")
	d.Client.OK(t, "constraint", "put", "mail", "all", "--rate", "10/s", "--burst", "3")
	list := d.Client.OK(t, "constraint", "list", "mail")
	for _, want := range []string{"10/1s burst 3", `job.name == "send"  job.args.region            2  5/1m`} {
		if !strings.Contains(list, want) {
			t.Errorf("the list has no %q:\n%s", want, list)
		}
	}
	if text := d.Client.OK(t, "constraint", "list", "mail", "-o", "json"); !strings.Contains(text, `"maxRunning": 2`) {
		t.Errorf("as JSON: %s", text)
	}
	d.Client.OK(t, "constraint", "delete", "mail", "all")
	if list := d.Client.OK(t, "constraint", "list", "mail"); strings.Contains(list, "burst") {
		t.Errorf("the constraint is still listed:\n%s", list)
	}
	for _, c := range []struct{ args, want string }{
		{"put mail c --max-running 1 --match job.nmae=='x'",
			"--match: line 1, column 4: undeclared reference to 'job.nmae' (did you mean 'job.name'?)"},
		{"put mail c --max-running 1 --match job.foo==1",
			"--match: line 1, column 1: unknown name job.foo: use job.name, "},
		{"put mail c --max-running 1 --match job.name='x'",
			"--match: line 1, column 9: = is not an operator: use == to compare"},
		{"put mail c --rate 10", `--rate "10": must be a number of jobs and a period, such as 10/s or 100/1m`},
		{"put mail c --rate 10/week", `--rate "10/week": must have a period after the /`},
		{"put mail c --burst 3", "--burst requires --rate"},
		{"put mail c", "this constraint limits nothing: set --max-running N"},
		{"delete mail c", `constraint "c" not found: mail`},
	} {
		if r := d.Client.Run(t, append([]string{"constraint"}, strings.Fields(c.args)...)...); r.Code == cli.ExitOK ||
			!strings.Contains(r.Stderr, c.want) {
			t.Errorf("%s: code %d, %s; want %s", c.args, r.Code, r.Stderr, c.want)
		}
	}
}

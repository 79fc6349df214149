package server

import (
	"context"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
)

// The password is read again for each connection, from the file or with the command.
func TestPasswordIsReadAgain(t *testing.T) {
	t.Parallel()
	file := filepath.Join(t.TempDir(), "password")
	for name, flags := range map[string]dsnFlag{
		"file":    {PasswordFile: file},
		"command": {PasswordCommand: "cat " + file},
	} {
		for _, want := range []string{"first", `it's \ a "second"`} {
			if err := os.WriteFile(file, []byte(want+"\n"), 0o600); err != nil {
				t.Fatal(err)
			}
			if got, err := flags.password()(t.Context()); got != want || err != nil {
				t.Errorf("%s: %q, %v; want %q", name, got, err, want)
			}
			for _, dsn := range []string{
				"postgres://user:old@host/db", "postgresql://user@host/db?sslmode=disable", "host=host user=user password=old dbname=db",
			} {
				flags.DSN = dsn
				current, err := flags.current(t.Context())
				if err != nil {
					t.Fatal(err)
				}
				config, err := pgx.ParseConfig(current)
				if err != nil || config.Password != want || config.User != "user" || config.Database != "db" {
					t.Errorf("%s of %s: %v, %v", name, dsn, config, err)
				}
				if strings.Contains(redactDSN(current), "second") {
					t.Errorf("the password is shown: %s", redactDSN(current))
				}
			}
		}
	}
	if (dsnFlag{DSN: "host=a"}).password() != nil {
		t.Error("without a setting, the password is that of the DSN")
	}
}

// Errors name the setting. A command that does not end is stopped.
func TestPasswordErrors(t *testing.T) {
	t.Parallel()
	empty := filepath.Join(t.TempDir(), "empty")
	if err := os.WriteFile(empty, []byte("\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		flags dsnFlag
		want  string
	}{
		{dsnFlag{PasswordFile: "/nowhere"}, "--db.password-file: open /nowhere: no such file or directory"},
		{dsnFlag{PasswordFile: empty}, "--db.password-file: " + empty + ": contains no password"},
		{dsnFlag{PasswordCommand: "echo expired >&2; exit 3"}, "--db.password-command: exit status 3: expired"},
		{dsnFlag{PasswordCommand: "echo a; echo b"}, "--db.password-command: must contain a single line"},
		{dsnFlag{PasswordCommand: "sleep 600"}, "--db.password-command: timed out: context deadline exceeded"},
	} {
		ctx, cancel := context.WithTimeout(t.Context(), 2*time.Second)
		_, err := c.flags.password()(ctx)
		cancel()
		if err == nil || err.Error() != c.want {
			t.Errorf("%+v: %v, want %s", c.flags, err, c.want)
		}
	}
	both := dsnFlag{DSN: "host=a", PasswordFile: "a", PasswordCommand: "b"}
	if err := both.check(); err == nil || !strings.Contains(err.Error(), "--db.password-command: set only one") {
		t.Errorf("both: %v", err)
	}
}

package storage_test

import (
	"errors"
	"fmt"
	"testing"

	"github.com/jackc/pgx/v5/pgconn"

	"github.com/progressor-engine/progressor/storage"
	"github.com/progressor-engine/progressor/storage/storagetest"
)

// MayBecomeReachable returns false for errors that remain until the settings of the engine or of
// the database are changed. An engine that gets another error tries again.
func TestMayBecomeReachable(t *testing.T) {
	t.Parallel()
	dsn := storagetest.DSN(t)
	if err := storage.Reach(t.Context(), dsn); err != nil {
		t.Fatal(err)
	}
	for with, want := range map[string]bool{
		" host=" + t.TempDir():        true, // no socket of a server
		" host=127.0.0.1 port=1":      true,
		" host=db.invalid":            true, // the name servers may be down
		" dbname=absent":              false,
		" user=absent":                false,
		" port=many":                  false,
		" options='-c no_setting=on'": false,
	} {
		if err := storage.Reach(t.Context(), dsn+with); err == nil || storage.MayBecomeReachable(err) != want {
			t.Errorf("%s: %v", with, err)
		}
	}
	for code, want := range map[string]bool{
		"57P03": true,  // the server is starting
		"53300": true,  // too many connections
		"57P01": true,  // the server is stopping
		"08006": true,  // the connection failed
		"28P01": false, // wrong password
		"28000": false, // the role may not log in
		"3D000": false, // the database does not exist
		"42501": false, // insufficient privilege
	} {
		err := fmt.Errorf("connect: %w", errors.Join(errors.New("a"), &pgconn.PgError{Code: code}))
		if storage.MayBecomeReachable(err) != want {
			t.Errorf("%s: %v", code, !want)
		}
	}
	if storage.MayBecomeReachable(errors.New("cannot read the password")) {
		t.Error("an error that is neither from the network nor from the server: got true")
	}
}

// HostsOf returns the addresses in a DSN, without its password.
func TestHostsOf(t *testing.T) {
	t.Parallel()
	for dsn, want := range map[string]string{
		"postgres://me:hunter2@a/x":                         "a:5432",
		"postgres://me:hunter2@a:1,b:2/x?sslmode=prefer":    "a:1, b:2",
		"host=::1 port=7 user=me password=hunter2 dbname=x": "[::1]:7",
		"host=a port=many":                                  "",
	} {
		if got := storage.HostsOf(dsn); got != want {
			t.Errorf("%s: %q, want %q", dsn, got, want)
		}
	}
}

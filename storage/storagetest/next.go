package storagetest

import (
	"fmt"
	"io/fs"
	"testing"
	"testing/fstest"

	"github.com/progressor-engine/progressor/migrations"
	"github.com/progressor-engine/progressor/storage"
)

// NextMigrations are this program's migrations, and behind them those of a program to come: what each does, one version after the other.
// NoTransaction before it has it run without one.
func NextMigrations(t testing.TB, ups ...string) fs.FS {
	t.Helper()
	files := fstest.MapFS{}
	names, err := fs.Glob(migrations.FS, "*.sql")
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range names {
		text, err := fs.ReadFile(migrations.FS, name)
		if err != nil {
			t.Fatal(err)
		}
		files[name] = &fstest.MapFile{Data: text}
	}
	for n, up := range ups {
		name := fmt.Sprintf("%05d_next.sql", storage.SchemaVersion()+int64(n)+1)
		files[name] = &fstest.MapFile{Data: []byte("-- +goose Up\n" + up + "\n-- +goose Down\nSELECT 1;\n")}
	}
	return files
}

// NoTransaction goes before what a migration of NextMigrations does outside of a transaction.
const NoTransaction = "-- +goose NO TRANSACTION\n"

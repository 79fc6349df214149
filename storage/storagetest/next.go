package storagetest

import (
	"fmt"
	"io/fs"
	"testing"
	"testing/fstest"

	"github.com/progressor-engine/progressor/migrations"
	"github.com/progressor-engine/progressor/storage"
)

// NextMigrations returns the migrations of this program, followed by the migrations of a future
// program. Each element of ups is one version. If it begins with NoTransaction, it runs without a
// transaction.
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

// NoTransaction is the prefix of migrations of NextMigrations that run outside a transaction.
const NoTransaction = "-- +goose NO TRANSACTION\n"

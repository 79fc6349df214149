package migrations

import "embed"

// The files from First to Base create the schema together, one subject each. They replaced all
// migrations up to Base. Later files migrate a database of that version.
const (
	First = 107
	Base  = 118
)

// FS contains the migrations, one SQL file each. They are applied in the order of their numbers
// while engines run: TestMigrationsLetEnginesRun checks what a migration may do.
//
//go:embed *.sql
var FS embed.FS

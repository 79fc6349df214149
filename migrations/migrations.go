package migrations

import "embed"

// The files from First to Base together create the schema. Each file has one subject. These
// files replaced all migrations up to Base. Later files migrate a database of that version.
const (
	First = 107
	Base  = 118
)

// FS contains the migrations, one SQL file each. They are applied in the order of their numbers
// while engines run. TestMigrationsLetEnginesRun checks that they do not disturb engines.
//
//go:embed *.sql
var FS embed.FS

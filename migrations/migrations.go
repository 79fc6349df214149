package migrations

import "embed"

// Base is the schema version that the first files create together, one subject each. They replaced
// the migrations up to this version. Later files migrate a database of this version.
const Base = 98

// FS contains the migrations, one SQL file each. They are applied in the order of their numbers
// while engines run: TestMigrationsLetEnginesRun says what a migration may do.
//
//go:embed *.sql
var FS embed.FS

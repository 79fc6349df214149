package migrations

import "embed"

// FS contains the migrations, one SQL file each, applied in the order of their numbers. Engines run
// meanwhile: TestMigrationsLetEnginesRun says what a migration may do.
//
//go:embed *.sql
var FS embed.FS

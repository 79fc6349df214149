package storage_test

import (
	"testing"

	"github.com/jackc/pgx/v5"

	"github.com/progressor-engine/progressor/storage/storagetest"
)

// uncommented returns the tables, views, sequences, columns and enum types without a comment.
const uncommented = `
SELECT c.relname::text FROM pg_class c
 WHERE c.relnamespace = 'progressor'::regnamespace AND c.relkind IN ('r', 'p', 'v', 'S') AND c.relname NOT LIKE 'goose%'
   AND NOT EXISTS (SELECT 1 FROM pg_depend d WHERE d.objid = c.oid AND d.deptype = 'i') -- of an identity column
   AND obj_description(c.oid, 'pg_class') IS NULL
UNION ALL
SELECT c.relname || '.' || a.attname FROM pg_class c JOIN pg_attribute a ON a.attrelid = c.oid
 WHERE c.relnamespace = 'progressor'::regnamespace AND c.relkind IN ('r', 'p', 'v') AND c.relname NOT LIKE 'goose%'
   AND a.attnum > 0 AND NOT a.attisdropped AND col_description(c.oid, a.attnum) IS NULL
UNION ALL
SELECT t.typname::text FROM pg_type t
 WHERE t.typnamespace = 'progressor'::regnamespace AND t.typtype = 'e' AND obj_description(t.oid, 'pg_type') IS NULL`

func TestEverythingHasAComment(t *testing.T) {
	conn, err := pgx.Connect(t.Context(), storagetest.DSN(t))
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close(t.Context())
	rows, err := conn.Query(t.Context(), uncommented)
	if err != nil {
		t.Fatal(err)
	}
	names, err := pgx.CollectRows(rows, pgx.RowTo[string])
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range names {
		t.Errorf("%s has no comment", name)
	}
	var columns int
	err = conn.QueryRow(t.Context(),
		"SELECT count(*) FROM information_schema.columns WHERE table_schema = 'progressor'").Scan(&columns)
	if err != nil || columns < 100 {
		t.Errorf("%d columns, %v: the test checked nothing", columns, err)
	}
}

//go:build unix

package storagetest

import (
	"os"
	"testing"
)

// rejectFeatures replaces the functions of NOTIFY, advisory locks and pending lists of indexes with
// functions that return an error. The original functions get other names, because PostgreSQL finds
// a built-in function by its OID, regardless of its definition.
const rejectFeatures = `
SET allow_system_table_mods = on;
DO $do$
DECLARE
  builtin record;
BEGIN
  FOR builtin IN
    SELECT p.oid, p.proname AS name, pg_get_function_identity_arguments(p.oid) AS arguments,
           pg_get_function_result(p.oid) AS result
      FROM pg_proc p
     WHERE p.pronamespace = 'pg_catalog'::regnamespace
       AND (p.proname IN ('pg_notify', 'gin_clean_pending_list') OR p.proname ~ '^pg_(try_)?advisory_')
  LOOP
    EXECUTE format('ALTER FUNCTION %s RENAME TO %I', builtin.oid::regprocedure,
                   'original_' || builtin.name);
    EXECUTE format('CREATE FUNCTION pg_catalog.%I(%s) RETURNS %s LANGUAGE plpgsql AS '
                   '$body$ BEGIN RAISE feature_not_supported USING MESSAGE = %L; END $body$',
                   builtin.name, builtin.arguments, builtin.result,
                   builtin.name || ' is not portable');
  END LOOP;
END $do$`

// NeedsNotify skips a test whose subject is LISTEN and NOTIFY if the databases are portable.
func NeedsNotify(t testing.TB) {
	t.Helper()
	needs(t, "LISTEN and NOTIFY")
}

// NeedsFastPath skips a test whose subject is the fast path if the databases are portable.
func NeedsFastPath(t testing.TB) {
	t.Helper()
	needs(t, "the fast path")
}

// NeedsIndexLists skips a test whose subject is the list of new entries of an index if the
// databases are portable.
func NeedsIndexLists(t testing.TB) {
	t.Helper()
	needs(t, "the list of new entries of an index")
}

func needs(t testing.TB, feature string) {
	t.Helper()
	if AllPortable() {
		t.Skipf("it tests %s, which portable databases do not use", feature)
	}
}

// AllPortable reports whether the databases of all tests are portable.
func AllPortable() bool { return os.Getenv(portableVariable) != "" }

// makePortable turns the setting progressor.portable on for a database, and rejects what portable
// databases may lack.
func makePortable(name, dsn string) error {
	if err := shared.execute("ALTER DATABASE " + name + " SET progressor.portable = 'on'"); err != nil {
		return err
	}
	return execute(dsn, rejectFeatures)
}

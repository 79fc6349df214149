//go:build unix

package storagetest

// rejectFeatures replaces NOTIFY and advisory locks by functions that return an error. The original
// functions get other names, because PostgreSQL finds a built-in function by its OID, whatever its
// definition.
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
       AND (p.proname = 'pg_notify' OR p.proname ~ '^pg_(try_)?advisory_')
  LOOP
    EXECUTE format('ALTER FUNCTION %s RENAME TO %I', builtin.oid::regprocedure,
                   'original_' || builtin.name);
    EXECUTE format('CREATE FUNCTION pg_catalog.%I(%s) RETURNS %s LANGUAGE plpgsql AS '
                   '$body$ BEGIN RAISE feature_not_supported USING MESSAGE = %L; END $body$',
                   builtin.name, builtin.arguments, builtin.result,
                   builtin.name || ' is not portable');
  END LOOP;
END $do$`

// makePortable turns the setting progressor.portable on for a database, and rejects what portable
// databases may lack.
func makePortable(name, dsn string) error {
	if err := shared.execute("ALTER DATABASE " + name + " SET progressor.portable = 'on'"); err != nil {
		return err
	}
	return execute(dsn, rejectFeatures)
}

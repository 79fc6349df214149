-- +goose Up
-- The index of metadata collects new entries in a list, and an engine moves them into the index
-- once a second. The list of the rows of a frequent value is then written once a second, and not
-- for each row. A step of a graph wrote 2,460 bytes of WAL for the index, and now writes 450.
--
-- If the list exceeds its limit, the transaction that adds an entry moves all entries, which delays
-- requests: with 1,000,000 processes, 0.2 s for 10,000 rows. So the limit (2 MiB, or 35,000 rows
-- with three attributes) is more than engines usually store in a second. Searches also read the
-- list, which takes 3 ms if it is full. If only older engines run, transactions that exceed the
-- limit and vacuums move the entries.

-- +goose StatementBegin
DO $$
BEGIN
  IF NOT is_portable() THEN
    ALTER INDEX processes_metadata SET (fastupdate = on, gin_pending_list_limit = 2048);
  END IF;
END $$;
-- +goose StatementEnd

-- +goose StatementBegin
CREATE FUNCTION merge_metadata_index() RETURNS void
LANGUAGE plpgsql SECURITY DEFINER SET search_path = progressor, pg_temp AS $$
BEGIN
  IF NOT has_table_privilege(session_user, 'progressor.processes', 'UPDATE') THEN
    RAISE insufficient_privilege
      USING MESSAGE = 'merge_metadata_index is for roles that may update table processes';
  END IF;
  PERFORM gin_clean_pending_list('processes_metadata');
END $$;
-- +goose StatementEnd
COMMENT ON FUNCTION merge_metadata_index IS
  'Moves new entries of the index processes_metadata from their list into the index. Only the '
  'owner of an index may do so. Engines call it once a second, except in a portable database, '
  'whose index has no such list.';

-- +goose Down
DROP FUNCTION merge_metadata_index;

-- +goose StatementBegin
DO $$
BEGIN
  IF NOT is_portable() THEN
    ALTER INDEX processes_metadata SET (fastupdate = off);
    ALTER INDEX processes_metadata RESET (gin_pending_list_limit);
    PERFORM gin_clean_pending_list('processes_metadata');
  END IF;
END $$;
-- +goose StatementEnd

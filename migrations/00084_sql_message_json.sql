-- +goose Up
-- JSON that comes from SQL is checked like JSON in requests. The check is a trigger, so that it holds
-- for every function that sends. Messages of processes are checked before they are stored: the
-- trigger does not fire for them.

-- +goose StatementBegin
CREATE FUNCTION json_fault(value jsonb) RETURNS text LANGUAGE sql IMMUTABLE SET search_path = progressor, pg_temp AS $$
  SELECT CASE
    WHEN jsonb_path_exists(value, 'strict $.**{100} ? (@.type() == "object" || @.type() == "array")')
      THEN 'is nested deeper than 100 objects and lists'
    WHEN jsonb_path_exists(value, 'strict $.** ? (@.type() == "number" && (@ > 9007199254740992 || @ < -9007199254740992))')
      THEN 'has a number beyond 2^53, which would lose digits: write it as a string'
  END
$$;
-- +goose StatementEnd
COMMENT ON FUNCTION json_fault(jsonb) IS 'Why a JSON value cannot be an attribute or args; NULL if it can.';

-- +goose StatementBegin
CREATE FUNCTION check_sql_message() RETURNS trigger LANGUAGE plpgsql SET search_path = progressor, pg_temp AS $$
DECLARE
  fault text := json_fault(NEW.metadata);
BEGIN
  IF fault IS NOT NULL THEN
    RAISE EXCEPTION 'progressor: metadata %', fault USING ERRCODE = 'invalid_parameter_value';
  END IF;
  IF NEW.job IS NOT NULL THEN
    fault := json_fault(convert_from(NEW.args, 'UTF8')::jsonb);
  END IF;
  IF fault IS NOT NULL THEN
    RAISE EXCEPTION 'progressor: args %', fault USING ERRCODE = 'invalid_parameter_value';
  END IF;
  RETURN NEW;
END $$;
-- +goose StatementEnd
COMMENT ON FUNCTION check_sql_message() IS 'Checks the JSON of a message that a SQL function sends.';

CREATE TRIGGER check_sql_message BEFORE INSERT ON messages
  FOR EACH ROW WHEN (NEW.sender_process_id IS NULL AND (NEW.metadata IS NOT NULL OR NEW.job IS NOT NULL))
  EXECUTE FUNCTION check_sql_message();
COMMENT ON TRIGGER check_sql_message ON messages IS 'JSON that comes from SQL is checked like JSON in requests.';

-- +goose Down
DROP TRIGGER check_sql_message ON messages;
DROP FUNCTION check_sql_message(), json_fault(jsonb);

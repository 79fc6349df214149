-- +goose Up
-- Notices with a payload, which says what has happened.

-- +goose StatementBegin
CREATE FUNCTION send_notice(channel text, payload text) RETURNS void
LANGUAGE plpgsql SET search_path = progressor, pg_temp AS $$
BEGIN
  IF NOT is_portable() THEN
    PERFORM pg_notify(channel, payload);
  END IF;
END $$;
-- +goose StatementEnd
COMMENT ON FUNCTION send_notice(text, text) IS
  'Sends a payload to the nodes that listen on a channel. In a portable database, nodes poll '
  'instead.';

-- +goose Down
DROP FUNCTION send_notice(text, text);

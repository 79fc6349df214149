-- +goose Up
-- A run starts another run, or undoes a step, with args that are larger than a payload. Messages that come from SQL are
-- checked by the functions that send them.
ALTER TABLE messages
  DROP CONSTRAINT messages_args_check,
  ADD CONSTRAINT messages_args_check CHECK (octet_length(args) <= 16777216) NOT VALID;
-- Older engines send no such messages, and deliver them: nothing changes for them.
CREATE OR REPLACE FUNCTION oldest_engine() RETURNS bigint LANGUAGE sql IMMUTABLE AS 'SELECT 32::bigint';

-- +goose Down
ALTER TABLE messages
  DROP CONSTRAINT messages_args_check,
  ADD CONSTRAINT messages_args_check CHECK (octet_length(args) <= 1048576) NOT VALID;

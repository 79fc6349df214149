-- +goose Up
-- error_fingerprint identifies the group of an error, for the list of errors and for filters. The
-- parts that differ from process to process are quoted text, and words with a digit together with
-- the words joined to them (7f3c-12, A-9, 10.0.0.1:5432, /orders/17). Words consist of ASCII
-- letters and digits, _ and all characters beyond ASCII. The collation makes the result the same in
-- all databases.
CREATE FUNCTION error_fingerprint(reason text, message text) RETURNS text
LANGUAGE sql IMMUTABLE PARALLEL SAFE AS $$
  SELECT lpad(to_hex(hashtextextended(
           coalesce(left(reason, 256), '') || chr(10)
             || regexp_replace(
                  left(coalesce(message, ''), 512) COLLATE "C",
                  '"[^"]*"|''[^'']*''|'
                    '[^\u0001-\u002c\u003b-\u003f\u005b-\u005e\u0060\u007b-\u007f]*[0-9]'
                    '([^\u0001-\u002c\u003b-\u003f\u005b-\u005e\u0060\u007b-\u007f]*'
                    '[^\u0001-\u002f\u003a-\u0040\u005b-\u005e\u0060\u007b-\u007f])?',
                  '#', 'g'), 0)), 16, '0')
$$;
COMMENT ON FUNCTION error_fingerprint IS
  'Returns the same value for errors with the same reason and message, ignoring numbers, IDs and '
  'quoted text. It compares 256 characters of the reason and 512 of the message.';

-- +goose Down
DROP FUNCTION error_fingerprint(text, text);

-- +goose Up
ALTER TABLE nodes ADD COLUMN max_connections integer;
COMMENT ON COLUMN nodes.max_connections IS 'Connections to PostgreSQL that it opens at most; NULL: an older version that does not tell, with 19 by default.';

-- +goose Down
ALTER TABLE nodes DROP COLUMN max_connections;

-- +goose NO TRANSACTION
-- +goose Up
-- What is past its retention is found by B-trees. Once vacuum has made room in old pages, a BRIN index excludes nothing:
-- each pass read the whole table.
SET lock_timeout = 0;
DROP INDEX CONCURRENTLY IF EXISTS requests_created_time;
CREATE INDEX CONCURRENTLY requests_created_time ON requests (created_time);
DROP INDEX CONCURRENTLY IF EXISTS requests_created;
DROP INDEX CONCURRENTLY IF EXISTS answers_ended_time;
CREATE INDEX CONCURRENTLY answers_ended_time ON answers (ended_time);
DROP INDEX CONCURRENTLY IF EXISTS answers_ended;
DROP INDEX CONCURRENTLY IF EXISTS dead_letters_dropped_time;
CREATE INDEX CONCURRENTLY dead_letters_dropped_time ON dead_letters (dropped_time);
DROP INDEX CONCURRENTLY IF EXISTS dead_letters_dropped;
RESET lock_timeout;
COMMENT ON COLUMN requests.created_time IS 'The retention of the key counts from here: when the request was accepted; if its task took longer than the retention, when the task ended.';

-- +goose Down
COMMENT ON COLUMN requests.created_time IS 'When the request was accepted.';
DROP INDEX CONCURRENTLY IF EXISTS dead_letters_dropped;
CREATE INDEX CONCURRENTLY dead_letters_dropped ON dead_letters USING brin (dropped_time);
DROP INDEX CONCURRENTLY IF EXISTS dead_letters_dropped_time;
DROP INDEX CONCURRENTLY IF EXISTS answers_ended;
CREATE INDEX CONCURRENTLY answers_ended ON answers USING brin (ended_time);
DROP INDEX CONCURRENTLY IF EXISTS answers_ended_time;
DROP INDEX CONCURRENTLY IF EXISTS requests_created;
CREATE INDEX CONCURRENTLY requests_created ON requests USING brin (created_time);
DROP INDEX CONCURRENTLY IF EXISTS requests_created_time;

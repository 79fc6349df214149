-- +goose Up
-- RetryRun compares the items of a for_each with those that are done. Older engines leave the new column empty.
ALTER TABLE flow_steps ADD COLUMN item_hash bigint;
COMMENT ON COLUMN flow_steps.item_hash IS 'Hash of the value of an item. RetryRun finds by it the items of a list that has changed. NULL: no item, or begun by an older version.';

-- +goose Down
ALTER TABLE flow_steps DROP COLUMN item_hash;

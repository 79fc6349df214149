-- +goose Up
-- Corrects a comment: since schema version 142, IDs of workers belong to clients.
COMMENT ON COLUMN workers.worker_id IS
  'ID of the worker, which the worker chooses. With the owner, it identifies the worker in all '
  'namespaces.';

-- +goose Down
COMMENT ON COLUMN workers.worker_id IS
  'ID of the worker, which the worker chooses. It identifies the worker in all namespaces.';

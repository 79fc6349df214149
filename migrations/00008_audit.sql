-- +goose Up
CREATE TABLE audit (
  audit_id  bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
  time      timestamptz NOT NULL DEFAULT statement_timestamp(),
  actor     text NOT NULL,
  source    text NOT NULL,
  method    text NOT NULL,
  namespace text COLLATE "C" NOT NULL,
  subject   text NOT NULL,
  details   jsonb
);
CREATE INDEX audit_namespace ON audit (namespace, audit_id DESC);
COMMENT ON TABLE audit IS 'What operators have done: a row for each order that changed something, written in its transaction. Kept for 90 days.';
COMMENT ON COLUMN audit.audit_id IS 'Number of the order.';
COMMENT ON COLUMN audit.time IS 'When it was carried out.';
COMMENT ON COLUMN audit.actor IS 'Who gave it; empty where the engine does not authenticate.';
COMMENT ON COLUMN audit.source IS 'The address that it came from.';
COMMENT ON COLUMN audit.method IS 'The method of the API: SuspendProcess, PutNamespace, …';
COMMENT ON COLUMN audit.namespace IS 'The namespace that it was about; empty: none.';
COMMENT ON COLUMN audit.subject IS 'What it was done to: a process_id, a namespace, a node_id.';
COMMENT ON COLUMN audit.details IS 'What else was told, such as the reason, as JSON; no payloads.';

-- +goose Down
DROP TABLE audit;

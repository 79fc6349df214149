-- +goose Up
CREATE TYPE message_kind AS ENUM ('start', 'notify', 'cancel', 'child_end');
COMMENT ON TYPE message_kind IS 'What a message does to its target: start makes it, notify gives it a NOTIFY task, cancel asks it to end, child_end tells it of the end of a child.';

CREATE SEQUENCE message_ids;
COMMENT ON SEQUENCE message_ids IS 'Numbers messages. A process draws them under its lock, so that message_id order is the order in which it sent them.';

CREATE TABLE messages (
  namespace          text COLLATE "C" NOT NULL CHECK (namespace ~ '^[a-zA-Z0-9._/-]{1,128}$'),
  process_id         text COLLATE "C" NOT NULL CHECK (octet_length(process_id) BETWEEN 1 AND 256),
  message_id         bigint NOT NULL DEFAULT nextval('message_ids'),
  kind               message_kind NOT NULL,
  held               boolean NOT NULL DEFAULT false,
  sender_namespace   text COLLATE "C",
  sender_process_id  text COLLATE "C",
  sender_task_id     bigint,
  created_time       timestamptz NOT NULL DEFAULT clock_timestamp(),
  start_time         timestamptz CHECK (start_time >= '1970-01-01 00:00:00Z' AND start_time < '10000-01-01 00:00:00Z'),
  reason             text CHECK (octet_length(reason) <= 4096),
  args               bytea CHECK (octet_length(args) <= 1048576),
  metadata           jsonb CHECK (jsonb_typeof(metadata) = 'object'),
  notify_parent_args bytea CHECK (octet_length(notify_parent_args) <= 1048576),
  child              jsonb,
  PRIMARY KEY (namespace, process_id, message_id),
  CONSTRAINT messages_end_has_child CHECK ((kind = 'child_end') = (child IS NOT NULL)),
  CONSTRAINT messages_sender_is_whole CHECK ((sender_namespace IS NULL) = (sender_process_id IS NULL) AND (sender_process_id IS NULL) = (sender_task_id IS NULL))
) WITH (fillfactor = 90, autovacuum_vacuum_scale_factor = 0.02, autovacuum_vacuum_threshold = 5000, autovacuum_vacuum_cost_delay = 0,
        autovacuum_analyze_scale_factor = 0.2, autovacuum_analyze_threshold = 50000);
CREATE INDEX messages_target ON messages (namespace, process_id, message_id) WHERE NOT held;
CREATE INDEX messages_held ON messages (namespace, process_id) WHERE held;
CREATE INDEX messages_created ON messages (created_time) WHERE held IS NOT TRUE;
COMMENT ON TABLE messages IS 'The way from one process to another, and from SQL: what is to be delivered. The delivery deletes the row and does its work in one transaction, and so happens once.';
COMMENT ON COLUMN messages.namespace IS 'Namespace of the process that it goes to.';
COMMENT ON COLUMN messages.process_id IS 'The process that it goes to.';
COMMENT ON COLUMN messages.message_id IS 'Number of the message: those of one target are delivered in its order.';
COMMENT ON COLUMN messages.kind IS 'start, notify, cancel, or child_end: the end of a child, told to its parent.';
COMMENT ON COLUMN messages.held IS 'true: its process is SUSPENDED or in ERROR; it waits for the resume or the repair, which sets it to false.';
COMMENT ON COLUMN messages.sender_namespace IS 'Namespace of the process that sent it; NULL: it was sent by a SQL function.';
COMMENT ON COLUMN messages.sender_process_id IS 'The process that sent it; NULL: a SQL function.';
COMMENT ON COLUMN messages.sender_task_id IS 'The task whose result sent it, or whose end it tells; 0: an end without a task; NULL: a SQL function.';
COMMENT ON COLUMN messages.created_time IS 'When it was sent. One that is older than a second was left behind, and any node delivers it.';
COMMENT ON COLUMN messages.start_time IS 'Of a start: its INIT task runs not before; NULL: at once.';
COMMENT ON COLUMN messages.reason IS 'Of a cancel: why.';
COMMENT ON COLUMN messages.args IS 'Of the task that it makes, opaque to the engine (bytes).';
COMMENT ON COLUMN messages.metadata IS 'Of a start: the attributes of the new process, a JSON object.';
COMMENT ON COLUMN messages.notify_parent_args IS 'Of a start: args of the NOTIFY task that tells the sender of the end of what it starts; NULL: it is not told.';
COMMENT ON COLUMN messages.child IS 'Of a child_end: who ended and how, as JSON (the API''s ChildEnd).';

CREATE TABLE dead_letters (
  message_id        bigint PRIMARY KEY,
  kind              message_kind NOT NULL,
  outcome           text NOT NULL CHECK (outcome IN ('not_found', 'ended')),
  namespace         text COLLATE "C" NOT NULL,
  process_id        text COLLATE "C" NOT NULL,
  sender_namespace  text COLLATE "C",
  sender_process_id text COLLATE "C",
  sender_task_id    bigint,
  created_time      timestamptz NOT NULL,
  dropped_time      timestamptz NOT NULL,
  reason            text,
  args              bytea,
  child             jsonb
);
CREATE INDEX dead_letters_dropped ON dead_letters USING brin (dropped_time);
COMMENT ON TABLE dead_letters IS 'Messages that could not be delivered, and why. Kept for a day.';
COMMENT ON COLUMN dead_letters.message_id IS 'Number that it had in messages.';
COMMENT ON COLUMN dead_letters.kind IS 'start, notify, cancel or child_end.';
COMMENT ON COLUMN dead_letters.outcome IS 'not_found: there was no such process, or for a start no such namespace. ended: the process was COMPLETED or CANCELLED.';
COMMENT ON COLUMN dead_letters.namespace IS 'Namespace of the process that it went to.';
COMMENT ON COLUMN dead_letters.process_id IS 'The process that it went to.';
COMMENT ON COLUMN dead_letters.sender_namespace IS 'Namespace of the process that sent it; NULL: it was sent by a SQL function.';
COMMENT ON COLUMN dead_letters.sender_process_id IS 'The process that sent it; NULL: a SQL function.';
COMMENT ON COLUMN dead_letters.sender_task_id IS 'The task whose result sent it, or whose end it told.';
COMMENT ON COLUMN dead_letters.created_time IS 'When it was sent.';
COMMENT ON COLUMN dead_letters.dropped_time IS 'When it was given up.';
COMMENT ON COLUMN dead_letters.reason IS 'Of a cancel: why the process was to end.';
COMMENT ON COLUMN dead_letters.args IS 'Of the task that it would have made (bytes).';
COMMENT ON COLUMN dead_letters.child IS 'Of a child_end: who ended and how, as JSON.';

CREATE TABLE parents (
  namespace         text COLLATE "C" NOT NULL,
  process_id        text COLLATE "C" NOT NULL,
  parent_namespace  text COLLATE "C" NOT NULL,
  parent_process_id text COLLATE "C" NOT NULL,
  args              bytea NOT NULL,
  PRIMARY KEY (namespace, process_id)
);
COMMENT ON TABLE parents IS 'Processes whose end is to be told to the one that started them. The end turns the row into a message: it is told once.';
COMMENT ON COLUMN parents.namespace IS 'Namespace of the child.';
COMMENT ON COLUMN parents.process_id IS 'The child.';
COMMENT ON COLUMN parents.parent_namespace IS 'Namespace of the parent.';
COMMENT ON COLUMN parents.parent_process_id IS 'The process that started the child and will be told of its end.';
COMMENT ON COLUMN parents.args IS 'Of the NOTIFY task that tells the parent (bytes).';

ALTER TABLE schedule ADD COLUMN child jsonb;
ALTER TABLE running ADD COLUMN child jsonb;
COMMENT ON COLUMN schedule.child IS 'Of a NOTIFY task that tells the end of a child: who ended and how, as JSON; else NULL.';
COMMENT ON COLUMN running.child IS 'Of a NOTIFY task that tells the end of a child: who ended and how, as JSON; else NULL.';

-- What applications may call, inside their own transactions. They read namespaces and insert into messages, and lock nothing: an
-- application that keeps its transaction open holds up nobody. Each runs with the rights of its owner, so that EXECUTE is all that
-- an application's role needs. The NOTIFY has the engines deliver at once, at the price of a lock that all notifying commits share.

-- +goose StatementBegin
CREATE FUNCTION send_message(kind message_kind, namespace text, process_id text, args bytea, metadata jsonb, start_time timestamptz, reason text)
RETURNS bigint LANGUAGE plpgsql SET search_path = progressor, pg_temp AS $$
DECLARE
  sent bigint;
BEGIN
  IF namespace IS NULL OR NOT EXISTS (SELECT FROM namespaces n WHERE n.namespace = send_message.namespace) THEN
    RAISE EXCEPTION 'progressor: there is no namespace "%"', namespace USING ERRCODE = 'invalid_parameter_value';
  ELSIF process_id IS NULL OR octet_length(process_id) NOT BETWEEN 1 AND 256 THEN
    RAISE EXCEPTION 'progressor: process_id has % bytes, 1 to 256 are allowed', coalesce(octet_length(process_id), 0) USING ERRCODE = 'invalid_parameter_value';
  ELSIF starts_with(process_id, '~') THEN
    RAISE EXCEPTION 'progressor: process_id "%" begins with ~: such ids are the engine''s own', process_id USING ERRCODE = 'invalid_parameter_value';
  ELSIF octet_length(args) > 1048576 THEN
    RAISE EXCEPTION 'progressor: args has % bytes, at most 1048576 are allowed', octet_length(args) USING ERRCODE = 'invalid_parameter_value';
  ELSIF jsonb_typeof(metadata) <> 'object' THEN
    RAISE EXCEPTION 'progressor: metadata is a JSON %, not an object', jsonb_typeof(metadata) USING ERRCODE = 'invalid_parameter_value';
  ELSIF octet_length(metadata::text) > 65536 THEN
    RAISE EXCEPTION 'progressor: metadata has % bytes, at most 65536 are allowed', octet_length(metadata::text) USING ERRCODE = 'invalid_parameter_value';
  ELSIF start_time < '1970-01-01 00:00:00Z' OR start_time >= '10000-01-01 00:00:00Z' THEN
    RAISE EXCEPTION 'progressor: start_time % is not between 1970 and 9999', start_time USING ERRCODE = 'invalid_parameter_value';
  ELSIF octet_length(reason) > 4096 THEN
    RAISE EXCEPTION 'progressor: reason has % bytes, at most 4096 are allowed', octet_length(reason) USING ERRCODE = 'invalid_parameter_value';
  END IF;
  INSERT INTO messages AS m (namespace, process_id, kind, args, metadata, start_time, reason)
  VALUES (send_message.namespace, send_message.process_id, send_message.kind, send_message.args, send_message.metadata,
          send_message.start_time, send_message.reason)
  RETURNING m.message_id INTO sent;
  PERFORM pg_notify('progressor_messages', '');
  RETURN sent;
END $$;
-- +goose StatementEnd

-- +goose StatementBegin
CREATE FUNCTION start(namespace text, process_id text, args bytea DEFAULT NULL, metadata jsonb DEFAULT NULL, start_time timestamptz DEFAULT NULL)
RETURNS bigint LANGUAGE sql SECURITY DEFINER SET search_path = progressor, pg_temp
AS $$ SELECT send_message('start', $1, $2, $3, $4, $5, NULL) $$;
-- +goose StatementEnd
-- +goose StatementBegin
CREATE FUNCTION notify(namespace text, process_id text, args bytea DEFAULT NULL)
RETURNS bigint LANGUAGE sql SECURITY DEFINER SET search_path = progressor, pg_temp
AS $$ SELECT send_message('notify', $1, $2, $3, NULL, NULL, NULL) $$;
-- +goose StatementEnd
-- +goose StatementBegin
CREATE FUNCTION cancel(namespace text, process_id text, reason text DEFAULT NULL)
RETURNS bigint LANGUAGE sql SECURITY DEFINER SET search_path = progressor, pg_temp
AS $$ SELECT send_message('cancel', $1, $2, NULL, NULL, NULL, $3) $$;
-- +goose StatementEnd
REVOKE ALL ON FUNCTION send_message(message_kind, text, text, bytea, jsonb, timestamptz, text), start(text, text, bytea, jsonb, timestamptz), notify(text, text, bytea),
  cancel(text, text, text) FROM PUBLIC;
COMMENT ON FUNCTION send_message(message_kind, text, text, bytea, jsonb, timestamptz, text) IS 'Checks a message and stores it; called by start, notify and cancel alone.';
COMMENT ON FUNCTION start(text, text, bytea, jsonb, timestamptz) IS 'Starts a process when the transaction commits; where it exists nothing happens. Answers the number of the message.';
COMMENT ON FUNCTION notify(text, text, bytea) IS 'Gives a process a NOTIFY task when the transaction commits. Answers the number of the message.';
COMMENT ON FUNCTION cancel(text, text, text) IS 'Asks a process to end when the transaction commits. Answers the number of the message.';

-- +goose Down
DROP FUNCTION start(text, text, bytea, jsonb, timestamptz), notify(text, text, bytea), cancel(text, text, text), send_message(message_kind, text, text, bytea, jsonb, timestamptz, text);
ALTER TABLE running DROP COLUMN child;
ALTER TABLE schedule DROP COLUMN child;
DROP TABLE parents, dead_letters, messages;
DROP SEQUENCE message_ids;
DROP TYPE message_kind;

-- +goose Up
-- The trigger of updated processes records the usual update with a small statement: all processes
-- are of one namespace, and none is removed or changes its status (except from INIT to RUNNING).
-- For 20 processes with an event each, PostgreSQL executes 29 % fewer instructions than with the
-- large statement.

-- No statement below joins old_rows and new_rows, because a plan for few rows would be quadratic
-- for many. The small statement is used only if its arrays are in the same order.
-- +goose StatementBegin
CREATE OR REPLACE FUNCTION record_updated_processes() RETURNS trigger
LANGUAGE plpgsql SECURITY DEFINER SET search_path = progressor, pg_temp AS $$
DECLARE
  batch record;
  head record;
BEGIN
  SELECT n.namespace, n.process_ids, o.event_ids AS old_event_ids, n.event_ids AS new_event_ids,
         s.payloads, s.kinds ? 'CHANGE_KIND_EVENT' AS events,
         n.namespace = n.last_namespace
           AND o.process_ids = n.process_ids
           AND o.statuses = n.statuses
           AND o.removed = n.removed AS usual
    INTO batch
    FROM (
      SELECT array_agg(x.process_id) AS process_ids, array_agg(x.last_event_id) AS event_ids,
             array_agg(CASE x.status WHEN 'INIT' THEN 'RUNNING' ELSE x.status END) AS statuses,
             array_agg(x.removed_time IS NOT NULL) AS removed
        FROM old_rows x WHERE x.kind = '') o
   CROSS JOIN (
     SELECT min(x.namespace) AS namespace, max(x.namespace) AS last_namespace,
            array_agg(x.process_id) AS process_ids, array_agg(x.last_event_id) AS event_ids,
            array_agg(CASE x.status WHEN 'INIT' THEN 'RUNNING' ELSE x.status END) AS statuses,
            array_agg(x.removed_time IS NOT NULL) AS removed
       FROM new_rows x WHERE x.kind = '') n
    LEFT JOIN change_settings s
      ON s.namespace = n.namespace;
  IF batch.namespace IS NULL THEN
    RETURN NULL;
  END IF;
  IF batch.usual THEN
    IF batch.events AND batch.old_event_ids <> batch.new_event_ids THEN
      SELECT * INTO head FROM take_change_lane(batch.namespace);
      INSERT INTO changes (namespace, lane, seq, change_id, "time", kind, type, process_id,
                           event_id, metadata, payload)
      SELECT batch.namespace, head.lane, head.last_seq + row_number() OVER (),
             nextval('change_ids'), head."time", 'event', 'stored', p.process_id, e.event_id,
             e.metadata, CASE WHEN batch.payloads THEN e.payload END
        FROM unnest(batch.process_ids, batch.old_event_ids, batch.new_event_ids)
               AS p(process_id, old_event_id, new_event_id)
       CROSS JOIN LATERAL (
         SELECT e.event_id, e.metadata, e.payload
           FROM events e
          WHERE e.namespace = batch.namespace
            AND e.process_id = p.process_id
            AND e.event_id > p.old_event_id
            AND e.event_id <= p.new_event_id
          ORDER BY e.event_id OFFSET 0) e;
    END IF;
    RETURN NULL;
  END IF;
  INSERT INTO changes (namespace, lane, seq, change_id, "time", kind, type, process_id, event_id,
                       from_status, to_status, reason, metadata, payload)
  WITH settings AS MATERIALIZED (
    SELECT s.namespace, s.payloads, s.kinds ? 'CHANGE_KIND_EVENT' AS events,
           s.kinds ? 'CHANGE_KIND_LIFECYCLE' AS lifecycle
      FROM change_settings s
     WHERE s.namespace IN (SELECT n.namespace FROM new_rows n)),
  updated AS MATERIALIZED (
    SELECT v.namespace, v.process_id,
           min(v.status) FILTER (WHERE v.before) AS old_status,
           min(v.status) FILTER (WHERE NOT v.before) AS new_status,
           min(v.last_event_id) FILTER (WHERE v.before) AS old_event_id,
           min(v.last_event_id) FILTER (WHERE NOT v.before) AS new_event_id,
           bool_or(v.removed) AND NOT bool_and(v.removed) AS removed,
           min(v.reason) FILTER (WHERE NOT v.before) AS reason
      FROM (
        SELECT o.namespace, o.process_id, true AS before, o.status, o.last_event_id,
               o.removed_time IS NOT NULL AS removed, NULL AS reason
          FROM old_rows o WHERE o.kind = ''
        UNION ALL
        SELECT n.namespace, n.process_id, false, n.status, n.last_event_id,
               n.removed_time IS NOT NULL,
               CASE n.status WHEN 'CANCELLED' THEN n.cancel_reason ELSE n.detail END
          FROM new_rows n WHERE n.kind = '') v
     WHERE v.namespace IN (SELECT s.namespace FROM settings s)
     GROUP BY v.namespace, v.process_id),
  found AS MATERIALIZED (
    SELECT u.namespace, u.process_id, 1 AS ord, 'event' AS kind, 'stored' AS type, e.event_id,
           NULL::text AS from_status, NULL::text AS to_status, NULL::text AS reason, e.metadata,
           CASE WHEN s.payloads THEN e.payload END AS payload
      FROM updated u
      JOIN settings s
        ON s.namespace = u.namespace
       AND s.events
     CROSS JOIN LATERAL (
       SELECT e.event_id, e.metadata, e.payload
         FROM events e
        WHERE e.namespace = u.namespace
          AND e.process_id = u.process_id
          AND e.event_id BETWEEN u.old_event_id + 1 AND u.new_event_id
        ORDER BY e.event_id OFFSET 0) e
     WHERE u.new_event_id > u.old_event_id
    UNION ALL
    SELECT u.namespace, u.process_id, CASE WHEN u.type IN ('resumed', 'repaired') THEN 0 ELSE 2 END,
           'lifecycle', u.type, NULL, u.old_status::text,
           CASE u.type WHEN 'removed' THEN NULL ELSE u.new_status::text END,
           CASE u.type WHEN 'removed' THEN NULL ELSE u.reason END, NULL, NULL
      FROM (
        SELECT updated.*,
               CASE
                 WHEN removed THEN 'removed'
                 WHEN new_status = old_status THEN NULL
                 WHEN new_status = 'COMPLETED' THEN 'completed'
                 WHEN new_status = 'CANCELLED' THEN 'cancelled'
                 WHEN new_status = 'ERROR' THEN 'failed'
                 WHEN new_status = 'SUSPENDED' THEN 'suspended'
                 WHEN old_status = 'ERROR' THEN 'repaired'
                 WHEN old_status = 'SUSPENDED' THEN 'resumed'
               END AS type
          FROM updated) u
      JOIN settings s
        ON s.namespace = u.namespace
       AND s.lifecycle
     WHERE u.type IS NOT NULL),
  lanes AS MATERIALIZED (
    SELECT f.namespace, l.lane, l.last_seq, l."time"
      FROM (SELECT DISTINCT found.namespace FROM found) f
     CROSS JOIN LATERAL take_change_lane(f.namespace) l)
  SELECT f.namespace, l.lane,
         l.last_seq + row_number()
           OVER (PARTITION BY f.namespace ORDER BY f.process_id, f.ord, f.event_id),
         nextval('change_ids'), l."time", f.kind, f.type, f.process_id, f.event_id, f.from_status,
         f.to_status, f.reason, f.metadata, f.payload
    FROM found f
    JOIN lanes l
      ON l.namespace = f.namespace;
  RETURN NULL;
END $$;
-- +goose StatementEnd

-- +goose Down
-- +goose StatementBegin
CREATE OR REPLACE FUNCTION record_updated_processes() RETURNS trigger
LANGUAGE plpgsql SECURITY DEFINER SET search_path = progressor, pg_temp AS $$
BEGIN
  INSERT INTO changes (namespace, lane, seq, change_id, "time", kind, type, process_id, event_id,
                       from_status, to_status, reason, metadata, payload)
  WITH settings AS MATERIALIZED (
    SELECT s.namespace, s.payloads, s.kinds ? 'CHANGE_KIND_EVENT' AS events,
           s.kinds ? 'CHANGE_KIND_LIFECYCLE' AS lifecycle
      FROM change_settings s
     WHERE s.namespace IN (SELECT n.namespace FROM new_rows n)),
  updated AS MATERIALIZED (
    SELECT v.namespace, v.process_id,
           min(v.status) FILTER (WHERE v.before) AS old_status,
           min(v.status) FILTER (WHERE NOT v.before) AS new_status,
           min(v.last_event_id) FILTER (WHERE v.before) AS old_event_id,
           min(v.last_event_id) FILTER (WHERE NOT v.before) AS new_event_id,
           bool_or(v.removed) AND NOT bool_and(v.removed) AS removed,
           min(v.reason) FILTER (WHERE NOT v.before) AS reason
      FROM (
        SELECT o.namespace, o.process_id, true AS before, o.status, o.last_event_id,
               o.removed_time IS NOT NULL AS removed, NULL AS reason
          FROM old_rows o WHERE o.kind = ''
        UNION ALL
        SELECT n.namespace, n.process_id, false, n.status, n.last_event_id,
               n.removed_time IS NOT NULL,
               CASE n.status WHEN 'CANCELLED' THEN n.cancel_reason ELSE n.detail END
          FROM new_rows n WHERE n.kind = '') v
     WHERE v.namespace IN (SELECT s.namespace FROM settings s)
     GROUP BY v.namespace, v.process_id),
  found AS MATERIALIZED (
    SELECT u.namespace, u.process_id, 1 AS ord, 'event' AS kind, 'stored' AS type, e.event_id,
           NULL::text AS from_status, NULL::text AS to_status, NULL::text AS reason, e.metadata,
           CASE WHEN s.payloads THEN e.payload END AS payload
      FROM updated u
      JOIN settings s
        ON s.namespace = u.namespace
       AND s.events
     CROSS JOIN LATERAL (
       SELECT e.event_id, e.metadata, e.payload
         FROM events e
        WHERE e.namespace = u.namespace
          AND e.process_id = u.process_id
          AND e.event_id > u.old_event_id
          AND e.event_id <= u.new_event_id
        ORDER BY e.event_id OFFSET 0) e
     WHERE u.new_event_id > u.old_event_id
    UNION ALL
    SELECT u.namespace, u.process_id, CASE WHEN u.type IN ('repaired', 'resumed') THEN 0 ELSE 2 END,
           'lifecycle', u.type, NULL, u.old_status::text,
           CASE u.type WHEN 'removed' THEN NULL ELSE u.new_status::text END,
           CASE u.type WHEN 'removed' THEN NULL ELSE u.reason END, NULL, NULL
      FROM (
        SELECT updated.*,
               CASE
                 WHEN removed THEN 'removed'
                 WHEN new_status = old_status THEN NULL
                 WHEN new_status = 'COMPLETED' THEN 'completed'
                 WHEN new_status = 'CANCELLED' THEN 'cancelled'
                 WHEN new_status = 'ERROR' THEN 'failed'
                 WHEN new_status = 'SUSPENDED' THEN 'suspended'
                 WHEN old_status = 'ERROR' THEN 'repaired'
                 WHEN old_status = 'SUSPENDED' THEN 'resumed'
               END AS type
          FROM updated) u
      JOIN settings s
        ON s.namespace = u.namespace
       AND s.lifecycle
     WHERE u.type IS NOT NULL),
  lanes AS MATERIALIZED (
    SELECT f.namespace, l.lane, l.last_seq, l."time"
      FROM (SELECT DISTINCT found.namespace FROM found) f
     CROSS JOIN LATERAL take_change_lane(f.namespace) l)
  SELECT f.namespace, l.lane,
         l.last_seq + row_number()
           OVER (PARTITION BY f.namespace ORDER BY f.process_id, f.ord, f.event_id),
         nextval('change_ids'), l."time", f.kind, f.type, f.process_id, f.event_id, f.from_status,
         f.to_status, f.reason, f.metadata, f.payload
    FROM found f
    JOIN lanes l
      ON l.namespace = f.namespace;
  RETURN NULL;
END $$;
-- +goose StatementEnd

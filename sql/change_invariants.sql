-- FindChangeViolations returns violations of the invariants of changes, as FindViolations does.
-- name: FindChangeViolations :many
WITH found AS (
  -- changes_numbered: the changes of a lane are numbered without gaps, beginning with the first one
  -- that was not deleted after its retention.
  SELECT 'changes_numbered' AS invariant, lane.namespace, '' AS process_id,
         format('lane %s has %s changes, from %s to %s; %s are deleted', lane.lane, lane.n,
                lane.first_seq, lane.last_seq, coalesce(d.seq, 0)) AS detail
    FROM (
      SELECT c.namespace, c.lane, count(*) AS n, min(c.seq) AS first_seq, max(c.seq) AS last_seq
        FROM changes c GROUP BY c.namespace, c.lane) lane
    LEFT JOIN change_drops d
      ON d.namespace = lane.namespace
     AND d.lane = lane.lane
    LEFT JOIN namespaces n
      ON n.namespace = lane.namespace
   WHERE (lane.first_seq <> coalesce(d.seq, 0) + 1
          OR lane.last_seq - lane.first_seq + 1 <> lane.n)
     AND n.deletes_data IS NOT TRUE
  UNION ALL
  -- changes_in_order: within a lane, the numbers of changes increase with seq, and the times do not
  -- decrease.
  SELECT 'changes_in_order', c.namespace, c.process_id,
         format('change %s at %s in lane %s follows change %s at %s', c.change_id, c."time", c.lane,
                c.before_id, c.before_time)
    FROM (
      SELECT x.*, lag(x.change_id) OVER lanes AS before_id, lag(x."time") OVER lanes AS before_time
        FROM changes x
      WINDOW lanes AS (PARTITION BY x.namespace, x.lane ORDER BY x.seq)) c
   WHERE c.change_id <= c.before_id
      OR c."time" < c.before_time
  UNION ALL
  -- changes_of_process: the events of a process and their changes have the same order.
  SELECT 'changes_of_process', c.namespace, c.process_id,
         format('change %s of event %s follows that of event %s', c.change_id, c.event_id,
                c.before_event)
    FROM (
      SELECT x.*, lag(x.event_id) OVER (
               PARTITION BY x.namespace, x.process_id ORDER BY x.change_id) AS before_event
        FROM changes x WHERE x.kind = 'event') c
   WHERE c.event_id <= c.before_event
     AND c.event_id > 1 -- event 1 may belong to a process that was started after a removal
  UNION ALL
  -- changes_are_recorded: while a namespace records, all triggers exist.
  SELECT 'changes_are_recorded', s.namespace, '', format('trigger %s is missing', t.name)
    FROM change_settings s
    JOIN change_triggers t
      ON NOT t.exists
  UNION ALL
  -- sink_within_lanes: the cursor of a sink contains only lanes of its namespace, each of them
  -- once, and is not past the last change of any lane.
  SELECT 'sink_within_lanes', s.namespace, '',
         format('sink %s is at %s in lane %s, whose last change is %s', s.sink_id, item.seq,
                item.lane, coalesce(last.seq::text, 'none: the lane does not exist'))
    FROM sinks s
   CROSS JOIN LATERAL ROWS FROM (unnest(s.lanes), unnest(s.seqs)) AS item(lane, seq)
    LEFT JOIN LATERAL (
      SELECT greatest(coalesce(d.seq, 0), coalesce((
               SELECT max(c.seq) FROM changes c
                WHERE c.namespace = h.namespace
                  AND c.lane = h.lane), 0)) AS seq
        FROM change_heads h
        LEFT JOIN change_drops d
          ON d.namespace = h.namespace
         AND d.lane = h.lane
       WHERE h.namespace = s.namespace
         AND h.lane = item.lane) last ON true
    LEFT JOIN namespaces n
      ON n.namespace = s.namespace
   WHERE (last.seq IS NULL OR item.seq NOT BETWEEN 0 AND last.seq)
     AND n.deletes_data IS NOT TRUE
  UNION ALL
  SELECT 'sink_within_lanes', s.namespace, '', format('sink %s has a lane twice', s.sink_id)
    FROM sinks s
   WHERE cardinality(s.lanes) <> (SELECT count(DISTINCT l.lane) FROM unnest(s.lanes) AS l(lane))
  UNION ALL
  -- dead_letter_has_sink: the dead letters of a sink are deleted with it.
  SELECT 'dead_letter_has_sink', d.namespace, '',
         format('change %s is a dead letter of sink %s, which does not exist', d.change_id,
                d.sink_id)
    FROM sink_dead_letters d
    LEFT JOIN sinks s
      ON s.namespace = d.namespace
     AND s.sink_id = d.sink_id
    LEFT JOIN namespaces n
      ON n.namespace = d.namespace
   WHERE s.sink_id IS NULL
     AND n.deletes_data IS NOT TRUE)
SELECT invariant::text AS invariant, namespace::text AS namespace, process_id::text AS process_id,
       detail::text AS detail
  FROM found LIMIT @lim::int;

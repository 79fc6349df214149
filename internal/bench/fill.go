package bench

import (
	"context"
	"errors"
	"fmt"

	"github.com/jackc/pgx/v5"
)

// The statements that fill the tables of the engine before a measurement. The rows look as if they
// had been created long before.
const (
	fillEvents = `
INSERT INTO events (namespace, process_id, event_id, task_id, attempt, "timestamp", payload)
SELECT e.namespace, e.process_id, number, e.task_id, e.attempt, e."timestamp", $2
  FROM events e CROSS JOIN generate_series(2, $1::int) AS number WHERE e.event_id = 1`
	fillLastEvent = `UPDATE processes SET last_event_id = $1 WHERE last_event_id = 1`

	fillOtherProcesses = `
INSERT INTO processes (namespace, process_id, status, previous_status, last_event_id, aux_state)
SELECT $1, 'p-' || substr(md5(n::text), 1, 16), 'RUNNING', 'INIT', $4::bigint, $5
  FROM generate_series($2::bigint, $3::bigint) AS n`
	fillOtherCounts = `
INSERT INTO status_counts (namespace, status, n) VALUES ($1, 'RUNNING', $2)
ON CONFLICT (namespace, lane, status) DO UPDATE SET n = status_counts.n + excluded.n`
	fillOtherTasks = `
INSERT INTO tasks (namespace, process_id, task_id, task_type, status, attempt, fencing_token, scheduled_time,
  running_time, finished_time, args, response)
SELECT $1, 'p-' || substr(md5(n::text), 1, 16), $4::bigint + n * $5::bigint + k,
  (CASE k WHEN 1 THEN 'INIT' ELSE 'CALL' END)::task_type, 'FINISHED', 1,
       $4::bigint + n * $5::bigint + k, statement_timestamp(), statement_timestamp(), statement_timestamp(), $6, $7
  FROM generate_series($2::bigint, $3::bigint) AS n CROSS JOIN generate_series(1, $5::bigint) AS k`
	fillOtherEvents = `
INSERT INTO events (namespace, process_id, event_id, task_id, attempt, "timestamp", payload)
SELECT $1, 'p-' || substr(md5(n::text), 1, 16), k, $4::bigint + n * $5::bigint + k, 1, statement_timestamp(), $6
  FROM generate_series($2::bigint, $3::bigint) AS n CROSS JOIN generate_series(1, $5::bigint) AS k`
	reserveNumbers = `
SELECT setval('task_ids', greatest(nextval('task_ids'), nextval('fencing_tokens')) + $1::bigint),
       setval('fencing_tokens', currval('task_ids'))`
)

// fillChunk is the number of processes that one statement creates.
const fillChunk = 50_000

// analyze updates the statistics of the planner, marks pages as visible and removes the dead rows
// of a previous phase.
func (d *scratch) analyze(ctx context.Context) error {
	return d.execute(ctx, statement{
		sql: `VACUUM ANALYZE processes, tasks, events, schedule, running, requests, jobs, flow_runs, flow_steps`,
	})
}

// addEvents adds events to every process that has one event, up to n events.
func (d *scratch) addEvents(ctx context.Context, n int, payload []byte) error {
	if n < 2 {
		return nil
	}
	return d.execute(ctx, statement{fillEvents, []any{n, payload}}, statement{fillLastEvent, []any{n}})
}

// addOthers creates processes that are not part of the workload, each with the same number of
// finished tasks and an event for each task. Their IDs are spread among those of the workload. done
// is the number of those that exist already. A chunk is created completely or not at all.
func (d *scratch) addOthers(
	ctx context.Context, done, processes, perProcess int, p payload, progress func(done int),
) error {
	conn, err := d.connect(ctx, engineSchema)
	if err != nil {
		return err
	}
	defer func() { _ = conn.Close(context.WithoutCancel(ctx)) }()
	var last int64
	total := int64(processes) * int64(perProcess)
	if err := conn.QueryRow(ctx, reserveNumbers, total+int64(perProcess)+1).Scan(&last, nil); err != nil {
		return fmt.Errorf("reserve task ids: %w", err)
	}
	first := last - total - int64(perProcess)
	for ; done < processes; done += fillChunk {
		progress(done)
		end := min(done+fillChunk, processes) - 1
		chunk := []statement{
			{fillOtherProcesses, []any{namespaceName, done, end, perProcess, p.state}},
			{fillOtherCounts, []any{namespaceName, end - done + 1}},
			{fillOtherTasks, []any{namespaceName, done, end, first, perProcess, p.args, p.response}},
			{fillOtherEvents, []any{namespaceName, done, end, first, perProcess, p.event}},
		}
		err := pgx.BeginFunc(ctx, conn, func(tx pgx.Tx) error {
			for _, s := range chunk {
				if _, err := tx.Exec(ctx, s.sql, s.args...); err != nil {
					return err
				}
			}
			return nil
		})
		if err != nil {
			return fmt.Errorf("fill the tables: %w", err)
		}
	}
	return nil
}

// statement is SQL with its parameters.
type statement struct {
	sql  string
	args []any
}

// execute runs statements in the schema of the engine.
func (d *scratch) execute(ctx context.Context, statements ...statement) error {
	conn, err := d.connect(ctx, engineSchema)
	if err != nil {
		return err
	}
	for _, s := range statements {
		if _, err = conn.Exec(ctx, s.sql, s.args...); err != nil {
			err = fmt.Errorf("prepare the tables: %w", err)
			break
		}
	}
	return errors.Join(err, conn.Close(context.WithoutCancel(ctx)))
}

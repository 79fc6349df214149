package bench

import (
	"context"
	"fmt"
	"sync"
	"time"

	"github.com/jackc/pgx/v5"
)

// The scanners of the baseline, and the data that exists before a workload begins.
const (
	baselineSearchCalls = `
WITH claimed AS (
  DELETE FROM schedule WHERE task_id IN (
      SELECT min(task_id) FROM schedule
       WHERE status = 'waiting' AND task_type IN ('init', 'call', 'repair')
         AND process_id NOT IN (SELECT process_id FROM running)
       GROUP BY process_id ORDER BY min(task_id) LIMIT $2)
  RETURNING task_id, process_id, task_type, 'running'::task_status, scheduled_time, $1::timestamptz, args, metadata,
            last_retry_interval, attempts_count, context)
INSERT INTO running (task_id, process_id, task_type, status, scheduled_time, running_time, args, metadata,
                     last_retry_interval, attempts_count, context)
SELECT * FROM claimed RETURNING task_id, process_id, scheduled_time`
	baselineSearchTimers = `
WITH claimed AS (
  DELETE FROM schedule WHERE task_id IN (
      SELECT task_id FROM schedule
       WHERE status = 'waiting' AND scheduled_time <= $1 AND task_type IN ('timeout', 'remove')
         AND process_id NOT IN (SELECT process_id FROM running)
       ORDER BY scheduled_time LIMIT $2)
  RETURNING task_id, process_id, task_type, 'running'::task_status, scheduled_time, $1::timestamptz, args, metadata,
            last_retry_interval, attempts_count, context)
INSERT INTO running (task_id, process_id, task_type, status, scheduled_time, running_time, args, metadata,
                     last_retry_interval, attempts_count, context)
SELECT * FROM claimed RETURNING task_id, process_id, scheduled_time`
	baselineFillProcesses = `
INSERT INTO processes (process_id, status, aux_state, metadata)
SELECT id, 'running', $2, $3::jsonb FROM unnest($1::text[]) AS id`
	baselineFillTasks = `
INSERT INTO tasks (process_id, task_type, status, scheduled_time, running_time, finished_time, args, response,
  last_retry_interval, attempts_count)
SELECT process_id, 'init', 'finished', now(), now(), now(), $1, $2, 0, 0 FROM processes`
	baselineFillEvents = `
INSERT INTO events (process_id, task_id, event_id, payload)
SELECT process_id, task_id, event_id, $1 FROM tasks CROSS JOIN generate_series(1, $2::int) AS event_id`
	baselineFillTimers = `
WITH timers AS (
  INSERT INTO tasks (process_id, task_type, status, scheduled_time, last_retry_interval, attempts_count)
  SELECT process_id, 'timeout', 'waiting', now(), 0, 0 FROM processes RETURNING task_id, process_id, scheduled_time)
INSERT INTO schedule (task_id, process_id, task_type, status, scheduled_time, last_retry_interval, attempts_count)
SELECT task_id, process_id, 'timeout', 'waiting', scheduled_time, 0, 0 FROM timers`
)

// baselineClaim is the number of tasks that one scan takes. It is much larger than the number of
// connections, so that a sequential scan of the schedule finds many tasks. baselineScanPause is the
// pause between two scans for calls.
const (
	baselineClaim     = 1000
	baselineScanPause = 50 * time.Millisecond
)

// fill creates n started processes with the given number of events.
func (b *baseline) fill(ctx context.Context, n, events int, metadata bool) error {
	ids := make([]string, n)
	for i := range ids {
		ids[i] = processID(uint64(i))
		number := int32(events)
		b.events.Store(ids[i], &number)
	}
	var fields *string
	if metadata {
		fields = new(string(processMetadata(1)))
	}
	steps := []struct {
		sql  string
		args []any
	}{
		{baselineFillProcesses, []any{ids, b.state, fields}},
		{baselineFillTasks, []any{b.args, b.response}},
		{baselineFillEvents, []any{b.event, events}},
	}
	for _, step := range steps {
		if _, err := b.pool.Exec(ctx, step.sql, step.args...); err != nil {
			return fmt.Errorf("fill the baseline: %w", err)
		}
	}
	return nil
}

func (b *baseline) analyze(ctx context.Context) error {
	_, err := b.pool.Exec(ctx, "VACUUM ANALYZE processes, tasks, events, schedule, running")
	return err
}

// scanCalls claims calls that were missed, until ctx ends. Nothing else finds a call that was
// queued while the previous result was being saved.
func (b *baseline) scanCalls(ctx context.Context) {
	for wait(ctx, baselineScanPause) == nil {
		claims, err := b.claim(ctx, baselineSearchCalls, baselineClaim)
		if err != nil {
			if ctx.Err() == nil {
				b.fail(err)
			}
			return
		}
		for _, c := range claims {
			b.workers.Go(func() { b.serve(context.WithoutCancel(ctx), c.process, c.task) })
		}
	}
}

// claim is a task that a scan has moved to running.
type claim struct {
	task    int64
	process string
	due     time.Time
}

func (b *baseline) claim(ctx context.Context, sql string, limit int) (claims []claim, err error) {
	rows, err := b.pool.Query(ctx, sql, time.Now(), limit)
	if err == nil {
		claims, err = pgx.CollectRows(rows, func(row pgx.CollectableRow) (c claim, err error) {
			err = row.Scan(&c.task, &c.process, &c.due)
			return c, err
		})
	}
	if isConflict(err) {
		return nil, nil // another scan took such a task at the same moment: the next scan retries
	}
	if err != nil {
		return nil, fmt.Errorf("baseline scan: %w", err)
	}
	return claims, nil
}

// drainTimers claims and performs all due timers, with a worker for each connection except that of
// the scanner.
func (b *baseline) drainTimers(ctx context.Context, lateness *histogram) error {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	claims := make(chan claim, baselineClaim/2)
	var workers sync.WaitGroup
	for range baselineConnections - 1 {
		workers.Go(func() {
			for c := range claims {
				if _, err := b.save(ctx, c.process, c.task, false); err != nil {
					cancel(err)
					return
				}
			}
		})
	}
	err := func() error {
		defer close(claims)
		for {
			found, err := b.claim(ctx, baselineSearchTimers, baselineClaim)
			if err != nil || len(found) == 0 {
				return err
			}
			for _, c := range found {
				lateness.add(time.Since(c.due))
				select {
				case claims <- c:
				case <-ctx.Done():
					return context.Cause(ctx)
				}
			}
		}
	}()
	workers.Wait()
	if cause := context.Cause(ctx); cause != nil {
		return cause
	}
	return err
}

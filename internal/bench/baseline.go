package bench

import (
	"context"
	_ "embed"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"
)

// The baseline is the SQL that the reference documents and runs (valitydev/progressor,
// pg_backend.md), statement by statement in BEGIN … COMMIT, from Go over pgx with prepared
// statements. It shows what a good implementation without group commits reaches on the same server.
// It does not use the engine.

//go:embed baseline.sql
var baselineTables string

const (
	baselineSchema      = "progressor_bench_baseline"
	baselineConnections = 64
)

// The statements of PrepareInit and PrepareCall.
const (
	baselineInsertProcess = `INSERT INTO processes (process_id, status, detail, aux_state, metadata) ` +
		`VALUES ($1, $2, $3, $4, $5)`
	baselineInsertTask = `
INSERT INTO tasks (process_id, task_type, status, scheduled_time, running_time, args, metadata,
  idempotency_key, blocked_task,
                   response, last_retry_interval, attempts_count, context)
VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13) RETURNING task_id`
	baselineInsertRunning = `
INSERT INTO running (task_id, process_id, task_type, status, scheduled_time, running_time, args, metadata,
                     last_retry_interval, attempts_count, context)
VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11) ON CONFLICT (process_id) DO NOTHING RETURNING task_id`
	baselineInsertSchedule = `
INSERT INTO schedule (task_id, process_id, task_type, status, scheduled_time, args, metadata,
  last_retry_interval, attempts_count, context)
VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10)`
	baselineBlockTimers = `
UPDATE schedule SET status = 'blocked' WHERE task_type IN ('timeout', 'remove') AND process_id = $1
  AND status = 'waiting' RETURNING task_id`
)

// The statements of SaveResult.
const (
	baselineReadHistory = `SELECT event_id, "timestamp", metadata, payload ` +
		`FROM events WHERE process_id = $1 ORDER BY event_id`
	baselineUpdateProcess = `UPDATE processes SET status = $1, detail = $2, aux_state = $3, corrupted_by = $4 ` +
		`WHERE process_id = $5`
	baselineInsertEvent = `INSERT INTO events (process_id, task_id, event_id, "timestamp", payload, metadata) ` +
		`VALUES ($1, $2, $3, $4, $5, $6)`
	baselineCancelTimers = `
WITH gone AS (
  DELETE FROM schedule WHERE process_id = $1 AND task_type IN ('timeout', 'remove')
    AND status IN ('waiting', 'blocked') RETURNING task_id)
MERGE INTO tasks USING gone ON tasks.task_id = gone.task_id WHEN MATCHED THEN UPDATE SET status = 'cancelled'`
	baselineFinishTask = `
WITH gone AS (DELETE FROM running WHERE process_id = $4)
UPDATE tasks SET status = $1, response = $2, finished_time = $3 WHERE task_id = $5`
	baselineNextCall = `
WITH postponed AS (
  DELETE FROM schedule WHERE task_id = (
      SELECT min(task_id) FROM schedule WHERE process_id = $1 AND status = 'waiting'
        AND task_type IN ('call', 'repair'))
  RETURNING task_id, process_id, task_type, 'running'::task_status, scheduled_time, $2::timestamptz, args, metadata,
            last_retry_interval, attempts_count, context)
INSERT INTO running (task_id, process_id, task_type, status, scheduled_time, running_time, args, metadata,
                     last_retry_interval, attempts_count, context)
SELECT * FROM postponed RETURNING task_id`
	// The document shows a result that sets a timer. After any other result, the reference unblocks
	// the timers that PrepareCall has blocked (do_unlock_timer of prg_pg_backend.erl), and runs the
	// one that has become due.
	baselineUnlockTimers = `
WITH unblocked AS (
  UPDATE schedule SET status = 'waiting' WHERE process_id = $1 AND status = 'blocked' AND scheduled_time > $2
    RETURNING *),
delayed AS (
  DELETE FROM schedule WHERE process_id = $1 AND status = 'blocked' AND scheduled_time <= $2
  RETURNING task_id, process_id, task_type, 'running'::task_status, scheduled_time, $2::timestamptz, args, metadata,
            last_retry_interval, attempts_count, context),
due AS (
  INSERT INTO running (task_id, process_id, task_type, status, scheduled_time, running_time, args, metadata,
                       last_retry_interval, attempts_count, context)
  SELECT * FROM delayed RETURNING *)
SELECT coalesce(due.task_id, 0) FROM unblocked FULL OUTER JOIN due ON unblocked.task_id = due.task_id`
)

// baseline is one run of the baseline, in its own schema.
type baseline struct {
	payload
	pool    *pgxpool.Pool
	history bool     // the processor gets the whole history
	answers sync.Map // task_id of a waiting call → chan struct{} that is closed at its end
	events  sync.Map // process_id → *int32: number of its last event
	workers sync.WaitGroup
	fail    context.CancelCauseFunc
}

// openBaseline creates the schema in a scratch database. fail is called with errors that no client
// gets.
func openBaseline(ctx context.Context, d *scratch, history bool, fail context.CancelCauseFunc) (*baseline, error) {
	admin, err := d.connect(ctx, baselineSchema)
	if err != nil {
		return nil, err
	}
	_, err = admin.Exec(ctx, "CREATE SCHEMA "+baselineSchema)
	if err == nil {
		_, err = admin.Exec(ctx, baselineTables)
	}
	if err := errors.Join(err, admin.Close(ctx)); err != nil {
		return nil, fmt.Errorf("create the baseline's tables: %w", err)
	}
	cfg, err := pgxpool.ParseConfig(d.dsn)
	if err != nil {
		return nil, err
	}
	cfg.MaxConns = baselineConnections
	cfg.ConnConfig.RuntimeParams["search_path"] = baselineSchema
	cfg.ConnConfig.RuntimeParams["application_name"] = "progressor bench baseline"
	pool, err := pgxpool.NewWithConfig(ctx, cfg)
	if err != nil {
		return nil, fmt.Errorf("open the baseline's pool: %w", err)
	}
	return &baseline{payload: newPayload(ctx), pool: pool, history: history, fail: fail}, nil
}

func (b *baseline) close() {
	b.workers.Wait()
	b.pool.Close()
}

// start runs PrepareInit and SaveResult.
func (b *baseline) start(ctx context.Context, id string, key *string, metadata []byte) error {
	task, err := b.prepareInit(ctx, id, key, metadata)
	if err != nil {
		return err
	}
	return b.perform(ctx, id, task)
}

func (b *baseline) prepareInit(ctx context.Context, id string, key *string, metadata []byte) (task int64, err error) {
	err = pgx.BeginFunc(ctx, b.pool, func(tx pgx.Tx) error {
		if _, err := tx.Exec(ctx, baselineInsertProcess, id, "running", nil, nil, metadata); err != nil {
			return err
		}
		if task, err = b.insertTask(ctx, tx, id, "init", "running", key); err != nil {
			return err
		}
		_, err := b.insertRunning(ctx, tx, id, "init", task)
		return err
	})
	if err != nil {
		return 0, fmt.Errorf("baseline PrepareInit: %w", err)
	}
	return task, nil
}

// call runs PrepareCall and, when it is the call's turn, SaveResult.
func (b *baseline) call(ctx context.Context, id string, key *string) error {
	answer := make(chan struct{})
	task, running, err := b.prepareCall(ctx, id, key, answer)
	for isConflict(err) {
		task, running, err = b.prepareCall(ctx, id, key, answer)
	}
	if err != nil {
		return fmt.Errorf("baseline PrepareCall: %w", err)
	}
	if running {
		return b.perform(ctx, id, task)
	}
	select {
	case <-answer:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// prepareCall runs PrepareCall. If the process is busy, it queues the call, and answer is closed
// when the result of the call has been saved.
func (b *baseline) prepareCall(
	ctx context.Context, id string, key *string, answer chan struct{},
) (task int64, running bool, err error) {
	err = pgx.BeginFunc(ctx, b.pool, func(tx pgx.Tx) (err error) {
		if task, err = b.insertTask(ctx, tx, id, "call", "running", key); err != nil {
			return err
		}
		if _, err := tx.Exec(ctx, baselineBlockTimers, id); err != nil {
			return err
		}
		if running, err = b.insertRunning(ctx, tx, id, "call", task); err != nil || running {
			return err
		}
		// The client that ends the running task takes this one as soon as it is committed, so
		// register before the commit.
		b.answers.Store(task, answer)
		_, err = tx.Exec(ctx, baselineInsertSchedule, task, id, "call", "waiting", time.Now(), b.args, nil, 0, 0, nil)
		return err
	})
	if err != nil {
		b.answers.Delete(task)
	}
	return task, running, err
}

func (b *baseline) insertTask(
	ctx context.Context, tx pgx.Tx, id, taskType, status string, key *string,
) (task int64, err error) {
	now := time.Now()
	err = tx.QueryRow(ctx, baselineInsertTask, id, taskType, status, now, now, b.args, nil, key, nil, nil, 0, 0,
		nil).Scan(&task)
	return task, err
}

// insertRunning reports whether the task became the running task of its process.
func (b *baseline) insertRunning(
	ctx context.Context, tx pgx.Tx, id, taskType string, task int64,
) (running bool, err error) {
	now := time.Now()
	err = tx.QueryRow(ctx, baselineInsertRunning, task, id, taskType, "running", now, now, b.args, nil, 0, 0,
		nil).Scan(&task)
	if errors.Is(err, pgx.ErrNoRows) {
		return false, nil
	}
	return err == nil, err
}

// perform saves the result of a task. The task itself does nothing. If another call of the process
// waits, perform starts a goroutine that serves it.
func (b *baseline) perform(ctx context.Context, id string, task int64) error {
	next, err := b.save(ctx, id, task, false)
	if err != nil || next == 0 {
		return err
	}
	b.workers.Go(func() { b.serve(ctx, id, next) })
	return nil
}

// serve saves the result of a waiting call and notifies its client. It does the same for all calls
// that wait behind this call.
func (b *baseline) serve(ctx context.Context, id string, task int64) {
	for task != 0 {
		next, err := b.save(ctx, id, task, false)
		if err != nil {
			b.fail(err)
			return
		}
		if answer, ok := b.answers.LoadAndDelete(task); ok {
			close(answer.(chan struct{}))
		}
		task = next
	}
}

// save runs SaveResult. If zeroTimer is true, the result sets a timer that is due at once. save
// returns the task that runs next on the process: a waiting call, otherwise a timer that is due, or
// 0 if there is neither.
func (b *baseline) save(ctx context.Context, id string, task int64, zeroTimer bool) (next int64, err error) {
	if err := b.readHistory(ctx, id); err != nil {
		return 0, err
	}
	number, _ := b.events.LoadOrStore(id, new(int32))
	event := number.(*int32)
	*event++ // one task of a process runs at a time
	for {
		err = pgx.BeginFunc(ctx, b.pool, func(tx pgx.Tx) error {
			next, err = b.saveIn(ctx, tx, id, task, *event, zeroTimer)
			return err
		})
		if !isConflict(err) {
			break
		}
	}
	if err != nil {
		return 0, fmt.Errorf("baseline SaveResult: %w", err)
	}
	return next, nil
}

func (b *baseline) saveIn(
	ctx context.Context, tx pgx.Tx, id string, task int64, event int32, zeroTimer bool,
) (next int64, err error) {
	now := time.Now()
	if _, err := tx.Exec(ctx, baselineUpdateProcess, "running", nil, b.state, nil, id); err != nil {
		return 0, err
	}
	if _, err := tx.Exec(ctx, baselineInsertEvent, id, task, event, now, b.event, nil); err != nil {
		return 0, err
	}
	var timer int64
	if zeroTimer {
		if _, err := tx.Exec(ctx, baselineCancelTimers, id); err != nil {
			return 0, err
		}
		if timer, err = b.insertTask(ctx, tx, id, "timeout", "running", nil); err != nil {
			return 0, err
		}
	}
	if _, err := tx.Exec(ctx, baselineFinishTask, "finished", b.response, now, id, task); err != nil {
		return 0, err
	}
	err = tx.QueryRow(ctx, baselineNextCall, id, now).Scan(&next)
	if err == nil || !errors.Is(err, pgx.ErrNoRows) {
		return next, err
	}
	if !zeroTimer {
		err = tx.QueryRow(ctx, baselineUnlockTimers, id, now).Scan(&next)
		if errors.Is(err, pgx.ErrNoRows) {
			return 0, nil
		}
		return next, err
	}
	_, err = b.insertRunning(ctx, tx, id, "timeout", timer)
	return timer, err
}

func (b *baseline) readHistory(ctx context.Context, id string) error {
	if !b.history {
		return nil
	}
	rows, err := b.pool.Query(ctx, baselineReadHistory, id)
	if err != nil {
		return fmt.Errorf("baseline history: %w", err)
	}
	var event struct {
		id                int32
		at                time.Time
		metadata, payload []byte
	}
	_, err = pgx.ForEachRow(rows, []any{&event.id, &event.at, &event.metadata, &event.payload},
		func() error { return nil })
	if err != nil {
		return fmt.Errorf("baseline history: %w", err)
	}
	return nil
}

// isConflict reports whether two transactions have conflicted. The reference rolls back such a
// transaction and retries it.
func isConflict(err error) bool {
	failure, ok := errors.AsType[*pgconn.PgError](err)
	return ok && (failure.Code == "40P01" || failure.Code == "40001" || failure.Code == "23505")
}

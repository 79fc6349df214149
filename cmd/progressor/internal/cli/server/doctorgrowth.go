package server

import (
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/progressor-engine/progressor/cmd/progressor/internal/cli/output"
	"github.com/progressor-engine/progressor/process"
	"github.com/progressor-engine/progressor/storage/insight"
)

const (
	// failsafeAge is PostgreSQL's default for vacuum_failsafe_age. From this age on, vacuum does
	// nothing but freeze.
	failsafeAge = 1_600_000_000
	// longQueue is the number of tasks that may wait in a process without a warning. It is ten
	// times the default of max_waiting.
	longQueue = 10_000
	// lateMessage is the longest normal wait of a message while its process is not locked and a
	// node runs.
	lateMessage = time.Minute
	// manyMessages is the number of messages that may wait for a process without a warning.
	manyMessages = 10_000
	// lateKeys is how long idempotency keys may exceed their retention. Each node deletes them
	// every 30 s.
	lateKeys = time.Hour
	// keyRetention is the retention of idempotency keys.
	keyRetention = 24 * time.Hour
	// longFailing is how long a task of a run, a cron or a bulk operation may fail before doctor
	// warns. A restart of the database takes less time.
	longFailing = time.Minute
	// longestListed is the maximum number of processes that one kind of warning lists.
	longestListed = 10
)

// frozen is the age of the oldest unfrozen transaction ID. At two billion transactions, PostgreSQL
// rejects writes.
type frozen struct {
	Age         int64  `json:"age"`
	MaxAge      int64  `json:"freeze_max_age"`
	OldestTable string `json:"oldest_table"`
	TableAge    int64  `json:"oldest_table_age"`
}

// late reports whether autovacuum, which starts to freeze at MaxAge, is too slow or held back.
func (f frozen) late() bool { return f.Age > min(f.MaxAge/4*5, failsafeAge) }

func (e *examination) checkFreezing(ctx context.Context, conn *pgx.Conn) error {
	f := &e.Frozen
	err := conn.QueryRow(ctx, `
		SELECT age(d.datfrozenxid), current_setting('autovacuum_freeze_max_age')::bigint,
		  c.oid::regclass::text, age(c.relfrozenxid)
		FROM pg_database d
		CROSS JOIN LATERAL (
		  SELECT oid, relfrozenxid FROM pg_class WHERE relkind IN ('r', 'm', 't')
		    ORDER BY age(relfrozenxid) DESC LIMIT 1) c
		WHERE d.datname = current_database()`).Scan(&f.Age, &f.MaxAge, &f.OldestTable, &f.TableAge)
	if err != nil {
		return err
	}
	if f.late() {
		e.warn(fmt.Sprintf("VACUUM (FREEZE) %s; if this does not help, end the transaction or drop the "+
			"replication slot that holds the oldest xmin", f.OldestTable),
			"the database is %d transactions old, and autovacuum freezes at %d: PostgreSQL rejects writes at 2 "+
				"billion. The oldest table is %s, which is %d transactions old",
			f.Age, f.MaxAge, f.OldestTable, f.TableAge)
	}
	return nil
}

// checkQueues finds processes with long queues and processes whose messages are not delivered.
func (e *examination) checkQueues(ctx context.Context, conn *pgx.Conn) error {
	if e.Schema.Version == 0 {
		return nil
	}
	rows, err := conn.Query(ctx, `
		SELECT namespace, process_id, count(*) FROM schedule
		WHERE waits_for = 'process'
		GROUP BY namespace, process_id HAVING count(*) > $1 ORDER BY count(*) DESC LIMIT $2`, longQueue, longestListed)
	if err != nil {
		return err
	}
	var namespace, process string
	var n int64
	if _, err := pgx.ForEachRow(rows, []any{&namespace, &process, &n}, func() error {
		e.warn(fmt.Sprintf("progressor explain %s %s; send fewer tasks, or make the processor faster", namespace,
			process),
			"%d tasks wait in process %s/%s", n, namespace, process)
		return nil
	}); err != nil {
		return err
	}
	rows, err = conn.Query(ctx, `
		SELECT namespace, process_id, count(*), extract(epoch FROM statement_timestamp() - min(created_time))::float8
		FROM messages
		WHERE NOT held
		GROUP BY namespace, process_id
		HAVING count(*) > $1 OR min(created_time) < statement_timestamp() - make_interval(secs => $2)
		ORDER BY min(created_time) LIMIT $3`, manyMessages, lateMessage.Seconds(), longestListed)
	if err != nil {
		return err
	}
	var age float64
	_, err = pgx.ForEachRow(rows, []any{&namespace, &process, &n, &age}, func() error {
		e.warn("check that a node runs and that no other session has locked the process (pg_locks), and count the "+
			"tasks that wait in it",
			"process %s/%s has %s waiting for delivery; the oldest has waited for %.0f s", namespace, process,
			output.Counted(int(n), "message"), age)
		return nil
	})
	return err
}

// checkFailing finds runs, crons and bulk operations that make no progress because their own tasks
// fail. The engine or the database is the cause of such a failure.
func (e *examination) checkFailing(ctx context.Context, conn *pgx.Conn) error {
	if e.Schema.Version == 0 {
		return nil
	}
	tasks, err := insight.ListFailingTasks(ctx, conn, longFailing, longestListed)
	if err != nil {
		return fmt.Errorf("list failing tasks: %w", err)
	}
	for _, t := range tasks {
		e.warn(fmt.Sprintf("progressor explain %s %s; look for the error in the log of PostgreSQL and of the nodes",
			output.ShellWord(t.Key.Namespace), output.ShellWord(t.Key.ProcessID)),
			"%s has made no progress for %.0f s: attempt %d of its task %d (%s) failed: %s: %s",
			internalObject(t.Key), t.For.Seconds(), t.Attempt, t.TaskID, t.Type, t.Reason, t.Message)
	}
	return nil
}

// internalObject returns the name of the object that a process of an internal kind represents, such
// as "run shop/r-1".
func internalObject(key process.Key) string {
	for prefix, name := range map[string]string{
		process.FlowPrefix: "run", process.CronPrefix: "cron", process.CronRunPrefix: "run of a cron",
		process.BulkPrefix: "bulk operation",
	} {
		if id, ok := strings.CutPrefix(key.ProcessID, prefix); ok {
			return name + " " + key.Namespace + "/" + id
		}
	}
	return "process " + key.Namespace + "/" + key.ProcessID
}

func (e *examination) checkKeys(ctx context.Context, conn *pgx.Conn) error {
	if e.Schema.Version == 0 {
		return nil
	}
	var overdue float64
	err := conn.QueryRow(ctx, `
		SELECT coalesce(extract(epoch FROM statement_timestamp() - min(created_time)), 0)::float8 FROM requests`).Scan(
		&overdue)
	if late := overdue - keyRetention.Seconds(); err == nil && late > lateKeys.Seconds() {
		e.warn("check that a node runs, and look for \"delete idempotency keys\" in its log",
			"the oldest idempotency key has been kept for %.0f h beyond its retention", late/3600)
	}
	return err
}

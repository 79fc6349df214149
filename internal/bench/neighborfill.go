package bench

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5/pgconn"

	"github.com/progressor-engine/progressor/engine"
	"github.com/progressor-engine/progressor/process"
)

const (
	// rowsOfNamespace is the number of timers or calls that wait in each namespace of the tenant.
	rowsOfNamespace = 300
	largeBytes      = 1 << 20
	largeNamespaces = 7
	// queueID is the process of the tenant that has a queue.
	queueID = "queue"
	// tenantProcesses is the number of processes that the clients of the tenant call.
	tenantProcesses = 100
	clearPause      = 100 * time.Millisecond
)

// The statements for the rows of a tenant. The rows look as if the clients of the tenant had made
// many requests. The first parameter is the namespace of the tenant, the prefix of its namespaces
// tenant1, tenant2, …, or a pattern for LIKE.
const (
	fillNamespaces = `
INSERT INTO namespaces (namespace, config, paused)
SELECT namespace || n, config, true FROM namespaces CROSS JOIN generate_series(1, $2::int) AS n WHERE namespace = $1`
	fillBacklogProcesses = `
INSERT INTO processes (namespace, process_id, status, previous_status)
SELECT $1 || s, 'p' || p, 'RUNNING', 'INIT'
  FROM generate_series(1, $2::int) AS s CROSS JOIN generate_series(1, $3::int) AS p`
	fillBacklogTasks = `
INSERT INTO schedule (namespace, process_id, task_id, task_type, waits_for, scheduled_time, timer_name, args)
SELECT $1 || s, 'p' || p, nextval('task_ids'), $4::text::task_type, $5::text::waits_for, statement_timestamp(),
       CASE $4 WHEN 'TIMEOUT' THEN '' END, $6::bytea
  FROM generate_series(1, $2::int) AS s CROSS JOIN generate_series(1, $3::int) AS p`
	fillBacklogCounts = `
INSERT INTO status_counts (namespace, status, n)
SELECT $1 || s, 'RUNNING', $3::int FROM generate_series(1, $2::int) AS s`
	fillQueue = `
INSERT INTO schedule (namespace, process_id, task_id, task_type, waits_for, scheduled_time)
SELECT $1, $2, nextval('task_ids'), 'NOTIFY', $4::text::waits_for, statement_timestamp()
  FROM generate_series(1, $3::int)`
	fillMessages = `
INSERT INTO messages (namespace, process_id, kind, held) SELECT $1, $2, 'notify', $4 FROM generate_series(1, $3::int)`
	announceMessages = `SELECT send_notice('progressor_messages')`
	resumeNamespaces = `
UPDATE namespaces SET paused = false, updated_time = clock_timestamp() WHERE namespace LIKE $1 AND paused`
	pauseNamespaces = `
UPDATE namespaces SET paused = true, updated_time = clock_timestamp() WHERE namespace LIKE $1 AND NOT paused`
	countWaiting = `
SELECT (SELECT count(*) FROM schedule WHERE namespace = $1) + (SELECT count(*) FROM running WHERE namespace = $1)`
	lockQueue = `SELECT FROM processes WHERE namespace = $1 AND process_id = $2 FOR UPDATE`
)

// tenantTables are the tables in which a tenant may have rows.
var tenantTables = []string{
	"messages", "schedule", "running", "queue_backlogs", "tasks", "events", "answers", "processes", "status_counts",
}

// fillBacklog adds paused namespaces with processes that have one waiting task each.
func (n *neighborhood) fillBacklog(
	ctx context.Context, namespaces, each int, task, waitsFor string, args []byte,
) error {
	return n.database.execute(ctx,
		statement{fillNamespaces, []any{tenantName, namespaces}},
		statement{fillBacklogProcesses, []any{tenantName, namespaces, each}},
		statement{fillBacklogTasks, []any{tenantName, namespaces, each, task, waitsFor, args}},
		statement{fillBacklogCounts, []any{tenantName, namespaces, each}})
}

func (n *neighborhood) fillTimers(ctx context.Context) error {
	return n.fillBacklog(ctx, n.command.NeighborNamespaces, rowsOfNamespace, "TIMEOUT", "time", nil)
}

func (n *neighborhood) fillCalls(ctx context.Context) error {
	return n.fillBacklog(ctx, n.command.NeighborNamespaces, rowsOfNamespace, "CALL", "place", n.args)
}

func (n *neighborhood) fillLargeCalls(ctx context.Context) error {
	each := max(1, n.command.NeighborLargeCalls/largeNamespaces)
	return n.fillBacklog(ctx, largeNamespaces, each, "CALL", "place", noise(largeBytes))
}

func (n *neighborhood) fillStored(ctx context.Context) error {
	return n.fillBacklog(ctx, 1, n.command.NeighborBacklog, "CALL", "place", n.args)
}

// resumeTenant resumes the namespaces of the tenant that are paused.
func (n *neighborhood) resumeTenant(ctx context.Context) error {
	return n.database.execute(ctx, statement{resumeNamespaces, []any{tenantFilter}})
}

// startQueue starts the process that gets a queue.
func (n *neighborhood) startQueue(ctx context.Context) error { return n.startTenant(ctx, queueID) }

// startTenants starts the processes that the clients of the tenant call.
func (n *neighborhood) startTenants(ctx context.Context) error {
	return each(ctx, tenantProcesses, fillers, func(ctx context.Context, i int) error {
		return n.startTenant(ctx, processID(uint64(i)))
	})
}

// fillBehind starts the process with a task that the gate holds, and fills its queue.
func (n *neighborhood) fillBehind(ctx context.Context, args string) error {
	if err := n.startQueue(ctx); err != nil {
		return err
	}
	_, err := n.site.engine.Call(ctx, engine.CallParams{Key: tenantKey(queueID), Args: []byte(args), Accepted: true})
	if err != nil {
		return err
	}
	for n.gate.held.Load() == 0 {
		if err := wait(ctx, time.Millisecond); err != nil {
			return err
		}
	}
	return n.fillRows(ctx, "process")
}

func (n *neighborhood) fillRows(ctx context.Context, waitsFor string) error {
	return n.database.execute(ctx, statement{fillQueue, []any{tenantName, queueID, n.command.NeighborQueue, waitsFor}})
}

func (n *neighborhood) fillBehindTask(ctx context.Context) error { return n.fillBehind(ctx, argsHold) }

func (n *neighborhood) fillBehindFailure(ctx context.Context) error {
	return n.fillBehind(ctx, argsHoldFail)
}

// startSuspended starts the process and suspends it.
func (n *neighborhood) startSuspended(ctx context.Context) error {
	if err := n.startQueue(ctx); err != nil {
		return err
	}
	_, err := n.site.engine.SuspendProcess(ctx, tenantKey(queueID), "bench", process.Actor{})
	return err
}

func (n *neighborhood) fillSuspended(ctx context.Context) error {
	return errors.Join(n.startSuspended(ctx), n.fillRows(ctx, "operator"))
}

func (n *neighborhood) fillHeld(ctx context.Context) error {
	return errors.Join(n.startSuspended(ctx), n.fillMessages(ctx, n.command.NeighborQueue, true))
}

func (n *neighborhood) fillMessages(ctx context.Context, count int, held bool) error {
	return n.database.execute(ctx, statement{fillMessages, []any{tenantName, queueID, count, held}},
		statement{sql: announceMessages})
}

// clear ends the state: it pauses the tenant and deletes all its rows, regardless of their status.
func (n *neighborhood) clear(ctx context.Context) error {
	n.stopClients()
	n.gate.open()
	if err := n.database.execute(ctx, statement{pauseNamespaces, []any{tenantFilter}}); err != nil {
		return err
	}
	for begin := time.Now(); ; {
		done, err := n.deleteTenant(ctx)
		if err != nil || done {
			return err
		}
		if time.Since(begin) > arrivalsTimeout {
			return fmt.Errorf("rows of the tenant are still written after %s", arrivalsTimeout)
		}
		if err := wait(ctx, clearPause); err != nil { // running tasks end in the meantime
			return err
		}
	}
}

// deleteTenant deletes all rows of the tenant, and reports whether there were none.
func (n *neighborhood) deleteTenant(ctx context.Context) (done bool, err error) {
	done = true
	for _, table := range tenantTables {
		tag, err := n.conn.Exec(ctx, "DELETE FROM "+table+" WHERE namespace LIKE $1", tenantFilter)
		if failure, ok := errors.AsType[*pgconn.PgError](err); ok && failure.Code == "40P01" { // a deadlock
			return false, nil
		}
		if err != nil {
			return false, fmt.Errorf("delete from %s: %w", table, err)
		}
		done = done && tag.RowsAffected() == 0
	}
	return done, nil
}

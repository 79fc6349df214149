//go:build linux

package chaos

import (
	"context"
	"errors"
	"fmt"
	"time"

	"connectrpc.com/connect"
	"github.com/jackc/pgx/v5"
	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/progressor-engine/progressor/client"
	progressorv1 "github.com/progressor-engine/progressor/proto/progressor/v1"
)

// Other tenants of the engines. They must not affect the clients of the chain.
const (
	queueNamespace   = "queues"
	backlogNamespace = "backlog" // backlog1, backlog2, …
)

// The sizes that the first fault of each kind uses in a run of fullSize or more. Shorter runs and
// later faults use smaller sizes.
const (
	fullSize          = 30 * time.Minute
	largestQueue      = 2_000_000
	smallestQueue     = 3000
	backlogNamespaces = 1000
	fewestNamespaces  = 50
	largestBacklog    = 100 // timers, and as many calls, in each namespace
	smallestBacklog   = 2
	laterPart         = 20
)

// scaled returns the size of a fault. earlier is the number of earlier faults of its kind.
func scaled(n, smallest, earlier int, run time.Duration) int {
	n = int(float64(n) * min(1, run.Seconds()/fullSize.Seconds()))
	if earlier > 0 {
		n /= laterPart
	}
	return max(smallest, n)
}

// tenants records the expected state of the other tenants, independently of the database.
type tenants struct {
	queues     []queue
	backlog    int // tasks in all namespaces
	namespaces int
}

// queue is a process that was sent many notifications.
type queue struct {
	process string
	n       int
	removed bool // removed at once; otherwise the process was cancelled, and is removed at the end of the test
}

// tenantRows contains the rows of the other tenants in the database at the end.
type tenantRows struct {
	ended   map[string]int // notifications that had ended before their process was removed, by process
	left    map[string]int // rows of any kind, by process
	backlog int            // tasks of the backlog that have finished
}

// defects compares the expected state with the rows, and returns the differences.
func (w *tenants) defects(rows tenantRows) (wrong []string) {
	for _, q := range w.queues {
		if left := rows.left[q.process]; left > 0 {
			wrong = append(wrong, fmt.Sprintf("%s was removed, but %d of its rows are left", q.process, left))
		}
		if ended := rows.ended[q.process]; !q.removed && ended != q.n {
			wrong = append(wrong, fmt.Sprintf("%d of the %d notifications of %s have ended", ended, q.n, q.process))
		}
	}
	if rows.backlog != w.backlog {
		wrong = append(wrong, fmt.Sprintf("%d of the %d tasks of the backlog have finished", rows.backlog, w.backlog))
	}
	return wrong
}

// figures returns the numbers about the other tenants that must not be zero after a long run.
func (w *tenants) figures() []figure {
	largest := 0
	for _, q := range w.queues {
		largest = max(largest, q.n)
	}
	return []figure{
		{"processes with a long queue", len(w.queues)},
		{"notifications in the longest queue", largest},
		{"namespaces with a backlog", w.namespaces},
		{"timers and calls of the backlog", w.backlog},
	}
}

// putTenants creates the namespaces of the other tenants. Their processor is part of the engine.
func (s *chaosRun) putTenants() {
	for _, name := range []string{queueNamespace, backlogNamespace} {
		ns := &progressorv1.Namespace{
			Namespace: name, RetryPolicy: &progressorv1.RetryPolicy{MaxAttempts: 100},
			Processor: &progressorv1.ProcessorConfig{Transport: &progressorv1.ProcessorConfig_Builtin{
				Builtin: &progressorv1.BuiltinProcessor{Name: "echo"},
			}},
		}
		req := &progressorv1.PutNamespaceRequest{Namespace: ns}
		if _, err := one(s.nodes[0]).Namespace.PutNamespace(s.t.Context(), req); err != nil {
			s.t.Fatal(err)
		}
	}
}

// The rows of other tenants, as many requests would have left them.
const (
	fillQueue = `
INSERT INTO schedule (namespace, process_id, task_id, task_type, waits_for, scheduled_time)
SELECT $1, $2, nextval('task_ids'), 'NOTIFY', (CASE n WHEN 1 THEN 'place' ELSE 'process' END)::waits_for,
       statement_timestamp()
  FROM generate_series(1, $3::int) AS n
 ORDER BY n`
	fillNamespaces = `
INSERT INTO namespaces (namespace, config)
SELECT namespace || n, config
  FROM namespaces CROSS JOIN generate_series(1, $2::int) AS n
 WHERE namespace = $1
    ON CONFLICT DO NOTHING`
	fillProcesses = `
INSERT INTO processes (namespace, process_id, status, previous_status)
SELECT $1 || n, $4 || p, 'RUNNING', 'INIT'
  FROM generate_series(1, $2::int) AS n CROSS JOIN generate_series(1, $3::int * 2) AS p`
	fillTasks = `
INSERT INTO schedule (namespace, process_id, task_id, task_type, waits_for, scheduled_time, timer_name)
SELECT $1 || n, $4 || p, nextval('task_ids'), k.task_type::task_type, k.waits_for::waits_for,
       statement_timestamp(), k.timer_name
  FROM generate_series(1, $2::int) AS n
 CROSS JOIN generate_series(1, $3::int * 2) AS p
  JOIN (VALUES (0, 'TIMEOUT', 'time', ''), (1, 'CALL', 'place', NULL)) AS k (odd, task_type, waits_for, timer_name)
    ON k.odd = p % 2`
	countProcesses = `
INSERT INTO status_counts (namespace, status, n)
SELECT $1 || n, 'RUNNING', $3::int * 2
  FROM generate_series(1, $2::int) AS n
    ON CONFLICT (namespace, lane, status) DO UPDATE SET n = status_counts.n + excluded.n`
)

// endLongQueue sends a process many notifications, suspends it, may resume it, and ends it. Its
// waiting tasks change their status each time.
func (s *chaosRun) endLongQueue(int) {
	q := queue{
		process: fmt.Sprintf("q%d", len(s.tenants.queues)), removed: s.random.IntN(3) == 0,
		n: scaled(largestQueue, smallestQueue, len(s.tenants.queues), *chaosDuration),
	}
	s.tenants.queues = append(s.tenants.queues, q)
	s.operate("start "+q.process, func(ctx context.Context, c *client.Client) error {
		_, err := c.Start(ctx, &progressorv1.StartRequest{
			Namespace: queueNamespace, ProcessId: q.process, IdempotencyKey: q.process,
		})
		return err
	})
	s.execute(fillQueue, queueNamespace, q.process, q.n)
	s.operate("suspend "+q.process, func(ctx context.Context, c *client.Client) error {
		_, err := c.Process.SuspendProcess(ctx, &progressorv1.SuspendProcessRequest{
			Namespace: queueNamespace, ProcessId: q.process,
		})
		return err
	})
	if s.random.IntN(2) == 0 {
		s.operate("resume "+q.process, func(ctx context.Context, c *client.Client) error {
			_, err := c.Process.ResumeProcess(ctx, &progressorv1.ResumeProcessRequest{
				Namespace: queueNamespace, ProcessId: q.process,
			})
			return err
		})
	}
	if q.removed {
		s.remove(q.process)
		return
	}
	s.operate("cancel "+q.process, func(ctx context.Context, c *client.Client) error {
		_, err := c.Process.CancelProcess(ctx, &progressorv1.CancelProcessRequest{
			Namespace: queueNamespace, ProcessId: q.process, Grace: durationpb.New(0),
		})
		return err
	})
}

// remove removes a process with a queue.
func (s *chaosRun) remove(process string) {
	s.operate("remove "+process, func(ctx context.Context, c *client.Client) error {
		_, err := c.Process.RemoveProcess(ctx, &progressorv1.RemoveProcessRequest{
			Namespace: queueNamespace, ProcessId: process,
		})
		if connect.CodeOf(err) == connect.CodeNotFound {
			return nil // an earlier try has removed it
		}
		return err
	})
}

// operate sends the command of an operator to the engines until one has executed it.
func (s *chaosRun) operate(what string, request func(context.Context, *client.Client) error) {
	ctx, cancel := context.WithTimeout(s.t.Context(), testTimeout+*chaosDuration)
	defer cancel()
	unsure, err := s.load.sendCommand(ctx, s.random.IntN(len(s.nodes)), request)
	if unsure && errors.Is(err, errBroken) {
		err = nil // an earlier try has executed it
	}
	if err != nil {
		s.t.Errorf("%s: %v", what, err)
	}
}

// addBacklog gives many namespaces a backlog of due timers and waiting calls.
func (s *chaosRun) addBacklog(int) {
	earlier := s.tenants.backlog
	namespaces := scaled(backlogNamespaces, fewestNamespaces, 0, 30**chaosDuration)
	each := scaled(largestBacklog, smallestBacklog, earlier, *chaosDuration)
	prefix := fmt.Sprintf("b%d-", earlier)
	s.execute(fillNamespaces, backlogNamespace, namespaces)
	conn := observe(s.t, s.dsn)
	defer conn.Close(s.t.Context())
	err := pgx.BeginFunc(s.t.Context(), conn, func(tx pgx.Tx) error {
		for _, sql := range []string{fillProcesses, fillTasks} {
			if _, err := tx.Exec(s.t.Context(), sql, backlogNamespace, namespaces, each, prefix); err != nil {
				return err
			}
		}
		_, err := tx.Exec(s.t.Context(), countProcesses, backlogNamespace, namespaces, each)
		return err
	})
	if err != nil {
		s.t.Fatal(err)
	}
	s.tenants.backlog += namespaces * each * 2
	s.tenants.namespaces = max(s.tenants.namespaces, namespaces)
}

// execute runs one statement as another client of the database.
func (s *chaosRun) execute(sql string, args ...any) {
	s.t.Helper()
	conn := observe(s.t, s.dsn)
	defer conn.Close(s.t.Context())
	if _, err := conn.Exec(s.t.Context(), sql, args...); err != nil {
		s.t.Fatal(err)
	}
}

// settleTenants waits until the other tenants have no more work, and returns their rows. It removes
// the processes with queues, because the final checks of all rows have a time limit.
func (s *chaosRun) settleTenants(conn *pgx.Conn) tenantRows {
	s.awaitTenants(conn)
	rows := tenantRows{
		ended: s.byProcess(conn, `SELECT process_id, count(*) FROM tasks
			WHERE namespace = $1 AND task_type = 'NOTIFY' AND status IN ('FINISHED', 'CANCELLED') GROUP BY process_id`),
		backlog: count(s.t, conn, `SELECT count(*) FROM tasks
			WHERE starts_with(namespace, $1) AND status = 'FINISHED'`, backlogNamespace),
	}
	for _, q := range s.tenants.queues {
		if !q.removed {
			s.remove(q.process)
		}
	}
	s.awaitTenants(conn)
	rows.left = s.byProcess(conn, `SELECT process_id, count(*) FROM (
		SELECT namespace, process_id FROM processes UNION ALL SELECT namespace, process_id FROM tasks UNION ALL
		SELECT namespace, process_id FROM schedule) AS x WHERE namespace = $1 GROUP BY process_id`)
	return rows
}

// awaitTenants waits until no task of other tenants waits and no process is being removed.
func (s *chaosRun) awaitTenants(conn *pgx.Conn) {
	s.t.Helper()
	const left = `SELECT (SELECT count(*) FROM schedule WHERE namespace = $1 OR starts_with(namespace, $2))
		+ (SELECT count(*) FROM queue_backlogs)
		+ (SELECT count(*) FROM processes WHERE namespace = $1 AND removed_time IS NOT NULL)`
	took := await(s.t, testTimeout+*chaosDuration, "the other tenants have nothing left to do", func() bool {
		return count(s.t, conn, left, queueNamespace, backlogNamespace) == 0
	})
	s.t.Logf("the other tenants were done after %s", took.Round(time.Millisecond))
}

// byProcess counts rows of the namespace with queues.
func (s *chaosRun) byProcess(conn *pgx.Conn, sql string) map[string]int {
	rows, err := conn.Query(s.t.Context(), sql, queueNamespace)
	if err != nil {
		s.t.Fatal(err)
	}
	counts := map[string]int{}
	var process string
	var n int
	if _, err := pgx.ForEachRow(rows, []any{&process, &n},
		func() error { counts[process] = n; return nil }); err != nil {
		s.t.Fatal(err)
	}
	return counts
}

//go:build linux

package chaos

import (
	"syscall"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
)

// liveLimit is how long an engine that continues after a freeze may keep an attempt alive that
// another engine repeats.
const liveLimit = 5 * time.Second

// freeze stops an engine for between 2/3 of its lease and all of it. The engine must cancel its
// attempts by itself, unless another engine has declared it dead.
func (s *chaosRun) freeze(i int) {
	s.awaitBusy(i)
	n := s.nodes[i]
	conn := observe(s.t, s.dsn)
	defer conn.Close(s.t.Context())
	before := n.metric("progressor_attempts_fenced_total")
	n.signal(syscall.SIGSTOP)
	held := s.chain.working(chainCalls(s.t, conn, n))
	await(s.t, testTimeout, "2/3 of the lease have passed", func() bool { return silent(s.t, conn, n, "0.75 s") })
	taken := count(s.t, conn, `SELECT count(*) FROM nodes WHERE dead_beat_time = beat_time
		AND node_id = (SELECT max(node_id) FROM nodes WHERE address = $1)`, n.name)
	n.signal(syscall.SIGCONT)
	if taken == 0 && held > 0 {
		await(s.t, liveLimit, "the engine cancels its attempts", func() bool {
			return n.metric("progressor_attempts_fenced_total") > before
		})
		s.freezes++
	}
	s.awaitSingleAttempts()
	s.chain.openAll()
	await(s.t, testTimeout, "the engine is ready again", n.isReady)
}

// silent reports whether an engine has sent no heartbeat for a while. An engine that was declared
// dead earlier also has older rows.
func silent(t testing.TB, conn *pgx.Conn, n *node, while string) bool {
	t.Helper()
	return count(t, conn, `SELECT count(*) FROM nodes WHERE beat_time < statement_timestamp() - $2::interval
		AND node_id = (SELECT max(node_id) FROM nodes WHERE address = $1)`, n.name, while) == 1
}

// freezeLong stops an engine while its processor works, until another engine repeats one of its
// attempts. When the engine continues, it must cancel its own attempts. Tasks that the engine has
// locked are repeated only after 10 s. The test does not wait for these, because the step timeout
// of the calls is also 10 s.
func (s *chaosRun) freezeLong(i int) {
	s.awaitBusy(i)
	n := s.nodes[i]
	conn := observe(s.t, s.dsn)
	defer conn.Close(s.t.Context())
	n.signal(syscall.SIGSTOP)
	waitUntil(5*time.Second, func() bool { return s.chain.repeatedTasks() > 0 })
	s.repeated += s.chain.repeatedTasks()
	n.signal(syscall.SIGCONT)
	s.awaitSingleAttempts()
	s.chain.openAll()
	await(s.t, testTimeout, "the engine is ready again", n.isReady)
}

// awaitSingleAttempts waits until no task has two live attempts.
func (s *chaosRun) awaitSingleAttempts() {
	s.t.Helper()
	await(s.t, liveLimit, "no task has two live attempts", func() bool { return s.chain.repeatedTasks() == 0 })
}

// A step of the PostgreSQL clock changes the age of all rows. Moving stored times has the same
// effect and needs no privileges. The statements omit running timers, because the test looks for
// timers that fired early. They change a task under the lock of its process, like every change of a
// task.
const (
	moveNodes = `UPDATE nodes SET beat_time = beat_time + $1::interval, started_time = started_time + $1::interval,
		dead_beat_time = dead_beat_time + $1::interval`
	moveRunning = `UPDATE running SET running_time = running_time + $1::interval, deadline = deadline + $1::interval
		WHERE task_type <> 'TIMEOUT' AND (namespace, process_id) IN (SELECT namespace, process_id FROM processes
			WHERE (namespace, process_id) IN (SELECT namespace, process_id FROM running) FOR UPDATE SKIP LOCKED)`
	moveLeases = `UPDATE leases SET leased_time = leased_time + $1::interval, beat_time = beat_time + $1::interval,
		expires_time = expires_time + $1::interval
		WHERE (namespace, process_id) IN (SELECT namespace, process_id FROM leases FOR UPDATE SKIP LOCKED)`
	moveSinks = `UPDATE sinks SET lease_time = lease_time + $1::interval,
		next_attempt_time = next_attempt_time + $1::interval, resumed_time = resumed_time + $1::interval`
	moveMessages = `UPDATE messages SET created_time = created_time + $1::interval
		WHERE (namespace, process_id, message_id) IN (
			SELECT namespace, process_id, message_id FROM messages FOR UPDATE SKIP LOCKED)`
	moveCancels = `UPDATE processes SET cancel_requested_time = cancel_requested_time + $1::interval,
		cancel_deadline = cancel_deadline + $1::interval
		WHERE (namespace, process_id) IN (
			SELECT namespace, process_id FROM processes WHERE cancel_deadline IS NOT NULL FOR UPDATE SKIP LOCKED)`
)

// clockForward sets the clock forward by an hour, so that every heartbeat, lease and deadline has
// long expired.
func (s *chaosRun) clockForward(int) {
	s.clockStep("-1 hour", moveNodes, moveRunning, moveLeases, moveSinks)
}

// clockBackward sets the clock back by an hour, so that all stored times are in the future.
func (s *chaosRun) clockBackward(int) {
	s.clockStep("1 hour", moveNodes, moveRunning, moveLeases, moveSinks, moveMessages, moveCancels)
}

// clockStep moves stored times while the engines hold calls, and waits for the next heartbeat of
// each engine. The test fails if all engines were declared dead.
func (s *chaosRun) clockStep(by string, statements ...string) {
	s.awaitBusy(0)
	dead := s.sum("progressor_nodes_declared_dead_total")
	conn := observe(s.t, s.dsn)
	defer conn.Close(s.t.Context())
	for _, sql := range statements {
		tag, err := conn.Exec(s.t.Context(), sql, by)
		if err != nil {
			s.t.Fatal(err)
		}
		if sql == moveRunning {
			s.moved += int(tag.RowsAffected())
		}
	}
	for _, n := range s.nodes {
		await(s.t, testTimeout, "the engine has a heartbeat", func() bool {
			return count(s.t, conn, `SELECT count(*) FROM nodes WHERE address = $1
				AND abs(extract(epoch FROM statement_timestamp() - beat_time)) < 1`, n.name) > 0
		})
	}
	s.chain.openAll()
	if now := s.sum("progressor_nodes_declared_dead_total"); now-dead >= float64(len(s.nodes)) {
		s.t.Errorf("%v engines were declared dead after a step of the clock by %s", now-dead, by)
	}
}

// sum returns the sum of a metric over all engines.
func (s *chaosRun) sum(name string) (sum float64) {
	for _, n := range s.nodes {
		sum += n.metric(name)
	}
	return sum
}

// begin records an attempt that the processor works on.
func (c *chain) begin(task string) (end func()) {
	c.mutex.Lock()
	defer c.mutex.Unlock()
	if c.live == nil {
		c.live = map[string]int{}
	}
	c.live[task]++
	return func() {
		c.mutex.Lock()
		defer c.mutex.Unlock()
		if c.live[task]--; c.live[task] == 0 {
			delete(c.live, task)
		}
	}
}

// working counts the tasks of a list that the processor works on.
func (c *chain) working(tasks []string) (n int) {
	c.mutex.Lock()
	defer c.mutex.Unlock()
	for _, task := range tasks {
		if c.live[task] > 0 {
			n++
		}
	}
	return n
}

// repeatedTasks counts the tasks of which the processor works on more than one attempt.
func (c *chain) repeatedTasks() (n int) {
	c.mutex.Lock()
	defer c.mutex.Unlock()
	for _, attempts := range c.live {
		if attempts > 1 {
			n++
		}
	}
	return n
}

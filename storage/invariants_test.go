package storage_test

import (
	"errors"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/progressor-engine/progressor/process"
	"github.com/progressor-engine/progressor/storage"
	"github.com/progressor-engine/progressor/storage/changes"
	"github.com/progressor-engine/progressor/storage/jobs"
	"github.com/progressor-engine/progressor/storage/storagetest"
)

// Each entry plants a violation in one process of a sound database.
var planted = []struct{ invariant, process, sql string }{
	{"task_in_one_place", "calls",
		`INSERT INTO schedule (namespace, process_id, task_id, task_type, waits_for, scheduled_time)
		SELECT namespace, process_id, task_id, task_type, 'process', now() FROM running WHERE process_id = $1`},
	{"task_in_one_place", "calls", `INSERT INTO answers (namespace, process_id, task_id, task_type, status, ended_time)
		SELECT namespace, process_id, task_id, task_type, 'FINISHED', now() FROM tasks WHERE process_id = $1`},
	{"no_orphans", "calls", `DELETE FROM processes WHERE process_id = $1`},
	{"no_orphans", "gone",
		`INSERT INTO events (namespace, process_id, event_id, task_id, timestamp, payload)
			VALUES ('shop', $1, 1, 0, now(), '')`},
	{"no_orphans", "gone",
		`INSERT INTO failed_attempts (namespace, process_id, task_id, attempt, reason, message, node_id, running_time,
		failed_time, first_scheduled_time)
		VALUES ('shop', $1, 1, 1, '', '', 1, now(), now(), now())`},
	{"running_fits_status", "calls", `UPDATE running SET task_type = 'INIT' WHERE process_id = $1`},
	{"running_fits_status", "new", `UPDATE running SET task_type = 'CALL' WHERE process_id = $1`},
	{"running_fits_status", "repairs", `UPDATE running SET task_type = 'CALL' WHERE process_id = $1`},
	{"numbers_are_new", "calls", `UPDATE running SET fencing_token = 1000000 WHERE process_id = $1`},
	{"one_next_task", "placed",
		`UPDATE schedule SET waits_for = 'place' WHERE process_id = $1 AND waits_for = 'process'`},
	{"priority_is_smallest", "placed",
		`UPDATE schedule SET priority = -1 WHERE process_id = $1 AND waits_for = 'process'`},
	{"priority_is_smallest", "placed",
		`UPDATE schedule SET own_priority = priority - 1 WHERE process_id = $1 AND waits_for = 'place'`},
	{"next_task_waits", "calls", `DELETE FROM running WHERE process_id = $1`},
	{"next_task_waits", "placed", `UPDATE schedule SET waits_for = 'process' WHERE process_id = $1`},
	{"in_order", "calls", `UPDATE running SET task_id = nextval('task_ids') WHERE process_id = $1`},
	{"events_numbered", "idle", `UPDATE processes SET last_event_id = last_event_id + 1 WHERE process_id = $1`},
	{"events_numbered", "idle", `DELETE FROM events WHERE process_id = $1 AND event_id = 1`},
	{"events_numbered", "idle", `UPDATE events SET event_id = 3 WHERE process_id = $1 AND event_id = 2`},
	{"events_numbered", "idle", `UPDATE processes SET first_event_id = 2 WHERE process_id = $1`},
	{"events_numbered", "idle", `UPDATE processes SET first_event_id = last_event_id + 2 WHERE process_id = $1`},
	{"events_of_attempt", "idle", `UPDATE events SET attempt = 2 WHERE process_id = $1 AND event_id = 1`},
	{"events_of_attempt", "idle", `DELETE FROM tasks WHERE process_id = $1`},
	{"events_of_attempt", "idle", `UPDATE events SET task_id = 0 WHERE process_id = $1`},
	{"error_names_task", "broken", `UPDATE processes SET corrupted_by = 1000000 WHERE process_id = $1`},
	{"error_names_task", "broken", `UPDATE tasks SET status = 'FINISHED', failure = NULL WHERE process_id = $1`},
	{"error_holds_all", "broken",
		`INSERT INTO schedule (namespace, process_id, task_id, task_type, waits_for, scheduled_time)
		VALUES ('shop', $1, nextval('task_ids'), 'CALL', 'place', now())`},
	{"ended_has_no_tasks", "ended",
		`INSERT INTO schedule (namespace, process_id, task_id, task_type, waits_for, scheduled_time, timer_name)
		VALUES ('shop', $1, nextval('task_ids'), 'TIMEOUT', 'time', now(), '')`},
	{"ended_has_no_tasks", "calls", `UPDATE processes SET removed_time = now() WHERE process_id = $1`},
	{"init_has_task", "new", `DELETE FROM running WHERE process_id = $1`},
	{"init_has_task", "idle",
		`INSERT INTO schedule (namespace, process_id, task_id, task_type, waits_for, scheduled_time)
		VALUES ('shop', $1, nextval('task_ids'), 'INIT', 'place', now())`},
	{"held_by_operator", "held", `UPDATE schedule SET waits_for = 'time' WHERE process_id = $1 AND timer_name = ''`},
	{"held_by_operator", "held",
		`UPDATE processes SET status = 'RUNNING', attention = NULL, attention_time = NULL WHERE process_id = $1`},
	{"held_by_operator", "timers", `UPDATE schedule SET waits_for = 'operator' WHERE process_id = $1`},
	{"cancel_has_task", "ending", `DELETE FROM schedule WHERE process_id = $1 AND task_type = 'CANCEL'`},
	{"cancel_has_task", "ending", `UPDATE processes SET cancel_deadline = NULL WHERE process_id = $1`},
	{"cancel_has_task", "ended",
		`UPDATE processes SET cancel_requested_time = now(), cancel_deadline = now() WHERE process_id = $1`},
	{"cancel_goes_first", "ending",
		`UPDATE running SET running_time = now() + interval '1 second' WHERE process_id = $1`},
	{"cancel_goes_first", "ending",
		`UPDATE schedule SET waits_for = 'place' WHERE process_id = $1 AND task_type = 'CALL'`},
	{"next_task_waits", "ending", `DELETE FROM running WHERE process_id = $1`},
	{"attention_is_status", "broken", `UPDATE processes SET attention = NULL WHERE process_id = $1`},
	{"attention_is_status", "broken",
		`UPDATE processes SET attention_time = now() + interval '1 hour' WHERE process_id = $1`},
	{"attention_is_status", "idle",
		`UPDATE processes SET attention = 'ERROR', attention_time = status_changed_time WHERE process_id = $1`},
	{"status_is_sound", "idle", `UPDATE processes SET detail = 'why' WHERE process_id = $1`},
	{"status_is_sound", "held", `UPDATE processes SET corrupted_by = 1 WHERE process_id = $1`},
	{"status_is_sound", "idle",
		`UPDATE processes SET status = 'SUSPENDED', previous_status = NULL, attention = 'SUSPENDED',
			attention_time = status_changed_time WHERE process_id = $1`},
	{"token_grows", "calls",
		`UPDATE running SET fencing_token = (SELECT fencing_token FROM tasks WHERE process_id = $1)
			WHERE process_id = $1`},
	{"token_grows", "retries", `UPDATE running SET fencing_token = 1 WHERE process_id = $1`},
	{"applied_once", "broken", `UPDATE tasks SET fencing_token = 1 WHERE process_id = $1`},
	{"task_is_sound", "idle", `UPDATE tasks SET fencing_token = NULL WHERE process_id = $1`},
	{"task_is_sound", "overdue",
		`UPDATE tasks SET failure = '{"reason": "another"}' WHERE process_id = $1 AND task_type = 'CANCEL'`},
	{"task_is_sound", "broken", `UPDATE tasks SET rejection = '{}' WHERE process_id = $1`},
	{"events_of_attempt", "fired", `UPDATE events SET attempt = 2 WHERE process_id = $1`},
	{"events_of_attempt", "fired", `UPDATE running SET task_type = 'CALL' WHERE process_id = $1`},
	{"retry_is_sound", "retries", `UPDATE schedule SET fencing_token = NULL WHERE process_id = $1`},
	{"retry_is_sound", "open", `UPDATE schedule SET running_time = NULL WHERE process_id = $1`},
	{"retry_is_sound", "open", `UPDATE schedule SET waits_for = 'process' WHERE process_id = $1`},
	{"retry_is_sound", "open", `UPDATE schedule SET attempt = 0 WHERE process_id = $1`},
	{"events_of_attempt", "open", `UPDATE schedule SET running_time = NULL WHERE process_id = $1`},
	{"one_timer_per_name", "timers", `UPDATE schedule SET timer_name = '' WHERE process_id = $1`},
	{"counts_agree", "",
		`UPDATE status_counts SET n = n + 1 WHERE namespace = 'shop' AND status = 'ERROR' AND $1::text = ''`},
	{"counts_agree", "", `DELETE FROM processes WHERE process_id = 'idle' || $1::text`},
	{"jobs_agree", "", `UPDATE job_counts SET n = n + 1 WHERE state = 'available' AND $1::text = ''`},
	{"jobs_agree", "", `UPDATE schedule SET waits_for = 'time' WHERE process_id = 'job' || $1::text`},
	{"events_agree", "job", `UPDATE job_events SET to_status = 'succeeded' WHERE job_id = $1`},
	{"events_agree", "job",
		`INSERT INTO job_events (namespace, job_id, type, from_status, to_status)
			VALUES ('shop', $1, 'due', 'scheduled', 'available')`},
	{"events_are_numbered", "job",
		`INSERT INTO job_events (namespace, lane, event_id, job_id, type) OVERRIDING SYSTEM VALUE
			SELECT namespace, lane, event_id + 1000000, job_id, 'updated' FROM job_events WHERE job_id = $1 LIMIT 1`},
	{"events_are_numbered", "job", `UPDATE job_events SET lane = 99 WHERE job_id = $1`},
	{"events_are_numbered", "job",
		`INSERT INTO job_event_drops SELECT namespace, lane, event_id FROM job_events WHERE job_id = $1 LIMIT 1`},
	{"request_has_answer", "idle",
		`INSERT INTO requests (request_id, namespace, process_id, task_id, fingerprint, created_time)
		VALUES (gen_random_uuid(), 'shop', $1, 1000000, '', now())`},
	{"job_has_row", "job", `DELETE FROM jobs WHERE process_id = $1`},
	{"job_has_row", "job", `UPDATE processes SET kind = '' WHERE process_id = $1`},
	{"job_has_row", "job", `UPDATE schedule SET job_name = 'another' WHERE process_id = $1`},
	{"start_deadline_agrees", "deadline",
		`UPDATE schedule SET start_deadline = start_deadline + interval '1 second' WHERE process_id = $1`},
	{"start_deadline_agrees", "timers", `UPDATE schedule SET start_deadline = scheduled_time WHERE process_id = $1`},
	{"job_has_row", "job", `UPDATE schedule SET round = 1 WHERE process_id = $1`},
	{"job_has_row", "fair", `UPDATE schedule SET fairness_key = 'another' WHERE process_id = $1`},
	{"keys_are_held", "limited", `DELETE FROM constraint_holds WHERE process_id = $1`},
	{"keys_are_held", "job",
		`WITH j AS (UPDATE jobs SET constraint_keys = '{"c": ""}' WHERE process_id = $1 RETURNING process_id)
		UPDATE schedule s SET line = 'c=' FROM j WHERE s.process_id = j.process_id`},
	{"key_queue_has_jobs", "inline", `UPDATE schedule SET line = NULL WHERE process_id = $1`},
	{"key_queue_has_jobs", "placed", `UPDATE schedule SET waits_for = 'constraint', line = 'c=' WHERE process_id = $1`},
	{"members_have_one_worker", "group", `UPDATE job_groups SET takers = '{w2}' WHERE process_id = $1`},
	{"group_runs_with_members", "group", `UPDATE job_groups SET running_time = now() WHERE process_id = $1`},
	{"group_is_full", "group", `UPDATE job_groups SET count = 2 WHERE process_id = $1`},
	{"group_is_full", "group", `UPDATE job_places SET state = 'failed', finished_time = now() WHERE job_id = $1`},
	{"group_is_full", "group", `DELETE FROM job_groups WHERE process_id = $1`},
	{"parent_is_notified", "child",
		`UPDATE processes SET status = 'COMPLETED', attention = 'COMPLETED', attention_time = status_changed_time
			WHERE process_id = $1`},
	{"parent_is_notified", "child", `UPDATE processes SET removed_time = now() WHERE process_id = $1`},
	{"parent_is_notified", "child", `DELETE FROM processes WHERE process_id = $1`},
	{"held_message_has_reason", "broken",
		`UPDATE processes SET status = 'RUNNING', detail = NULL, corrupted_by = NULL, attention = NULL,
			attention_time = NULL WHERE process_id = $1`},
	{"held_message_has_reason", "gone",
		`INSERT INTO messages (namespace, process_id, kind, held) VALUES ('shop', $1, 'notify', true)`},
	{"pending_result_fits", "from SQL", `UPDATE running SET task_type = 'CALL' WHERE process_id = $1`},
	{"changes_numbered", "", `DELETE FROM changes WHERE process_id = 'idle' || $1::text AND event_id = 1`},
	{"changes_numbered", "",
		`INSERT INTO change_drops (namespace, lane, seq, "time") SELECT namespace, lane, 1, now() FROM change_heads
			WHERE $1::text = ''`},
	{"changes_in_order", "idle", `UPDATE changes SET change_id = 0 WHERE process_id = $1 AND event_id = 2`},
	{"changes_in_order", "idle",
		`UPDATE changes SET "time" = "time" - interval '1 day' WHERE process_id = $1 AND event_id = 2`},
	{"changes_of_process", "idle", `UPDATE changes SET event_id = 3 WHERE process_id = $1 AND event_id = 1`},
	{"changes_are_recorded", "", `SELECT drop_trigger() WHERE $1::text = ''`},
	{"sink_within_lanes", "", `UPDATE sinks SET seqs[1] = seqs[1] + 1000 WHERE $1::text = ''`},
	{"sink_within_lanes", "", `UPDATE sinks SET seqs[1] = -1 WHERE $1::text = ''`},
	{"sink_within_lanes", "", `UPDATE sinks SET lanes[1] = 0 WHERE $1::text = ''`},
	{"sink_within_lanes", "", `UPDATE sinks SET lanes = lanes || lanes[1], seqs = seqs || seqs[1] WHERE $1::text = ''`},
	{"dead_letter_has_sink", "", `DELETE FROM sinks WHERE $1::text = ''`},
}

var errRolledBack = errors.New("rolled back")

// fillDatabase fills a database with one process of each kind that the invariants check.
func (b *bench) fillDatabase() {
	b.record("EVENT", "LIFECYCLE", "JOB")
	b.exec(`CREATE FUNCTION drop_trigger() RETURNS int LANGUAGE plpgsql AS $$
		BEGIN DROP TRIGGER job_events_change ON job_events; RETURN 1; END$$`)
	b.process("idle", events("a", "b"))
	b.process("timers", timer(time.Hour), named(time.Hour, "n"))
	b.checkpoint(end(b.fired("fired"), "", events("a")))
	b.exec("SELECT complete($1, 0)", leaseToken(b.leasedTimer("from SQL"), salt))
	b.process("calls")
	b.claim("calls", keyed("k", "x"))
	b.call("calls")
	b.call("calls")
	b.process("open")
	b.save(end(b.claim("open"), storage.Finished, events("a"), deferring))
	b.process("placed")
	b.call("placed", withoutSlot)
	b.call("placed", withoutSlot)
	b.start("new")
	b.breakProcess("broken")
	b.breakProcess("repairs")
	b.repair("repairs")
	b.process("ended")
	b.save(end(b.claim("ended"), storage.Completed, events("a")))
	b.process("retries")
	b.save(end(b.claim("retries", notify), storage.Retry, func(c *storage.Completion) { c.RetryAfter = time.Hour }))
	b.claim("retries")
	b.process("parent")
	b.save(end(b.claim("parent"), storage.Finished, withMessages(startOf("child", notifySender("over")),
		notifyOf("broken", "x"))))
	b.deliver("child")
	b.deliver("broken")
	b.process("held", timer(time.Hour))
	b.suspend("held")
	b.process("ending")
	b.claim("ending")
	b.call("ending")
	b.cancel("ending")
	job, err := jobs.Enqueue(b.Store, &jobs.NewJob{Key: key("job"), Name: "work", Timeout: time.Second})
	equal(b.t, "a job", must(b.t, job, err).Outcome, jobs.JobEnqueued)
	deadline, err := jobs.Enqueue(b.Store, &jobs.NewJob{
		Key: key("deadline"), Name: "work", Timeout: time.Second, Options: []byte(`{"startDeadline": "3600s"}`),
	})
	equal(b.t, "a job with a start deadline", must(b.t, deadline, err).Outcome, jobs.JobEnqueued)
	fair, err := jobs.Enqueue(b.Store, &jobs.NewJob{
		Key: key("fair"), Name: "work", Timeout: time.Second, FairnessKey: new("a"),
	})
	equal(b.t, "a job with a fairness key", must(b.t, fair, err).Outcome, jobs.JobEnqueued)
	for _, id := range []string{"limited", "inline"} {
		limited, err := jobs.Enqueue(b.Store, &jobs.NewJob{
			Key: key(id), Name: "work", Timeout: time.Second,
			Constraints: jobs.Constrained{Keys: map[string]string{"c": ""}},
		})
		equal(b.t, "a job with a constraint", must(b.t, limited, err).Outcome, jobs.JobEnqueued)
	}
	b.exec("UPDATE schedule SET waits_for = 'place' WHERE process_id = 'limited'")
	b.exec("INSERT INTO constraint_holds (namespace, process_id, line) VALUES ('shop', 'limited', 'c=')")
	group, err := jobs.Enqueue(b.Store, &jobs.NewJob{
		Key: key("group"), Name: "work", Timeout: time.Second, Grouped: true, Options: []byte(`{"workers": {}}`),
	})
	equal(b.t, "a job that several workers run", must(b.t, group, err).Outcome, jobs.JobEnqueued)
	b.exec("UPDATE schedule SET waits_for = 'members' WHERE process_id = 'group'")
	b.exec(`INSERT INTO job_groups (namespace, process_id, count, max_failures, takers) VALUES
		('shop', 'group', 1, 0, '{w1}')`)
	b.exec(`INSERT INTO job_places (namespace, process_id, job_id, worker_id) VALUES
		('shop', '~job/group/1', 'group', 'w1')`)
	now, _, err := changes.Now(b.t.Context(), b.Store, "shop")
	must(b.t, 0, err)
	b.sink("s", now)
	b.exec(`INSERT INTO sink_dead_letters SELECT 'shop', 's', 1, 'event', 'stored', 'idle', now(), 'HTTP 413', now()`)
	b.process("overdue")
	b.cancelFor("overdue", 0)
	ended, err := b.EndOverdueCancel(key("overdue"))
	equal(b.t, "a cancel without grace", must(b.t, ended, err), true)
}

func TestInvariantsAreChecked(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	b.fillDatabase()
	sound, err := storage.CheckInvariants(t.Context(), b.db)
	if len(must(t, sound, err).Violations) > 0 {
		t.Fatalf("a sound database violates %v", sound.Violations)
	}
	unplanted := maps.Clone(sound.Checked)
	for _, p := range planted {
		delete(unplanted, p.invariant)
		// A rolled-back transaction leaves the database sound for the next entry.
		err := pgx.BeginFunc(t.Context(), b.db, func(tx pgx.Tx) error {
			if tag, err := tx.Exec(t.Context(), p.sql, p.process); err != nil || tag.RowsAffected() == 0 {
				t.Errorf("%s: plant: %v rows, %v", p.invariant, tag.RowsAffected(), err)
				return errRolledBack
			}
			report, err := storage.CheckInvariants(t.Context(), tx)
			if err != nil {
				return err
			}
			caught := slices.ContainsFunc(report.Violations, func(v storage.Violation) bool {
				return v.Invariant == p.invariant && v.ProcessID == p.process && v.Detail != "" &&
					strings.Contains(v.String(), "shop/"+p.process)
			})
			if !caught {
				t.Errorf("%s is not reported after %s\nreported: %v", p.invariant, p.sql, report.Violations)
			}
			if report.Checked[p.invariant] == 0 {
				t.Errorf("%s reports a violation, but its count of checked rows is 0", p.invariant)
			}
			return errRolledBack
		})
		if !errors.Is(err, errRolledBack) {
			t.Fatal(err)
		}
	}
	if len(unplanted) > 0 {
		t.Errorf("no entry violates %v", slices.Sorted(maps.Keys(unplanted)))
	}
	for invariant, n := range sound.Checked {
		if n == 0 {
			t.Errorf("%s checks no rows in a database with one process of each kind", invariant)
		}
	}
}

func TestQuiescenceIsChecked(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	b.fillDatabase()
	stuckWork := func() (list []string) {
		t.Helper()
		report, err := storage.CheckQuiescent(t.Context(), b.db, 10*time.Second, 10*time.Second)
		for _, v := range must(t, report, err).Violations {
			list = append(list, v.Invariant+" "+v.ProcessID)
		}
		return slices.Compact(sorted(list))
	}
	equal(t, "at first", stuckWork(), "[]")
	b.exec("UPDATE schedule SET scheduled_time = scheduled_time - interval '1 minute' WHERE process_id = 'placed'")
	b.due("timers")
	b.due("retries") // not reported, because the process has a running task
	b.exec("UPDATE schedule SET scheduled_time = scheduled_time - interval '1 minute' WHERE process_id = 'inline'")
	b.exec(`INSERT INTO constraint_holds (namespace, process_id, line, held_time) VALUES
		('shop', 'idle', 'c=', now() - interval '1 minute')`)
	b.exec(`INSERT INTO constraint_reservations (namespace, process_id, line, reserved_time) VALUES
		('shop', 'idle', 'b=', now() - interval '1 minute')`)
	b.exec("UPDATE running SET deadline = deadline - interval '2 minutes' WHERE process_id = 'new'")
	b.exec("UPDATE processes SET cancel_deadline = cancel_deadline - interval '2 minutes' WHERE process_id = 'ending'")
	b.exec(`UPDATE schedule SET scheduled_time = scheduled_time - interval '61 minutes',
		start_deadline = start_deadline - interval '61 minutes' WHERE process_id = 'deadline'`)
	equal(t, "later", stuckWork(), "[cancel_ends ending hold_is_used idle key_is_given inline late_job_ends deadline "+
		"lease_is_held new place_is_found deadline place_is_found placed reservation_is_used idle timer_fires timers]")
	must(t, 0, func() error { _, err := b.PutNamespace(t.Context(), ns, []byte("{}")); return err }())
	must(t, 0, func() error { _, err := b.SetNamespacePaused(t.Context(), ns, true); return err }())
	b.exec("DELETE FROM constraint_reservations")
	equal(t, "in a paused namespace", stuckWork(), "[cancel_ends ending late_job_ends deadline lease_is_held new]")
	b.exec(`INSERT INTO messages (namespace, process_id, kind, created_time) VALUES
		('shop', 'idle', 'notify', now() - interval '1 minute')`)
	equal(t, "with an undelivered message", stuckWork(),
		"[cancel_ends ending late_job_ends deadline lease_is_held new message_is_delivered idle]")
	b.deliver("idle")
	b.exec("UPDATE nodes SET beat_time = beat_time - interval '1 minute'")
	equal(t, "stuck work of a dead node", stuckWork(),
		"[cancel_ends ending late_job_ends deadline lease_is_held calls lease_is_held ending lease_is_held fired "+
			"lease_is_held new lease_is_held repairs lease_is_held retries]")
}

// A check of a database under load reads one snapshot and finds no violations.
func TestInvariantsHoldUnderLoad(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	const processes, steps = 8, 60
	all(processes+1, func(i int) {
		if i == processes {
			conn := storagetest.Connect(t, b.dsn)
			for range 10 {
				report, err := storage.CheckInvariants(t.Context(), conn)
				if err != nil || len(report.Violations) > 0 {
					t.Error(err, report.Violations)
				}
			}
			return
		}
		b.work(key(string(rune('a'+i))), steps)
	})
}

// work runs calls, failures and repairs of a process that sets timers.
func (b *bench) work(k process.Key, steps int) {
	in := newInit(k.ProcessID)
	p, err := b.PrepareInit(in)
	for n := 0; n < steps && err == nil && p.Claim != nil; n++ {
		c := end(p.Claim, storage.Finished, events("e"), timer(time.Hour))
		if n%5 == 4 {
			c = end(p.Claim, storage.Failed, broken("x"))
		}
		if _, err = b.SaveResult(c); err != nil {
			break
		}
		if n%5 == 4 {
			p, err = b.PrepareRepair(call(k.ProcessID))
		} else {
			p, err = b.PrepareCall(call(k.ProcessID))
		}
	}
	if err != nil || p.Claim == nil {
		b.t.Errorf("process %s: %+v, %v", k.ProcessID, p, err)
	}
}

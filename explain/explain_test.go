package explain_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/progressor-engine/progressor/explain"
	"github.com/progressor-engine/progressor/process"
)

var noon = time.Date(2026, 11, 20, 12, 0, 0, 0, time.UTC)

func at(seconds float64) time.Time { return noon.Add(time.Duration(seconds * float64(time.Second))) }

// state returns the state, at 100 s, of a process that was started at noon. Its INIT ran from 0 to
// 1 s.
func state(change ...func(*explain.State)) explain.State {
	s := explain.State{
		Now: at(100),
		Process: explain.Process{Key: process.Key{Namespace: "shop", ProcessID: "o-1"}, Status: process.StatusRunning,
			CreatedTime: at(0), StatusChanged: at(1)},
		Namespace: explain.Namespace{MaxRunning: 10, MaxAttempts: 5, Nodes: 1, Takers: 1,
			ZombieAfter: 10 * time.Second, StepTimeout: 10 * time.Second},
		Ended: []explain.Task{ran(1, process.TaskInit, 0, 0, 1)},
	}
	for _, f := range change {
		f(&s)
	}
	return s
}

func ran(id int64, kind process.TaskType, scheduled, running, finished float64) explain.Task {
	return explain.Task{ID: id, Type: kind, Status: process.TaskStatusFinished, Attempt: 1, Scheduled: at(scheduled),
		Running: at(running), Finished: at(finished)}
}

func timer(id int64, due float64) explain.Task {
	return explain.Task{ID: id, Type: process.TaskTimeout, WaitsFor: process.WaitsForTime, Scheduled: at(due)}
}

// held makes a task wait for the operator, as when its process is suspended.
func held(t explain.Task) explain.Task {
	t.WaitsFor = process.WaitsForOperator
	return t
}

func call(id int64, waits process.WaitsFor, since float64) explain.Task {
	return explain.Task{ID: id, Type: process.TaskCall, WaitsFor: waits, Scheduled: at(since)}
}

func ended(tasks ...explain.Task) func(*explain.State) {
	return func(s *explain.State) { s.Ended = append(s.Ended, tasks...) }
}

func waiting(tasks ...explain.Task) func(*explain.State) {
	return func(s *explain.State) { s.Waiting = append(s.Waiting, tasks...) }
}

func status(to process.Status, since float64) func(*explain.State) {
	return func(s *explain.State) { s.Process.Status, s.Process.StatusChanged = to, at(since) }
}

// running adds a call (task 5) that has run on node 3 since 98 s. Its deadline is at 158 s.
func running(s *explain.State) {
	t := ran(5, process.TaskCall, 98, 98, 0)
	t.Status, t.Finished = process.TaskStatusRunning, time.Time{}
	s.Running = &explain.Running{Task: t, NodeID: 3, Address: "host:8080", Alive: true, Beat: at(99), Deadline: at(158)}
}

func broken(detail string, by int64) func(*explain.State) {
	return func(s *explain.State) { s.Process.Detail, s.Process.CorruptedBy = detail, by }
}

func failed(t explain.Task, reason string) explain.Task {
	t.Status, t.Reason = process.TaskStatusError, reason
	return t
}

// withoutAttempt removes the attempt of a task.
func withoutAttempt(t explain.Task) explain.Task {
	t.Attempt, t.Running = 0, time.Time{}
	return t
}

func retried(t explain.Task, attempt int32, interval float64, reason, message string) explain.Task {
	t.Attempt, t.RetryInterval, t.Reason, t.Message = attempt, time.Duration(interval*float64(time.Second)), reason,
		message
	return t
}

var situations = []struct {
	name     string
	state    explain.State
	waitsFor process.WaitsFor
	nextTime time.Time
	texts    []string // in detail, next and unblock
	spans    []string
}{
	{"idle without timer", state(), "", time.Time{},
		[]string{"It is idle", "Nothing until it is called.", "To call it, run progressor call shop o-1."},
		[]string{"processing 1 0-1", "idle 0 1-"}},
	{"idle with timer", state(waiting(timer(2, 160), timer(3, 130))), process.WaitsForTime, at(130),
		[]string{"The default timer (task 3, TIMEOUT) is set.", "fires at 2026-11-20T12:02:10.000Z (in 30s)",
			"To call it, run progressor call shop o-1."},
		[]string{"processing 1 0-1", "time 3 1-"}},
	{"idle with removal timer",
		state(waiting(explain.Task{ID: 2, Type: process.TaskRemove, TimerName: "gc", WaitsFor: process.WaitsForTime,
			Scheduled: at(3700)})),
		process.WaitsForTime, at(3700),
		[]string{`Timer "gc" (task 2, REMOVE) is set.`, "The process is removed at 2026-11-20T13:01:40.000Z (in 1h)"},
		[]string{"processing 1 0-1", "time 2 1-"}},
	{"running", state(running), "", at(158),
		[]string{"Task 5 (CALL) runs on node 3 (host:8080), attempt 1, for 2s.",
			"ends at 2026-11-20T12:02:38.000Z (in 58s) at the latest", "The response of the processor."},
		[]string{"processing 1 0-1", "idle 0 1-98", "processing 5 98-"}},
	{"call behind a running task",
		state(running, waiting(call(6, process.WaitsForProcess, 99), call(7, process.WaitsForProcess, 99.5),
			timer(2, 99.2))), process.WaitsForProcess, at(158),
		[]string{"Task 6 (CALL) and 2 more wait behind task 5 (CALL), which runs on node 3", "then task 6 (CALL) runs"},
		[]string{"processing 1 0-1", "time 2 1-98", "processing 5 98-", "process 6 99-", "process 2 99.2-",
			"process 7 99.5-"}},
	{"running on a dead node",
		state(running, func(s *explain.State) { s.Running.Alive, s.Running.Beat = false, at(88) }), "", time.Time{},
		[]string{"Task 5 (CALL) runs on node 3 (host:8080), whose last heartbeat was at 2026-11-20T12:01:28.000Z " +
			"(12s ago), attempt 1",
			"Node 3 no longer sends heartbeats: another node collects task 5 (CALL) as a zombie.",
			"Nothing needs to be done"}, nil},
	{"running on a node that is no longer known",
		state(running, func(s *explain.State) { s.Running.Alive, s.Running.Beat = false, time.Time{} }), "",
		time.Time{},
		[]string{"runs on node 3 (host:8080), attempt 1", "Node 3 no longer sends heartbeats"}, nil},
	{"running on a silent node",
		state(running, func(s *explain.State) { s.Running.Beat = at(94) },
			waiting(call(6, process.WaitsForProcess, 99))), process.WaitsForProcess, at(104),
		[]string{"runs on node 3 (host:8080), whose last heartbeat was at 2026-11-20T12:01:34.000Z (6s ago), attempt 1",
			"If node 3 sends no heartbeat for 10s (engine.zombie_after), at 2026-11-20T12:01:44.000Z (in 4s), " +
				"another node collects task 5 (CALL) as a zombie, then task 6 (CALL) runs."}, nil},
	{"past its deadline", state(running, func(s *explain.State) { s.Running.Deadline = at(99) }), "", at(99),
		[]string{"past its deadline (at 2026-11-20T12:01:39.000Z (1s ago))"}, nil},
	{"no slot is free", state(waiting(call(6, process.WaitsForPlace, 90), call(7, process.WaitsForProcess, 91)),
		func(s *explain.State) { s.Namespace.Running = 10 }),
		process.WaitsForPlace, time.Time{},
		[]string{"Task 6 (CALL) waits for a slot: 10 tasks of the namespace run, and its max_running is 10 on each " +
			"of the nodes that take tasks (1)", "and 1 more behind it", "a larger max_running"},
		[]string{"processing 1 0-1", "idle 0 1-90", "place 6 90-", "place 7 91-"}},
	{"a slot is free", state(waiting(call(6, process.WaitsForPlace, 99))), process.WaitsForPlace, time.Time{},
		[]string{"0 tasks of the namespace run, ", "A node takes it within a second"}, nil},
	{"timer that is due", state(waiting(timer(6, 99))), process.WaitsForPlace, time.Time{},
		[]string{"The default timer (task 6, TIMEOUT) waits for a slot"},
		[]string{"processing 1 0-1", "time 6 1-99", "place 6 99-"}},
	{"namespace paused", state(waiting(call(6, process.WaitsForPlace, 90)),
		func(s *explain.State) { s.Namespace.Paused = true }), process.WaitsForPlace, time.Time{},
		[]string{"namespace shop is paused", "then task 6 (CALL) runs.", "run progressor namespace resume shop."}, nil},
	{"no node", state(waiting(call(6, process.WaitsForPlace, 90)),
		func(s *explain.State) { s.Namespace.Nodes, s.Namespace.Takers = 0, 0 }), process.WaitsForPlace, time.Time{},
		[]string{"there is no live node", "progressor serve"}, nil},
	{"all nodes drain", state(waiting(call(6, process.WaitsForPlace, 90)),
		func(s *explain.State) { s.Namespace.Takers = 0 }), process.WaitsForPlace, time.Time{},
		[]string{"all live nodes are draining or take only requests"}, nil},
	{"retry back-off", state(
		waiting(timer(2, 500),
			retried(explain.Task{ID: 6, Type: process.TaskNotify, WaitsFor: process.WaitsForTime, Scheduled: at(105)},
				2, 10, "busy", "come again."))),
		process.WaitsForTime, at(105),
		[]string{"Task 6 (NOTIFY) failed in attempt 2 of 5 (busy: come again.).",
			"Attempt 3 of task 6 (NOTIFY) at 2026-11-20T12:01:45.000Z (in 5s)."},
		[]string{"processing 1 0-1", "time 2 1-95", "back_off 6 95-"}},
	{"processor not reached",
		state(running, func(s *explain.State) { s.Running.FailedTries, s.Running.Cause = 3, "connection refused" }), "",
		at(158),
		[]string{"attempt 1, for 2s; its processor was not reached in 3 tries (connection refused).",
			"the call is repeated by the retry policy"}, nil},
	{"processor not reached once",
		state(running, func(s *explain.State) { s.Running.FailedTries, s.Running.Cause = 1, "no route" },
			waiting(call(6, process.WaitsForProcess, 99))), process.WaitsForProcess, at(158),
		[]string{"waits behind task 5 (CALL)", "for 2s; its processor was not reached (no route)."}, nil},
	{"processor not reached by the node that is asked",
		state(running, func(s *explain.State) { s.Namespace.Away = true }), "", at(158),
		[]string{"attempt 1, for 2s.", "The node that answered this request cannot reach it"}, nil},
	{"released by an older node", state(waiting(retried(call(6, process.WaitsForTime, 105), 0, 10, "", ""))),
		process.WaitsForTime, at(105),
		[]string{"Task 6 (CALL) was released", "Task 6 (CALL) can be taken again at 2026-11-20T12:01:45.000Z (in 5s).",
			"A node of the newer version"}, nil},
	{"ERROR by a call", state(status(process.StatusError, 52), broken("no book left", 4),
		ended(failed(ran(4, process.TaskCall, 50, 51, 52), "out_of_stock"))),
		process.WaitsForOperator, time.Time{},
		[]string{"Task 4 (CALL) failed permanently in attempt 1: out_of_stock: no book left.",
			"Nothing until it is repaired",
			"To make it RUNNING and set its timers, run progressor repair shop o-1 --simple."},
		[]string{"processing 1 0-1", "idle 0 1-50", "place 4 50-51", "processing 4 51-52", "operator 0 52-"}},
	{"ERROR by its INIT", func() explain.State {
		s := state(status(process.StatusError, 2), broken("x", 1))
		s.Ended = []explain.Task{failed(ran(1, process.TaskInit, 0, 0, 2), "unavailable")}
		return s
	}(), process.WaitsForOperator, time.Time{},
		[]string{"To let its processor repair it, run progressor repair shop o-1 --args …. To start it again, first " +
			"run progressor remove shop o-1."}, nil},
	{"ERROR by a timer", state(status(process.StatusError, 52), broken("x", 4),
		ended(failed(ran(4, process.TaskTimeout, 51, 51, 52), "r"))),
		process.WaitsForOperator, time.Time{},
		[]string{"The default timer (task 4, TIMEOUT) failed permanently",
			"To make it RUNNING, set its timers and run the failed one again, run progressor"},
		[]string{"processing 1 0-1", "time 4 1-51", "processing 4 51-52", "operator 0 52-"}},
	{"repaired without a task",
		state(status(process.StatusRunning, 60), ended(failed(ran(4, process.TaskCall, 50, 51, 52), "r"))), "",
		time.Time{},
		[]string{"It is idle"},
		[]string{"processing 1 0-1", "idle 0 1-50", "place 4 50-51", "processing 4 51-52", "operator 0 52-60",
			"idle 0 60-"}},
	{"repaired without a task, and called",
		state(status(process.StatusRunning, 60),
			ended(failed(ran(4, process.TaskCall, 50, 51, 52), "r"), ran(5, process.TaskCall, 70, 70, 71))), "",
		time.Time{},
		[]string{"It is idle"},
		[]string{"processing 1 0-1", "idle 0 1-50", "place 4 50-51", "processing 4 51-52", "operator 0 52-60",
			"idle 0 60-70", "processing 5 70-71", "idle 0 71-"}},
	{"imported in ERROR", state(status(process.StatusError, 0), broken("moved", 0),
		func(s *explain.State) { s.Ended = nil }), process.WaitsForOperator, time.Time{},
		[]string{"It was imported in ERROR: moved."}, []string{"operator 0 0-"}},
	{"repair that waits", state(status(process.StatusError, 50),
		waiting(explain.Task{ID: 6, Type: process.TaskRepair, WaitsFor: process.WaitsForPlace, Scheduled: at(90)})),
		process.WaitsForPlace, time.Time{}, []string{"Task 6 (REPAIR) waits for a slot"}, nil},
	{"SUSPENDED", state(status(process.StatusSuspended, 40), broken("audit", 0),
		waiting(held(timer(2, 45)), call(6, process.WaitsForOperator, 20))), process.WaitsForOperator, time.Time{},
		[]string{"It has been suspended since 2026-11-20T12:00:40.000Z: audit.",
			"then task 6 (CALL) runs, and 1 more behind it", "To resume it, run progressor resume shop o-1."},
		[]string{"processing 1 0-1", "time 2 1-40", "operator 6 40-", "operator 2 45-"}},
	{"SUSPENDED with a timer to come", state(status(process.StatusSuspended, 40), waiting(held(timer(2, 130)))),
		process.WaitsForOperator, time.Time{},
		[]string{"the default timer (task 2, TIMEOUT) is due at 2026-11-20T12:02:10.000Z (in 30s)"}, nil},
	{"SUSPENDED after a repair",
		state(status(process.StatusSuspended, 60),
			ended(failed(ran(4, process.TaskCall, 50, 51, 52), "r"), ran(5, process.TaskRepair, 54, 54, 55))),
		process.WaitsForOperator, time.Time{},
		[]string{"It has been suspended since 2026-11-20T12:01:00.000Z"},
		[]string{"processing 1 0-1", "idle 0 1-50", "place 4 50-51", "processing 4 51-52", "operator 0 52-54",
			"processing 5 54-55", "idle 0 55-60", "operator 0 60-"}},
	{"SUSPENDED before a call",
		state(status(process.StatusSuspended, 40), waiting(call(6, process.WaitsForOperator, 70))),
		process.WaitsForOperator, time.Time{},
		[]string{"It has been suspended since"},
		[]string{"processing 1 0-1", "idle 0 1-40", "operator 0 40-70", "operator 6 70-"}},
	{"SUSPENDED while a task runs",
		state(running, status(process.StatusSuspended, 99), waiting(call(6, process.WaitsForOperator, 99))),
		process.WaitsForOperator, at(158),
		[]string{"nothing more until the process is resumed"}, nil},
	{"COMPLETED", state(status(process.StatusCompleted, 52), ended(ran(4, process.TaskCall, 50, 51, 52))), "",
		time.Time{},
		[]string{"Nothing: the process has ended.", "To delete it, run progressor remove shop o-1."},
		[]string{"processing 1 0-1", "idle 0 1-50", "place 4 50-51", "processing 4 51-52"}},
	{"delayed start", state(func(s *explain.State) {
		s.Process.Status, s.Ended = process.StatusInit, nil
		s.Waiting = []explain.Task{
			{ID: 1, Type: process.TaskInit, WaitsFor: process.WaitsForTime, Scheduled: at(86_400 * 2)}}
	}), process.WaitsForTime, at(86_400 * 2),
		[]string{"Its start time is 2026-11-22T12:00:00.000Z.",
			"Task 1 (INIT) runs at 2026-11-22T12:00:00.000Z (in 1d23h)."}, []string{"time 1 0-"}},
	{"cancel runs first", state(
		waiting(call(6, process.WaitsForPlace, 90),
			explain.Task{ID: 7, Type: process.TaskCancel, WaitsFor: process.WaitsForProcess, Scheduled: at(95)})),
		process.WaitsForPlace, time.Time{}, []string{"Task 7 (CANCEL) waits for a slot"}, nil},
	{"internal process that has ended", state(own, status(process.StatusCompleted, 52)), "", time.Time{},
		[]string{"Nothing: it is deleted after the retention of its namespace."}, nil},
	{"internal process that waits for a time", state(own, waiting(timer(2, 130))), process.WaitsForTime, at(130),
		[]string{"\nWait for that time."}, nil},
	{"idle internal process", state(own), "", time.Time{},
		[]string{"it is a process of the engine, and accepts no calls.\nNothing."}, nil},
	{"job that waits for a slot",
		state(job(nil), waiting(
			explain.Task{ID: 1, Type: process.TaskInit, WaitsFor: process.WaitsForPlace, Scheduled: at(90)})),
		process.WaitsForPlace, time.Time{}, []string{"waits for a slot"}, nil},
	{"job of a paused namespace", state(job(nil), func(s *explain.State) { s.Namespace.Paused = true },
		waiting(explain.Task{ID: 1, Type: process.TaskInit, WaitsFor: process.WaitsForPlace, Scheduled: at(90)})),
		process.WaitsForPlace, time.Time{}, []string{"namespace shop is paused"}, nil},
	{"job that runs later",
		state(job(nil), waiting(
			explain.Task{ID: 1, Type: process.TaskInit, WaitsFor: process.WaitsForTime, Scheduled: at(130)})),
		process.WaitsForTime, at(130), []string{`Job "mail" does not run before 2026-11-20T12:02:10.000Z.`, "(in 30s)"},
		nil},
	{"job that is retried",
		state(job(nil), waiting(
			retried(explain.Task{ID: 1, Type: process.TaskInit, WaitsFor: process.WaitsForTime, Scheduled: at(105)}, 2,
				10, "busy", "come again."))),
		process.WaitsForTime, at(105),
		[]string{`Job "mail" failed in attempt 2 (busy: come again.)`,
			"It has failed once, max_retry is 2; its worker was lost once, max_takeovers is 3.", "Attempt 3 at"}, nil},
	{"job held by a worker", state(job(nil), running, leased), "", at(158),
		[]string{`Worker w1 holds attempt 1 of job "mail" for 2s; last heartbeat 1s ago.`,
			"Without a heartbeat, it loses the job at 2026-11-20T12:01:50.000Z (in 10s)"}, nil},
	{"job held by a worker, being cancelled", state(job(nil), running, leased, cancelling("enough", 110)), "", at(110),
		[]string{"It was asked to end (enough): its worker learns it from its next heartbeat.",
			"After the grace period, at 2026-11-20T12:01:50.000Z (in 10s), the job is CANCELLED"}, nil},
	{"job whose worker is silent",
		state(job(nil), running, leased,
			func(s *explain.State) { s.Running.Lease.Expires, s.Running.Lease.Beat = at(99), time.Time{} }), "",
		at(158),
		[]string{"no heartbeat yet",
			"The lease has expired (at 2026-11-20T12:01:39.000Z (1s ago)): the job goes to another worker."}, nil},
	{"job past its timeout", state(job(nil), running, leased, func(s *explain.State) { s.Running.Deadline = at(99) }),
		"", at(99), []string{"has exceeded its timeout"}, nil},
	{"job that a node runs, being cancelled", state(job(nil), running, cancelling("", 110)), "", at(110),
		[]string{"Task 5 (CALL) runs on node 3", "It was asked to end: its processor does not know yet."}, nil},
	{"job that has FAILED", state(job(nil), status(process.StatusError, 52), broken("no book left", 4),
		ended(failed(ran(4, process.TaskInit, 50, 51, 52), "out_of_stock"))), process.WaitsForOperator, time.Time{},
		[]string{`Job "mail" failed permanently in attempt 1 (out_of_stock).`,
			"To run it again, run progressor job retry shop o-1."}, nil},
	{"job of a paused name", state(job(nil), pausedName,
		waiting(explain.Task{ID: 1, Type: process.TaskInit, WaitsFor: process.WaitsForPlace, Scheduled: at(90)})),
		process.WaitsForPlace, time.Time{},
		[]string{`Jobs with the name "mail" have been paused since 2026-11-20T12:01:20.000Z by kim (`,
			"(the server is down.).", "Nothing until the name is resumed",
			"To resume the name, run progressor job resume shop mail."}, nil},
	{"job that no attempt has begun",
		state(job(nil), status(process.StatusError, 52), broken("late", 4),
			ended(withoutAttempt(failed(ran(4, process.TaskInit, 50, 51, 52), "start_deadline")))),
		process.WaitsForOperator, time.Time{},
		[]string{`Job "mail" failed permanently without an attempt (start_deadline).`,
			"To run it again, run progressor job retry shop o-1."}, nil},
	{"job that is suspended",
		state(job(nil), status(process.StatusSuspended, 40),
			waiting(explain.Task{ID: 6, Type: process.TaskInit, WaitsFor: process.WaitsForOperator,
				Scheduled: at(20)})), process.WaitsForOperator, time.Time{},
		[]string{"It has been suspended since"}, nil},
	{"job that waits for a constraint",
		state(job(nil), waiting(
			explain.Task{ID: 6, Type: process.TaskInit, WaitsFor: process.WaitsForConstraint, Scheduled: at(90)})),
		process.WaitsForConstraint, time.Time{},
		[]string{`Job "mail" waits until its constraints are checked again.`, "Nothing needs to be done"},
		[]string{"processing 1 0-1", "time 6 1-90", "constraint 6 90-"}},
	{"job that was CANCELLED", state(job(nil), status(process.StatusCancelled, 52)), "", time.Time{},
		[]string{"the job has ended",
			"run progressor job retry shop o-1. To delete it, run progressor remove shop o-1. Otherwise"}, nil},
	{"job of a step that has FAILED",
		state(job(ofStep("failed")), ofRun, status(process.StatusError, 52), broken("no book left", 4),
			ended(failed(ran(4, process.TaskInit, 50, 51, 52), "out_of_stock"))), process.WaitsForOperator, time.Time{},
		[]string{"the job of a step of run A-8", "which runs the step again, run progressor run retry shop A-8."}, nil},
	{"job of a step that has FAILED, whose run continues",
		state(job(ofStep("active")), ofRun, status(process.StatusError, 52)), process.WaitsForOperator, time.Time{},
		[]string{"To see its state, run progressor run get shop A-8."}, nil},
	{"job of a step of a run in another namespace", state(job(nil), ofRun, status(process.StatusError, 52)),
		process.WaitsForOperator, time.Time{}, []string{"Retry its run, which is in another namespace."}, nil},
	{"job of a step that was CANCELLED", state(job(ofStep("succeeded")), ofRun, status(process.StatusCancelled, 52)),
		"", time.Time{}, []string{"the job has ended", "is deleted with run A-8"}, nil},
	{"job of a step that runs later",
		state(job(nil), ofRun,
			waiting(explain.Task{ID: 1, Type: process.TaskInit, WaitsFor: process.WaitsForTime, Scheduled: at(130)})),
		process.WaitsForTime, at(130), []string{"Wait for that time."}, nil},
	{"job whose processor is busy", state(job(func(j *explain.Job) { j.Unreached = "3 times (it answered HTTP 503)" }),
		waiting(explain.Task{ID: 6, Type: process.TaskInit, WaitsFor: process.WaitsForTime, Scheduled: at(130)})),
		process.WaitsForTime, at(130),
		[]string{`The processor of job "mail" was not reached 3 times (it answered HTTP 503).`, "It is retried",
			"To see its URL, run progressor namespace get shop."}, nil},
	{"job without a waiting task", state(job(nil), status(process.StatusInit, 52)), "", time.Time{},
		[]string{"It has no waiting task."}, nil},
	{"odd id", state(func(s *explain.State) { s.Process.ProcessID = "it's" }), "", time.Time{},
		[]string{`progressor call shop 'it'\''s'.`}, nil},
}

// job makes the process a job.
func job(change ...func(*explain.Job)) func(*explain.State) {
	return func(s *explain.State) {
		s.Job = &explain.Job{Name: "mail", MaxRetry: 2, Failed: 1, Takeovers: 1, MaxTakeovers: 3}
		if s.Process.Status == process.StatusRunning {
			s.Process.Status = process.StatusInit
		}
		for _, f := range change {
			if f != nil {
				f(s.Job)
			}
		}
	}
}

// ofRun replaces the ID of a job with the ID of a step job in run A-8.
func ofRun(s *explain.State) { s.Process.ProcessID = "~job/A-8/ship.1" }

func ofStep(runStatus string) func(*explain.Job) {
	return func(j *explain.Job) { j.RunStatus = runStatus }
}

// leased adds the lease of a worker that sent a heartbeat a second ago.
func leased(s *explain.State) {
	s.Running.Lease = &explain.Lease{WorkerID: "w1", Expires: at(110), Beat: at(99)}
}

func cancelling(reason string, deadline float64) func(*explain.State) {
	return func(s *explain.State) { s.Process.Cancel = explain.Cancel{Reason: reason, Deadline: at(deadline)} }
}

func own(s *explain.State) { s.Process.ProcessID = "~bulk/b-1" }

func TestExplain(t *testing.T) {
	for _, tt := range situations {
		t.Run(tt.name, func(t *testing.T) {
			e := explain.Explain(tt.state)
			if e.WaitsFor != tt.waitsFor || !e.NextTime.Equal(tt.nextTime) {
				t.Errorf("waits for %q until %s, want %q, %s", e.WaitsFor, e.NextTime, tt.waitsFor, tt.nextTime)
			}
			text := e.Detail + "\n" + e.Next + "\n" + e.Unblock
			for _, want := range tt.texts {
				if !strings.Contains(text, want) {
					t.Errorf("no %q in\n%s", want, text)
				}
			}
			if got := spanTexts(e.Spans); tt.spans != nil && !slices.Equal(got, tt.spans) {
				t.Errorf("spans:\n%s\nwant\n%s", strings.Join(got, "\n"), strings.Join(tt.spans, "\n"))
			}
			checkSpans(t, tt.state, e)
		})
	}
}

// spanTexts formats spans: what, the task, and the seconds from and to.
func spanTexts(spans []explain.Span) []string {
	var list []string
	for _, s := range spans {
		to := ""
		if !s.To.IsZero() {
			to = fmt.Sprint(s.To.Sub(noon).Seconds())
		}
		list = append(list, fmt.Sprintf("%s %d %v-%s", s.What, s.TaskID, s.From.Sub(noon).Seconds(), to))
	}
	return list
}

// checkSpans checks that the spans are in order and cover the complete time of the process.
func checkSpans(t *testing.T, s explain.State, e explain.Explanation) {
	t.Helper()
	covered := s.Process.CreatedTime
	sum := time.Duration(0)
	for n, span := range e.Spans {
		to := span.To
		if to.IsZero() {
			to = s.Now
		}
		if to.Before(span.From) || n > 0 && span.From.Before(e.Spans[n-1].From) ||
			span.From.After(covered.Add(time.Millisecond)) {
			t.Errorf("span %d of %q is out of order, or leaves a gap", n, spanTexts(e.Spans))
		}
		if to.After(covered) {
			covered = to
		}
		sum += to.Sub(span.From)
	}
	end := s.Now
	if s.Process.Status.Ended() {
		end = s.Process.StatusChanged
	}
	if end.Sub(covered) > time.Millisecond {
		t.Errorf("%q end %s too early", spanTexts(e.Spans), end.Sub(covered))
	}
	for _, d := range e.TimeByWhat {
		sum -= d
	}
	if sum != 0 {
		t.Errorf("%v does not add up: %s", e.TimeByWhat, sum)
	}
}

// The spans cover a longer history with calls that queue, retries, a timer that a call replaces, an
// error and its repair.
func TestSpans(t *testing.T) {
	cancelled := timer(2, 500)
	cancelled.Status, cancelled.Finished = process.TaskStatusCancelled, at(22)
	lost := explain.Task{ID: 9, Type: process.TaskCall, Status: process.TaskStatusCancelled, Scheduled: at(41),
		Finished: at(42)}
	s := state(ended(cancelled,
		ran(3, process.TaskCall, 20, 20, 22), ran(4, process.TaskCall, 21, 23, 24),
		retried(ran(5, process.TaskNotify, 30, 30, 31), 2, 4, "", ""),
		failed(ran(8, process.TaskCall, 40, 40, 42), "broken"), lost,
		ran(10, process.TaskRepair, 60, 60, 61)))
	want := []string{
		"processing 1 0-1", "time 2 1-20", "processing 3 20-22", "process 4 21-22", "place 4 22-23",
		"processing 4 23-24",
		"idle 0 24-26", "back_off 5 26-30", "processing 5 30-31", "idle 0 31-40", "processing 8 40-42",
		"process 9 41-42",
		"operator 0 42-60", "processing 10 60-61", "idle 0 61-",
	}
	e := explain.Explain(s)
	if got := spanTexts(e.Spans); !slices.Equal(got, want) {
		t.Errorf("spans:\n%s\nwant\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
	}
	checkSpans(t, s, e)
	for _, detail := range []string{"CALL after task 3", "CALL, cancelled", "NOTIFY, before attempt 2",
		"includes earlier attempts of task 5", "CALL failed: broken", "ERROR because task 8 failed"} {
		if !slices.ContainsFunc(e.Spans, func(s explain.Span) bool { return strings.Contains(s.Detail, detail) }) {
			t.Errorf("no span says %q: %+v", detail, e.Spans)
		}
	}
	if got := e.TimeByWhat[explain.Processing]; got != 8*time.Second {
		t.Errorf("processing took %s", got)
	}
	s.Truncated, s.Ended = true, s.Ended[2:]
	if got := spanTexts(explain.Explain(s).Spans); got[0] != "processing 3 20-22" {
		t.Errorf("a truncated timeline begins with %s", got[0])
	}
}

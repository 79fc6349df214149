package explain_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/progressor-engine/progressor/explain"
	"github.com/progressor-engine/progressor/process"
)

// first makes the first task of a process wait for a slot.
func first(s *explain.State) {
	s.Process.Status, s.Ended = process.StatusInit, nil
	s.Waiting = []explain.Task{{ID: 1, Type: process.TaskInit, WaitsFor: process.WaitsForPlace, Scheduled: at(90)}}
}

// pulled makes the namespace a pull namespace with the given workers.
func pulled(workers ...explain.Worker) func(*explain.State) {
	return func(s *explain.State) { s.Namespace.Pulled, s.Namespace.Workers = true, workers }
}

// worker returns a worker that was last seen ago seconds before now. command is the command of an
// operator, or "".
func worker(id, command string, ago float64) explain.Worker {
	return explain.Worker{ID: id, Command: command, Seen: at(100 - ago), Alive: ago < 70, Leases: 2}
}

func blockedOn(b explain.Blocked) func(*explain.State) {
	return func(s *explain.State) {
		s.Job.Blocked, s.Waiting = &b,
			[]explain.Task{{ID: 1, Type: process.TaskInit, WaitsFor: process.WaitsForConstraint, Scheduled: at(90)}}
	}
}

func group(count, failures int, members ...explain.Member) func(*explain.State) {
	return func(s *explain.State) {
		s.Job.Group = &explain.Group{Count: count, MaxFailures: failures, Members: members}
		s.Waiting = []explain.Task{
			{ID: 1, Type: process.TaskInit, WaitsFor: process.WaitsForMembers, Scheduled: at(90)}}
	}
}

func cronOf(c explain.Cron) func(*explain.State) {
	return func(s *explain.State) {
		c.ID, c.RunsIn = "nightly", "shop"
		s.Process.ProcessID, s.Cron = "~cron/nightly", &c
	}
}

// waitCase is a situation and its explanation.
type waitCase struct {
	name     string
	state    explain.State
	waitsFor process.WaitsFor
	nextTime time.Time
	texts    []string
}

// TestWaits checks the explanations of what a process waits for, and of how the process can
// continue.
func TestWaits(t *testing.T) {
	named := func(s *explain.State) { s.Job.WorkerIDs = []string{"w8", "w9"} }
	for _, tt := range []waitCase{
		{"no worker", state(first, pulled()), process.WaitsForPlace, time.Time{},
			[]string{"Task 1 (INIT) has waited for a worker since 2026-11-20T12:01:30.000Z, and no worker polls " +
				"namespace shop.", "HandleProcesses"}},
		{"no worker polls any longer", state(first, job(nil), pulled(worker("w1", "", 900), worker("w2", "", 300))),
			process.WaitsForPlace, time.Time{},
			[]string{`Job "mail" has waited for a worker`,
				"no worker polls namespace shop: the last was w2, at 2026-11-20T11:56:40.000Z (5m ago).",
				"To start a worker, run progressor worker run --namespace shop --job mail --exec COMMAND."}},
		{"workers that take no tasks", state(first, job(nil),
			pulled(worker("w1", "quiet", 3), worker("w2", "stop", 3), worker("w3", "", 300))), process.WaitsForPlace,
			time.Time{},
			[]string{"and 2 workers polled namespace shop recently, but none may take new tasks: w1 (quiet), " +
				"w2 (stop).", "tasks again, run progressor worker stop shop w1 --continue."}},
		{"a worker", state(first, job(nil), pulled(worker("w1", "quiet", 3), worker("w2", "", 3))),
			process.WaitsForPlace, time.Time{},
			[]string{"and 1 worker polled namespace shop recently: w2 (holds 2, seen 3s ago).",
				`A worker must poll namespace shop for jobs named "mail" or for all jobs and have free slots.`}},
		{"many workers", state(first, job(nil),
			pulled(worker("w1", "", 3), worker("w2", "", 3), worker("w3", "", 3), worker("w4", "", 3),
				worker("w5", "", 3), worker("w6", "", 3), worker("w7", "", 3)),
			func(s *explain.State) { s.Namespace.More = true }), process.WaitsForPlace, time.Time{},
			[]string{"and at least 7 workers polled", "w5 (holds 2, seen 3s ago) and 2 more."}},
		{"only other workers poll", state(first, job(nil), named, pulled(worker("w1", "", 3))), process.WaitsForPlace,
			time.Time{},
			[]string{"and none of its workers (w8, w9) polls namespace shop.",
				"--job mail --worker-id w8 --exec COMMAND."}},
		{"a paused pull namespace", state(first, pulled(), func(s *explain.State) { s.Namespace.Paused = true }),
			process.WaitsForPlace, time.Time{},
			[]string{"waits for a worker, and namespace shop is paused", "progressor namespace resume shop."}},
		{"no processor", state(first,
			func(s *explain.State) { s.Namespace.Unservable = `this node has no processor "x"` }),
			process.WaitsForPlace, time.Time{},
			[]string{`the node that answered this request cannot run tasks of namespace shop: this node has no ` +
				`processor "x".`, "progressor namespace get shop"}},
		{"the task before it is leased", state(running, leased, waiting(call(6, process.WaitsForProcess, 99))),
			process.WaitsForProcess, at(158),
			[]string{"Task 6 (CALL) waits behind task 5 (CALL), which worker w1 holds, attempt 1, for 2s; last " +
				"heartbeat 1s ago.", "by its step timeout, then task 6 (CALL) runs. Without a heartbeat"}},
		{"its node drains", state(running, func(s *explain.State) { s.Running.Draining = true }), "", at(158),
			[]string{"runs on node 3 (host:8080), which is draining, attempt 1", "another node takes it"}},
		{"asked to end", state(running, cancelling("enough", 130)), "", at(130),
			[]string{"It was asked to end (enough). After the grace period, at 2026-11-20T12:02:10.000Z (in 30s), it " +
				"is CANCELLED"}},
		{"a timer of a paused namespace",
			state(waiting(timer(2, 130)), func(s *explain.State) { s.Namespace.Paused = true }), process.WaitsForTime,
			at(130),
			[]string{"Namespace shop is also paused: nothing begins before it is resumed (progressor namespace " +
				"resume shop)."}},
		{"a key", state(job(nil),
			blockedOn(explain.Blocked{Constraint: "one", Match: `job.name == "a"`, Expression: "job.args.shop",
				Key: "x", MaxRunning: 2, Held: 5, Holders: []string{"a", "b", "c"}, Before: 1000, More: true})),
			process.WaitsForConstraint, time.Time{},
			[]string{`Job "mail" waits for constraint one, key x: 5 of 2 slots in use (a, b, ` +
				`c and 2 more). At least 1000 jobs are ahead of it.`,
				"run progressor job get shop a. To double the limit, run progressor constraint put shop one --match " +
					"'job.name == \"a\"' --key job.args.shop --max-running 4."}},
		{"a rate that no job uses",
			state(job(nil), blockedOn(
				explain.Blocked{Constraint: "slow", RateCount: 1, RatePer: time.Minute, RateBurst: 1, Held: 1,
					Holders: []string{"x1"}, Unstarted: 1})), process.WaitsForConstraint, time.Time{},
			[]string{"constraint slow: the rate has granted starts that no worker has claimed yet (x1). No job is " +
				"ahead of it.", "--rate 2/1m."}},
		{"a rate", state(job(nil),
			blockedOn(explain.Blocked{Constraint: "slow", RateCount: 10, RatePer: time.Minute, RateBurst: 3,
				NextStart: at(106), OwnStart: at(112), Before: 1})), process.WaitsForConstraint, at(112),
			[]string{"constraint slow: the rate of 10 in 1m is used up, and grants the next start at " +
				"2026-11-20T12:01:46.000Z (in 6s). 1 job is ahead of it.",
				"not before 2026-11-20T12:01:52.000Z (in 12s)", "--rate 20/1m --burst 3."}},
		{"a key in a paused namespace",
			state(job(nil), blockedOn(explain.Blocked{Constraint: "one", MaxRunning: 1}),
				func(s *explain.State) { s.Namespace.Paused = true }), process.WaitsForConstraint, time.Time{},
			[]string{"waits for constraint one. No job is ahead of it. Namespace shop is also paused"}},
		{"members", state(job(nil), pulled(),
			group(3, 1, explain.Member{WorkerID: "w1", State: "succeeded"},
				explain.Member{WorkerID: "w2", State: "running"}, explain.Member{WorkerID: "w3", State: "failed"},
				explain.Member{WorkerID: "w4", State: "retryable"})), process.WaitsForProcess, time.Time{},
			[]string{`Job "mail" must succeed on 3 workers: 1 has, w2 runs it, w4 tries it again later, ` +
				`1 has failed of at most 1 that may fail.`,
				"To see the state of each, run progressor job get shop o-1."}},
		{"members, but no worker",
			state(job(nil), pulled(), cancelling("", 130),
				group(2, 0, explain.Member{State: "available"}, explain.Member{State: "available"})),
			process.WaitsForPlace, at(130),
			[]string{"must succeed on 2 workers: 0 have; 2 slots wait for a worker, and no worker polls namespace " +
				"shop. It was asked to end: its workers were also asked."}},
		{"a fire time", state(waiting(timer(2, 130)),
			cronOf(explain.Cron{Next: at(130), Running: []string{"nightly/1"}})), process.WaitsForTime, at(130),
			[]string{"Cron nightly waits for its next fire time. 1 run is active: nightly/1.",
				"It fires at 2026-11-20T12:02:10.000Z (in 30s).",
				"Wait for that time. To start a run now, run progressor cron trigger shop nightly."}},
		{"an open circuit", state(waiting(timer(2, 130)),
			cronOf(explain.Cron{Next: at(130), Failures: 3, TrialFrom: at(140)})), process.WaitsForTime, at(140),
			[]string{"Its circuit is open after 3 failed runs", "The trial is the first fire"}},
		{"an open circuit before its trial",
			state(waiting(timer(2, 130)), cronOf(explain.Cron{Next: at(130), Failures: 3, TrialFrom: at(120)})),
			process.WaitsForTime, at(130), []string{"The next fire is a trial", "It fires"}},
		{"a paused cron", state(
			cronOf(explain.Cron{Paused: true, PausedBy: "kim", Note: "the bank is closed.", Since: at(40), Missed: 1000,
				More: true, Next: at(130)})), process.WaitsForOperator, time.Time{},
			[]string{"Cron nightly has been paused since 2026-11-20T12:00:40.000Z (1m) by kim: the bank is closed. " +
				"At least 1000 fire times wait.", "are skipped unless they are caught up",
				"To resume it, run progressor cron resume shop nightly. With --catch-up"}},
		{"a cron paused by an older version", state(cronOf(explain.Cron{Paused: true})), process.WaitsForOperator,
			time.Time{}, []string{"Cron nightly is paused.\nNothing fires until it is resumed."}},
		{"a cron whose schedule has ended", state(cronOf(explain.Cron{})), "", time.Time{},
			[]string{"has no further fire time: its schedule has ended.",
				"To set another schedule, see progressor cron update shop nightly --help."}},
		{"a cron whose fires are used up", state(cronOf(explain.Cron{Spent: true})), "", time.Time{},
			[]string{"its max_fires are used up"}},
		{"a run that continues",
			state(cronOf(explain.Cron{Queued: 2, MaxRuns: 1, Running: []string{"nightly/1"}, Next: at(130)})),
			process.WaitsForProcess, at(130),
			[]string{"2 fires of cron nightly wait for a run to end: its max_concurrency is 1, and nightly/1 " +
				"is active.", "Wait for the end of a run, or set a larger max_concurrency. To see what a run waits " +
				"for, run progressor explain shop nightly/1."}},
		{"a cron in ERROR",
			state(cronOf(explain.Cron{}), status(process.StatusError, 52), broken("x", 4),
				ended(failed(ran(4, process.TaskTimeout, 51, 51, 52), "r"))), process.WaitsForOperator, time.Time{},
			[]string{"failed permanently", "Nothing fires until it is resumed.",
				"To resume it, run progressor cron resume shop nightly."}},
		{"an internal process in ERROR", state(own, status(process.StatusError, 52), broken("x", 4)),
			process.WaitsForOperator, time.Time{}, []string{"Nothing: it is a process of the engine."}},
	} {
		e := explain.Explain(tt.state)
		text := fmt.Sprint(e.Detail, "\n", e.Next, "\n", e.Unblock)
		if e.WaitsFor != tt.waitsFor || !e.NextTime.Equal(tt.nextTime) {
			t.Errorf("%s: waits for %q until %s, want %q, %s\n%s", tt.name, e.WaitsFor, e.NextTime, tt.waitsFor,
				tt.nextTime, text)
		}
		for _, want := range tt.texts {
			if !strings.Contains(text, want) {
				t.Errorf("%s: no %q in\n%s", tt.name, want, text)
			}
		}
	}
}

// In a pull namespace, tasks wait for a worker, not for a slot.
func TestSpansOfAPullNamespace(t *testing.T) {
	waits := []func(*explain.State){ended(ran(4, process.TaskCall, 50, 51, 52)),
		waiting(call(6, process.WaitsForPlace, 90))}
	for what, change := range map[string]func(*explain.State){
		"worker": pulled(), "place": func(*explain.State) {},
	} {
		e := explain.Explain(state(append(waits, change)...))
		got, want := strings.Join(spanTexts(e.Spans), ", "), fmt.Sprintf("processing 1 0-1, idle 0 1-50, %s 4 50-51, "+
			"processing 4 51-52, idle 0 52-90, %[1]s 6 90-", what)
		if got != want || e.TimeByWhat[what] != 11*time.Second {
			t.Errorf("%s, %v, want %s", got, e.TimeByWhat, want)
		}
	}
}

// pausedName pauses the name of a job.
func pausedName(s *explain.State) {
	s.Job.Paused = &explain.Pause{Reason: "the server is down.", By: "kim", Since: at(80)}
}

// An attempt that its worker has ended from SQL is not explained as a lost lease, although its
// lease and its timeout are over.
func TestEndedFromSQL(t *testing.T) {
	ended := func(s *explain.State) {
		s.Running.Lease.Ended = true
		s.Running.Lease.Expires, s.Running.Deadline = at(90), at(90)
	}
	e := explain.Explain(state(running, leased, ended))
	if want := "Worker w1 has ended attempt 1 of task 5 (CALL) with the SQL function complete."; e.Detail != want ||
		e.Next != "A node stores the result of the worker." || !e.NextTime.IsZero() {
		t.Errorf("%+v", e)
	}
	e = explain.Explain(state(running, leased, ended, waiting(call(6, process.WaitsForProcess, 99))))
	behind := "behind task 5 (CALL), whose attempt 1 worker w1 has ended with the SQL function complete."
	if !strings.HasSuffix(e.Detail, behind) || !strings.HasSuffix(e.Next, ", then task 6 (CALL) runs.") {
		t.Errorf("the next task: %+v", e)
	}
}

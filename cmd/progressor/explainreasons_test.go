package main

import (
	"context"
	"fmt"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/progressor-engine/progressor/client"
	"github.com/progressor-engine/progressor/cmd/progressor/internal/cli"
	"github.com/progressor-engine/progressor/cmd/progressor/internal/cli/clitest"
	"github.com/progressor-engine/progressor/processor"
	progressorv1 "github.com/progressor-engine/progressor/proto/progressor/v1"
	"github.com/progressor-engine/progressor/storage/storagetest"
)

// scripted is a processor whose tasks block, fail or set a timer, depending on their args. Timers
// fail, and cancels block.
func scripted(done <-chan struct{}) processor.Processor {
	return processor.Func(func(ctx context.Context,
		r *progressorv1.ProcessRequest) (*progressorv1.ProcessResponse, error) {
		word := strings.Trim(string(r.GetArgs()), `"`)
		switch r.GetType() {
		case progressorv1.TaskType_TASK_TYPE_CANCEL:
			word = "hold"
		case progressorv1.TaskType_TASK_TYPE_TIMEOUT:
			word = "fail"
		}
		result := processor.Result()
		switch word {
		case "hold":
			select {
			case <-done:
			case <-ctx.Done():
			}
		case "fail":
			return nil, processor.Fail("broken", "the shop is closed")
		case "timer":
			result.SetTimerAfter(time.Hour)
		case "timer now":
			result.SetTimerAfter(0)
		case "remove":
			result.RemoveAfter(time.Hour)
		case "end":
			result.Complete()
		}
		return result.Done()
	})
}

// reason is a reason why a process, job, run, step or cron waits, with the commands that create the
// situation and the output of explain.
type reason struct {
	name string
	// Command lines. Two of them are not commands of progressor: with "poll NS [NAME]", worker w1
	// takes a task, and with "look NS", worker w0 polls without a result. A line that begins with
	// "!" may fail.
	begin []string
	id    string   // NS ID
	want  []string // parts of the output, in which each sequence of white space is one space
}

var plainReasons = []reason{
	{"idle", []string{"start push idle"}, "push idle",
		[]string{"now It is idle", "unblock To call it, run progressor call push idle."}},
	{"its timer", []string{"start push timer --args timer"}, "push timer",
		[]string{"waits for time", "next The default timer (task", "fires at", "(in 59m"}},
	{"its removal", []string{"start push leaves --args remove"}, "push leaves",
		[]string{"waits for time", "next The process is removed at"}},
	{"its start time", []string{"start push later --start-time 1h"}, "push later",
		[]string{"now Its start time is", "(INIT) runs at"}},
	{"the task that runs", []string{"start push runs", "call push runs --args hold --accepted"}, "push runs",
		[]string{"(NOTIFY) runs on node", "attempt 1", "by its step timeout",
			"unblock The response of the processor."}},
	{"another task", []string{"start push behind", "call push behind --args hold --accepted",
		"call push behind --args x --accepted"}, "push behind",
		[]string{"waits for process", "waits behind task", "which runs on node", "then task"}},
	{"a retry", []string{"start push retried --args 'timer now'"}, "push retried",
		[]string{"failed in attempt 1 of 3 (broken: the shop is closed)", "next Attempt 2 of the default timer"}},
	{"a repair", []string{"start push broken", "! call push broken --args fail"}, "push broken",
		[]string{"waits for operator", "(CALL) failed permanently in attempt 1: broken: the shop is closed.",
			"unblock To make it RUNNING and set its timers, run progressor repair push broken --simple."}},
	{"a resume", []string{"start push held", "suspend push held --reason 'an audit'"}, "push held",
		[]string{"waits for operator", "now It has been suspended since", ": an audit.",
			"unblock To resume it, run progressor resume push held."}},
	{"its cancel task", []string{"start push cancels", "cancel push cancels --grace 30m --reason 'no money'"},
		"push cancels",
		[]string{"(CANCEL) runs on node", "It was asked to end (no money). After the grace period, at",
			"it is CANCELLED in any case."}},
	{"its end", []string{"start push ends", "call push ends --args end"}, "push ends",
		[]string{"now It has been COMPLETED since", "next Nothing: the process has ended.",
			"To delete it, run progressor remove push ends."}},
	{"its end, cancelled", []string{"start push ended", "cancel push ended --grace 0s --reason 'no money'"},
		"push ended", []string{"now It has been CANCELLED since", "no money."}},
	{"a slot", []string{"namespace put small --connect-url URL --max-running 1", "start small one", "start small two",
		"call small one --args hold --accepted", "call small two --accepted"}, "small two",
		[]string{"waits for place",
			"1 task of the namespace runs, and its max_running is 1 on each of the nodes that take tasks (1)",
			"unblock Wait for the end of a task of the namespace, set"}},
	{"its processor", []string{"namespace put away --connect-url http://127.0.0.1:1", "start away one --accepted"}, "away one",
		[]string{"(INIT) runs on node", "its processor was not reached", "the call is repeated by the retry policy"}},
	{"its namespace", []string{"namespace put paused --connect-url URL", "start paused one", "namespace pause paused",
		"call paused one --accepted"}, "paused one",
		[]string{"waits for a slot, and namespace paused is paused.",
			"unblock To resume the namespace, run progressor namespace resume paused."}},
	{"its timer in a paused namespace",
		[]string{"namespace put shut --connect-url URL", "start shut one --args timer", "namespace pause shut"},
		"shut one",
		[]string{"waits for time",
			"Namespace shut is also paused: nothing begins before it is resumed (progressor namespace resume shut)."}},
	{"a worker, but none polls", []string{"namespace put unpolled --pull", "start unpolled one --accepted"},
		"unpolled one",
		[]string{"waits for worker", "(INIT) has waited for a worker since", "and no worker polls namespace unpolled.",
			"client.Worker with HandleProcesses", "progressor worker run takes only jobs"}},
	{"a worker, but all have the directive quiet",
		[]string{"namespace put quieted --pull", "look quieted", "start quieted one --accepted",
			"worker stop quieted w0 --quiet"}, "quieted one",
		[]string{"and 1 worker polled namespace quieted recently, but none may take new tasks: w0 (quiet).",
			"unblock To let that worker take tasks again, run progressor worker stop quieted w0 --continue."}},
	{"the worker that has it", []string{"namespace put leased --pull", "start leased one --accepted", "poll leased"},
		"leased one",
		[]string{"now Worker w1 holds task", "(INIT), attempt 1, for", "Without a heartbeat, it loses it at",
			"unblock The answer of the worker."}},
}

var jobReasons = []reason{
	{"a worker for a job, but none polls", []string{"namespace put jobs --pull", "job enqueue jobs mail --id alone"},
		"jobs alone",
		[]string{`now Job "mail" has waited for a worker since`, "and no worker polls namespace jobs.",
			"unblock To start a worker, run progressor worker run --namespace jobs --job mail --exec COMMAND."}},
	{"the worker that it names", []string{"job enqueue jobs mail --id named --worker-id w9"}, "jobs named",
		[]string{"and none of its workers (w9) polls namespace jobs", "--job mail --worker-id w9 --exec COMMAND"}},
	{"its time", []string{"job enqueue jobs mail --id later --run-time 1h"}, "jobs later",
		[]string{`now Job "mail" does not run before`, "next It runs at",
			"progressor job update jobs later --run-time 0s."}},
	{"a worker, and one polls",
		[]string{"namespace put busy --pull", "job enqueue busy mail --id first --timeout 1h",
			"job enqueue busy other --id second", "poll busy mail"}, "busy second",
		[]string{"and 1 worker polled namespace busy recently: w1 (holds ",
			`unblock A worker must poll namespace busy for jobs named "other" or for all jobs and have free slots.`}},
	{"the worker that has it", nil, "busy first",
		[]string{`now Worker w1 holds attempt 1 of job "mail" for`, "max_retry is 0", "by the job's timeout"}},
	{"the one before it with its key, which runs",
		[]string{"job enqueue busy mail --id another --unique-key k --unique-scope waiting"}, "busy another",
		[]string{`now Job "mail" has waited for a worker since`}},
	{"its cancel", []string{"job cancel busy first --reason 'no need'"}, "busy first",
		[]string{"It was asked to end (no need): its worker learns it from its next heartbeat.",
			"After the grace period, at"}},
	{"a key", []string{"namespace put keyed --pull", "constraint put keyed one --key job.args.shop --max-running 1",
		"job enqueue keyed mail --id first --timeout 1h --args '{\"shop\":\"a\"}'",
		"job enqueue keyed mail --id second --args '{\"shop\":\"a\"}'",
		"job enqueue keyed mail --id third --args '{\"shop\":\"a\"}'", "poll keyed mail"}, "keyed third",
		[]string{"waits for constraint",
			`now Job "mail" waits for constraint one, key a: 1 of 1 slots in use (first). 1 job is ahead of it.`,
			"unblock Wait for the end of a job that holds the key. To see such a job, run progressor job get keyed " +
				"first. To double the limit, run progressor constraint put keyed one --key job.args.shop " +
				"--max-running 2."}},
	// The times are days away, because days are rounded down. 2 hours would become 1h59m after 30
	// seconds.
	{"a start", []string{"namespace put rated --pull",
		"constraint put rated slow --match 'job.name == \"mail\"' --rate 1/24h",
		"job enqueue rated mail --id first --timeout 1h", "job enqueue rated mail --id second",
		"job enqueue rated mail --id third", "poll rated mail"}, "rated third",
		[]string{"waits for constraint slow: the rate of 1 in 24h is used up, and grants the next start at",
			"1 job is ahead of it.", "not before 20", "(in 1d23h",
			`progressor constraint put rated slow --match 'job.name == "mail"' --rate 2/24h.`}},
	{"a start that no worker takes",
		[]string{"namespace put unrated --pull",
			"constraint put unrated slow --match 'job.name == \"mail\"' --rate 1/1h",
			"job enqueue unrated mail --id first", "job enqueue unrated mail --id second"},
		"unrated second", []string{
			"waits for constraint slow: the rate has granted starts that no worker has claimed yet (first). No job " +
				"is ahead of it. No worker polls namespace unrated",
			"progressor worker run --namespace unrated --job mail"}},
	{"a retry", []string{"namespace put pushed --connect-url URL",
		"job enqueue pushed mail --id again --args '\"fail\"' --max-retry 2 --backoff 1h",
		"job enqueue pushed mail --id fails --args '\"fail\"'"}, "pushed again",
		[]string{`now Job "mail" failed in attempt 1`, "It has failed once, max_retry is 2", "next Attempt 2 at"}},
	{"its retry by an operator", nil, "pushed fails",
		[]string{`now Job "mail" failed permanently in attempt 1`,
			"unblock To run it again, run progressor job retry pushed fails."}},
	{"a resume", []string{"job enqueue jobs mail --id held", "suspend jobs held"}, "jobs held",
		[]string{"now It has been suspended since", "unblock To resume it, run progressor resume jobs held."}},
	{"its end", []string{"job enqueue jobs mail --id cancelled", "job cancel jobs cancelled"}, "jobs cancelled",
		[]string{`now Job "mail" was CANCELLED at`, "next Nothing: the job has ended.",
			"To run it again, run progressor job retry jobs cancelled."}},
	{"its namespace", []string{"namespace put halted --pull", "namespace pause halted",
		"job enqueue halted mail --id one"}, "halted one",
		[]string{"namespace halted is paused.",
			"unblock To resume the namespace, run progressor namespace resume halted."}},
	{"enough workers", []string{"namespace put crowd --pull",
		"job enqueue crowd mail --id both --workers 2 --timeout 1h", "poll crowd mail"}, "crowd both",
		[]string{`now Job "mail" must succeed on 2 workers: 0 have, w1 runs it; 1 slot waits for a worker, ` +
			`and 1 worker polled namespace crowd recently: w1 (holds `}},
}

var cronReasons = []reason{
	{"its fire time", []string{"cron create push yearly '0 0 1 1 *' --start-process"}, "push ~cron/yearly",
		[]string{"waits for time", "now Cron yearly waits for its next fire time.", "next It fires at",
			"To start a run now, run progressor cron trigger push yearly."}},
	{"its resume", []string{"cron create push paused '0 0 1 1 *' --start-process",
		"cron pause push paused --reason 'the bank is closed'"}, "push ~cron/paused",
		[]string{"waits for operator", "now Cron paused has been paused since", ": the bank is closed.",
			"next Nothing fires until it is resumed.",
			"unblock To resume it, run progressor cron resume push paused. With"}},
	{"nothing: it is over", []string{"cron create push over '* * * * * *' --start-process --args end --max-fires 1"},
		"push ~cron/over",
		[]string{"now Cron over has no further fire time: its max_fires are used up.",
			"unblock To set another schedule, see progressor cron update push over --help."}},
	{"a run that continues", []string{"cron create push queues '0 0 1 1 *' --start-process --concurrency queue",
		"cron trigger push queues", "cron trigger push queues"}, "push ~cron/queues",
		[]string{"waits for process",
			"now 1 fire of cron queues waits for a run to end: its max_concurrency is 1, and queues/",
			"unblock Wait for the end of a run, or set a larger max_concurrency. To see what a run waits for, run " +
				"progressor explain push queues/"}},
	{"its namespace", []string{"namespace put nights --connect-url URL",
		"cron create nights yearly '0 0 1 1 *' --start-process", "namespace pause nights"}, "nights ~cron/yearly",
		[]string{"Namespace nights is also paused", "progressor namespace resume nights"}},
}

// reasonsTemplates are templates whose runs wait for each kind of event, one template per line.
const reasonsTemplates = `{"type": "human", "steps": [{"step_id": "sign", "wait": {"kind": "KIND_HUMAN", ` +
	`"title": "Sign it", "assignees": ["sales"], "due": "3600s"}}, {"step_id": "after", "job": {}}]}
{"type": "outside", "steps": [{"step_id": "paid", "wait": {"kind": "KIND_EXTERNAL"}}]}
{"type": "rest", "steps": [{"step_id": "a", "delay": {"duration": "3600s"}}]}
{"type": "work", "dedupe_keys": ["scope_id"], "concurrency_policy": "SCOPE_POLICY_QUEUE_SAME_SCOPE", ` +
	`"steps": [{"step_id": "a", "job": {}}, {"step_id": "b", "job": {}}]}
{"type": "outer", "steps": [{"step_id": "sub", "run": {"type": "rest"}}]}
{"type": "breaks", "steps": [{"step_id": "a", "input": "${payload.missing}", "job": {}}]}
{"type": "again", "retry_policy": {"max_attempts": 2, "backoff": {"steps": ["3600s"]}}, ` +
	`"steps": [{"step_id": "a", "input": "${payload.missing}", "job": {}}]}
{"type": "each", "steps": [{"step_id": "a", "for_each": {"items": "[1,2]"}, "job": {}}]}
{"type": "bound", "steps": [{"step_id": "a", "job": {"name": "single"}}]}`

var runReasons = []reason{
	{"a person", []string{"run start flows human --id human"}, "flows ~flow/human",
		[]string{"waits for operator", `now Step sign waits for sales, "Sign it", until 20`,
			"unblock To answer it, run progressor run complete flows human sign --result …."}},
	{"an external answer", []string{"run start flows outside --id outside"}, "flows ~flow/outside",
		[]string{"now Step paid waits for an external answer.", "progressor run waits flows --run outside"}},
	{"a delay", []string{"run start flows rest --id rest"}, "flows ~flow/rest",
		[]string{"now Step a waits until 20", "next It ends at"}},
	{"a worker", []string{"run start flows work --id work --scope-id s1"}, "flows ~flow/work",
		[]string{"waits for place", "now The job of step a has waited for a worker or a slot since",
			"To see more, run progressor explain flows '~job/work/a'."}},
	{"a worker, by the job of the step", nil, "flows ~job/work/a",
		[]string{`now Job "a" has waited for a worker since`, "and no worker polls namespace flows."}},
	{"the run before it in its scope", []string{"run start flows work --id next --scope-id s1"}, "flows ~flow/next",
		[]string{"waits for constraint", "now The run waits for its scope, which run work holds.",
			"To end it, run progressor run cancel flows work."}},
	{"a run that does a step", []string{"run start flows outer --id outer"}, "flows ~flow/outer",
		[]string{"now Step sub is active: run outer/sub executes it.",
			"To see more, run progressor explain flows '~flow/outer/sub'."}},
	{"its time", []string{"run start flows work --id later --scope-id s2 --run-time 1h"}, "flows ~flow/later",
		[]string{"waits for time", "now The run does not begin before"}},
	{"the same by the id of the run", nil, "flows later",
		[]string{"process flows/~flow/later", "now The run does not begin before"}},
	{"its next attempt", []string{"run start flows again --id again --payload '{}'"}, "flows ~flow/again",
		[]string{"waits for time", "now Attempt 1 of the run failed (", "next Attempt 2 begins at"}},
	{"its retry by an operator", []string{"run start flows breaks --id breaks --payload '{}'"}, "flows ~flow/breaks",
		[]string{"waits for operator", "now The run is FAILED:",
			"Correct the template, then run progressor run retry flows breaks --newest-version.",
			"progressor run repeat flows breaks --payload …"}},
	{"its items", []string{"run start flows each --id each"}, "flows ~flow/each",
		[]string{"The job of item 0 of step a has waited for a worker or a slot"}},
	{"a key, for its job", []string{"constraint put flows one --match 'job.name == \"single\"' --rate 1/1h",
		"run start flows bound --id bound", "run start flows bound --id bound-2", "poll flows single"},
		"flows ~flow/bound-2",
		[]string{"waits for constraint", "now The job of step a waits for a constraint.",
			"To see more, run progressor explain flows '~job/bound-2/a'."}},
	{"its end", []string{"run start flows human --id ended", "run cancel flows ended --reason 'no need'"},
		"flows ~flow/ended", []string{"now The run was cancelled: no need.", "progressor run retry flows ended"}},
}

// TestExplainReasons uses commands to make processes wait for each reason, and checks what explain
// prints.
func TestExplainReasons(t *testing.T) {
	t.Parallel()
	done := make(chan struct{})
	target := httptest.NewServer(processor.Handler(scripted(done)))
	t.Cleanup(target.Close)
	dsn := storagetest.DSN(t)
	d := background(t, nil, "serve", "--listen", "127.0.0.1:0", "--db.dsn", dsn, "--engine.drain-timeout", "1ms")
	t.Cleanup(func() { close(done) })
	d.Client.OK(t, "namespace", "put", "push", "--connect-url", target.URL, "--retry-after", "1h", "--max-attempts",
		"3")
	d.Client.OK(t, "namespace", "put", "flows", "--pull")
	for template := range strings.Lines(reasonsTemplates) {
		d.Client.OK(t, "template", "put", "flows", "-f", clitest.TemplateFile(t, "template.json", template))
	}
	for what, list := range map[string][]reason{"process": plainReasons, "job": jobReasons, "cron": cronReasons,
		"run": runReasons} {
		for _, r := range list {
			t.Run(what+" waits for "+r.name, func(t *testing.T) { waitsFor(t, d, r, target.URL) })
		}
	}
	t.Run("nothing: it was removed", func(t *testing.T) {
		d.Client.OK(t, "start", "push", "gone")
		d.Client.OK(t, "remove", "push", "gone")
		if r := d.Client.Run(t, "explain", "push", "gone"); r.Code != cli.ExitNotFound ||
			!strings.Contains(r.Stderr, "Next: progressor list push") {
			t.Errorf("%+v", r)
		}
	})
	t.Run("process waits for the task that runs on a node that drains", func(t *testing.T) {
		other := background(t, nil, "serve", "--listen", "127.0.0.1:0", "--db.dsn", dsn)
		d.Client.OK(t, "start", "push", "drained")
		d.Client.OK(t, "call", "push", "drained", "--args", "hold", "--accepted")
		waitsFor(t, d, reason{id: "push drained", want: []string{"(NOTIFY) runs on node 1"}}, target.URL)
		d.Client.OK(t, "node", "drain", "1")
		waitsFor(t, other, reason{id: "push drained",
			want: []string{"which is draining, attempt 1", "another node takes it"}}, target.URL)
	})
}

// waitsFor makes a process wait for a reason, and then waits until explain prints that reason.
func waitsFor(t *testing.T, d *clitest.Daemon, r reason, url string) {
	t.Helper()
	for _, line := range r.begin {
		args := words(strings.ReplaceAll(line, "URL", url))
		switch args[0] {
		case "!":
			d.Client.Run(t, args[1:]...)
		case "poll":
			poll(t, d, "w1", args[1], args[2:]...)
		case "look":
			poll(t, d, "w0", args[1], "nothing")
		default:
			d.Client.OK(t, args...)
		}
	}
	ns, id, _ := strings.Cut(r.id, " ")
	out := ""
	clitest.Eventually(t, "explain "+r.id, func() error {
		out = d.Client.OK(t, "explain", ns, id)
		narrow := strings.Join(strings.Fields(out), " ")
		for _, part := range r.want {
			if !strings.Contains(narrow, part) {
				return fmt.Errorf("no %q in\n%s", part, out)
			}
		}
		return nil
	})
	head, _, _ := strings.Cut(out, "\ntime ")
	t.Log("\n" + head)
}

// poll polls once as a worker: w1 gets a task.
func poll(t *testing.T, d *clitest.Daemon, worker, namespace string, names ...string) {
	t.Helper()
	req := &progressorv1.PollRequest{Namespaces: []string{namespace}, WorkerId: worker, JobNames: names, MaxLeases: 1,
		LeaseDuration: durationpb.New(time.Minute)}
	want := 0
	if worker == "w1" {
		want, req.Wait = 1, durationpb.New(time.Minute)
	}
	resp, err := client.New(d.URL).Worker.Poll(t.Context(), req)
	if err != nil || len(resp.GetLeases()) != want {
		t.Fatalf("%d leases of %s %s, want %d; %v", len(resp.GetLeases()), namespace, names, want, err)
	}
}

//go:build linux

package chaos

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"connectrpc.com/connect"
	"github.com/jackc/pgx/v5"
	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/types/known/durationpb"
	"google.golang.org/protobuf/types/known/structpb"

	"github.com/progressor-engine/progressor/client"
	progressorv1 "github.com/progressor-engine/progressor/proto/progressor/v1"
)

// flowNamespace contains the runs of a chaos run and the jobs of their steps. Workers pull the
// jobs.
const flowNamespace = "flows"

// The templates of runs. A step is retried until it succeeds, so every run succeeds.
const (
	streamTemplate = `{"namespace": "flows", "type": "stream", "step_order": "STEP_ORDER_GRAPH", "steps": [
		{"step_id": "a", "job": {"options": OPTIONS}},
		{"step_id": "b", "job": {"options": OPTIONS}, "depends_on": ["a"], "input": "${steps.a.result}"},
		{"step_id": "each", "job": {"options": OPTIONS}, "depends_on": ["a"],
			"for_each": {"items": "[0, 1, 2]", "max_running": 2}},
		{"step_id": "pause", "wait": {"due": "0.05s", "due_action": "DUE_ACTION_SUCCEED",
			"due_result": "late"}, "depends_on": ["a"]},
		{"step_id": "sub", "run": {"type": "inner"}, "depends_on": ["b"]},
		{"step_id": "last", "job": {"options": OPTIONS}, "depends_on": ["each", "pause", "sub"],
			"input": "${steps.sub.result}"}]}`
	innerTemplate = `{"namespace": "flows", "type": "inner", "steps": [{"step_id": "only", ` +
		`"job": {"options": OPTIONS}}]}`
	stepOptions = `{"max_retry": 1000, "max_takeovers": 1000, "backoff": {"steps": ["0.02s"]}}`
)

// stepNeeds contains the steps of a run and of its inner run, with the steps that each one needs.
// "each.0" is an item.
var stepNeeds = map[string][]string{
	"a": nil, "b": {"a"}, "each": {"a"}, "each.0": {"a"}, "each.1": {"a"}, "each.2": {"a"}, "pause": {"a"},
	"sub": {"b"}, "last": {"each", "pause", "sub"},
	"sub/only": {"b"},
}

// jobSteps lists the steps that are jobs, whose results are answers of workers.
var jobSteps = []string{"a", "b", "each.0", "each.1", "each.2", "last", "sub/only"}

// flowWatch records the expected state of the runs of a chaos run, independently of the database.
type flowWatch struct {
	t       testing.TB
	fleet   *fleet
	jobs    *jobWatch
	stop    func()
	group   sync.WaitGroup
	between int // engines that died between the end of a step and the start of the next one

	mutex   sync.Mutex
	started map[string]bool // by run; true if an engine confirmed it
}

// startFlows starts runs until stop. The workers of the jobs execute their steps.
func startFlows(f *fleet, n *node, jobs *jobWatch) *flowWatch {
	w := &flowWatch{t: f.t, fleet: f, jobs: jobs, started: map[string]bool{}}
	ns := &progressorv1.Namespace{Namespace: flowNamespace,
		Processor: &progressorv1.ProcessorConfig{Transport: &progressorv1.ProcessorConfig_Pull{
			Pull: &progressorv1.PullProcessor{LeaseDuration: durationpb.New(leaseTime)},
		}}}
	if _, err := one(n).Namespace.PutNamespace(f.t.Context(),
		&progressorv1.PutNamespaceRequest{Namespace: ns}); err != nil {
		f.t.Fatal(err)
	}
	for _, text := range []string{innerTemplate, streamTemplate} {
		m := &progressorv1.Template{}
		if err := protojson.Unmarshal([]byte(strings.ReplaceAll(text, "OPTIONS", stepOptions)), m); err != nil {
			f.t.Fatal(err)
		}
		if _, err := one(n).Flow.PutTemplate(f.t.Context(), &progressorv1.PutTemplateRequest{Template: m}); err != nil {
			f.t.Fatal(err)
		}
	}
	ctx, cancel := context.WithCancel(f.t.Context())
	w.stop = cancel
	f.t.Cleanup(cancel)
	w.group.Go(func() { w.start(ctx) })
	return w
}

// start starts one run after the other. It repeats each request, with the same key, until an engine
// confirms the run.
func (w *flowWatch) start(ctx context.Context) {
	pause := time.NewTicker(time.Second) // the workers must keep up
	defer pause.Stop()
	for number := 0; ; number++ {
		id := fmt.Sprint("run-", number)
		w.mutex.Lock()
		w.started[id] = false
		w.mutex.Unlock()
		err := w.jobs.ask(context.WithoutCancel(ctx), number, func(ctx context.Context, c *client.Client) error {
			resp, err := c.Flow.StartRun(ctx, &progressorv1.StartRunRequest{
				Namespace: flowNamespace, Type: "stream", RunId: id, IdempotencyKey: id,
				Payload: structpb.NewStringValue(id),
			})
			if connect.CodeOf(err) == connect.CodeAborted {
				w.t.Errorf("start %s: %v", id, err)
			}
			if err == nil && !resp.GetStarted() {
				err = fmt.Errorf("the response contains run %s", resp.GetRun().GetRunId())
			}
			return err
		})
		if err != nil {
			w.t.Errorf("start %s: %v", id, err)
			return
		}
		w.mutex.Lock()
		w.started[id] = true
		w.mutex.Unlock()
		select {
		case <-ctx.Done():
			return
		case <-pause.C:
		}
	}
}

// holdEnd locks the row of a run until release is called, at a moment when the run has received the
// end of a step but has not started the next step. Only decisions write that row, not the ends of
// steps. Sometimes no step ends in time.
func (w *flowWatch) holdEnd(conn *pgx.Conn) (release func()) {
	ctx := w.t.Context()
	for range 8 {
		tx, err := conn.Begin(ctx)
		if err != nil {
			w.t.Fatal(err)
		}
		var process string
		err = tx.QueryRow(ctx,
			`SELECT p.process_id FROM flow_runs r JOIN processes p ON p.namespace = r.namespace
			  AND p.process_id = '~flow/' || r.run_id
			WHERE r.namespace = $1 AND r.finished_time IS NULL ORDER BY r.created_time DESC LIMIT 1 FOR UPDATE OF r`,
			flowNamespace).Scan(&process)
		met := err == nil && waitUntil(500*time.Millisecond, func() bool {
			return count(w.t, conn,
				`SELECT (SELECT count(*) FROM messages WHERE namespace = $1 AND process_id = $2 AND kind = 'child_end')
				+ (SELECT count(*) FROM running WHERE namespace = $1 AND process_id = $2 AND task_type = 'NOTIFY')
				+ (SELECT count(*) FROM schedule WHERE namespace = $1 AND process_id = $2 AND task_type = 'NOTIFY')`,
				flowNamespace, process) > 0
		})
		if met {
			w.between++
			return func() { _ = tx.Rollback(ctx) } // it has changed nothing
		}
		_ = tx.Rollback(ctx) // the error does not matter
	}
	return func() {}
}

// flowRow is the final state of a step or an item.
type flowRow struct {
	status, result   string
	attempt          int       // how often it has begun
	begun, ended     int       // number of events about it
	ends             int       // tasks of its job that have succeeded
	created, stopped time.Time // times of its job or run; running_time cannot be used, because tests change it
}

// end waits until the runs have ended. It returns their rows by run and step. "sub/only" is the
// step of the inner run, and "" is the run itself.
func (w *flowWatch) end(conn *pgx.Conn) map[string]map[string]flowRow {
	w.t.Helper()
	w.group.Wait()
	if !waitUntil(testTimeout, func() bool {
		return count(w.t, conn, `SELECT count(*) FROM flow_runs WHERE namespace = $1 AND finished_time IS NULL`,
			flowNamespace) == 0
	}) {
		w.t.Errorf("%d runs have not ended within %s",
			count(w.t, conn, `SELECT count(*) FROM flow_runs WHERE namespace = $1 AND finished_time IS NULL`,
				flowNamespace), testTimeout)
	}
	found, err := conn.Query(w.t.Context(),
		`SELECT split_part(f.run_id, '/', 1), CASE WHEN f.run_id LIKE '%/sub' THEN 'sub/'
		  ELSE '' END || f.step_id || CASE WHEN f.index >= 0 THEN '.' || f.index ELSE '' END,
			f.status::text, coalesce(f.result::text, ''), f.attempt,
			coalesce((SELECT p.created_time FROM processes p WHERE p.namespace = f.namespace
			  AND p.process_id = f.process_id),
				f.running_time, 'epoch'), coalesce(f.finished_time, 'epoch'),
			(SELECT count(*) FROM job_events e WHERE hashtext(e.job_id) = hashtext(f.run_id)
			  AND e.namespace = f.namespace AND e.job_id = f.run_id AND e.step_id = f.step_id
			  AND coalesce(e.index, -1) = f.index
			   AND (e.type = 'step_queued' OR e.to_status = 'running')),
			(SELECT count(*) FROM job_events e WHERE hashtext(e.job_id) = hashtext(f.run_id)
			  AND e.namespace = f.namespace AND e.job_id = f.run_id AND e.step_id = f.step_id
			  AND coalesce(e.index, -1) = f.index AND e.to_status = 'succeeded'),
			(SELECT count(*) FROM tasks k WHERE k.namespace = f.namespace AND k.process_id = f.process_id
			  AND k.task_type = 'INIT' AND k.status = 'FINISHED')
		FROM flow_steps f WHERE f.namespace = $1
		UNION ALL SELECT r.run_id, '', r.status::text, coalesce(r.result::text, r.failure::text, ''),
		  r.attempt, coalesce(r.running_time, 'epoch'), coalesce(r.finished_time, 'epoch'), 1, 1, 1
		FROM flow_runs r WHERE r.namespace = $1 AND r.run_id NOT LIKE '%/sub'`, flowNamespace)
	if err != nil {
		w.t.Fatal(err)
	}
	rows := map[string]map[string]flowRow{}
	var run, step string
	var r flowRow
	_, err = pgx.ForEachRow(found,
		[]any{&run, &step, &r.status, &r.result, &r.attempt, &r.created, &r.stopped, &r.begun, &r.ended, &r.ends},
		func() error {
			if rows[run] == nil {
				rows[run] = map[string]flowRow{}
			}
			rows[run][step] = r
			return nil
		})
	if err != nil {
		w.t.Fatal(err)
	}
	return rows
}

// defects returns the defects of runs:
//
//   - a run that is lost or has not ended
//   - a step that is lost, that has begun or ended twice, that has begun before its dependencies
//     had ended, or that has the result of a rejected answer
func (w *flowWatch) defects(rows map[string]map[string]flowRow) (wrong []string) {
	report := func(format string, args ...any) { wrong = append(wrong, fmt.Sprintf(format, args...)) }
	for id, sure := range w.started {
		if sure && rows[id] == nil {
			report("run %s is lost", id)
		}
	}
	for id, steps := range rows {
		if _, asked := w.started[id]; !asked {
			report("run %s was not started by any client", id)
		}
		if r := steps[""]; r.status != "succeeded" || r.result != steps["last"].result {
			report("run %s is %s, with the result %s: its last step returned %s", id, r.status, r.result,
				steps["last"].result)
			continue
		}
		for step, needs := range stepNeeds {
			r, there := steps[step]
			if !there || r.status != "succeeded" || r.attempt != 1 || r.begun != 1 || r.ended != 1 {
				report("step %s of %s is %q: it began %d times, by its events %d times, and succeeded %d times",
					step, id, r.status, r.attempt, r.begun, r.ended)
			}
			for _, need := range needs {
				if r.created.Before(steps[need].stopped) {
					report("step %s of %s was created before %s had ended", step, id, need)
				}
			}
			if slices.Contains(jobSteps, step) {
				wrong = append(wrong, w.resultDefects("~job/"+id+"/"+step, r)...)
			}
		}
	}
	slices.Sort(wrong)
	return wrong
}

// resultDefects compares the result of a step with the answers of workers.
func (w *flowWatch) resultDefects(job string, r flowRow) (wrong []string) {
	answers, accepted := w.jobs.answers[job], w.jobs.accepted[job]
	switch {
	case r.ends != 1:
		return []string{fmt.Sprintf("job %s succeeded %d times", job, r.ends)}
	case len(r.result) < 2 || !slices.Contains(answers, trim(r.result)):
		return []string{fmt.Sprintf("step %s has the result %s, which no worker returned", job, r.result)}
	case len(accepted) > 1 || len(accepted) == 1 && accepted[0] != trim(r.result):
		return []string{fmt.Sprintf("step %s has the result %s; accepted were %v", job, r.result, accepted)}
	}
	return nil
}

func (w *flowWatch) figures(rows map[string]map[string]flowRow) []figure {
	steps := 0
	for _, of := range rows {
		steps += len(of) - 1
	}
	return []figure{{"runs of templates done, each once", len(rows)}, {"steps and items of runs, each once", steps},
		{"engines killed between two steps of a run", w.between}}
}

// Each defect of runs is detected.
func TestFlowDefects(t *testing.T) {
	t.Parallel()
	began := time.Unix(1e9, 0)
	change := func(step string, f func(*flowRow)) func(*flowWatch, map[string]map[string]flowRow) {
		return func(_ *flowWatch, rows map[string]map[string]flowRow) {
			r := rows["x"][step]
			f(&r)
			rows["x"][step] = r
		}
	}
	for name, tt := range map[string]struct {
		change func(*flowWatch, map[string]map[string]flowRow)
		wrong  int
	}{
		"nothing":       {func(*flowWatch, map[string]map[string]flowRow) {}, 0},
		"a run is lost": {func(_ *flowWatch, rows map[string]map[string]flowRow) { delete(rows, "x") }, 1},
		"unknown outcome": {func(w *flowWatch, rows map[string]map[string]flowRow) {
			w.started["x"] = false
			delete(rows, "x")
		}, 0},
		"an unknown run":           {func(w *flowWatch, _ map[string]map[string]flowRow) { delete(w.started, "x") }, 1},
		"a run that has not ended": {change("", func(r *flowRow) { r.status = "active" }), 1},
		"a step is lost": {func(_ *flowWatch, rows map[string]map[string]flowRow) { delete(rows["x"], "pause") },
			2},
		"an item began twice": {change("each.1", func(r *flowRow) { r.attempt = 2 }), 1},
		"started twice":       {change("b", func(r *flowRow) { r.begun = 2 }), 1},
		"ended twice":         {change("b", func(r *flowRow) { r.ended = 2 }), 1},
		"its job ended twice": {change("sub/only", func(r *flowRow) { r.ends = 2 }), 1},
		"too early":           {change("last", func(r *flowRow) { r.created = began }), 3},
		"an unknown result":   {change("b", func(r *flowRow) { r.result = `"?"` }), 1},
		"another answer was accepted": {func(w *flowWatch, _ map[string]map[string]flowRow) {
			w.jobs.accepted["~job/x/a"] = []string{"other"}
		}, 1},
	} {
		w := &flowWatch{started: map[string]bool{"x": true},
			jobs: &jobWatch{answers: map[string][]string{}, accepted: map[string][]string{}}}
		steps := map[string]flowRow{"": {status: "succeeded", result: `"by last"`}}
		for step := range stepNeeds {
			at := began
			for range depth(step) {
				at = at.Add(time.Minute)
			}
			steps[step] = flowRow{status: "succeeded", result: `"by ` + step + `"`, attempt: 1, begun: 1, ended: 1,
				ends: 1, created: at, stopped: at.Add(time.Second)}
			w.jobs.answers["~job/x/"+step] = []string{"other", "by " + step}
		}
		rows := map[string]map[string]flowRow{"x": steps}
		tt.change(w, rows)
		if wrong := w.defects(rows); len(wrong) != tt.wrong {
			t.Errorf("%s: %q", name, wrong)
		}
	}
}

// depth returns the number of steps that must run before a step, one after the other.
func depth(step string) (n int) {
	for _, need := range stepNeeds[step] {
		n = max(n, depth(need)+1)
	}
	return n
}

package flows_test

import (
	"context"
	"fmt"
	"hash/fnv"
	"math/rand/v2"
	"strings"
	"testing"
	"time"

	"github.com/progressor-engine/progressor/engine/enginetest"
	"github.com/progressor-engine/progressor/processor"
	progressorv1 "github.com/progressor-engine/progressor/proto/progressor/v1"
	"github.com/progressor-engine/progressor/storage/storagetest"
)

const threeJobs = `{"type": "line", "result": "${steps.third.result}", "steps": [{"step_id": "first", "job": {}},
	{"step_id": "second", "job": {}, "input": "${steps.first.result}"}, {"step_id": "third", "job": {}}]}`

// Jobs in sequence need one transaction each. The transaction stores the end of a job, the decision
// of its run and the start of the next job.
func TestRunAdvancesWithTheEndsOfItsJobs(t *testing.T) {
	t.Parallel()
	storagetest.NeedsFastPath(t)
	n := start(t, storagetest.DSN(t))
	n.put(t, "ns", threeJobs)
	n.run(t, "ns", "line", "r", "")
	same(t, runSummary(n.ended(t, "ns", "r")), "SUCCEEDED: first SUCCEEDED second SUCCEEDED third SUCCEEDED")
	transactions := n.Count(t, "SELECT count(DISTINCT xmin::text) FROM tasks WHERE process_id LIKE '~%/r%'")
	if transactions != 4 {
		t.Errorf("%d transactions, want 4", transactions)
	}
	n.put(t, "ns", `{"type": "timed", "timeout": "60s", "steps": [{"step_id": "first", "job": {}},
		{"step_id": "second", "delay": {"duration": "0.01s"}}, {"step_id": "third", "job": {}}]}`)
	n.run(t, "ns", "timed", "timers", "")
	same(t, runSummary(n.ended(t, "ns", "timers")), "SUCCEEDED: first SUCCEEDED second SUCCEEDED third SUCCEEDED")
}

// failsAtTimes is a processor for which some jobs always fail.
func failsAtTimes(ctx context.Context, r *progressorv1.ProcessRequest) (*progressorv1.ProcessResponse, error) {
	h := fnv.New32()
	_, _ = fmt.Fprint(h, r.GetJobName(), string(r.GetArgs())) // cannot fail
	if r.GetJobName() != "" && h.Sum32()%6 == 0 {
		return nil, processor.Fail("broken", "as always")
	}
	return obey(ctx, r)
}

// summary returns the end of a run, its tasks and its events.
func (n *node) summary(t testing.TB, runID string) string {
	t.Helper()
	r := n.ended(t, "ns", runID)
	enginetest.Eventually(t, testTimeout, "all messages are delivered", func() bool {
		return n.Count(t, "SELECT count(*) FROM messages") == 0
	})
	var rows string
	if err := n.DB.QueryRow(context.Background(), `SELECT concat(
			(SELECT string_agg(task_type || ' ' || status, ' ' ORDER BY finished_time)
			   FROM tasks WHERE process_id = '~flow/' || $1), E'\n',
			(SELECT string_agg(concat_ws(' ', job_id, step_id, type, from_status, to_status, attempt,
			                             regexp_replace(message, '^backoff: .*', 'backoff')), E'\n'
			                   -- The cancel of a failed job is a message, which arrives at any time.
			                   ORDER BY coalesce(message ~ '^its (run continues|step runs again)', false), event_id)
			   FROM job_events WHERE job_id LIKE '%' || $1 || '%'))`, runID).Scan(&rows); err != nil {
		t.Fatal(err)
	}
	return fmt.Sprintf("%s\nresult %v, failure %v\n%s", runSummary(r), r.GetResult(), r.GetFailure(), rows)
}

// Runs of random templates without concurrent steps have the same steps, results, tasks and events,
// whether or not the fast path is on. With the fast path, at least one run advances in the
// transaction that ends its job.
func TestWithoutFastPath(t *testing.T) {
	t.Parallel()
	storagetest.NeedsFastPath(t)
	seed := *modelSeed
	if seed == 0 {
		seed = uint64(time.Now().UnixNano())
	}
	fast := startWith(t, storagetest.DSN(t), processor.Func(failsAtTimes))
	storagetest.RunWithoutFastPath(t, map[string]func(*testing.T){"lines": func(t *testing.T) {
		m := &model{t: t, rand: rand.New(rand.NewPCG(seed, 0))}
		nodes := []*node{fast, startWith(t, storagetest.DSN(t), processor.Func(failsAtTimes))}
		for _, n := range nodes {
			n.put(t, "ns", `{"type": "inner", "steps": [{"step_id": "in", "job": {}}]}`)
		}
		for i := range 15 {
			template := m.template()
			for concurrent(template) {
				template = m.template()
			}
			payload, summaries := m.payload(), []string{}
			for _, n := range nodes {
				n.put(t, "ns", fmt.Sprintf(`{"type": "t%d", %s}`, i, template))
				n.run(t, "ns", fmt.Sprint("t", i), fmt.Sprintf("r%d.", i), payload)
				summaries = append(summaries, n.summary(t, fmt.Sprintf("r%d.", i)))
			}
			if summaries[0] != summaries[1] {
				t.Fatalf("seed %d: %s\nwith the fast path: %s\nwithout: %s", seed, template, summaries[0], summaries[1])
			}
		}
	}})
	if fast.Count(t, `SELECT count(*) FROM tasks n JOIN tasks j ON j.xmin = n.xmin
		 AND n.task_type = 'NOTIFY' AND j.process_id LIKE '~job/%'`) == 0 {
		t.Errorf("seed %d: no run has advanced with the end of a job", seed)
	}
}

// concurrent reports whether the steps of a template depend on time or run at the same time.
func concurrent(template string) bool {
	for _, part := range []string{"GRAPH", "for_each", "delay", `"wait"`, `"timeout": "0.`, "nothing"} {
		if strings.Contains(template, part) {
			return true
		}
	}
	return false
}

// startBlocked starts a run of a template and waits until its job "first" runs. The job ends when
// release is closed.
func startBlocked(t *testing.T, template string) (n *node, release chan struct{}) {
	t.Helper()
	began, release := make(chan struct{}), make(chan struct{})
	n = startWith(t, storagetest.DSN(t), processor.Func(func(
		ctx context.Context, r *progressorv1.ProcessRequest,
	) (*progressorv1.ProcessResponse, error) {
		if r.GetJobName() == "first" {
			close(began)
			<-release
		}
		return obey(ctx, r)
	}))
	n.put(t, "ns", template)
	n.run(t, "ns", "line", "r", "")
	<-began
	return n, release
}

// If a run changes while its job runs, the run continues from its new state when the job ends.
func TestRunChangesBeforeItsJobEnds(t *testing.T) {
	t.Parallel()
	n, release := startBlocked(t, threeJobs)
	if _, err := n.Skip(t.Context(), &progressorv1.SkipStepRequest{
		Namespace: "ns", RunId: "r", StepId: "second", Reason: "not needed",
	}, kim); err != nil {
		t.Fatal(err)
	}
	close(release)
	same(t, runSummary(n.ended(t, "ns", "r")), "SUCCEEDED: first SUCCEEDED second SKIPPED third SUCCEEDED")
}

// A job succeeds even if the database rejects the next step of its run.
func TestJobEndsIfItsRunCannot(t *testing.T) {
	t.Parallel()
	n, release := startBlocked(t, threeJobs)
	const forbid = "ALTER TABLE flow_steps ADD CHECK (step_id <> 'second' OR status = 'pending')"
	if _, err := n.DB.Exec(t.Context(), forbid); err != nil {
		t.Fatal(err)
	}
	close(release)
	enginetest.Eventually(t, testTimeout, "the run is in ERROR", func() bool {
		return n.Count(t, "SELECT count(*) FROM processes WHERE process_id = '~flow/r' AND status = 'ERROR'") == 1
	})
	if n.Count(t, "SELECT count(*) FROM tasks WHERE process_id = '~job/r/first' AND failure IS NULL") != 1 {
		t.Error("the job has failed")
	}
}

// The end of a job does not wait for its run, even if the run must read a result before it can
// decide.
func TestJobEndsBeforeItsRunReads(t *testing.T) {
	t.Parallel()
	n, release := startBlocked(t, `{"type": "line", "steps": [{"step_id": "zero", "job": {}},
		{"step_id": "first", "job": {}}, {"step_id": "second", "job": {}, "input": "${steps.zero.result}"}]}`)
	lock := storagetest.Begin(t, n.DB, "LOCK TABLE flow_steps")
	close(release)
	enginetest.Eventually(t, testTimeout, "the job has ended", func() bool {
		reads := n.Count(t, `SELECT count(*) FROM pg_stat_activity WHERE datname = current_database()
			AND wait_event_type = 'Lock' AND query LIKE '%ReadSteps%'`)
		ended := n.Count(t, "SELECT count(*) FROM tasks WHERE process_id = '~job/r/first'")
		if reads > ended {
			t.Fatal("the run reads before its job has ended")
		}
		return ended == 1
	})
	if err := lock.Rollback(t.Context()); err != nil {
		t.Fatal(err)
	}
	same(t, runSummary(n.ended(t, "ns", "r")), "SUCCEEDED: zero SUCCEEDED first SUCCEEDED second SUCCEEDED")
}

// A run of a paused namespace does not continue when its job ends.
func TestPausedRunDoesNotAdvance(t *testing.T) {
	t.Parallel()
	n, release := startBlocked(t, threeJobs)
	if _, err := n.SetNamespacePaused(t.Context(), "ns", true, kim); err != nil {
		t.Fatal(err)
	}
	close(release)
	enginetest.Eventually(t, testTimeout, "the job has ended", func() bool {
		return n.Count(t, "SELECT count(*) FROM tasks WHERE process_id = '~job/r/first'") == 1
	})
	if n.Count(t, "SELECT count(*) FROM schedule WHERE process_id = '~flow/r' AND task_type = 'NOTIFY'") != 1 {
		t.Error("no task of the run waits")
	}
	if _, err := n.SetNamespacePaused(t.Context(), "ns", false, kim); err != nil {
		t.Fatal(err)
	}
	same(t, runSummary(n.ended(t, "ns", "r")), "SUCCEEDED: first SUCCEEDED second SUCCEEDED third SUCCEEDED")
}

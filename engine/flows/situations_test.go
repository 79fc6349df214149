package flows_test

import (
	"context"
	"strings"
	"testing"
	"time"

	"google.golang.org/protobuf/types/known/timestamppb"

	"github.com/progressor-engine/progressor/engine/enginetest"
	progressorv1 "github.com/progressor-engine/progressor/proto/progressor/v1"
)

const (
	jobA    = `{"step_id": "a", "job": {"name": "ID-a"}}`
	jobB    = `{"step_id": "b", "job": {"name": "ID-b"}}`
	waitA   = `{"step_id": "a", "wait": {}}`
	personA = `{"step_id": "a", "wait": {"kind": "KIND_HUMAN"}}`
	rejects = `"concurrency_policy": "SCOPE_POLICY_REJECT_SAME_SCOPE",`
	rests   = rejects + `"retry_policy": {"max_attempts": 2, "backoff": {"steps": ["3600s"]}},`
)

// situations contains functions that bring a run to a status. Functions with names "step …" bring a
// step of the run to a status.
var situations = map[string]func(testing.TB, *situation){
	"PENDING, its time has not come": func(t testing.TB, s *situation) {
		s.request = &progressorv1.StartRunRequest{RunTime: timestamppb.New(time.Now().Add(time.Hour))}
		s.begin(t, "PENDING", rejects, jobA, jobB)
	},
	"PENDING, another run has its scope": func(t testing.TB, s *situation) { s.behind(t) },
	"PENDING, the run that had its scope was removed": func(t testing.TB, s *situation) {
		s.behind(t)
		other := &situation{n: s.n, id: s.id + "-before"}
		if err := other.do(context.Background(), "remove"); err != nil {
			t.Fatal(err)
		}
		s.until(t, "QUEUED")
	},
	"PENDING, between two attempts": func(t testing.TB, s *situation) {
		s.begin(t, "QUEUED", rests, jobA, jobB)
		s.n.answer(t, s.lease(t, "a"), "", "broken")
		s.until(t, "PENDING")
	},
	"QUEUED":         func(t testing.TB, s *situation) { s.begin(t, "QUEUED", rejects, jobA, jobB) },
	"RUNNING":        func(t testing.TB, s *situation) { s.running(t) },
	"WAITING_WORKER": func(t testing.TB, s *situation) { s.begin(t, "WAITING_WORKER", rejects, waitA, jobB) },
	"RUNNING, a step that is not cancelable": func(t testing.TB, s *situation) {
		s.begin(t, "QUEUED", rejects, strings.Replace(jobA, `"a",`, `"a", "cancelable": false,`, 1), jobB)
		s.lease(t, "a")
	},
	"RUNNING, without cancel support": func(t testing.TB, s *situation) {
		s.begin(t, "QUEUED", rejects+`"cancel_policy": {"supported": false},`, jobA, jobB)
		s.lease(t, "a")
	},
	"CANCEL_REQUESTED": func(t testing.TB, s *situation) {
		s.running(t)
		s.verb(t, "cancel", "CANCEL_REQUESTED")
	},
	"COMPENSATING": func(t testing.TB, s *situation) {
		s.begin(t, "QUEUED", rejects, strings.Replace(jobA, `"a",`, `"a", "compensation": {"name": "ID-undo"},`, 1),
			jobB)
		s.n.answer(t, s.lease(t, "a"), "", "")
		s.n.answer(t, s.lease(t, "b"), "", "broken")
		s.until(t, "COMPENSATING")
	},
	"SUCCEEDED": func(t testing.TB, s *situation) { s.succeeded(t, rejects) },
	"SUCCEEDED, its template is not repeatable": func(t testing.TB, s *situation) {
		s.succeeded(t, rejects+`"repeatable": false,`)
	},
	"FAILED": func(t testing.TB, s *situation) { s.failed(t) },
	"FAILED, another run has its scope": func(t testing.TB, s *situation) {
		s.failed(t)
		s.verb(t, "start in its scope", "FAILED")
		s.another = nil
	},
	"FAILED, its template is disabled": func(t testing.TB, s *situation) {
		s.failed(t)
		if _, err := s.n.EnableTemplate(context.Background(), "pull", s.id, false); err != nil {
			t.Fatal(err)
		}
	},
	"CANCELLED": func(t testing.TB, s *situation) {
		s.begin(t, "QUEUED", rejects, jobA, jobB)
		s.verb(t, "cancel", "CANCELLED")
	},
	"EXPIRED": func(t testing.TB, s *situation) {
		s.begin(t, "", rejects+`"timeout": "0.001s",`, waitA, jobB)
		s.until(t, "EXPIRED")
	},
	"removed": func(t testing.TB, s *situation) {
		s.begin(t, "QUEUED", rejects, jobA, jobB)
		s.verb(t, "remove", "gone")
	},

	"step PENDING, the one before runs": func(t testing.TB, s *situation) {
		s.running(t)
		s.target = "b"
	},
	"step PENDING, its run waits for its time": func(t testing.TB, s *situation) {
		s.request = &progressorv1.StartRunRequest{RunTime: timestamppb.New(time.Now().Add(time.Hour))}
		s.begin(t, "PENDING", rejects, waitA, jobB)
	},
	"step PENDING, its run is between two attempts": func(t testing.TB, s *situation) {
		s.waiting(t, rests, waitA)
		s.verb(t, "fail", "PENDING")
	},
	"step PENDING, no worker has its job": func(t testing.TB, s *situation) {
		s.begin(t, "QUEUED", rejects, jobA, jobB)
	},
	"step RUNNING, a worker has its job": func(t testing.TB, s *situation) { s.running(t) },
	"step RUNNING, a delay": func(t testing.TB, s *situation) {
		s.begin(t, "RUNNING", rejects, `{"step_id": "a", "delay": {"duration": "3600s"}}`, jobB)
	},
	"step RUNNING, a run": func(t testing.TB, s *situation) {
		s.n.put(t, "pull", strings.ReplaceAll(`{"type": "inner_ID", "steps": [`+jobB+`]}`, "ID", s.id))
		s.begin(t, "RUNNING", rejects, `{"step_id": "a", "run": {"type": "inner_ID"}}`, jobB)
		inner := &situation{n: s.n, id: s.id + "/a"}
		if !waitUntil(func() bool { return strings.HasPrefix(inner.now(t), "QUEUED") }) {
			t.Fatal("its run has not started")
		}
	},
	"step RUNNING, a wait": func(t testing.TB, s *situation) { s.waiting(t, rejects, waitA) },
	"step RUNNING, a wait, with the token of another wait": func(t testing.TB, s *situation) {
		s.waiting(t, rejects, waitA)
		s.token = "guessed"
	},
	"step RUNNING, a wait, without a token": func(t testing.TB, s *situation) {
		s.waiting(t, rejects, waitA)
		s.token = ""
	},
	"step RUNNING, a wait for a person, without a token": func(t testing.TB, s *situation) {
		s.waiting(t, rejects, personA)
		s.token = ""
	},
	"step RUNNING, a wait that was asked to end": func(t testing.TB, s *situation) {
		s.waiting(t, rejects, waitA)
		s.verb(t, "cancel", "CANCEL_REQUESTED")
	},
	"step RUNNING, a wait for each item": func(t testing.TB, s *situation) { s.items(t) },
	"step RUNNING, one of its items":     func(t testing.TB, s *situation) { s.items(t); s.item(t, 1) },
	"step RUNNING, an item that has ended": func(t testing.TB, s *situation) {
		s.items(t)
		s.item(t, 0)
		s.verb(t, "complete", "WAITING_WORKER: a RUNNING b PENDING [running:2 succeeded:1]")
	},
	"step RUNNING, an item that has not begun": func(t testing.TB, s *situation) {
		s.items(t)
		s.index = new(int32(2))
	},
	"step RUNNING, an item that does not exist": func(t testing.TB, s *situation) {
		s.items(t)
		s.index = new(int32(3))
	},
	"step SUCCEEDED": func(t testing.TB, s *situation) {
		s.waiting(t, rejects, waitA)
		s.verb(t, "complete", "QUEUED: a SUCCEEDED")
	},
	"step SUCCEEDED, it is being undone": func(t testing.TB, s *situation) {
		s.waiting(t, rejects, `{"step_id": "a", "wait": {}, "compensation": {"name": "ID-undo"}}`)
		s.verb(t, "complete", "QUEUED: a SUCCEEDED")
		s.n.answer(t, s.lease(t, "b"), "", "broken")
		s.until(t, "COMPENSATING")
	},
	"step FAILED, its run continues": func(t testing.TB, s *situation) {
		s.waiting(t, rejects, `{"step_id": "a", "wait": {}, "ignore_failure": true}`)
		s.verb(t, "fail", "QUEUED: a FAILED b PENDING")
	},
	"step FAILED with its run": func(t testing.TB, s *situation) {
		s.waiting(t, rejects, waitA)
		s.verb(t, "fail", "FAILED")
	},
	"step SKIPPED": func(t testing.TB, s *situation) {
		s.waiting(t, rejects, waitA)
		s.verb(t, "skip", "QUEUED: a SKIPPED b PENDING")
	},
	"step CANCELLED": func(t testing.TB, s *situation) {
		s.waiting(t, rejects, personA)
		s.verb(t, "cancel", "CANCELLED")
	},
	"step that does not exist": func(t testing.TB, s *situation) {
		s.running(t)
		s.target = "nothing"
	},
	"step of a run that does not exist": func(t testing.TB, s *situation) {
		s.begin(t, "QUEUED", rejects, jobA, jobB)
		s.verb(t, "remove", "gone")
	},
}

// begin puts a template for the situation and starts the run.
func (s *situation) begin(t testing.TB, want, more string, steps ...string) {
	t.Helper()
	if !strings.Contains(more, "cancel_policy") {
		more += `"cancel_policy": {"grace": "3600s"},`
	}
	s.n.put(t, "pull", strings.ReplaceAll(`{"type": "ID", "dedupe_keys": ["scope_id"], `+more+` "steps": [`+
		strings.Join(steps, ", ")+`]}`, "ID", s.id))
	if s.request == nil {
		s.request = &progressorv1.StartRunRequest{}
	}
	s.request.Namespace, s.request.Type, s.request.RunId, s.request.ScopeId, s.request.IdempotencyKey = "pull", s.id,
		s.id, s.id, "key of "+s.id
	if _, err := s.n.Start(context.Background(), s.request, kim); err != nil {
		t.Fatal(err)
	}
	if want != "" {
		s.until(t, want)
	}
}

func (s *situation) until(t testing.TB, want string) {
	t.Helper()
	s.n.until(t, "pull", s.id, want)
}

// verb applies a verb, which must be accepted, to the run and waits for the result.
func (s *situation) verb(t testing.TB, verb, want string) {
	t.Helper()
	if err := s.do(context.Background(), verb); err != nil {
		t.Fatalf("%s: %v", verb, err)
	}
	got := ""
	if !waitUntil(func() bool { got = s.now(t); return strings.HasPrefix(got, want) }) {
		t.Fatalf("%s: %s, want %s", verb, got, want)
	}
}

// running lets a worker take the job of the first step.
func (s *situation) running(t testing.TB) {
	t.Helper()
	s.begin(t, "QUEUED", rejects, jobA, jobB)
	s.lease(t, "a")
	s.until(t, "RUNNING")
}

func (s *situation) succeeded(t testing.TB, more string) {
	t.Helper()
	s.begin(t, "QUEUED", more, jobA, jobB)
	s.n.answer(t, s.lease(t, "a"), "", "")
	s.n.answer(t, s.lease(t, "b"), "", "")
	s.until(t, "SUCCEEDED")
}

func (s *situation) failed(t testing.TB) {
	t.Helper()
	s.begin(t, "QUEUED", rejects, jobA, jobB)
	s.n.answer(t, s.lease(t, "a"), "", "")
	s.n.answer(t, s.lease(t, "b"), "", "broken")
	s.until(t, "FAILED")
}

// behind makes the run wait for another run of its scope.
func (s *situation) behind(t testing.TB) {
	t.Helper()
	other := s.id + "-before"
	const queues = `"concurrency_policy": "SCOPE_POLICY_QUEUE_SAME_SCOPE",`
	s.n.put(t, "pull", strings.ReplaceAll(`{"type": "ID", "dedupe_keys": ["scope_id"], `+queues+` "steps": [`+jobA+`, `+
		jobB+`]}`, "ID", s.id))
	_, err := s.n.Start(context.Background(), &progressorv1.StartRunRequest{
		Namespace: "pull", Type: s.id, RunId: other, ScopeId: s.id,
	}, kim)
	if err != nil {
		t.Fatal(err)
	}
	s.begin(t, "PENDING", queues, jobA, jobB)
}

// waiting makes the first step wait.
func (s *situation) waiting(t testing.TB, more, step string) {
	t.Helper()
	s.begin(t, "WAITING_WORKER", more, step, jobB)
	s.token = s.n.token(t, s.id, "a")
}

// items makes the first step wait for two of three items.
func (s *situation) items(t testing.TB) {
	t.Helper()
	s.begin(t, "WAITING_WORKER", rejects,
		`{"step_id": "a", "wait": {}, "for_each": {"items": "[1, 2, 3]", "max_running": 2}}`, jobB)
}

// item selects an item that waits.
func (s *situation) item(t testing.TB, index int32) {
	t.Helper()
	s.index = &index
	err := s.n.DB.QueryRow(context.Background(), "SELECT token FROM flow_steps WHERE run_id = $1 AND index = $2", s.id,
		index).Scan(&s.token)
	if err != nil {
		t.Fatal(err)
	}
}

// waitUntil waits until a condition is met, and reports whether it was met in time.
func waitUntil(met func() bool) bool { return enginetest.WaitUntil(testTimeout, met) }

package flows_test

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"

	"github.com/jackc/pgx/v5"
	"google.golang.org/protobuf/encoding/protojson"

	"github.com/progressor-engine/progressor/process"
	progressorv1 "github.com/progressor-engine/progressor/proto/progressor/v1"
)

// The checks of TestRandomRuns.

// modelEvent is a job event of a run.
type modelEvent struct {
	Type, From, To, Step string
	Index, Attempt       int
	Message              string
}

func (m *model) events(r *modelRun) []modelEvent {
	rows, _ := m.node.DB.Query(context.Background(), `SELECT type, coalesce(from_status, ''), coalesce(to_status, ''),
		coalesce(step_id, ''), coalesce(index, -1), attempt, left(coalesce(message, ''), 80)
		FROM job_events WHERE job_id = $1 AND namespace = 'pull' ORDER BY event_id`, r.id)
	all, err := pgx.CollectRows(rows, pgx.RowToStructByPos[modelEvent])
	if err != nil {
		m.t.Fatal(err)
	}
	return all
}

// modelStep is the row of a step or an item.
type modelStep struct {
	step, status, undo, processID, result string
	index                                 int
}

func (m *model) steps(r *modelRun) (all []modelStep) {
	rows, _ := m.node.DB.Query(context.Background(), `SELECT step_id, index, status::text,
		coalesce(compensation_status::text, ''), coalesce(process_id, ''), coalesce(result, 'null')
		FROM flow_steps WHERE run_id = $1 AND namespace = 'pull' ORDER BY ord, index`, r.id)
	var s modelStep
	var result []byte
	_, err := pgx.ForEachRow(rows, []any{&s.step, &s.index, &s.status, &s.undo, &s.processID, &result}, func() error {
		var text string
		if s.result = ""; json.Unmarshal(result, &text) == nil {
			s.result = digest(text)
		}
		all = append(all, s)
		return nil
	})
	if err != nil {
		m.t.Fatal(err)
	}
	return all
}

// check compares the stored rows of an ended run with the results that the worker returned.
func (m *model) check(r *modelRun) {
	run, err := m.node.Get(context.Background(), "pull", r.id, 0)
	if err != nil {
		m.t.Fatal(err)
	}
	steps, templates := m.steps(r), m.parsed(r)
	succeeded := run.GetStatus() == progressorv1.RunStatus_RUN_STATUS_SUCCEEDED
	m.checkEffects(r)
	for _, s := range steps {
		whole := s.index < 0
		t := templates[s.step]
		result, did := m.done[s.processID]
		switch {
		case s.status == "running", whole && s.status == "pending":
			m.fail(r, "the run has ended, but step %s.%d is %s", s.step, s.index, s.status)
		case did && !m.lost[s.processID] && s.status == "succeeded" && s.result != result:
			m.fail(r, "the result of step %s.%d differs from that of its job", s.step, s.index)
		case !did && !m.lost[s.processID] && s.status == "succeeded" &&
			strings.HasPrefix(s.processID, process.StepPrefix):
			m.fail(r, "step %s.%d succeeded, but its job did not", s.step, s.index)
		}
		if !whole {
			continue
		}
		if succeeded && s.status == "failed" && !t.GetIgnoreFailure() {
			m.fail(r, "the run succeeded, but step %s failed", s.step)
		}
		undoes := !succeeded && !r.forced && t.GetCompensation() != nil
		if undoes && s.undo == "" && (s.status == "succeeded" ||
			s.status != "skipped" && someSucceeded(steps, s.step)) {
			m.fail(r, "step %s is %s, but was not undone", s.step, s.status)
		}
	}
}

// someSucceeded reports whether an item of a step succeeded.
func someSucceeded(steps []modelStep, step string) bool {
	for _, s := range steps {
		if s.step == step && s.index >= 0 && s.status == "succeeded" {
			return true
		}
	}
	return false
}

// checkEffects checks that no step or item succeeded twice without being undone in between, and
// that no job succeeded without its step.
func (m *model) checkEffects(r *modelRun) {
	done, succeeded := map[string]bool{}, map[string]int{} // by step and index, as in the IDs of jobs
	for _, e := range m.events(r) {
		name := e.Step
		if e.Index >= 0 {
			name += fmt.Sprint(".", e.Index)
		}
		switch {
		case e.Type == "step_status_changed" && e.To == "succeeded":
			if done[name] {
				m.fail(r, "step %s succeeded twice", name)
			}
			done[name] = true
			succeeded[name]++
		case e.Type == "compensation_changed" && e.To == "succeeded":
			for name := range done {
				if step, _, _ := strings.Cut(name, "."); step == e.Step {
					delete(done, name)
				}
			}
		}
	}
	jobs := map[string]int{}
	for id := range m.done {
		name, ok := strings.CutPrefix(id, process.StepPrefix+r.id+"/")
		if !ok || strings.Contains(name, "/") { // belongs to another run, or to a run that is a step
			continue
		}
		name, _, _ = strings.Cut(name, "~")
		jobs[name]++
	}
	for name, n := range jobs {
		if n > succeeded[name] && !strings.HasSuffix(name, ".undo") && !r.forced && !r.skipped {
			m.fail(r, "%d jobs of step %s succeeded, but the step succeeded %d times", n, name, succeeded[name])
		}
	}
}

func (m *model) parsed(r *modelRun) map[string]*progressorv1.StepTemplate {
	t := &progressorv1.Template{}
	if err := protojson.Unmarshal([]byte(`{"type": "x", `+r.template+`}`), t); err != nil {
		m.t.Fatal(err)
	}
	all := map[string]*progressorv1.StepTemplate{}
	for _, s := range t.GetSteps() {
		all[s.GetStepId()] = s
	}
	return all
}

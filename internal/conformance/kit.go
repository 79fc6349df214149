package conformance

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"google.golang.org/protobuf/proto"

	"github.com/progressor-engine/progressor/processor"
	"github.com/progressor-engine/progressor/processor/processortest"
	progressorv1 "github.com/progressor-engine/progressor/proto/progressor/v1"
)

// Result is the result of one scenario.
type Result struct {
	Scenario    string       `json:"scenario"`
	Function    string       `json:"function"`
	Runs        int          `json:"runs"` // one without a kill, and one for each result with entries
	Differences []Difference `json:"differences"`
}

// Difference is the first difference between a run and the expected one.
type Difference struct {
	Killed   string `json:"killed,omitempty"` // the entries of the result that was lost
	Where    string `json:"where"`
	Expected string `json:"expected"`
	Got      string `json:"got"`
}

// Run runs all scenarios with the functions of an SDK, one after the other, and reports the result
// of each. functions returns the function with the given name. The error is that of ctx, or names
// the task that had no answer within the timeout.
func Run(
	ctx context.Context, timeout time.Duration, functions func(name string) processor.Processor, report func(Result),
) error {
	for _, s := range scenarios() {
		result := Result{Scenario: s.name, Function: s.function, Differences: []Difference{}}
		want, err := s.run(ctx, &execution{function: Functions()[s.function], timeout: timeout})
		if err != nil {
			return err
		}
		for kill := 0; kill <= len(want.results); kill++ {
			got, err := s.run(ctx, &execution{function: functions(s.function), timeout: timeout, kill: kill})
			if err != nil {
				return err
			}
			result.Runs++
			expected, found := want.outcome, got.outcome
			if kill == 0 { // a run that was killed has other attempts
				expected, found = slices.Concat(want.trace, want.outcome), slices.Concat(got.trace, got.outcome)
			}
			if d, differs := compare(expected, found); differs {
				if kill > 0 {
					d.Killed = want.results[kill-1]
				}
				result.Differences = append(result.Differences, d)
			}
			if kill == 0 && len(result.Differences) > 0 {
				break // the others also differ
			}
		}
		report(result)
	}
	return nil
}

// compare returns the first difference, and reports whether there is one.
func compare(want, got []string) (d Difference, differs bool) {
	for i := range max(len(want), len(got)) {
		expected, found := "nothing", "nothing"
		if i < len(want) {
			expected = want[i]
		}
		if i < len(got) {
			found = got[i]
		}
		if expected != found {
			where := "the start"
			if i > 0 {
				where = "after " + got[i-1]
			}
			return Difference{Where: where, Expected: expected, Got: found}, true
		}
	}
	return Difference{}, false
}

// execution is one run of a scenario.
type execution struct {
	function processor.Processor
	timeout  time.Duration // for each task
	end      context.CancelCauseFunc
	kill     int      // the number of the result to lose, or 0
	results  []string // the entries of each result
	trace    []string // what each request and task returned
	outcome  []string // what must not depend on kills
}

// run runs the script. If e.kill is not 0, one result is lost: its task is attempted again with the
// same history.
func (s scenario) run(ctx context.Context, e *execution) (*execution, error) {
	ctx, e.end = context.WithCancelCause(ctx)
	defer e.end(nil)
	p := processortest.New(e, processortest.WithoutCheckpoints(),
		processortest.WithKey("conformance", fmt.Sprintf("p%d/%s", e.kill, strings.ReplaceAll(s.name, " ", "-"))))
	response, err := p.Start(ctx, []byte(s.input))
	e.trace = append(e.trace, outcome("start "+s.input, response, err))
	for _, act := range s.script {
		e.trace = append(e.trace, act(ctx, p))
	}
	e.outcome = outcomeOf(p)
	if err := context.Cause(ctx); err != nil {
		return nil, fmt.Errorf("scenario %q, function %s: %w", s.name, s.function, err)
	}
	return e, nil
}

// call sends a task to the function. Without an answer in time, the run ends.
func (e *execution) call(
	ctx context.Context, req *progressorv1.ProcessRequest,
) (*progressorv1.ProcessResponse, error) {
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	timed, cancel := context.WithTimeout(ctx, e.timeout)
	defer cancel()
	resp, err := e.function.Process(timed, req)
	if err != nil && timed.Err() != nil && ctx.Err() == nil {
		kind := strings.TrimPrefix(req.GetType().String(), "TASK_TYPE_")
		e.end(fmt.Errorf("no answer to task %d (%s, attempt %d) within %s", req.GetTaskId(),
			strings.TrimSpace(kind+" "+req.GetTimerName()), req.GetAttempt(), e.timeout))
	}
	return resp, err
}

// Process passes a task to the function and records the answer. If the answer is the result to
// lose, Process returns the answer to a second attempt instead.
func (e *execution) Process(
	ctx context.Context, req *progressorv1.ProcessRequest,
) (*progressorv1.ProcessResponse, error) {
	again := proto.CloneOf(req)
	again.Attempt++
	resp, err := e.call(ctx, req)
	e.trace = append(e.trace, describe(req, resp, err))
	if events := resp.GetResult().GetEvents(); len(events) > 0 {
		var made []string
		for _, event := range events {
			entry := decode(event.GetPayload())
			made = append(made, entry.Kind+" "+entry.Name)
		}
		if e.results = append(e.results, strings.Join(made, ", ")); len(e.results) == e.kill {
			return e.call(ctx, again)
		}
	}
	return resp, err
}

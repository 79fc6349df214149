package explain

import (
	"fmt"
	"strings"
	"time"

	"github.com/progressor-engine/progressor/process"
)

// Run contains the facts about a run of a flow.
type Run struct {
	Status       string // as in flow_runs
	Attempt      int32
	BlockedOn    string // "scope: RUN", "time: TIME" or "backoff: TIME"; "" if it is not blocked
	CancelReason string
	Failure      string // failure of the run, or of its last attempt
	Steps        []Step // open steps; those that wait for an answer come first
	More         bool   // Steps does not contain all open steps
}

// OpenSteps is the maximum number of steps in an explanation.
const OpenSteps = 5

// Step is an open step of a run, or an open item of a step.
type Step struct {
	ID        string
	Index     int32 // -1 for the step itself
	Undoing   bool  // its compensation runs
	Wait      string
	Title     string
	Assignees string
	Due       time.Time // zero if it has no due time
	Process   process.Key
	Status    process.Status   // status of its process; "" if there is none
	WaitsFor  process.WaitsFor // what the task of its process waits for; "" if nothing
	Scheduled time.Time
	Attempt   int32  // number of attempts made
	Failure   string // failure of the last attempt
	WorkerID  string // the worker that runs its job
}

// hasOwnText reports whether the run itself, not only the tasks of its process, has something to
// describe: it has ended, is blocked, or has open steps.
func (r *Run) hasOwnText() bool {
	ended := r.Status == "succeeded" || r.Status == "failed" || r.Status == "cancelled" || r.Status == "expired"
	return ended || r.BlockedOn != "" || len(r.Steps) > 0
}

// run describes a run that has ended, is blocked, or has open steps.
func (s State) run(e *Explanation) {
	r := s.Run
	what, at, _ := strings.Cut(r.BlockedOn, ": ")
	due, _ := time.Parse(time.RFC3339Nano, at)
	switch {
	case s.Process.Status.Ended():
		s.runEnded(e)
	case what == "scope":
		e.WaitsFor = process.WaitsForConstraint
		e.Detail = fmt.Sprintf("The run waits for its scope, which run %s holds.", at)
		e.Next = "It begins when that run and the runs that waited longer for the same scope have ended."
		e.Unblock = fmt.Sprintf("Wait for the end of run %s. To see its state, run %s. To end it, run %s.", at,
			s.runCommand("get", at, ""), s.runCommand("cancel", at, ""))
	case what == "time":
		e.WaitsFor, e.NextTime = process.WaitsForTime, due
		e.Detail = fmt.Sprintf("The run does not begin before %s.", stamp(due))
		e.Next = fmt.Sprintf("It begins %s.", s.at(due))
		e.Unblock = "Wait for that time."
	case what == "backoff":
		e.WaitsFor, e.NextTime = process.WaitsForTime, due
		e.Detail = sentence(fmt.Sprintf("Attempt %d of the run failed (%s)", r.Attempt, r.Failure))
		e.Next = fmt.Sprintf("Attempt %d begins %s, with the steps that did not succeed.", r.Attempt+1, s.at(due))
		e.Unblock = "Wait for that time."
	default:
		s.steps(e)
	}
}

func (s State) runEnded(e *Explanation) {
	r := s.Run
	e.Next = "Nothing: the run has ended."
	e.Unblock = "Nothing: it is deleted after the retention of its namespace."
	again := "To retry it from the steps that did not succeed, run " + s.runCommand("retry", s.flowID(), "") + "."
	switch r.Status {
	case "succeeded":
	case "cancelled":
		e.Detail = "The run was cancelled."
		if r.CancelReason != "" {
			e.Detail = sentence("The run was cancelled: " + r.CancelReason)
		}
		e.Unblock = "Nothing needs to be done. " + again
	default:
		e.WaitsFor = process.WaitsForOperator
		e.Detail = sentence(fmt.Sprintf("The run is %s: %s", strings.ToUpper(r.Status), r.Failure))
		e.Next = "Nothing until it is retried, or deleted after the retention of its namespace."
		e.Unblock = again
		if strings.HasPrefix(r.Failure, "expression: ") {
			e.Unblock = fmt.Sprintf("An expression of the template failed, and fails again with the same values. "+
				"Correct the template, then run %s. To start a run with another payload, run %s.",
				s.runCommand("retry", s.flowID(), " --newest-version"),
				s.runCommand("repeat", s.flowID(), " --payload …"))
		}
	}
}

// steps describes the open steps. The first one determines what the run waits for.
func (s State) steps(e *Explanation) {
	r := s.Run
	var details []string
	switch {
	case r.Status == "cancel_requested" && r.CancelReason != "":
		details = append(details, sentence("The run is ending: "+r.CancelReason))
	case r.Status == "cancel_requested":
		details = append(details, "The run is ending.")
	}
	for n := range r.Steps {
		waits, detail, next, unblock := s.step(&r.Steps[n])
		details = append(details, detail)
		if n == 0 {
			e.WaitsFor, e.Next, e.Unblock = waits, next, unblock
			if waits == process.WaitsForOperator || waits == process.WaitsForTime {
				e.NextTime = r.Steps[n].Due
				if e.NextTime.IsZero() && waits == process.WaitsForTime {
					e.NextTime = r.Steps[n].Scheduled
				}
			}
		}
	}
	if r.More {
		details = append(details,
			fmt.Sprintf("More steps are open. To list them, run %s.", s.runCommand("steps", s.flowID(), "")))
	}
	e.Detail = strings.Join(details, " ")
}

// step describes an open step: what it waits for, what happens next and what would unblock it.
func (s State) step(p *Step) (waits process.WaitsFor, detail, next, unblock string) {
	name := "step " + p.ID
	if p.Index >= 0 {
		name = fmt.Sprintf("item %d of step %s", p.Index, p.ID)
	}
	begin := capital(name)
	shows := "To see more, run progressor explain " + word(p.Process.Namespace) + " " + word(p.Process.ProcessID) + "."
	ends := "The steps that depend on " + name + " begin when it ends."
	switch {
	case p.Undoing:
		return process.WaitsForProcess, begin + " is being compensated.",
			"Then the steps that succeeded before it are compensated, and the run ends.",
			"Wait for the end of its compensation. To see its state, run " + s.runCommand("get", s.flowID(), "") + "."
	case p.Wait != "":
		return s.wait(p, name, begin)
	case p.Process.ProcessID == "" && !p.Due.IsZero():
		return process.WaitsForTime, fmt.Sprintf("%s waits until %s.", begin, stamp(p.Due)),
			fmt.Sprintf("It ends %s.", s.at(p.Due)), "Wait for that time."
	case p.Process.ProcessID == "":
		return process.WaitsForProcess, begin + " runs for each of its items.", ends, "The end of its items."
	case p.WorkerID != "":
		return process.WaitsForProcess, fmt.Sprintf("Worker %s has the job of %s.", p.WorkerID, name), ends,
			"Wait for the result of the worker. " + shows
	case p.Status == process.StatusError:
		return process.WaitsForOperator, sentence(begin + " has failed"),
			"The run receives the failure and decides what follows.", shows
	case p.Status == process.StatusSuspended:
		return process.WaitsForOperator, fmt.Sprintf("The process of %s, %s, is suspended.", name, p.Process.ProcessID),
			"Nothing until it is resumed.", shows
	case p.WaitsFor == process.WaitsForTime && p.Attempt > 0:
		return process.WaitsForTime,
			sentence(fmt.Sprintf("%s failed in attempt %d (%s)", begin, p.Attempt, p.Failure)),
			fmt.Sprintf("Attempt %d %s.", p.Attempt+1, s.at(p.Scheduled)), "Wait for that time."
	case p.WaitsFor == process.WaitsForConstraint:
		return process.WaitsForConstraint, fmt.Sprintf("The job of %s waits for a constraint.", name),
			"It runs as soon as its constraints allow it.", shows
	case p.WaitsFor == process.WaitsForPlace && strings.HasPrefix(p.Process.ProcessID, process.StepPrefix):
		return process.WaitsForPlace,
			fmt.Sprintf("The job of %s has waited for a worker or a slot since %s.", name, stamp(p.Scheduled)),
			"It runs as soon as a worker takes it or a node has a slot.", shows
	}
	if id, ok := strings.CutPrefix(p.Process.ProcessID, process.FlowPrefix); ok {
		return process.WaitsForProcess, fmt.Sprintf("%s is active: run %s executes it.", begin, id), ends, shows
	}
	return process.WaitsForProcess, fmt.Sprintf("%s is active: %s executes it.", begin, p.Process.ProcessID), ends,
		shows
}

// wait describes a step that waits for an answer.
func (s State) wait(p *Step, name, begin string) (waits process.WaitsFor, detail, next, unblock string) {
	detail = begin + " waits for "
	who := "a person"
	if p.Assignees != "" {
		who = p.Assignees
	}
	token := ""
	if p.Wait == "EXTERNAL" {
		who, token = "an external answer", " --wait-token …"
		if p.Assignees != "" {
			who += " (" + p.Assignees + ")"
		}
	}
	detail += who
	if p.Title != "" {
		detail += fmt.Sprintf(", %q", p.Title)
	}
	next = "The steps that depend on " + name + " begin after the answer."
	if !p.Due.IsZero() {
		detail += ", until " + stamp(p.Due)
		next = fmt.Sprintf("The answer, or the due time if there is none, %s.", s.at(p.Due))
	}
	index := ""
	if p.Index >= 0 {
		index = fmt.Sprintf(" --index %d", p.Index)
	}
	unblock = "To answer it, run " + s.runCommand("complete", s.flowID(), " "+p.ID+index+token+" --result …") + "."
	if token != "" {
		unblock += " To see the token, run " + s.runCommand("waits", "", "") + " --run " + word(s.flowID()) + "."
	}
	return process.WaitsForOperator, sentence(detail), next, unblock
}

// flowID returns the ID of the run.
func (s State) flowID() string { return strings.TrimPrefix(s.Process.ProcessID, process.FlowPrefix) }

// runCommand returns a progressor run command that can be pasted.
func (s State) runCommand(verb, runID, rest string) string {
	line := "progressor run " + verb + " " + word(s.Process.Namespace)
	if runID != "" {
		line += " " + word(runID)
	}
	return line + rest
}

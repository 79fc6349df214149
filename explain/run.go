package explain

import (
	"fmt"
	"strings"
	"time"

	"github.com/progressor-engine/progressor/process"
)

// Run is what counts of a process that is a run of a flow.
type Run struct {
	Status       string // as flow_runs has it
	Attempt      int32
	BlockedOn    string // "scope: RUN", "time: TIME", "backoff: TIME"; "": on nothing
	CancelReason string
	Failure      string // of the run, or of the attempt before
	Steps        []Step // that are open, those first that wait for an answer
	More         bool   // there are more of them
}

// OpenSteps is how many of the steps of a run an explanation looks at.
const OpenSteps = 5

// Step is a step of a run, or an item of it, that is open.
type Step struct {
	ID        string
	Index     int32 // -1: the step itself
	Undoing   bool  // it is being undone
	Wait      string
	Title     string
	Assignees string
	Due       time.Time // zero: none
	Process   process.Key
	Status    process.Status   // of what does it; "": it is not there
	WaitsFor  process.WaitsFor // what its task waits for; "": for nothing
	Scheduled time.Time
	Attempt   int32  // made
	Failure   string // of the last of them
	WorkerID  string // who has its job
}

// tells tells whether there is something to be said of a run beside the tasks of its process: it has ended, waits, or has open steps.
func (r *Run) tells() bool {
	ended := r.Status == "succeeded" || r.Status == "failed" || r.Status == "cancelled" || r.Status == "expired"
	return ended || r.BlockedOn != "" || len(r.Steps) > 0
}

// run is the situation of a run: nobody calls it, and its steps say what it waits for.
func (s State) run(e *Explanation) {
	r := s.Run
	what, at, _ := strings.Cut(r.BlockedOn, ": ")
	due, _ := time.Parse(time.RFC3339Nano, at)
	switch {
	case s.Process.Status.Ended():
		s.runEnded(e)
	case what == "scope":
		e.WaitsFor = process.WaitsForConstraint
		e.Detail = fmt.Sprintf("The run waits for its scope, which run %s has.", at)
		e.Next = "It begins when that run has ended, after those that wait for the same since before."
		e.Unblock = fmt.Sprintf("The end of run %s: %s shows where it stands, %s ends it.", at, s.order("get", at, ""), s.order("cancel", at, ""))
	case what == "time":
		e.WaitsFor, e.NextTime = process.WaitsForTime, due
		e.Detail = fmt.Sprintf("The run is not to begin before %s.", stamp(due))
		e.Next = fmt.Sprintf("It begins %s.", s.at(due))
		e.Unblock = "Its time."
	case what == "backoff":
		e.WaitsFor, e.NextTime = process.WaitsForTime, due
		e.Detail = sentence(fmt.Sprintf("Attempt %d of the run failed (%s)", r.Attempt, r.Failure))
		e.Next = fmt.Sprintf("Attempt %d begins %s, with the steps that did not succeed.", r.Attempt+1, s.at(due))
		e.Unblock = "Its time."
	default:
		s.steps(e)
	}
}

func (s State) runEnded(e *Explanation) {
	r := s.Run
	e.Next = "Nothing: the run is at its end."
	e.Unblock = "Nothing: it goes when the retention of its namespace is over."
	again := s.order("retry", s.flowID(), "") + " takes it up again, at the steps that did not succeed."
	switch r.Status {
	case "succeeded":
	case "cancelled":
		e.Detail = "The run was cancelled."
		if r.CancelReason != "" {
			e.Detail = sentence("The run was cancelled: " + r.CancelReason)
		}
		e.Unblock = "Nothing; " + again
	default:
		e.WaitsFor = process.WaitsForOperator
		e.Detail = sentence(fmt.Sprintf("The run is %s: %s", strings.ToUpper(r.Status), r.Failure))
		e.Next = "Nothing, until it is taken up again, or goes when the retention of its namespace is over."
		e.Unblock = again
	}
}

// steps tells of the steps that are open: the first of them says what the run waits for.
func (s State) steps(e *Explanation) {
	r := s.Run
	var details []string
	switch {
	case r.Status == "cancel_requested" && r.CancelReason != "":
		details = append(details, sentence("The run is to end: "+r.CancelReason))
	case r.Status == "cancel_requested":
		details = append(details, "The run is to end.")
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
		details = append(details, fmt.Sprintf("Others are open as well: %s lists them.", s.order("steps", s.flowID(), "")))
	}
	e.Detail = strings.Join(details, " ")
}

// step says of an open step what it waits for, what comes next, and what would let it go on.
func (s State) step(p *Step) (waits process.WaitsFor, detail, next, unblock string) {
	name := "step " + p.ID
	if p.Index >= 0 {
		name = fmt.Sprintf("item %d of step %s", p.Index, p.ID)
	}
	begin := capital(name)
	shows := "progressor explain " + word(p.Process.Namespace) + " " + word(p.Process.ProcessID) + " says more."
	ends := "What depends on " + name + " follows its end."
	switch {
	case p.Undoing:
		return process.WaitsForProcess, begin + " is being undone.", "When that is done, what succeeded before it is undone, and then the run ends.", "The end of its compensation: " + s.order("get", s.flowID(), "") + " shows where it stands."
	case p.Wait != "":
		return s.wait(p, name, begin)
	case p.Process.ProcessID == "" && !p.Due.IsZero():
		return process.WaitsForTime, fmt.Sprintf("%s waits until %s.", begin, stamp(p.Due)), fmt.Sprintf("It ends %s.", s.at(p.Due)), "Its time."
	case p.Process.ProcessID == "":
		return process.WaitsForProcess, begin + " is done for each of its items.", ends, "The ends of its items."
	case p.WorkerID != "":
		return process.WaitsForProcess, fmt.Sprintf("Worker %s has the job of %s.", p.WorkerID, name), ends, "The answer of the worker: " + shows
	case p.Status == process.StatusError:
		return process.WaitsForOperator, sentence(begin + " has failed"), "The run is told of it, and decides.", shows
	case p.Status == process.StatusSuspended:
		return process.WaitsForOperator, fmt.Sprintf("What does %s, %s, is suspended.", name, p.Process.ProcessID), "Nothing, until it is resumed.", shows
	case p.WaitsFor == process.WaitsForTime && p.Attempt > 0:
		return process.WaitsForTime, sentence(fmt.Sprintf("%s failed its attempt %d (%s)", begin, p.Attempt, p.Failure)), fmt.Sprintf("Attempt %d %s.", p.Attempt+1, s.at(p.Scheduled)), "Its time."
	case p.WaitsFor == process.WaitsForConstraint:
		return process.WaitsForConstraint, fmt.Sprintf("The job of %s waits for a constraint.", name), "It runs as soon as its constraints let it.", shows
	case p.WaitsFor == process.WaitsForPlace && strings.HasPrefix(p.Process.ProcessID, process.StepPrefix):
		return process.WaitsForPlace, fmt.Sprintf("The job of %s waits for a worker or a place since %s.", name, stamp(p.Scheduled)), "It runs as soon as a worker takes it, or a node has a place.", shows
	}
	if id, ok := strings.CutPrefix(p.Process.ProcessID, process.FlowPrefix); ok {
		return process.WaitsForProcess, fmt.Sprintf("%s goes on: run %s does it.", begin, id), ends, shows
	}
	return process.WaitsForProcess, fmt.Sprintf("%s goes on: %s does it.", begin, p.Process.ProcessID), ends, shows
}

// wait is the situation of a step that waits for an answer.
func (s State) wait(p *Step, name, begin string) (waits process.WaitsFor, detail, next, unblock string) {
	detail = begin + " waits for "
	whom := "a person"
	if p.Assignees != "" {
		whom = p.Assignees
	}
	token := ""
	if p.Wait == "EXTERNAL" {
		whom, token = "an answer from outside", " --token …"
		if p.Assignees != "" {
			whom += " (" + p.Assignees + ")"
		}
	}
	detail += whom
	if p.Title != "" {
		detail += fmt.Sprintf(", %q", p.Title)
	}
	next = "What depends on " + name + " follows the answer."
	if !p.Due.IsZero() {
		detail += ", until " + stamp(p.Due)
		next = fmt.Sprintf("The answer, or without one its due time, %s.", s.at(p.Due))
	}
	index := ""
	if p.Index >= 0 {
		index = fmt.Sprintf(" --index %d", p.Index)
	}
	unblock = s.order("complete", s.flowID(), " "+p.ID+index+token+" --result …") + " answers it."
	if token != "" {
		unblock += " The token is in " + s.order("waits", "", "") + " --run " + word(s.flowID()) + "."
	}
	return process.WaitsForOperator, sentence(detail), next, unblock
}

// flowID is the id of the run.
func (s State) flowID() string { return strings.TrimPrefix(s.Process.ProcessID, process.FlowPrefix) }

// order is a command line of progressor run that can be pasted.
func (s State) order(verb, runID, rest string) string {
	line := "progressor run " + verb + " " + word(s.Process.Namespace)
	if runID != "" {
		line += " " + word(runID)
	}
	return line + rest
}

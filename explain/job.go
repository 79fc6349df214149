package explain

import (
	"fmt"
	"strings"
	"time"

	"github.com/progressor-engine/progressor/process"
)

// Job is what counts of a process that is a job.
type Job struct {
	Name           string
	MaxRetry       int32
	Failed         int32 // attempts that failed, those apart whose worker was lost
	Takeovers      int32
	MaxTakeovers   int32
	Cancelling     bool // it runs, and was asked to end
	CancelReason   string
	CancelDeadline time.Time
	Pulled         bool // workers take the tasks of the namespace
	Lease          *Lease
	RunStatus      string // of the run whose step it does; "": it does none, or one of a run in another namespace
}

// Lease says which worker holds what runs.
type Lease struct {
	WorkerID string
	Expires  time.Time
	Beat     time.Time // zero: it has not beaten yet
}

// job is the situation of a job: nobody calls it, and who repairs it lets it run again.
func (s State) job(e *Explanation, head *Task, behind int) {
	j := s.Job
	switch {
	case s.Process.Status.Ended():
		e.Next = "Nothing: the job is at its end."
		e.Unblock = s.command("remove", "") + " deletes it; else it goes when the retention of its namespace is over."
		switch {
		case s.own():
			e.Unblock = "Nothing: it goes with run " + s.runID() + ", a step of which it did."
		case s.Process.Status == process.StatusCancelled:
			e.Unblock = s.retry() + "; " + e.Unblock
		}
	case s.Running != nil && j.Lease != nil:
		s.leased(e)
	case s.Running != nil:
		s.running(e, nil, 0)
		s.cancelling(e, "its processor is not told")
	case s.Process.Status == process.StatusError:
		s.failed(e)
	case s.Process.Status == process.StatusSuspended:
		s.suspended(e, head, behind)
	case head == nil: // a moment that no statement leaves behind
		e.Detail = "Nothing of it waits."
	case s.timed(head) && head.Attempt > 0:
		e.WaitsFor, e.NextTime = process.WaitsForTime, head.Scheduled
		e.Detail = sentence(fmt.Sprintf("Job %q failed its attempt %d (%s)", j.Name, head.Attempt, head.failure())) + " " + j.spent()
		e.Next = fmt.Sprintf("Attempt %d %s.", head.Attempt+1, s.at(head.Scheduled))
		e.Unblock = s.anotherTime()
	case s.timed(head):
		e.WaitsFor, e.NextTime = process.WaitsForTime, head.Scheduled
		e.Detail = fmt.Sprintf("Job %q is not to run before %s.", j.Name, stamp(head.Scheduled))
		e.Next = fmt.Sprintf("It runs %s.", s.at(head.Scheduled))
		e.Unblock = s.anotherTime()
	case head.WaitsFor == process.WaitsForConstraint:
		s.waitsForConstraint(e, head)
	case head.WaitsFor == process.WaitsForMembers:
		e.WaitsFor = process.WaitsForMembers
		e.Detail = fmt.Sprintf("Workers run job %q side by side, each a member of it.", j.Name)
		s.cancelling(e, "so were its members")
		e.Next = "A member ends; when enough have, or too many have failed, the job does."
		e.Unblock = fmt.Sprintf("progressor job get %s %s shows where each of them stands.", word(s.Process.Namespace), word(s.Process.ProcessID))
	case j.Pulled && !s.Namespace.Paused && s.Namespace.Takers > 0:
		e.WaitsFor = process.WaitsForPlace
		e.Detail = fmt.Sprintf("Job %q waits for a worker since %s.", j.Name, stamp(head.Scheduled))
		e.Next = "A worker takes it by a poll: those with a smaller priority go first, then the older ones."
		e.Unblock = fmt.Sprintf("A worker that polls namespace %s for jobs named %q, or for all, and has room: progressor worker list %s shows which there are.",
			s.Process.Namespace, j.Name, word(s.Process.Namespace))
	default:
		s.waitsForPlace(e, head, behind)
	}
}

// leased is the situation of a job that a worker holds.
func (s State) leased(e *Explanation) {
	r, l := s.Running, s.Job.Lease
	beat := "it has not beaten yet"
	if !l.Beat.IsZero() {
		beat = "it has beaten " + short(s.Now.Sub(l.Beat)) + " ago"
	}
	e.Detail = fmt.Sprintf("Worker %s holds attempt %d of job %q for %s; %s. %s", l.WorkerID, r.Attempt, s.Job.Name, short(s.Now.Sub(r.Running)), beat, s.Job.spent())
	e.NextTime = r.Deadline
	switch {
	case !l.Expires.After(s.Now):
		e.Next = fmt.Sprintf("The lease is over (%s): the job goes to another worker.", s.at(l.Expires))
		e.Unblock = "Nothing needs to be done: a node takes it back within a second or two."
	case !r.Deadline.After(s.Now):
		e.Next = fmt.Sprintf("The attempt has passed its timeout (%s): it has failed.", s.at(r.Deadline))
		e.Unblock = "Nothing needs to be done: the attempt is over, whatever its worker does."
	default:
		e.Next = fmt.Sprintf("The worker answers, at the latest %s by the job's timeout; without a heartbeat it has lost the job %s.", s.at(r.Deadline), s.at(l.Expires))
		e.Unblock = "The answer of the worker."
	}
	s.cancelling(e, "its worker is told by its next heartbeat")
}

// cancelling says that what runs was asked to end, and whether it knows.
func (s State) cancelling(e *Explanation, told string) {
	if !s.Job.Cancelling {
		return
	}
	why := ""
	if s.Job.CancelReason != "" {
		why = " (" + s.Job.CancelReason + ")"
	}
	e.Detail += fmt.Sprintf(" It was asked to end%s: %s.", why, told)
	e.Next = fmt.Sprintf("The attempt ends; past its grace, %s, the job is CANCELLED without it.", s.at(s.Job.CancelDeadline))
	e.NextTime = s.Job.CancelDeadline
}

// failed is the situation of a job that has FAILED.
func (s State) failed(e *Explanation) {
	e.WaitsFor = process.WaitsForOperator
	e.Detail = fmt.Sprintf("Job %q failed for good", s.Job.Name)
	for _, t := range s.Ended {
		if t.ID == s.Process.CorruptedBy {
			e.Detail += fmt.Sprintf(" with attempt %d (%s)", t.Attempt, t.failure())
		}
	}
	e.Detail = sentence(e.Detail) + " " + s.Job.spent()
	e.Next = "Nothing, until it is retried, or goes when the retention of its namespace is over."
	e.Unblock = s.retry() + "."
	if !s.own() {
		return
	}
	e.Next = fmt.Sprintf("Nothing: run %s, a step of which it did, takes no other answer of it.", s.runID())
	switch run := word(s.Process.Namespace) + " " + word(s.runID()); s.Job.RunStatus {
	case "failed", "expired", "cancelled":
		e.Unblock = "progressor run retry " + run + " takes its run up again, which does the step once more."
	case "":
		e.Unblock = "The retry of its run, which is in another namespace."
	default:
		e.Unblock = "Its run, which goes on: progressor run get " + run + " shows where it stands."
	}
}

// runID is the run whose step a job does.
func (s State) runID() string {
	id := strings.TrimPrefix(s.Process.ProcessID, process.StepPrefix)
	return id[:max(strings.LastIndexByte(id, '/'), 0)]
}

func (s State) retry() string {
	return "progressor job retry " + s.Process.Namespace + " " + word(s.Process.ProcessID) + " runs it again"
}

// spent says what is used up of a job's attempts.
func (j *Job) spent() string {
	return fmt.Sprintf("It has failed %d times, max_retry is %d; its worker was lost %d times, max_takeovers is %d.", j.Failed, j.MaxRetry, j.Takeovers, j.MaxTakeovers)
}

func (t *Task) failure() string {
	if t.Message == "" {
		return t.Reason
	}
	return t.Reason + ": " + t.Message
}

// anotherTime is how a job that waits for its time runs sooner.
func (s State) anotherTime() string {
	if s.own() {
		return "Its time."
	}
	return "Its time, or another one: progressor job update " + word(s.Process.Namespace) + " " + word(s.Process.ProcessID) + " --run-time 0s."
}

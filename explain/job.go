package explain

import (
	"fmt"
	"strings"
	"time"

	"github.com/progressor-engine/progressor/process"
)

// Job contains the facts about a job.
type Job struct {
	Name         string
	MaxRetry     int32
	Failed       int32 // number of failed attempts, without those whose worker was lost
	Takeovers    int32
	MaxTakeovers int32
	RunStatus    string   // status of the job's run; "" if there is none, or if it is in another namespace
	WorkerIDs    []string // workers that may take it; nil if any may
	Blocked      *Blocked // nil if it waits for no key, or if the key is not known yet
	Group        *Group   // nil if one worker runs it
	Unreached    string   // why its processor was not reached, if the job waits for the next try
	Paused       *Pause   // nil if its name is not paused
}

// Pause is the pause of a job name.
type Pause struct {
	Reason string
	By     string // "" if unknown
	Since  time.Time
}

// pausedName describes a waiting job whose name is paused.
func (s State) pausedName(e *Explanation, head *Task) {
	p := s.Job.Paused
	e.WaitsFor = head.WaitsFor
	e.Detail = fmt.Sprintf("Jobs with the name %q have been paused since %s", s.Job.Name, stamp(p.Since))
	if p.By != "" {
		e.Detail += " by " + p.By
	}
	if p.Reason != "" {
		e.Detail += " (" + p.Reason + ")"
	}
	e.Detail = sentence(e.Detail)
	e.Next = "Nothing until the name is resumed; then the job waits as other jobs do."
	e.Unblock = fmt.Sprintf("To resume the name, run progressor job resume %s %s.", word(s.Process.Namespace),
		word(s.Job.Name))
}

// job describes a job. It suggests neither calls nor repairs, because jobs accept no calls and are
// retried instead of repaired.
func (s State) job(e *Explanation, head *Task, behind int) {
	j := s.Job
	switch {
	case s.Process.Status.Ended():
		e.Detail = fmt.Sprintf("Job %q SUCCEEDED at %s.", j.Name, stamp(s.Process.StatusChanged))
		if s.Process.Status == process.StatusCancelled {
			e.Detail = fmt.Sprintf("Job %q was CANCELLED at %s%s.", j.Name, stamp(s.Process.StatusChanged),
				s.Process.Cancel.why())
		}
		e.Next = "Nothing: the job has ended."
		e.Unblock = fmt.Sprintf("To delete it, run %s. Otherwise, it is deleted after the retention of its namespace.",
			s.command("remove", ""))
		switch {
		case s.isInternal():
			e.Unblock = "Nothing: it is the job of a step, and is deleted with run " + s.runID() + "."
		case s.Process.Status == process.StatusCancelled:
			e.Unblock = s.retry() + " " + e.Unblock
		}
	case s.Running != nil:
		s.running(e, nil, 0)
		note := "its processor does not know yet"
		if s.Running.Lease != nil {
			e.Detail += " " + j.attemptsUsed()
			note = "its worker learns it from its next heartbeat"
		}
		s.cancelling(e, note)
	case s.Process.Status == process.StatusError:
		s.failed(e)
	case s.Process.Status == process.StatusSuspended:
		s.suspended(e, head, behind)
	case head == nil: // should not happen
		e.Detail = "It has no waiting task."
	case j.Paused != nil && (!s.timed(head) || !head.Scheduled.After(s.Now)):
		s.pausedName(e, head)
	case s.timed(head) && j.Unreached != "":
		e.WaitsFor, e.NextTime = process.WaitsForTime, head.Scheduled
		e.Detail = sentence(fmt.Sprintf("The processor of job %q was not reached %s", j.Name, j.Unreached))
		e.Next = fmt.Sprintf("It is retried %s, until the timeout of the job has passed.", s.at(head.Scheduled))
		e.Unblock = fmt.Sprintf("Make the processor accept the job. To see its URL, run progressor namespace get %s.",
			word(s.Process.Namespace))
	case s.timed(head) && head.Attempt > 0:
		e.WaitsFor, e.NextTime = process.WaitsForTime, head.Scheduled
		e.Detail = sentence(fmt.Sprintf("Job %q failed in attempt %d (%s)", j.Name, head.Attempt, head.failure())) +
			" " + j.attemptsUsed()
		e.Next = fmt.Sprintf("Attempt %d %s.", head.Attempt+1, s.at(head.Scheduled))
		e.Unblock = s.howToRunSooner()
	case s.timed(head):
		e.WaitsFor, e.NextTime = process.WaitsForTime, head.Scheduled
		e.Detail = fmt.Sprintf("Job %q does not run before %s.", j.Name, stamp(head.Scheduled))
		e.Next = fmt.Sprintf("It runs %s.", s.at(head.Scheduled))
		e.Unblock = s.howToRunSooner()
	case head.WaitsFor == process.WaitsForConstraint:
		s.blocked(e)
	case j.Group != nil:
		s.group(e)
	default:
		s.waitsForPlace(e, head, behind)
	}
}

// cancelling adds that the job is being cancelled. note says whether the attempt has received the
// cancel.
func (s State) cancelling(e *Explanation, note string) {
	if s.Process.Cancel.Deadline.IsZero() {
		return
	}
	e.Detail += fmt.Sprintf(" It was asked to end%s: %s.", s.Process.Cancel.why(), note)
	e.Next = fmt.Sprintf("The attempt ends. After the grace period, %s, the job is CANCELLED even if the attempt "+
		"continues.", s.at(s.Process.Cancel.Deadline))
	e.NextTime = s.Process.Cancel.Deadline
}

func (c Cancel) why() string {
	if c.Reason == "" {
		return ""
	}
	return " (" + c.Reason + ")"
}

// failed describes a job in the state FAILED.
func (s State) failed(e *Explanation) {
	e.WaitsFor = process.WaitsForOperator
	e.Detail = fmt.Sprintf("Job %q failed permanently", s.Job.Name)
	spent := " " + s.Job.attemptsUsed()
	for _, t := range s.Ended {
		switch {
		case t.ID != s.Process.CorruptedBy:
		case t.Attempt == 0: // the job missed its start deadline
			e.Detail += fmt.Sprintf(" without an attempt (%s)", t.failure())
			spent = ""
		default:
			e.Detail += fmt.Sprintf(" in attempt %d (%s)", t.Attempt, t.failure())
		}
	}
	e.Detail = sentence(e.Detail) + spent
	e.Next = "Nothing until it is retried, or deleted after the retention of its namespace."
	e.Unblock = s.retry()
	if !s.isInternal() {
		return
	}
	e.Next = fmt.Sprintf("Nothing: it is the job of a step of run %s, which has its result.", s.runID())
	switch run := word(s.Process.Namespace) + " " + word(s.runID()); s.Job.RunStatus {
	case "failed", "expired", "cancelled":
		e.Unblock = "To retry its run, which runs the step again, run progressor run retry " + run + "."
	case "":
		e.Unblock = "Retry its run, which is in another namespace."
	default:
		e.Unblock = "Its run is active. To see its state, run progressor run get " + run + "."
	}
}

// runID returns the ID of the run to whose step the job belongs.
func (s State) runID() string {
	id := strings.TrimPrefix(s.Process.ProcessID, process.StepPrefix)
	return id[:max(strings.LastIndexByte(id, '/'), 0)]
}

func (s State) retry() string {
	return "To run it again, run progressor job retry " + word(s.Process.Namespace) + " " +
		word(s.Process.ProcessID) + "."
}

func times[T int | int32 | int64](n T) string {
	if n == 1 {
		return "once"
	}
	return fmt.Sprintf("%d times", n)
}

// attemptsUsed describes how many attempts of the job are used up.
func (j *Job) attemptsUsed() string {
	return fmt.Sprintf("It has failed %s, max_retry is %d; its worker was lost %s, max_takeovers is %d.",
		times(j.Failed), j.MaxRetry, times(j.Takeovers), j.MaxTakeovers)
}

func (t *Task) failure() string {
	if t.Message == "" {
		return t.Reason
	}
	return t.Reason + ": " + t.Message
}

// howToRunSooner describes how a scheduled job can run sooner.
func (s State) howToRunSooner() string {
	if s.isInternal() {
		return "Wait for that time."
	}
	return "Wait for that time. To run it now, run progressor job update " + word(s.Process.Namespace) + " " +
		word(s.Process.ProcessID) + " --run-time 0s."
}

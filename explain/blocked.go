package explain

import (
	"fmt"
	"strings"
	"time"

	"github.com/progressor-engine/progressor/internal/durations"
	"github.com/progressor-engine/progressor/process"
)

// Blocked is the constraint key that a job waits for.
type Blocked struct {
	Constraint string
	Match      string // CEL; "" matches all jobs
	Expression string // CEL of the key; "" if all matching jobs share one key
	Key        string // value of Expression
	MaxRunning int32  // 0 if unlimited
	Held       int    // number of jobs that hold the key
	Holders    []string
	RateCount  int32 // 0 if there is no rate
	RatePer    time.Duration
	RateBurst  int32
	// Number of starts that the rate has granted to jobs that are not claimed yet, if the next
	// start has to wait for these; otherwise 0.
	Unstarted  int
	NextStart  time.Time // when the rate grants the next start; zero if it can do so now
	OwnStart   time.Time // when the rate may grant a start to this job; zero if unknown
	ReservedBy string    // the job for which the next free key is reserved, or ""
	Before     int       // jobs ahead of it in the key queue
	More       bool      // Before is a lower bound
}

// blocked describes a job that waits for a constraint.
func (s State) blocked(e *Explanation) {
	b := s.Job.Blocked
	e.WaitsFor = process.WaitsForConstraint
	if b == nil {
		e.Detail = fmt.Sprintf("Job %q waits until its constraints are checked again.", s.Job.Name)
		e.Next = "After that, it waits for a constraint or for a worker."
		e.Unblock = fmt.Sprintf(
			"Nothing needs to be done: a node does that within seconds. To see the constraints, run progressor "+
				"constraint list %s.", word(s.Process.Namespace))
		return
	}
	e.Detail = fmt.Sprintf("Job %q waits for constraint %s%s", s.Job.Name, b.Constraint, b.key())
	full := b.MaxRunning > 0 && b.Held >= int(b.MaxRunning)
	if full {
		e.Detail += fmt.Sprintf(": %d of %d slots in use (%s)", b.Held, b.MaxRunning, b.holders())
	}
	if b.Unstarted > 0 {
		e.Detail += fmt.Sprintf(": the rate has granted starts that no worker has claimed yet (%s)", b.holders())
	}
	if !b.NextStart.IsZero() {
		e.Detail += fmt.Sprintf(": the rate of %d in %s is used up, and grants the next start %s", b.RateCount,
			durations.Exact(b.RatePer), s.at(b.NextStart))
	}
	if b.ReservedBy != "" {
		e.Detail += fmt.Sprintf(": the next free slot is reserved for job %q, which also needs other keys",
			b.ReservedBy)
	}
	e.Detail += fmt.Sprintf(". %s ahead of it.", s.jobsBefore(b))
	e.Next = "It runs when the key is free, the jobs ahead of it have started, and a worker or a node has a " +
		"slot for it."
	if !b.OwnStart.IsZero() {
		e.NextTime = b.OwnStart
		e.Next = fmt.Sprintf("It runs when the jobs ahead of it have started, not before %s.",
			strings.TrimPrefix(s.at(b.OwnStart), "at "))
	}
	e.Unblock = s.raiseLimits(b)
	if b.Unstarted > 0 && s.Namespace.Pulled && !s.Namespace.Paused {
		poll, unblock := s.workers()
		e.Detail += " " + capital(poll) + "."
		e.Unblock = unblock
		return
	}
	if full && len(b.Holders) > 0 {
		e.Unblock = fmt.Sprintf("Wait for the end of a job that holds the key. To see such a job, run progressor job "+
			"get %s %s. %s", word(s.Process.Namespace), word(b.Holders[0]), e.Unblock)
	}
}

func (b *Blocked) key() string {
	if b.Expression == "" {
		return ""
	}
	return fmt.Sprintf(", key %s", b.Key)
}

func (b *Blocked) holders() string {
	if more := b.Held - len(b.Holders); more > 0 {
		return fmt.Sprintf("%s and %d more", strings.Join(b.Holders, ", "), more)
	}
	return strings.Join(b.Holders, ", ")
}

func (s State) jobsBefore(b *Blocked) string {
	verb := "are"
	if b.Before == 1 {
		verb = "is"
	}
	if b.Before == 0 {
		return "No job is"
	}
	return capital(count(b.Before, b.More, "job")) + " " + verb
}

// raiseLimits returns a sentence with the command that doubles the limits of the constraint.
func (s State) raiseLimits(b *Blocked) string {
	line := "progressor constraint put " + word(s.Process.Namespace) + " " + word(b.Constraint)
	if b.Match != "" && b.Match != "true" {
		line += " --match " + word(b.Match)
	}
	if b.Expression != "" {
		line += " --key " + word(b.Expression)
	}
	if b.MaxRunning > 0 {
		line += fmt.Sprintf(" --max-running %d", 2*b.MaxRunning)
	}
	if b.RateCount > 0 {
		line += fmt.Sprintf(" --rate %d/%s", 2*b.RateCount, durations.Exact(b.RatePer))
		if b.RateBurst != b.RateCount && b.RateBurst > 0 {
			line += fmt.Sprintf(" --burst %d", b.RateBurst)
		}
	}
	return "To double the limit, run " + line + "."
}

// Group contains the facts about a job that several workers run.
type Group struct {
	Count       int // workers that have to succeed
	MaxFailures int
	Members     []Member
}

// Member is the run of one worker in a group.
type Member struct {
	WorkerID string // "" if no worker has it
	State    string // available, running, retryable, succeeded, failed, cancelled
}

// group describes a job that several workers run.
func (s State) group(e *Explanation) {
	g, states := s.Job.Group, map[string][]string{}
	for _, m := range g.Members {
		states[m.State] = append(states[m.State], m.WorkerID)
	}
	e.Detail = fmt.Sprintf("Job %q must succeed on %s: %d %s", s.Job.Name, count(g.Count, false, "worker"),
		len(states["succeeded"]), has(len(states["succeeded"])))
	if ids := states["running"]; len(ids) > 0 {
		e.Detail += ", " + named(ids) + plural(len(ids), " runs it", " run it")
	}
	if ids := states["retryable"]; len(ids) > 0 {
		e.Detail += ", " + named(ids) + plural(len(ids), " tries", " try") + " it again later"
	}
	if n := len(states["failed"]); n > 0 {
		e.Detail += fmt.Sprintf(", %d %s failed of at most %d that may fail", n, has(n), g.MaxFailures)
	}
	e.WaitsFor = process.WaitsForProcess
	e.Next = "When enough workers have succeeded, or too many have failed, the job ends."
	e.Unblock = fmt.Sprintf("Wait for the results of its workers. To see the state of each, run progressor job get "+
		"%s %s.",
		word(s.Process.Namespace), word(s.Process.ProcessID))
	if free := len(states["available"]); free > 0 && s.Namespace.Pulled && !s.Namespace.Paused {
		poll, unblock := s.workers()
		e.Detail += fmt.Sprintf("; %s %s for a worker, and %s", count(free, false, "slot"),
			plural(free, "waits", "wait"), poll)
		e.Unblock = unblock
		if len(states["running"]) == 0 {
			e.WaitsFor = process.WaitsForPlace
		}
	}
	e.Detail += "."
	s.cancelling(e, "its workers were also asked")
}

func has(n int) string { return plural(n, "has", "have") }

func plural(n int, one, several string) string {
	if n == 1 {
		return one
	}
	return several
}

package explain

import (
	"fmt"
	"time"

	"github.com/progressor-engine/progressor/internal/durations"
	"github.com/progressor-engine/progressor/process"
)

// Cron contains the facts about a cron.
type Cron struct {
	ID        string
	Paused    bool
	PausedBy  string    // "" if unknown, or if the cron paused itself
	Note      string    // reason of the pause
	Since     time.Time // start of the pause; zero if unknown
	Missed    int       // fire times that have passed during the pause
	More      bool      // Missed is a lower bound
	Next      time.Time // next fire time; zero if there is none
	RunsIn    string    // namespace of its runs
	Running   []string  // process IDs of the runs that count towards MaxRuns
	Queued    int       // fires that wait for a run to end
	MaxRuns   int32     // max_concurrency
	Failures  int32     // consecutive failed runs
	TrialFrom time.Time // when the open circuit allows a trial run; zero if it is closed
	Spent     bool      // max_fires is used up
}

// cron describes a cron without a task that runs or is due.
func (s State) cron(e *Explanation) {
	c := s.Cron
	at := word(s.Process.Namespace) + " " + word(c.ID)
	trigger := "To start a run now, run progressor cron trigger " + at + "."
	fires := "It has no further fire time."
	if !c.Next.IsZero() {
		fires = fmt.Sprintf("It fires %s.", s.at(c.Next))
	}
	e.NextTime = c.Next
	switch {
	case s.Process.Status == process.StatusError:
		s.broken(e)
		e.Next = "Nothing fires until it is resumed."
		e.Unblock = "To resume it, run progressor cron resume " + at + "."
	case c.Paused:
		e.WaitsFor, e.NextTime = process.WaitsForOperator, time.Time{}
		e.Detail = s.paused()
		e.Next = "Nothing fires until it is resumed."
		if c.Missed > 0 {
			e.Next = "Nothing fires until it is resumed. The fire times of the pause are skipped unless they are " +
				"caught up."
		}
		e.Unblock = fmt.Sprintf(
			"To resume it, run progressor cron resume %s. With --catch-up, its misfire policy applies to the fire "+
				"times of the pause. %s", at, trigger)
	case c.Queued > 0:
		e.WaitsFor = process.WaitsForProcess
		e.Detail = fmt.Sprintf("%s of cron %s %s for a run to end: its max_concurrency is %d, and %s %s active.",
			count(c.Queued, false, "fire"), c.ID,
			plural(c.Queued, "waits", "wait"), c.MaxRuns, named(c.Running), plural(len(c.Running), "is", "are"))
		e.Next = "The oldest of them starts when a run ends. " + fires
		e.Unblock = "Wait for the end of a run, or set a larger max_concurrency."
		if len(c.Running) > 0 {
			e.Unblock += fmt.Sprintf(
				" To see what a run waits for, run progressor explain %s %s. To see the policy, run progressor cron "+
					"get %s.",
				word(c.RunsIn), word(c.Running[0]), at)
		}
	case c.Next.IsZero():
		why := "its schedule has ended"
		if c.Spent {
			why = "its max_fires are used up"
		}
		e.Detail = fmt.Sprintf("Cron %s has no further fire time: %s.%s", c.ID, why, c.activeRuns())
		e.Next = "Nothing until it is changed or triggered."
		e.Unblock = fmt.Sprintf("To set another schedule, see progressor cron update %s --help. %s", at, trigger)
	default:
		e.WaitsFor = process.WaitsForTime
		e.Detail = fmt.Sprintf("Cron %s waits for its next fire time.%s", c.ID, c.activeRuns())
		e.Next = fires
		if c.TrialFrom.After(c.Next) {
			e.Detail += fmt.Sprintf(
				" Its circuit is open after %d failed runs: fires are skipped until the first one after %s, which is "+
					"a trial.", c.Failures, stamp(c.TrialFrom))
			e.Next, e.NextTime = fmt.Sprintf("The trial is the first fire %s or later.", s.at(c.TrialFrom)), c.TrialFrom
		} else if !c.TrialFrom.IsZero() {
			e.Detail += fmt.Sprintf(
				" Its circuit is open after %d failed runs. The next fire is a trial: if it succeeds, the "+
					"circuit closes.", c.Failures)
		}
		e.Unblock = "Wait for that time. " + trigger
	}
}

// paused describes a pause: its author, its reason and its start.
func (s State) paused() string {
	c := s.Cron
	text := fmt.Sprintf("Cron %s is paused", c.ID)
	if !c.Since.IsZero() {
		text = fmt.Sprintf("Cron %s has been paused since %s (%s)", c.ID, stamp(c.Since),
			durations.Rounded(s.Now.Sub(c.Since)))
	}
	if c.PausedBy != "" {
		text += " by " + c.PausedBy
	}
	if c.Note != "" {
		text += ": " + c.Note
	}
	text = sentence(text)
	if c.Missed > 0 {
		text += fmt.Sprintf(" %s %s.", capital(count(c.Missed, c.More, "fire time")), plural(c.Missed, "waits", "wait"))
	}
	return text + c.activeRuns()
}

// activeRuns lists the active runs.
func (c *Cron) activeRuns() string {
	if len(c.Running) == 0 {
		return ""
	}
	return fmt.Sprintf(" %s %s active: %s.", count(len(c.Running), false, "run"), plural(len(c.Running), "is", "are"),
		named(c.Running))
}

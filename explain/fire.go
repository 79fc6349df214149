package explain

import (
	"fmt"
	"time"
)

// Fire contains the facts about the run of a fire whose internal process has ended. The process is
// COMPLETED even if the run failed.
type Fire struct {
	CronID  string
	Time    time.Time // fire time
	Status  string    // how the run ended, as in cron_fires
	Detail  string    // such as the message of its failure; may be ""
	Attempt int32     // attempt of this run
	Newest  int32     // newest attempt of the fire; 0 if the ledger no longer contains the fire
}

// fireOutcomes describes how runs end, by status.
var fireOutcomes = map[string]string{
	"SUCCESS": "succeeded", "FAILED": "failed", "TIMEOUT": "timed out", "CANCELLED": "was cancelled",
}

// fire describes a run of a cron that has ended.
func (s State) fire(e *Explanation) {
	f := s.Fire
	name := fmt.Sprintf("the fire of cron %s at %s", f.CronID, stamp(f.Time))
	if f.Attempt > 1 {
		name = fmt.Sprintf("attempt %d of %s", f.Attempt, name)
	}
	e.Detail = capital(name) + " " + fireOutcomes[f.Status]
	if f.Detail != "" {
		e.Detail += ": " + f.Detail
	}
	e.Detail = sentence(e.Detail)
	e.Next = "Nothing: the run has ended."
	e.Unblock = "Nothing: it is deleted after the retention of its namespace."
	cron := word(s.Process.Namespace) + " " + word(f.CronID)
	list := "To list the fires of the cron, run progressor cron fires " + cron + "."
	switch {
	case f.Status == "SUCCESS" || f.Newest == 0:
	case f.Newest > f.Attempt:
		e.Detail += fmt.Sprintf(" Attempt %d has started since.", f.Newest)
		e.Unblock = list
	default:
		e.Unblock = fmt.Sprintf("To run the fire again, run progressor cron rerun %s %s. %s", cron,
			f.Time.UTC().Format(time.RFC3339Nano), list)
	}
}

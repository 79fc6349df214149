package explain

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/progressor-engine/progressor/internal/durations"
	"github.com/progressor-engine/progressor/process"
)

// Worker is a worker that was seen in the namespace.
type Worker struct {
	ID      string
	Command string // the directive: "quiet" (take no new tasks), "stop" (also end) or ""
	Seen    time.Time
	Alive   bool // seen so recently that it must be polling or busy
	Leases  int32
}

// Lease is the lease of the running task.
type Lease struct {
	WorkerID string
	Expires  time.Time
	Beat     time.Time // zero if no heartbeat yet
	Ended    bool      // the worker has ended the attempt from SQL, and a node must store the result
}

// maxNamed is the maximum number of workers, jobs, steps or timers that a sentence lists by name.
const maxNamed = 5

// leaseText describes which worker holds the running task, for how long, and its last heartbeat.
// The text begin starts a sentence, and behind ends one.
func (s State) leaseText(since string) (begin, behind string) {
	r, l := s.Running, s.Running.Lease
	if l.Ended {
		return fmt.Sprintf("Worker %s has ended attempt %d of %s with the SQL function complete", l.WorkerID, r.Attempt,
				lower(r.name())),
			fmt.Sprintf("%s, whose attempt %d worker %s has ended with the SQL function complete", lower(r.name()),
				r.Attempt, l.WorkerID)
	}
	beat := "no heartbeat yet"
	if !l.Beat.IsZero() {
		beat = "last heartbeat " + durations.Rounded(s.Now.Sub(l.Beat)) + " ago"
	}
	begin = fmt.Sprintf("Worker %s holds %s, attempt %d, for %s; %s", l.WorkerID, lower(r.name()), r.Attempt, since,
		beat)
	if s.Job != nil {
		begin = fmt.Sprintf("Worker %s holds attempt %d of job %q for %s; %s", l.WorkerID, r.Attempt, s.Job.Name, since,
			beat)
	}
	return begin, fmt.Sprintf("%s, which worker %s holds, attempt %d, for %s; %s", lower(r.name()), l.WorkerID,
		r.Attempt, since, beat)
}

// explainLease sets what happens next to a task that a worker holds.
func (s State) explainLease(e *Explanation, then string) {
	r, l := s.Running, s.Running.Lease
	what, limit, loses := lower(r.name()), "its step timeout", "it"
	if s.Job != nil {
		what, limit, loses = "the job", "the job's timeout", "the job"
	}
	switch {
	case l.Ended:
		e.Next = "A node stores the result of the worker" + then + "."
		e.NextTime = time.Time{}
		e.Unblock = "Nothing needs to be done: a node stores it within seconds. To see whether a live node runs " +
			"tasks, run progressor node list."
	case !l.Expires.After(s.Now):
		e.Next = fmt.Sprintf("The lease has expired (%s): %s goes to another worker%s.", s.at(l.Expires), what, then)
		e.Unblock = "Nothing needs to be done: a node releases it within two seconds."
	case !r.Deadline.After(s.Now):
		e.Next = fmt.Sprintf("The attempt has exceeded its timeout (%s) and has failed%s.", s.at(r.Deadline), then)
		e.Unblock = "Nothing needs to be done: the attempt is over, even if its worker continues."
	default:
		e.Next = fmt.Sprintf("The worker answers %s at the latest, by %s%s. Without a heartbeat, it loses %s %s.",
			s.at(r.Deadline), limit, then, loses, s.at(l.Expires))
		e.Unblock = "The answer of the worker."
	}
}

// waitsForWorker describes a task that waits for a worker.
func (s State) waitsForWorker(e *Explanation, head *Task, behind int) {
	e.WaitsFor = process.WaitsForPlace
	since := stamp(later(head.Scheduled, s.Process.CreatedTime))
	e.Detail = fmt.Sprintf("%s has waited for a worker since %s", head.name(), since)
	e.Next = fmt.Sprintf("%s is taken by the next worker that polls for it%s.", head.name(), then(behind))
	if s.Job != nil {
		e.Detail = fmt.Sprintf("Job %q has waited for a worker since %s", s.Job.Name, since)
		e.Next = "A worker that polls takes it. Tasks with a smaller priority go first, then older ones."
	}
	var poll string
	poll, e.Unblock = s.workers()
	e.Detail += ", and " + poll + "."
}

// workers describes which of the workers that may take the task are polling, and how to get such a
// worker.
func (s State) workers() (poll, unblock string) {
	ns := s.Process.Namespace
	var only []string
	if s.Job != nil {
		only = s.Job.WorkerIDs
	}
	may := slices.DeleteFunc(slices.Clone(s.Namespace.Workers),
		func(w Worker) bool { return len(only) > 0 && !slices.Contains(only, w.ID) })
	alive := slices.DeleteFunc(slices.Clone(may), func(w Worker) bool { return !w.Alive })
	free := slices.DeleteFunc(slices.Clone(alive), func(w Worker) bool { return w.Command != "" })
	none := "no worker"
	if len(only) > 0 {
		none = "none of its workers (" + named(only) + ")"
	}
	switch {
	case len(free) > 0:
		shown := make([]string, len(free))
		for n, w := range free {
			shown[n] = fmt.Sprintf("%s (holds %d, seen %s ago)", w.ID, w.Leases, durations.Rounded(s.Now.Sub(w.Seen)))
		}
		return fmt.Sprintf("%s polled namespace %s recently: %s", count(len(free), s.Namespace.More, "worker"), ns,
				named(shown)),
			fmt.Sprintf("A worker must poll %s and have free slots. To see what each worker holds, run progressor "+
				"worker list %s. %s", s.polledFor(), word(ns), s.startWorker(only))
	case len(alive) > 0:
		shown := make([]string, len(alive))
		for n, w := range alive {
			shown[n] = w.ID + " (" + w.Command + ")"
		}
		return fmt.Sprintf("%s polled namespace %s recently, but none may take new tasks: %s",
				count(len(alive), s.Namespace.More, "worker"), ns, named(shown)),
			fmt.Sprintf("To let that worker take tasks again, run progressor worker stop %s %s --continue. %s",
				word(ns), word(alive[0].ID), s.startWorker(only))
	case len(may) > 0:
		last := slices.MaxFunc(may, func(a, b Worker) int { return a.Seen.Compare(b.Seen) })
		return fmt.Sprintf("%s polls namespace %s: the last was %s, %s", none, ns, last.ID, s.at(last.Seen)),
			s.startWorker(only)
	}
	return fmt.Sprintf("%s polls namespace %s", none, ns), s.startWorker(only)
}

// polledFor describes what a worker has to poll for.
func (s State) polledFor() string {
	if s.Job != nil {
		return fmt.Sprintf("namespace %s for jobs named %q or for all jobs", s.Process.Namespace, s.Job.Name)
	}
	return "namespace " + s.Process.Namespace + " for processes, not only for jobs"
}

// startWorker describes how to start a worker.
func (s State) startWorker(only []string) string {
	ns := word(s.Process.Namespace)
	if s.Job == nil {
		return fmt.Sprintf("Start a worker that takes processes (client.Worker with HandleProcesses, or Poll without "+
			"jobs_only; progressor worker run takes only jobs), "+
			"or give the namespace a processor that is called. To see its settings, run progressor namespace get "+
			"%s.", ns)
	}
	id := ""
	if len(only) > 0 {
		id = " --worker-id " + word(only[0])
	}
	return fmt.Sprintf("To start a worker, run progressor worker run --namespace %s --job %s%s --exec COMMAND.", ns,
		word(s.Job.Name), id)
}

// count returns a number of things in words, with "at least" if there are more.
func count(n int, more bool, what string) string {
	text := fmt.Sprintf("%d %ss", n, what)
	if n == 1 {
		text = "1 " + what
	}
	if more {
		return "at least " + text
	}
	return text
}

// named lists at most maxNamed names.
func named(names []string) string {
	if len(names) > maxNamed {
		return fmt.Sprintf("%s and %d more", strings.Join(names[:maxNamed], ", "), len(names)-maxNamed)
	}
	return strings.Join(names, ", ")
}

func later(a, b time.Time) time.Time {
	if a.After(b) {
		return a
	}
	return b
}

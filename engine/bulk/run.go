package bulk

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"math"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/progressor-engine/progressor/engine"
	"github.com/progressor-engine/progressor/engine/actor"
	"github.com/progressor-engine/progressor/process"
	progressorv1 "github.com/progressor-engine/progressor/proto/progressor/v1"
	"github.com/progressor-engine/progressor/wire"
)

// limits are the limits of a bulk.
type limits struct {
	page  int // processes per page
	found int // jobs or runs per search; if the page has no time for some, they are looked up again
	// pageTime is how long a page starts to handle further processes. It is short, because a cancel
	// waits for the end of the page.
	pageTime   time.Duration
	concurrent int           // processes handled at the same time
	pause      time.Duration // before a retry
	tries      int           // per process
	unfinished int           // repairs that have not ended; a page may exceed this by its size
	polls      int           // per repair, with at least pause between them
	events     int64         // recorded failures; limited so that a request for all events succeeds
	expectTime time.Duration // time limit of the count in Start
	dryRunTime time.Duration // time limit of the count in a dry run
}

// Sixteen concurrent operations can share a commit, but they are only a small part of a flush.
var defaultLimits = limits{
	page: 500, found: 64, pageTime: time.Second, concurrent: 16, pause: time.Second, tries: 10, unfinished: 500,
	polls: 600, events: 5_000, expectTime: time.Second, dryRunTime: 5 * time.Second,
}

// These limits keep a history with 5,000 failures below 8 MiB. A control character takes six bytes
// in JSON, so 500 of them take 3,000 bytes. The text is cut until the whole event fits. An ID that
// consists of such characters always fits.
const (
	maxErrorBytes   = 500
	maxFailureBytes = 1600
)

// work is a task of a bulk: its INIT task, or the work of one page.
type work struct {
	*actor.Task
	bulks    *Bulks
	command  *command
	progress progress
	by       process.Actor
	recorded int64     // number of recorded failures
	created  time.Time // when the bulk was started
	began    time.Time
	over     time.Time // the page handles no further process after this time
	acted    int       // processes to which the verb was applied
	more     bool      // the next page can find further processes
	stopped  bool      // the node drains
}

func (b *Bulks) newWork(t *actor.Task) *work { return &work{Task: t, bulks: b, began: time.Now()} }

// start sets the timer for the first page.
func (w *work) start() error {
	w.Result.SetTimerAfter(0)
	return nil
}

// read decodes the command and the progress of the bulk.
func (w *work) read() error {
	p := w.Request.GetProcess()
	o, err := commandOf(p, actor.Decode)
	if err == nil {
		w.progress, err = progressOf(p, actor.Decode)
	}
	if err == nil {
		err = o.notAccepted(w.bulks.check(&o))
	}
	if err == nil && o.ArgsInInit {
		if err := w.bulks.readArgs(w.Ctx, w.Key, &o); err != nil {
			return err
		}
	}
	w.command = &o
	w.by = process.Actor{Name: o.Actor, Source: o.Source, RequestID: o.RequestID, Via: p.GetProcessId()}
	w.recorded, w.created = p.GetLastEventId(), p.GetCreatedTime().AsTime()
	return actor.BadState(err)
}

// page handles the next processes.
func (w *work) page() error {
	w.over = w.began.Add(min(w.bulks.limits.pageTime, time.Until(w.Request.GetDeadline().AsTime())/3))
	finished, err := w.run(w.Ctx)
	switch {
	case errors.Is(err, process.ErrDraining):
		w.stopped = true // another node continues
	case err != nil:
		return err
	}
	if w.Result.JSONAuxState(&w.progress); finished {
		w.Result.Complete()
	} else {
		w.Result.SetTimerAfter(w.wait())
	}
	return nil
}

// run applies the verb first to the processes that were found before, and then to further ones.
// finished is true if no process is left.
func (w *work) run(ctx context.Context) (finished bool, err error) {
	due, later, unfinished := w.progress.due()
	room := min(w.size()-len(due)-len(later), w.bulks.limits.unfinished-len(unfinished))
	w.progress.Again = later
	if w.Now.Sub(w.progress.Polled) < w.bulks.limits.pause {
		w.progress.Again = append(w.progress.Again, unfinished...)
	} else if len(unfinished) > 0 {
		w.progress.Polled = w.Now
		w.again(unfinished, func(a postponed) error { return w.poll(ctx, a) })
	}
	w.again(due, func(a postponed) error { return w.retry(ctx, a) })
	for full := room <= 0; ; {
		switch {
		case w.progress.Walked:
			return len(w.progress.Again) == 0, nil
		case room <= 0 || w.ends():
			w.more = !full
			return false, nil
		}
		did, more, err := w.next(ctx, room)
		if err != nil {
			return false, w.keep(err)
		}
		if !more {
			return len(w.progress.Again) == 0, nil
		}
		room -= did
	}
}

// again calls do for postponed processes. If the page has no time for some of them, the next page
// begins with these.
func (w *work) again(list []postponed, do func(postponed) error) {
	did := w.forEach(list, do)
	w.progress.Again = slices.Concat(list[did:], w.progress.Again)
}

// next applies the verb to at most limit further processes. n is the number of processes that it
// has handled or postponed. more is true if the search may find further processes.
func (w *work) next(ctx context.Context, limit int) (n int, more bool, err error) {
	if w.command.Kind != "" {
		limit = min(limit, w.bulks.limits.found)
	}
	at := place{w.progress.Cursor, w.progress.Token}
	found, next, more, err := w.bulks.find(ctx, w.Key.Namespace, w.command, w.created, at, limit)
	if err != nil {
		return 0, true, err
	}
	fresh := make([]postponed, len(found))
	for n, s := range found {
		fresh[n] = postponed{Cursor: s.Cursor, Barred: !w.definition().allows(s.State)}
	}
	did := w.forEach(fresh, func(a postponed) error { return w.verb(ctx, a) })
	if w.command.Kind != "" { // a position within a page cannot be stored
		w.progress.Again = append(w.progress.Again, fresh[did:]...)
		did = len(fresh)
	}
	w.progress.Matched += int64(did)
	if did < len(fresh) {
		w.progress.Cursor = found[did-1].Cursor
		return did, true, nil
	}
	w.advance(found, next, more)
	return did, more, nil
}

// advance records the position of the search.
func (w *work) advance(found []Item, next place, more bool) {
	if w.command.Kind == "" {
		w.progress.Cursor = next.cursor
		return
	}
	w.progress.Token, w.progress.Walked = next.token, !more
	if len(found) > 0 {
		w.progress.Cursor = found[len(found)-1].Cursor
	}
}

// keep ignores an error of the search if the page has results to store. The next page gets the
// error again.
func (w *work) keep(err error) error {
	if w.acted > 0 && !errors.Is(err, process.ErrDraining) {
		return nil
	}
	return err
}

// size returns the number of processes that the rate allows during a page.
func (w *work) size() int {
	return min(w.bulks.limits.page, max(int(math.Ceil(w.command.Rate*w.bulks.limits.pageTime.Seconds())), 1))
}

func (w *work) ends() bool { return w.stopped || !time.Now().Before(w.over) }

// definition returns the verb of the bulk.
func (w *work) definition() Verb { return w.bulks.verbs(w.command.Kind)[w.command.Verb] }

// verb applies the verb to a process.
func (w *work) verb(ctx context.Context, a postponed) error {
	key := process.Key{Namespace: w.Key.Namespace, ProcessID: a.ProcessID}
	return w.definition().Do(ctx, key, Options{Reason: w.command.Reason, Args: w.command.Args}, w.by)
}

// errNoMatch reports a process that no longer matches.
var errNoMatch = errors.New("it no longer matches")

// unsentError is an error that occurred before the verb was applied.
type unsentError struct{ error }

func (e unsentError) Unwrap() error { return e.error }

// retry applies the verb to a process that was found earlier, if the process still matches. In the
// meantime, the namespace may have been paused, or an operator may have repaired a process that the
// bulk would remove.
func (w *work) retry(ctx context.Context, a postponed) error {
	matches, err := w.bulks.matches(ctx, w.Key.Namespace, w.command, w.created, a.Cursor)
	switch {
	case err != nil:
		return unsentError{err}
	case !matches:
		return errNoMatch
	}
	return w.verb(ctx, a)
}

// poll returns the outcome of a repair that had not ended. If its task no longer exists, for
// example after a failover of the database, poll repairs the process again.
func (w *work) poll(ctx context.Context, a postponed) error {
	key := process.Key{Namespace: w.Key.Namespace, ProcessID: a.ProcessID}
	task, err := w.bulks.engine.AwaitTask(ctx, engine.AwaitParams{Key: key, TaskID: a.Task})
	if errors.Is(err, process.ErrTaskNotFound) {
		return w.retry(ctx, a)
	}
	if err != nil {
		return err
	}
	end := &engine.TaskError{Key: key, TaskID: a.Task}
	switch task.GetStatus() {
	case progressorv1.TaskStatus_TASK_STATUS_FINISHED:
		if end.Rejection = task.GetRejection(); end.Rejection == nil {
			return nil
		}
	case progressorv1.TaskStatus_TASK_STATUS_ERROR:
		end.Failure = cmp.Or(task.GetFailure(), &progressorv1.Failure{})
	case progressorv1.TaskStatus_TASK_STATUS_CANCELLED:
		end.Cancelled = true
	default:
		end.WaitTimeout = true
	}
	return end
}

// forEach calls do for the elements of a list, several at a time, until the time of the page is
// over. It handles at least one element, and returns the number of calls.
func (w *work) forEach(list []postponed, do func(postponed) error) (did int) {
	for did < len(list) && (did == 0 || !w.ends()) {
		batch := list[did:min(did+w.bulks.limits.concurrent, len(list))]
		errs := make([]error, len(batch))
		var group sync.WaitGroup
		for n, a := range batch {
			group.Go(func() { errs[n] = do(a) })
		}
		group.Wait()
		for n, a := range batch {
			w.account(a, errs[n])
		}
		did += len(batch)
	}
	return did
}

// account records the result for one process.
func (w *work) account(a postponed, err error) {
	var status *process.WrongStatusError
	if a.Task == 0 {
		w.acted++
	}
	end, ok := errors.AsType[*engine.TaskError](err)
	goesOn := ok && (end.WaitTimeout || end.Draining)
	switch {
	case goesOn:
		a.Task = end.TaskID
	case ok && end.LostByFailover:
		a.Task = 0
	}
	skip := errors.Is(err, process.ErrProcessNotFound) || errors.Is(err, process.ErrJobNotFound) ||
		errors.Is(err, process.ErrRunNotFound) || errors.Is(err, errNoMatch) || errors.As(err, &status)
	switch {
	case err == nil, skip && a.Unknown: // an earlier try probably took effect
		w.progress.Done++
	case skip:
		w.progress.Skipped++
	case errors.Is(err, process.ErrDraining), ok && end.Draining:
		w.stopped = true
		w.progress.Again = append(w.progress.Again, a)
	case (goesOn || ok && end.LostByFailover || isTemporary(err)) && a.Tries+1 < w.maxTries(a):
		a.Tries++
		a.Unknown = a.Unknown || w.mayHaveTakenEffect(a, err)
		w.progress.Again = append(w.progress.Again, a)
	default:
		w.progress.Failed++
		w.record(a.ProcessID, err)
	}
}

// maxTries returns how often the verb may fail temporarily for a process, or how often its repair
// may be found unfinished.
func (w *work) maxTries(a postponed) int {
	if a.Task != 0 {
		return w.bulks.limits.polls
	}
	return w.bulks.limits.tries
}

// isTemporary reports whether a repeat may succeed after an error.
func isTemporary(err error) bool {
	return errors.Is(err, process.ErrUnavailable) || errors.Is(err, process.ErrOverloaded) ||
		errors.Is(err, context.DeadlineExceeded) || errors.Is(err, context.Canceled)
}

// mayHaveTakenEffect reports whether a try with a temporary error may have changed the process.
// The repetition of a verb with an idempotency key finds out what the try did.
func (w *work) mayHaveTakenEffect(a postponed, err error) bool {
	if a.Barred || w.definition().Keyed {
		return false
	}
	_, unsent := errors.AsType[unsentError](err)
	return !unsent && !errors.Is(err, process.ErrLocked) && !errors.Is(err, process.ErrOverloaded)
}

// record adds an event for a failure, up to the limit.
func (w *work) record(id string, err error) {
	if w.recorded >= w.bulks.limits.events {
		return
	}
	w.recorded++
	w.Result.JSONEvent(failureOf(id, err.Error()))
}

// failureOf cuts the text of an error so that the event fits.
func failureOf(id, text string) failure {
	f := failure{ProcessID: id, Error: wire.Plain(text[:min(len(text), maxErrorBytes)])}
	for f.Error != "" && f.size() > maxFailureBytes {
		f.Error = strings.ToValidUTF8(f.Error[:len(f.Error)*3/4], "")
	}
	return f
}

func (f failure) size() int {
	text, _ := json.Marshal(f) // two strings
	return len(text)
}

// wait returns the time until the next page, according to the rate. It includes a pause if all
// remaining processes have failed temporarily, or if the page has only waited for repairs.
func (w *work) wait() time.Duration {
	if w.stopped {
		return 0
	}
	wait := time.Duration(float64(w.acted)/w.command.Rate*float64(time.Second)) - time.Since(w.began)
	due, _, unfinished := w.progress.due()
	if len(due) > 0 && due[0].Tries > 0 || len(due) == 0 && len(unfinished) > 0 && !w.more {
		wait = max(wait, w.bulks.limits.pause)
	}
	return max(wait, 0)
}

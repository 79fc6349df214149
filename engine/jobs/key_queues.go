package jobs

import (
	"cmp"
	"slices"
	"strings"
	"time"

	"github.com/progressor-engine/progressor/process"
	"github.com/progressor-engine/progressor/storage/jobs"
)

const (
	// keysPerTx and jobsPerTx bound the work of one transaction, to about 20 ms.
	keysPerTx = 500
	jobsPerTx = 1000
	// minRefill is the shortest wait for the next start of a bucket. At a high rate, several jobs
	// get their starts together.
	minRefill = 5 * time.Millisecond
	// unclaimedRest is the time until the next check of a bucket whose starts are not claimed yet.
	// The node that claims the starts checks the bucket immediately.
	unclaimedRest = 200 * time.Millisecond
)

// keyQueue is the state of a key within one transaction.
type keyQueue struct {
	rule   *rule // nil if the constraint no longer exists: every job in the queue may continue
	state  jobs.KeyState
	tokens float64 // tokens of the rate before this transaction takes some
	room   int32   // how many more jobs can get the key
	taken  int32
	asked  int32 // how many jobs were requested from the front of the queue

	reserved *reservation // nil if the key is not reserved
	refused  bool         // the next job did not get the key, because the key is reserved
}

func newKeyQueue(r *rule, s jobs.KeyState) *keyQueue {
	l := &keyQueue{rule: r, state: s, room: jobsPerTx}
	if r == nil {
		return l
	}
	if s.ReservedBy != "" {
		l.reserved = &reservation{job: s.ReservedBy, priority: s.ReservedPriority, taskID: s.ReservedTaskID}
	}
	if r.MaxRunning > 0 {
		l.room = max(min(l.room, r.MaxRunning-s.Held), 0)
	}
	if r.RateCount > 0 {
		l.tokens = refilled(r.Constraint, s)
		l.room = min(l.room, int32(l.tokens))
	}
	return l
}

// refilled returns the number of starts that a bucket has now. Starts that jobs were granted but
// had not used at the last refill reduce the size of the bucket, because all of those jobs may
// start at this moment. As a result, at most burst + rate × period jobs start in any period.
func refilled(c jobs.Constraint, s jobs.KeyState) float64 {
	size := float64(c.RateBurst)
	if !s.HasBucket {
		return max(size-float64(s.Unstarted), 0)
	}
	grown := s.Tokens + max(s.Now.Sub(s.RefilledTime).Seconds(), 0)*perSecond(c)
	return max(min(size-float64(s.BucketUnstarted), grown), 0)
}

func perSecond(c jobs.Constraint) float64 { return float64(c.RateCount) / c.RatePer.Seconds() }

func (l *keyQueue) rated() bool { return l.rule != nil && l.rule.RateCount > 0 }

func (l *keyQueue) take() {
	l.room--
	l.taken++
}

// bucket returns the state of the key's bucket after the transaction.
func (l *keyQueue) bucket() jobs.Bucket {
	c, left := l.rule.Constraint, l.tokens-float64(l.taken)
	b := jobs.Bucket{
		Line: l.state.Line, Tokens: max(left, 0), Unstarted: l.state.Unstarted + l.taken, Time: l.state.Now,
	}
	b.Full = seconds((float64(c.RateBurst) - left) / perSecond(c))
	switch {
	case left >= 2 || left >= 1 && l.reserved == nil:
	case left >= 1: // the job that has reserved it waits for another key, so the next job needs one more start
		b.Next = max(seconds((2-left)/perSecond(c)), unclaimedRest)
	case b.Unstarted >= c.RateBurst:
		b.Next = unclaimedRest
	default:
		b.Next = max(seconds((1-left)/perSecond(c)), minRefill)
	}
	return b
}

// seconds converts s to a Duration of at most a century.
func seconds(s float64) time.Duration {
	return time.Duration(min(s, (100*365*24*time.Hour).Seconds()) * float64(time.Second))
}

// outcome is the result of a transaction.
type outcome struct {
	placed  map[string]int           // number of jobs by job name
	blocked map[string]time.Duration // how long they have waited, by the last constraint that they waited for
	again   []string                 // queues that had room for more jobs than the transaction checked
}

// placer assigns keys to the jobs at the front of key queues.
type placer struct {
	tx     *jobs.ConstraintTx
	rules  *rules
	queues map[string]*keyQueue
	waits  time.Duration // until the first bucket permits a start

	unreserved map[string]struct{} // jobs whose stored reservations must be deleted
}

func newPlacer(t *jobs.ConstraintTx, r *rules) *placer {
	return &placer{tx: t, rules: r, queues: map[string]*keyQueue{}, unreserved: map[string]struct{}{}}
}

// next returns the time until timed work is due: the smaller of before and the time until the next
// start of a bucket. It is negative if there is no timed work.
func (p *placer) next(before time.Duration) time.Duration {
	if before < 0 || p.waits > 0 && p.waits < before {
		before = cmp.Or(p.waits, -1)
	}
	return before
}

// place assigns keys to the jobs at the front of key queues. A job that lacks a key waits in the
// queue of that key.
func (p *placer) place(names []string) (outcome, error) {
	done := outcome{placed: map[string]int{}, blocked: map[string]time.Duration{}}
	if err := p.read(names); err != nil {
		return done, err
	}
	front, err := p.front(names)
	if err != nil {
		return done, err
	}
	if len(front) > 0 && front[0].Given {
		for n := range front {
			p.queues[front[n].Line].take()
			done.count(p.tx, &front[n])
		}
	} else if err := p.assignEach(front, &done); err != nil {
		return done, err
	}
	in := map[string]int32{}
	for n := range front {
		in[front[n].Line]++
	}
	for name, l := range p.queues {
		if l.asked > 0 && !l.refused && (l.asked == in[name] && l.room > 0 || len(front) == jobsPerTx) {
			done.again = append(done.again, name)
		}
	}
	freed, err := p.storeReservations()
	if err != nil {
		return done, err
	}
	done.again = append(done.again, freed...)
	return done, p.storeBuckets()
}

// assignEach assigns keys if some jobs need several keys or must be evaluated.
func (p *placer) assignEach(front []jobs.QueuedJob, done *outcome) (err error) {
	keys := make([]map[string]string, len(front))
	var others []string
	for n := range front {
		if keys[n], err = p.keys(&front[n]); err != nil {
			return err
		}
		others = append(others, jobs.Constrained{Keys: keys[n]}.KeyNames()...)
	}
	if err := p.read(others); err != nil {
		return err
	}
	var moves []jobs.Move
	for n := range front {
		m, moved := p.move(&front[n], keys[n])
		if !moved {
			continue
		}
		moves = append(moves, m)
		if m.WaitsFor == process.WaitsForPlace {
			done.count(p.tx, &front[n])
		}
	}
	return p.tx.Move(moves)
}

// count records that a job can be claimed now.
func (o *outcome) count(t *jobs.ConstraintTx, j *jobs.QueuedJob) {
	o.placed[j.Name]++
	if constraint, _, inLine := strings.Cut(j.Line, "="); inLine {
		o.blocked[constraint] += max(t.Now.Sub(j.Since), 0)
	}
}

// read loads the state of unknown key queues. The queue "" holds jobs that must be evaluated, and
// has no limit.
func (p *placer) read(names []string) error {
	var unknown []string
	var rated []bool
	for _, name := range names {
		switch _, known := p.queues[name]; {
		case known:
		case name == "":
			p.queues[name] = newKeyQueue(nil, jobs.KeyState{})
		default:
			p.queues[name] = nil
			r := p.rules.of(name)
			unknown, rated = append(unknown, name), append(rated, r != nil && r.RateCount > 0)
		}
	}
	states, err := p.tx.Read(unknown, rated)
	for _, s := range states {
		p.queues[s.Line] = newKeyQueue(p.rules.of(s.Line), s)
	}
	return err
}

// front returns the jobs at the front of queues that have room, by priority, smallest first.
func (p *placer) front(names []string) ([]jobs.QueuedJob, error) {
	f := jobs.Front{Limit: jobsPerTx}
	for _, name := range names {
		if l := p.queues[name]; l.room > 0 {
			l.asked = min(l.room, jobsPerTx)
			f.Lines, f.Rooms, f.Reserved = append(f.Lines, name), append(f.Rooms, l.asked),
				f.Reserved || l.reserved != nil
		}
	}
	if len(f.Lines) == 0 {
		return nil, nil
	}
	front, err := p.tx.Front(f)
	slices.SortFunc(front, func(a, b jobs.QueuedJob) int {
		return cmp.Or(cmp.Compare(a.Priority, b.Priority), cmp.Compare(a.TaskID, b.TaskID))
	})
	return front, err
}

func (p *placer) keys(j *jobs.QueuedJob) (map[string]string, error) {
	if j.Stale {
		return p.rules.keys(j.Subject), nil
	}
	return jobs.KeysOf(j.Keys)
}

// move assigns to a job all keys that the job needs, or makes the job wait for the first one that
// it lacks.
func (p *placer) move(j *jobs.QueuedJob, keys map[string]string) (m jobs.Move, moved bool) {
	m = jobs.Move{ProcessID: j.ProcessID, TaskID: j.TaskID, Evaluated: j.Stale, Keys: keys}
	lines := jobs.Constrained{Keys: keys}.KeyNames()
	if j.Stale {
		p.unreserve(j.ProcessID) // its keys may have changed
	}
	for n, name := range lines {
		if l := p.queues[name]; !l.isFree(j) {
			l.refused = l.refused || name == j.Line
			p.reserve(j, lines, n)
			m.WaitsFor, m.Line = process.WaitsForConstraint, name
			return m, j.Stale || name != j.Line
		}
	}
	for _, name := range lines {
		if p.queues[name].isFor(j) {
			p.unreserve(j.ProcessID)
		}
		p.queues[name].take()
	}
	m.WaitsFor, m.Holds = process.WaitsForPlace, lines
	if len(lines) > 0 {
		m.Line = lines[0]
	}
	return m, true
}

// storeBuckets stores the buckets that the transaction has read.
func (p *placer) storeBuckets() error {
	var buckets []jobs.Bucket
	for _, l := range p.queues {
		if l.rated() {
			b := l.bucket()
			if b.Next > 0 && (p.waits == 0 || b.Next < p.waits) {
				p.waits = b.Next
			}
			buckets = append(buckets, b)
		}
	}
	slices.SortFunc(buckets, func(a, b jobs.Bucket) int { return cmp.Compare(a.Line, b.Line) })
	return p.tx.SetBuckets(buckets)
}

// sweep evaluates a batch of waiting jobs again. It returns the key queues that have new jobs and
// reports whether there are more jobs to evaluate.
func (r *rules) sweep(t *jobs.ConstraintTx) (lines []string, placed map[string]int, more bool, err error) {
	stale, over, err := t.Sweep()
	if err != nil {
		return nil, nil, false, err
	}
	placed = map[string]int{}
	moves := make([]jobs.Move, 0, len(stale))
	evaluated := make([]string, 0, len(stale))
	for n := range stale {
		j := &stale[n]
		evaluated = append(evaluated, j.ProcessID)
		needs := r.constrained(j.Subject)
		m := jobs.Move{
			ProcessID: j.ProcessID, TaskID: j.TaskID, WaitsFor: j.WaitsFor, Line: needs.FirstKey(), Evaluated: true,
			Keys: needs.Keys,
		}
		switch {
		case j.WaitsFor != process.WaitsForPlace && j.WaitsFor != process.WaitsForConstraint:
		case m.Line == "":
			m.WaitsFor = process.WaitsForPlace
			placed[j.Name]++
		default:
			m.WaitsFor = process.WaitsForConstraint
			lines = append(lines, m.Line)
		}
		moves = append(moves, m)
	}
	freed, err := t.Reserve(evaluated, nil) // the keys of these jobs may have changed
	if err != nil {
		return nil, nil, false, err
	}
	return append(lines, freed...), placed, !over, t.Move(moves)
}

// hold records the keys of running jobs that were claimed under an older version. These keys count
// against the limits, even if they exceed them.
func (r *rules) hold(t *jobs.ConstraintTx) error {
	running, err := t.Unheld()
	if err != nil {
		return err
	}
	var moves []jobs.Move
	for id, s := range running {
		if needs := r.constrained(s); len(needs.Keys) > 0 {
			moves = append(moves, jobs.Move{ProcessID: id, Holds: needs.KeyNames()})
		}
	}
	return t.Hold(moves)
}

// needsSweep reports whether waiting jobs must be evaluated: once after a change, and again when
// all transactions that were open at the time of the change have ended. again is true if a sweep
// must begin. under is true if a sweep must begin or continue.
func needsSweep(t *jobs.ConstraintTx) (again, under bool) {
	settled := t.Changed.Add(settleTime)
	again = t.Cursor == nil && (t.Swept.Before(t.Changed) || t.Now.After(settled) && t.Swept.Before(settled))
	return again, again || t.Cursor != nil
}

// settleTime is longer than any transaction of the engine.
const settleTime = 20 * time.Second

// settling reports whether jobs that were claimed under an older version may still appear.
func settling(t *jobs.ConstraintTx) bool { return t.Now.Before(t.Changed.Add(settleTime)) }

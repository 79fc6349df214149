package jobs

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/progressor-engine/progressor/process"
	"github.com/progressor-engine/progressor/storage"
	"github.com/progressor-engine/progressor/storage/jobs"
)

// admission assigns keys of constraints to the jobs that wait for them. It runs on every node. When
// this node frees a key or enqueues a job, admission checks the key queue. In each pass of the
// collector, admission checks all key queues, and thereby completes the unfinished work of dead
// nodes.
type admission struct {
	jobs  *Jobs
	woken chan struct{}

	mu      sync.Mutex
	rules   map[string]*rules // rules of namespaces that have or had constraints, as this node knows them
	pending map[string]*checks
	next    map[string]time.Time     // when a namespace has timed work
	from    map[string]string        // where the next check of all queues continues
	held    map[string]jobs.HeldKeys // where the next check of held keys continues
}

// checks are the pending checks of a namespace.
type checks struct {
	keys map[string]struct{}
	all  bool // also check the queues that were not reported
}

func newAdmission(q *Jobs) *admission {
	return &admission{
		jobs: q, woken: make(chan struct{}, 1), rules: map[string]*rules{}, pending: map[string]*checks{},
		next: map[string]time.Time{}, from: map[string]string{},
		held: map[string]jobs.HeldKeys{},
	}
}

const (
	// admissionRest is the longest time between two checks for timed work.
	admissionRest = time.Second
	// sweepTime limits how long one check evaluates waiting jobs.
	sweepTime = 500 * time.Millisecond
	// txTimeout bounds a transaction on a connection that does not respond. statement_timeout ends
	// a slow statement earlier.
	txTimeout = 12 * time.Second
)

// Run assigns keys until ctx ends.
func (a *admission) Run(ctx context.Context) error {
	sleep := time.NewTimer(0)
	defer sleep.Stop()
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-a.woken:
		case <-sleep.C:
			a.due(time.Now())
		}
		for namespace, l := range a.take() {
			a.serve(ctx, namespace, l)
		}
		sleep.Reset(a.rest(time.Now()))
	}
}

// refresh schedules a check of every namespace that has, or had, constraints.
func (a *admission) refresh(all []storage.NamespaceState) {
	for _, s := range all {
		if s.ConstraintsVersion > 0 {
			a.notify(s.Namespace, true)
		}
	}
}

// forgetDeleted drops the rules of namespaces that were deleted or are being deleted. If a
// namespace of the same name is created later, its versions begin again at the start.
func (a *admission) forgetDeleted(all []storage.NamespaceState) {
	live := make(map[string]bool, len(all))
	for _, s := range all {
		live[s.Namespace] = s.DeletionRequestedTime == nil
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	maps.DeleteFunc(a.rules, func(namespace string, _ *rules) bool { return !live[namespace] })
}

// notify schedules a check of the given key queues of a namespace, or of all of them if all is set.
// It never blocks.
func (a *admission) notify(namespace string, all bool, lines ...string) {
	a.mu.Lock()
	l := a.pending[namespace]
	if l == nil {
		l = &checks{keys: map[string]struct{}{}}
		a.pending[namespace] = l
	}
	l.all = l.all || all
	for _, line := range lines {
		l.keys[line] = struct{}{}
	}
	a.mu.Unlock()
	select {
	case a.woken <- struct{}{}:
	default:
	}
}

func (a *admission) take() map[string]*checks {
	a.mu.Lock()
	defer a.mu.Unlock()
	taken := a.pending
	a.pending = map[string]*checks{}
	return taken
}

// due schedules a check of the namespaces whose timed work is due.
func (a *admission) due(now time.Time) {
	a.mu.Lock()
	defer a.mu.Unlock()
	for namespace, at := range a.next {
		if at.After(now) {
			continue
		}
		delete(a.next, namespace)
		if a.pending[namespace] == nil {
			a.pending[namespace] = &checks{keys: map[string]struct{}{}}
		}
	}
}

func (a *admission) rest(now time.Time) time.Duration {
	a.mu.Lock()
	defer a.mu.Unlock()
	rest := admissionRest
	for _, at := range a.next {
		rest = min(rest, at.Sub(now))
	}
	return max(rest, time.Millisecond)
}

// known returns the rules of a namespace as this node knows them, or nil if it knows none.
func (a *admission) known(namespace string) *rules {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.rules[namespace]
}

// learn returns the rules that are in force in a transaction.
func (a *admission) learn(t *jobs.ConstraintTx) (*rules, error) {
	if r := a.known(t.Namespace); r != nil && r.version == t.Version {
		return r, nil
	}
	if err := t.Load(); err != nil {
		return nil, err
	}
	r, err := newRules(t.Version, t.Constraints)
	if err != nil {
		return nil, err
	}
	a.remember(t.Namespace, r)
	return r, nil
}

func (a *admission) remember(namespace string, r *rules) {
	for name := range r.byName {
		a.jobs.metrics.blockedBy(namespace, name) // exported as 0 before a job waits
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	if old := a.rules[namespace]; old == nil || old.version < r.version {
		a.rules[namespace] = r
	}
}

// serve checks key queues of a namespace, some of them in each transaction.
func (a *admission) serve(ctx context.Context, namespace string, l *checks) {
	if !a.jobs.engine.CanHandOut(namespace) {
		return // the check of all queues finds them
	}
	began := time.Now()
	lines := slices.Sorted(maps.Keys(l.keys))
	for last := false; !last; {
		part := lines[:min(len(lines), keysPerTx)]
		lines = lines[len(part):]
		last = len(part) == 0 || len(lines) == 0 && !l.all // a reported queue must not wait for the check of all queues
		more, err := a.assignKeys(ctx, namespace, part, last && l.all)
		if err != nil {
			a.jobs.engine.ReportScanError(ctx, "constraints", err)
			a.later(namespace, append(part, lines...), l.all)
			return
		}
		if len(more) > 0 {
			a.notify(namespace, false, more...)
		}
	}
	for l.all && time.Since(began) < sweepTime {
		more, err := a.sweep(ctx, namespace)
		if err != nil || !more {
			return
		}
	}
	if l.all {
		a.notify(namespace, true) // there was no time to check the rest
	}
}

// later queues another check after 50 ms.
func (a *admission) later(namespace string, lines []string, all bool) {
	time.AfterFunc(50*time.Millisecond, func() { a.notify(namespace, all, lines...) })
}

// assignKeys assigns keys to the jobs at the front of the given key queues and, if all is set, of
// other queues as well. It returns the queues that have more jobs to place.
func (a *admission) assignKeys(
	ctx context.Context, namespace string, lines []string, all bool,
) (more []string, err error) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), txTimeout)
	defer cancel()
	var done outcome
	var next time.Duration
	_, err = jobs.RunConstraintTx(ctx, a.jobs.store, namespace, func(t *jobs.ConstraintTx) error {
		t.Paused = a.jobs.engine.PausedNames(namespace)
		r, err := a.learn(t)
		if err != nil {
			return err
		}
		names, err := a.keys(t, r, lines, all)
		if err != nil {
			return err
		}
		p := newPlacer(t, r)
		if done, err = p.place(names); err != nil {
			return err
		}
		if next = p.next(t.Next); all || t.Next == 0 {
			next, err = t.Rest()
		}
		return err
	})
	if err != nil {
		return nil, err
	}
	a.mu.Lock()
	delete(a.next, namespace)
	if next >= 0 {
		a.next[namespace] = time.Now().Add(next)
	}
	a.mu.Unlock()
	a.jobs.metrics.given(namespace, done.blocked)
	a.jobs.engine.WakeByName(namespace, done.placed)
	return done.again, nil
}

// keys returns the names of the key queues to check: those in lines, and those whose timed work is
// due. If all is set, it also returns the next part of all queues.
func (a *admission) keys(t *jobs.ConstraintTx, r *rules, lines []string, all bool) ([]string, error) {
	names := map[string]struct{}{}
	add := func(more []string, err error) error {
		for _, line := range more {
			names[line] = struct{}{}
		}
		return err
	}
	err := add(lines, nil)
	if all || t.Next == 0 {
		err = errors.Join(add(t.Due(jobsPerTx)), add(t.DueBuckets(keysPerTx)))
	}
	if err != nil || !all {
		return slices.Sorted(maps.Keys(names)), err
	}
	if settling(t) {
		if err := r.hold(t); err != nil {
			return nil, err
		}
	}
	if err := add(t.ReturnPaused()); err != nil {
		return nil, err
	}
	walked, err := t.Keys(a.from[t.Namespace], keysPerTx)
	if a.from[t.Namespace] = ""; len(walked) == keysPerTx {
		a.from[t.Namespace] = walked[len(walked)-1]
	}
	freed, next, tidyErr := t.Tidy(a.held[t.Namespace])
	a.held[t.Namespace] = next
	err = errors.Join(add(walked, err), add(freed, tidyErr))
	return slices.Sorted(maps.Keys(names)), err
}

// sweep continues the evaluation of waiting jobs after constraints have changed. It reports whether
// there may be more.
func (a *admission) sweep(ctx context.Context, namespace string) (more bool, err error) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), txTimeout)
	defer cancel()
	var lines []string
	var placed map[string]int
	_, err = jobs.RunConstraintTx(ctx, a.jobs.store, namespace, func(t *jobs.ConstraintTx) error {
		again, under := needsSweep(t)
		if !under {
			return nil
		}
		r, err := a.learn(t)
		if err != nil {
			return err
		}
		if again {
			if err := t.SweepAgain(); err != nil {
				return err
			}
		}
		lines, placed, more, err = r.sweep(t)
		return err
	})
	if err != nil {
		return false, err
	}
	a.jobs.engine.WakeByName(namespace, placed)
	if len(lines) > 0 {
		a.notify(namespace, false, lines...)
	}
	return more, nil
}

// admit reports whether a claimed job may run. It may not run if its keys were computed under a
// different version of the constraints than the version at its claim.
func (a *admission) admit(c *storage.Claim) bool {
	j, ok := jobs.JobOf(c)
	if !ok {
		return true
	}
	if r := a.known(c.Namespace); r != nil && len(keysOf(j)) > 0 {
		a.claimed(c.Namespace, r, j)
	}
	return j.ConstraintsVersion == j.ConstraintsNow
}

// keysOf returns the keys of a claimed job. If they cannot be read, which is a bug, it returns
// none.
func keysOf(j jobs.Job) map[string]string {
	keys, _ := jobs.KeysOf(j.ConstraintKeys)
	return keys
}

// claimed schedules a check of the buckets from which a claimed job has taken a start, because they
// refill from now on.
func (a *admission) claimed(namespace string, r *rules, j jobs.Job) {
	var lines []string
	for name, key := range keysOf(j) {
		if rule := r.byName[name]; rule != nil && rule.RateCount > 0 {
			lines = append(lines, jobs.KeyOf(name, key))
		}
	}
	if len(lines) > 0 {
		a.notify(namespace, false, lines...)
	}
}

// stored schedules a check of the key queues whose keys the end of an attempt has freed, and of
// jobs that must be evaluated.
func (a *admission) stored(c *storage.Claim) {
	if a.known(c.Namespace) == nil {
		return
	}
	j, ok := jobs.JobOf(c)
	if !ok {
		return
	}
	lines := jobs.Constrained{Keys: keysOf(j)}.KeyNames()
	if len(lines) > 0 || j.ConstraintsVersion != j.ConstraintsNow {
		a.notify(c.Namespace, false, append(lines, "")...)
	}
}

// checkAll schedules a check of all key queues of a namespace that has constraints: a job may have
// moved to another queue or released a key.
func (a *admission) checkAll(namespace string) {
	if a.known(namespace) != nil {
		a.notify(namespace, true)
	}
}

// enqueued schedules a check of the key queue of a new job.
func (a *admission) enqueued(j *jobs.NewJob) {
	if len(j.Constraints.Keys) > 0 {
		a.notify(j.Key.Namespace, false, j.Constraints.FirstKey())
	}
}

// changed returns the rules after a change of constraints, and counts running jobs under them.
func changed(t *jobs.ConstraintTx) (*rules, error) {
	if len(t.Constraints) > maxConstraints {
		return nil, &process.InvalidError{
			Field: "constraint", Message: fmt.Sprintf("a namespace has at most %d constraints", maxConstraints),
		}
	}
	r, err := newRules(t.Version, t.Constraints)
	if err != nil {
		return nil, err
	}
	err = r.hold(t)
	return r, err
}

// follow applies a change of constraints after this node has stored it.
func (a *admission) follow(namespace string, r *rules) {
	a.remember(namespace, r)
	a.notify(namespace, true)
}

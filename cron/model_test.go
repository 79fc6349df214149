package cron

import (
	"fmt"
	"slices"
	"time"
)

// model is a second implementation of docs/crons.md and of the comments in cron.proto. Its only
// state is the history: every row of the ledger and every run. It searches the history for the
// facts that it needs. It shares no code with the decider.
type model struct {
	policy    Policy
	rows      []*modelRow
	started   []*modelRow // in the order of their starts
	ended     []*modelRow // in the order of their ends
	paused    bool
	skipUntil time.Time
	resumed   int       // how many runs had ended when the cron was last resumed
	opened    time.Time // when the circuit opened or had its last trial
	maxFires  int
}

type modelRow struct {
	Fire
	status   Status // status of the run
	end      time.Time
	replaced bool // CANCEL_PREV replaced the run
	spent    bool
	buffered bool
	// independent means that all policies ignore the run.
	independent bool
}

func (r *modelRow) running() bool { return r.status == Running && !r.replaced }

func (r *modelRow) failed() bool {
	return !r.replaced && (r.status == Failed || r.status == Timeout || r.status == Cancelled)
}

func (m *model) before() *modelRow {
	if len(m.started) == 0 {
		return &modelRow{}
	}
	return m.started[len(m.started)-1]
}

func (m *model) running() int {
	n := 0
	for _, row := range m.started {
		if row.running() {
			n++
		}
	}
	return n
}

func (m *model) waiting() []*modelRow {
	var list []*modelRow
	for _, row := range m.rows {
		if row.status == Scheduled {
			list = append(list, row)
		}
	}
	return list
}

// failures counts the failed runs since the newest success or the newest resume.
func (m *model) failures() int {
	n := 0
	for _, row := range m.ended[m.resumed:] {
		if n++; row.status == Success {
			n = 0
		}
	}
	return n
}

func (m *model) backoff(n int) time.Duration {
	wait := m.policy.RetryBackoff.Initial
	for ; n > 1 && wait < m.policy.RetryBackoff.Max; n-- {
		wait *= 2
	}
	return min(wait, m.policy.RetryBackoff.Max)
}

func atLeastOne(n int32) int { return max(int(n), 1) }

// decision checks the rules of the API in order. The first rule that holds decides.
func (m *model) decision(overlap OverlapAction, manual bool, now time.Time) (decision Decision, cancel, trial bool) {
	p, before := m.policy, m.before()
	overlaps, failed := before.running(), before.failed()
	open := p.Failure == FailureHalfOpen && p.PauseAfterFailures > 0 && m.failures() >= int(p.PauseAfterFailures)
	others := m.running()
	if overlap == OverlapActionCancelPrev && overlaps {
		others--
	}
	limit := p.QueueLimit
	if limit == 0 {
		limit = 1000
	}
	for _, sentence := range []struct {
		holds    bool
		decision Decision
	}{
		// Overlap.
		{overlap == OverlapActionParallel && p.MaxOverlap > 0 && m.running() >= int(p.MaxOverlap), SkippedOverlap},
		{overlap == OverlapActionSkip && overlaps, SkippedOverlap},
		{overlap == OverlapActionBufferOne && overlaps && len(m.waiting()) > 0, SkippedOverlap},
		{overlap == OverlapActionBufferOne && overlaps, Queued},
		// Failure.
		{p.Failure == FailureSkip && failed && !before.spent && !manual, SkippedFailure},
		{p.Failure == FailureBackoff && failed && !manual && now.Sub(before.end) < m.backoff(int(before.Attempt)),
			SkippedFailure},
		{open && !manual && now.Sub(m.opened) < m.backoff(m.failures()-int(p.PauseAfterFailures)+1), SkippedFailure},
		// Concurrency.
		{overlap == OverlapActionParallel && overlaps, Fired},
		{others < atLeastOne(p.MaxConcurrency), Fired},
		{p.Concurrency != ConcurrencyQueue, SkippedConcurrency},
		{len(m.waiting()) >= int(limit), Dropped},
		{true, Queued},
	} {
		if sentence.holds {
			decision = sentence.decision
			break
		}
	}
	return decision, overlap == OverlapActionCancelPrev && overlaps && decision == Fired, open && decision == Fired
}

// fire adds the row of a fire time.
func (m *model) fire(at time.Time, overlap OverlapAction, manual bool, now time.Time) {
	if overlap == OverlapActionDefault {
		overlap = m.policy.Overlap
	}
	decision, cancel, trial := m.decision(overlap, manual, now)
	row := &modelRow{Fire: Fire{Time: at, Decision: decision, Manual: manual, Count: 1}, status: Skipped}
	if decision == SkippedFailure && m.policy.Failure == FailureSkip {
		m.before().spent = true
	}
	m.rows = append(m.rows, row)
	switch decision {
	case Fired:
		if cancel {
			m.before().replaced = true
		}
		if trial {
			m.opened = now
		}
		m.start(row)
	case Queued:
		row.status = Scheduled
		row.buffered = overlap == OverlapActionBufferOne && m.before().running()
	}
}

func (m *model) start(row *modelRow) {
	row.Attempt = 1
	retries := m.policy.Failure == FailureRetry || m.policy.Failure == FailureBackoff
	if before := m.before(); retries && before.failed() &&
		(m.policy.MaxAttempts == 0 || before.Attempt < m.policy.MaxAttempts) {
		row.Attempt = before.Attempt + 1
	}
	row.status = Running
	m.started = append(m.started, row)
}

func (m *model) startWaiting() {
	for _, row := range m.waiting() {
		if m.running() >= atLeastOne(m.policy.MaxConcurrency) || row.buffered && m.before().running() {
			if !m.paused || row.Manual {
				return
			}
		}
		if (!m.paused || row.Manual) && m.running() < atLeastOne(m.policy.MaxConcurrency) {
			m.start(row)
		}
	}
}

// used counts the runs that max_fires counts.
func (m *model) used() int {
	n := 0
	for _, row := range m.rows {
		if !row.Manual && (row.Decision == Fired || row.Decision == Queued) {
			n++
		}
	}
	return n
}

func (m *model) over() bool { return m.maxFires > 0 && m.used() >= m.maxFires }

// tick decides the fire times that have passed and have no row.
func (m *model) tick(times []time.Time, now time.Time) {
	m.startWaiting()
	if m.paused {
		return
	}
	var due []time.Time
	for _, at := range times {
		has := slices.ContainsFunc(m.rows, func(row *modelRow) bool { return row.Time.Equal(at) })
		if !at.After(now) && !has {
			due = append(due, at)
		}
	}
	over, starting := m.over(), len(due)
	if m.policy.Misfire <= MisfireFireNow {
		starting = m.starting(due, now)
	}
	for i, at := range due {
		if over {
			return
		}
		newer, late := len(due)-1-i, now.Sub(at)
		p := m.policy
		if !at.After(m.skipUntil) ||
			p.CatchUpWindow > 0 && late > p.CatchUpWindow ||
			newer >= starting ||
			p.Misfire == MisfireSkip && (newer > 0 || late > p.MisfireThreshold) ||
			p.Misfire == MisfireCatchUpLimited && newer >= int(p.CatchUpLimit) {
			m.rows = append(m.rows, &modelRow{Fire: Fire{Time: at, Decision: Missed, Count: 1}, status: Skipped})
			continue
		}
		m.fire(at, m.policy.Overlap, false, now)
		over = m.over()
	}
}

// starting returns how many of the newest due fire times FIRE_NOW decides. It decides all due fire
// times in order on a copy of the model. The result is the number of fire times that start or wait
// there, plus the number that are skipped because of a failure. If none starts or waits, the result
// is the number of all due fire times.
func (m *model) starting(due []time.Time, now time.Time) int {
	tried := *m
	tried.rows, tried.started = nil, nil
	copies := map[*modelRow]*modelRow{}
	for _, row := range m.rows {
		c := *row
		copies[row] = &c
		tried.rows = append(tried.rows, &c)
	}
	for _, row := range m.started {
		tried.started = append(tried.started, copies[row])
	}
	starts, spent := 0, 0
	for _, at := range due {
		if tried.over() {
			break
		}
		if !at.After(m.skipUntil) || m.policy.CatchUpWindow > 0 && now.Sub(at) > m.policy.CatchUpWindow {
			continue
		}
		tried.fire(at, m.policy.Overlap, false, now)
		switch row := tried.rows[len(tried.rows)-1]; {
		case row.Decision == Fired || row.Decision == Queued:
			starts++
		case row.Decision == SkippedFailure && m.policy.Failure == FailureSkip:
			spent++
		}
	}
	if starts == 0 {
		return len(due)
	}
	return starts + spent
}

func (m *model) end(at time.Time, status Status, now time.Time) {
	for _, row := range m.started {
		if !row.Time.Equal(at) || !row.running() {
			continue
		}
		row.status, row.end = status, now
		m.ended = append(m.ended, row)
		threshold := int(m.policy.PauseAfterFailures)
		if status != Success && threshold > 0 && m.failures() >= threshold {
			if m.policy.Failure == FailureHalfOpen {
				m.opened = now
			} else {
				m.paused = true
			}
		}
		m.startWaiting()
		return
	}
}

// refuse removes a started run from the history of runs.
func (m *model) refuse(at time.Time) {
	for i, row := range m.started {
		if row.Time.Equal(at) {
			m.started = slices.Delete(m.started, i, i+1)
			row.Decision, row.status, row.Attempt = SkippedConcurrency, Skipped, 0
			m.startWaiting()
			return
		}
	}
}

// startPast starts an independent run for each past fire time that has no row.
func (m *model) startPast(from, to, now time.Time) {
	for at := from; at.Before(to) && !at.After(now); at = at.Add(time.Minute) {
		if !slices.ContainsFunc(m.rows, func(row *modelRow) bool { return row.Time.Equal(at) }) {
			fire := Fire{Time: at, Decision: Fired, Attempt: 1, Manual: true, Count: 1}
			m.rows = append(m.rows, &modelRow{Fire: fire, status: Running, independent: true})
		}
	}
}

// withdraw ends a waiting fire, so that it never starts.
func (m *model) withdraw(at time.Time) {
	for _, row := range m.waiting() {
		if row.Time.Equal(at) {
			row.status = Cancelled
		}
	}
	m.startWaiting()
}

func (m *model) resume(skipMissed bool, times []time.Time, now time.Time) {
	if m.paused {
		m.paused = false
		m.resumed = len(m.ended)
		if skipMissed {
			m.skipUntil = now
		}
	}
	m.tick(times, now)
}

// line formats a row for comparison.
func (r *modelRow) line() string {
	status := r.status
	return fmt.Sprintf("%s %s attempt %d %s manual %t cancelled %t", text(r.Time), r.Decision, r.Attempt, status,
		r.Manual, r.replaced)
}

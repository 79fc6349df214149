package storage

import (
	"slices"
	"sync"
	"time"

	"github.com/progressor-engine/progressor/process"
)

const (
	// lineWait is how long a call waits in memory for the results before it, until it is stored, to wait in schedule. Twelve clients that
	// call one process wait 30 ms; nobody is to wait for long for an answer that a crash would lose.
	lineWait = 100 * time.Millisecond
	// lineLook is how often a call in line asks whether it may still wait: it holds a place that others may want.
	lineLook = 20 * time.Millisecond
)

// lines let a call of a process that this node runs wait in memory, to go into the very flush that stores the result. Stored first, it
// makes a row of schedule, and its flush, and the one of that result, take the large statements for all of their items: 512 clients that
// call 10,000 processes at random meet a busy one in 5 of 100 calls, which made nearly every flush one of that kind. Nothing is promised
// to a client that waits in a line: what it asks for is not stored yet.
//
// (The lines of constraints are others: rows of schedule that wait for a key.)
//
// A line goes by a guess at what the database knows. Where that is wrong, a call is stored after lineWait at the most.
type lines struct {
	wait   time.Duration // lineWait, or what a test wants
	mu     sync.Mutex
	visits map[process.Key]*visit
}

// visit is the time in which a process runs here: from a call that is about to be captured to a result after which nothing runs.
type visit struct {
	line    []*callItem // in the order in which they came
	stored  int         // calls of the line that were stored: they go first
	foreign bool        // others wait in schedule, that came another way: what comes now is stored behind them
}

// joint is a result and the call that goes with it, if any. The last of both to be answered says what becomes of the line.
type joint struct {
	open int  // how many of them are not answered
	next bool // the call was captured
	on   bool // a task that was stored runs next here
}

// The ways of a call.
type way int

const (
	leads  way = iota // the process is not known to run here: it tries to be captured
	waits             // it stands in line
	passes            // it is stored at once
)

// enter tells the way of a call.
func (l *lines) enter(it *callItem) way {
	l.mu.Lock()
	defer l.mu.Unlock()
	v, runs := l.visits[it.key]
	if !runs {
		l.visits[it.key] = &visit{}
		return leads
	}
	if v.foreign || v.stored+len(v.line) >= int(it.call.MaxWaiting) {
		return passes
	}
	it.turn = make(chan struct{})
	v.line = append(v.line, it)
	return waits
}

// join has the first of a line go with a result, if nothing that was stored goes before it.
func (l *lines) join(save *saveItem) {
	l.mu.Lock()
	defer l.mu.Unlock()
	save.joint = &joint{open: 1}
	if v, runs := l.visits[save.key]; runs && v.stored == 0 && !v.foreign && len(v.line) > 0 {
		save.next = v.take()
		save.next.joint = save.joint
		save.joint.open = 2
	}
}

func (v *visit) take() *callItem {
	first := v.line[0]
	v.line = v.line[1:]
	return first
}

// leave takes a call out of its line, to be stored; false: it has gone already.
func (l *lines) leave(it *callItem) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	v, runs := l.visits[it.key]
	if !runs {
		return false
	}
	n := slices.Index(v.line, it)
	if n < 0 {
		return false
	}
	v.line = slices.Delete(v.line, n, n+1)
	v.stored++
	return true
}

// answered notes an answer of a joint, and what it says: a call that was captured runs now, or a task that was stored. When all are there,
// the line knows what becomes of its process.
func (l *lines) answered(key process.Key, j *joint, captured, on bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	j.open--
	j.next, j.on = j.next || captured, j.on || on
	v, runs := l.visits[key]
	switch {
	case j.open > 0 || j.next || !runs:
	case !j.on:
		l.over(key, v)
	case v.stored > 0:
		v.stored--
	default:
		v.foreign = true
	}
}

// over passes the turn on where nothing of a process is known to run here.
func (l *lines) over(key process.Key, v *visit) {
	v.stored, v.foreign = 0, false
	if len(v.line) == 0 {
		delete(l.visits, key)
		return
	}
	close(v.take().turn)
}

// lost lets a whole line go: who led was not captured, so it is busy elsewhere, or takes no calls.
func (l *lines) lost(key process.Key) {
	l.mu.Lock()
	defer l.mu.Unlock()
	v, runs := l.visits[key]
	if !runs {
		return
	}
	delete(l.visits, key)
	for _, it := range v.line {
		close(it.turn)
	}
}

// inLine captures a call, or stores it, where it may wait in memory for its turn.
func (s *Store) inLine(it *callItem) error {
	switch s.lines.enter(it) {
	case leads:
		return s.lead(it)
	case passes:
		it.whole = true
		return s.submit(it)
	}
	look := time.NewTicker(min(lineLook, s.lines.wait))
	defer look.Stop()
	for until := time.Now().Add(s.lines.wait); ; {
		select {
		case <-it.done: // it has gone with a result
			s.lines.answered(it.key, it.joint, it.err == nil && it.prepared.Outcome == Captured, false)
			return it.err
		case <-it.turn:
			return s.lead(it)
		case now := <-look.C:
			if (now.Before(until) && it.call.Patient()) || !s.lines.leave(it) {
				continue
			}
			it.whole = true
			return s.submit(it)
		}
	}
}

// lead has a call captured whose process is thought to be free.
func (s *Store) lead(it *callItem) error {
	err := s.submit(it)
	if err != nil || it.prepared.Outcome != Captured {
		s.lines.lost(it.key)
	}
	return err
}

package storage

import (
	"context"
	"errors"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/progressor-engine/progressor/process"
)

// HotConfig returns the configuration of the connections of lanes and scans, for tests of plans.
func HotConfig(dsn string) (*pgx.ConnConfig, error) {
	return connConfig(dsn, hotSettings, "progressor test")
}

// GeneralConfig returns the configuration of the connections for reads, lists and maintenance, for
// tests of plans.
func GeneralConfig(dsn string) (*pgx.ConnConfig, error) {
	return connConfig(dsn, generalSettings, "progressor test")
}

// WithGeneralStatements turns the fast path of an unused store off, so that a transaction that gets
// its locks first also stores its items first.
func (s *Store) WithGeneralStatements() *Store {
	s.generalOnly = true
	return s
}

// LockWait is less than the lock_timeout of the lanes after WaitForLocks.
const LockWait = 4 * time.Second

// WaitForLocks makes the flushes of an unused store wait for locked processes, so that a test sees
// which transaction waits for which. On a busy machine, the lock_timeout of the hot path is too
// short for this.
func (s *Store) WaitForLocks() *Store {
	s.waitsForLocks = true
	for _, l := range s.lanes {
		l.config.RuntimeParams["lock_timeout"] = "5000"
	}
	return s
}

// PrepareResume moves the waiting tasks of a suspended process, as ResumeProcess does before it
// changes the status.
func (s *Store) PrepareResume(key process.Key) error { return s.prepareResume(key) }

// EncodeArrays makes a connection encode arrays like a lane.
var EncodeArrays = encodeArrays

// CallQueueWait sets how long calls wait in call queues. The queues must be empty.
func (s *Store) CallQueueWait(wait time.Duration) *Store {
	s.callQueues.wait = wait
	return s
}

// CallQueue returns the number of calls to a process that wait in memory, and the number of
// processes that are known to run here.
func (s *Store) CallQueue(key process.Key) (waiting, processes int) {
	s.callQueues.mu.Lock()
	defer s.callQueues.mu.Unlock()
	if p, runs := s.callQueues.byProcess[key]; runs {
		waiting = len(p.calls)
	}
	return waiting, len(s.callQueues.byProcess)
}

// FlushAsItCloses flushes calls right after the store was closed, as a lane may do with items that
// its last flush has left.
func (s *Store) FlushAsItCloses(calls ...*Call) (errs []error) {
	l := newLane(s, 0, s.lanes[0].config)
	if err := l.connect(); err != nil {
		return []error{err}
	}
	defer l.disconnect()
	s.Close()
	var ops []operation
	for _, c := range calls {
		ops = append(ops, &callItem{item: newItem(c.Key, c.bytes(), false), call: c})
	}
	l.flush(ops, lockAll)
	for _, op := range ops {
		errs = append(errs, op.base().err)
	}
	return errs
}

// SaveAndCancel stores a result in one transaction with a cancel request for its process, or with
// the end of an overdue cancel if overdue is true.
func (s *Store) SaveAndCancel(c *Completion, overdue bool) error {
	l := newLane(s, 0, s.lanes[0].config)
	if err := l.connect(); err != nil {
		return err
	}
	defer l.disconnect()
	save := &saveItem{item: newItem(c.Key, c.bytes(), true), completion: c}
	save.general = !c.plain()
	cancel := &cancelItem{item: newItem(c.Key, 200, true), overdue: overdue}
	l.flush([]operation{save, cancel}, lockAll)
	return errors.Join(save.err, cancel.err)
}

// SaveTogether stores results in one transaction. Results to which the fast path does not apply
// follow in the next transaction.
func (s *Store) SaveTogether(completions ...*Completion) (errs []error) {
	l := newLane(s, 0, s.lanes[0].config)
	if err := l.connect(); err != nil {
		return []error{err}
	}
	defer l.disconnect()
	var ops []operation
	for _, c := range completions {
		save := &saveItem{item: newItem(c.Key, c.bytes(), true), completion: c}
		save.general = !c.plain() || s.generalOnly
		ops = append(ops, save)
	}
	l.flush(ops, lockAll)
	for len(l.held) > 0 {
		held := l.held
		l.held = nil
		l.flush(held, lockAll)
	}
	for _, op := range ops {
		errs = append(errs, op.base().err)
	}
	return errs
}

// StartAndCall stores a start and a call of its process in one transaction.
func (s *Store) StartAndCall(init *Init, call *Call) (started, called Prepared, err error) {
	l := newLane(s, 0, s.lanes[0].config)
	if err := l.connect(); err != nil {
		return started, called, err
	}
	defer l.disconnect()
	start := &initItem{item: newItem(init.Key, init.bytes(), false), init: init}
	next := &callItem{item: newItem(call.Key, call.bytes(), false), call: call}
	next.general = true
	l.flush([]operation{start, next}, lockAll)
	return start.prepared, next.prepared, errors.Join(start.err, next.err)
}

// FlushTimeout sets the flush timeout of an unused store.
func (s *Store) FlushTimeout(timeout time.Duration) *Store {
	for _, l := range s.lanes {
		l.timeout = timeout
	}
	return s
}

// ForgetFromStart makes the next Forget start with the oldest rows. Use it after moving rows into
// the past.
func (s *Store) ForgetFromStart() { s.forgotten.began = time.Time{} }

// Share returns the share of a pool that a kind of work uses.
type Share func(*Store) *share

// The shares of the pools.
var (
	Scans    Share = func(s *Store) *share { return s.hot }
	Answers  Share = func(s *Store) *share { return s.kept }
	Searches Share = func(s *Store) *share { return s.slow }
)

// Exhaust takes all connections that a kind of work may use, until release is called.
func (s *Store) Exhaust(ctx context.Context, of Share) (release func(), err error) {
	var taken []*shareConn
	release = func() {
		for _, c := range taken {
			c.Release()
		}
	}
	for range cap(of(s).slots) {
		c, err := of(s).Acquire(ctx)
		if err != nil {
			release()
			return nil, err
		}
		taken = append(taken, c)
	}
	return release, nil
}

// Mapped returns the error of the domain for the error of a statement.
func Mapped(err error) error { return mapped("test", err) }

package storage

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/progressor-engine/progressor/process"
	"github.com/progressor-engine/progressor/storage/internal/dbsqlc"
)

// lockMode is how a flush locks its processes. A lane must not wait for a row that another session
// has locked, because all other items of the lane would also wait.
type lockMode int

const (
	// lockAll sends the whole flush in one round trip. It fails at once if another session has
	// locked one of the processes.
	lockAll lockMode = iota
	// lockUncontended locks the processes that no other session has locked, in a separate round
	// trip, and puts the items of the others aside.
	lockUncontended
	// lockWait waits shortLockTimeout for the lock, in the queue of the lock. The flush has the
	// items of one process.
	lockWait
)

const (
	// shortLockTimeout limits the wait for a lock in flushes of items that were put aside.
	shortLockTimeout = 20 * time.Millisecond
	// shortLockTime is the time after a flush has reached lock_timeout during which flushes wait
	// only shortLockTimeout for locks.
	shortLockTime = 10 * time.Second
	// contentionDeferTime is how long a request may be put aside before it returns ErrLocked.
	// A flush of another node takes less time, even if the database is busy.
	contentionDeferTime = time.Second
	// contentionMemory is how long a process without waiting items is remembered after its retry
	// time.
	contentionMemory = time.Second
	// maxLockFailures limits the number of failed tries to find the items that wait for a lock.
	// This is enough to find three such items among 256.
	maxLockFailures = 32
)

// contention holds the items that wait for rows that another session has locked, by process. They
// are not part of the common flush and are retried later, in order.
type contention map[process.Key]*contendedProcess

type contendedProcess struct {
	items   []operation
	tries   int
	retryAt time.Time
	other   bool // the locked row is in another table and is unknown until a flush waits for it
}

// backoff returns how long the items of a process wait before the next try. Another lane or node
// holds a lock for the duration of a flush. Another client may hold it for minutes.
func (c *contendedProcess) backoff() time.Duration {
	switch {
	case c.other:
		return min(shortLockTimeout<<min(c.tries, 8), 500*time.Millisecond)
	case c.tries < 7:
		return time.Millisecond << c.tries
	case c.tries < 10:
		return 64 * time.Millisecond
	}
	return 100 * time.Millisecond
}

// alone reports whether the next try is a separate flush in mode lockWait. If nodes compete for a
// process, waiting for its lock is fair, but retries are not.
func (c *contendedProcess) alone() bool { return c.other || c.tries >= 7 && c.tries < 10 }

type admission int

const (
	admitNow         admission = iota // to any flush
	admitUncontended                  // to a flush of mode lockUncontended
	admitLater                        // later, behind items that were put aside
)

// admit decides whether an item may join a flush.
func (c contention) admit(op operation) admission {
	if len(c) == 0 {
		return admitNow
	}
	result := admitNow
	now := time.Now()
	for _, key := range lockedKeys(op) {
		p := c[key]
		switch {
		case p == nil:
			continue
		case p.alone() || now.Before(p.retryAt):
			c.add(key, op)
			return admitLater
		}
		result = admitUncontended
	}
	return result
}

// add puts an item aside, behind the other items of the process.
func (c contention) add(key process.Key, op operation) {
	if i := op.base(); i.contendedSince.IsZero() {
		i.contendedSince = time.Now()
	}
	c[key].items = append(c[key].items, op)
}

// due takes the items of all processes that are due for a retry with lockUncontended. It forgets
// processes that have had no items for contentionMemory.
func (c contention) due(now time.Time) (ops []operation) {
	for key, p := range c {
		switch {
		case now.Before(p.retryAt) || p.alone() && len(p.items) > 0:
			continue
		case len(p.items) > 0:
			ops = append(ops, p.take()...)
		case now.Sub(p.retryAt) > contentionMemory:
			delete(c, key)
		}
	}
	return ops
}

// dueAlone takes the items of one process that are due for a retry with lockWait.
func (c contention) dueAlone(now time.Time) []operation {
	for _, p := range c {
		if len(p.items) > 0 && p.alone() && !now.Before(p.retryAt) {
			return p.take()
		}
	}
	return nil
}

func (c *contendedProcess) take() []operation {
	ops := c.items
	c.items = nil
	return ops
}

// drain takes all items.
func (c contention) drain() (ops []operation) {
	for _, p := range c {
		ops = append(ops, p.take()...)
	}
	return ops
}

// count returns the number of items.
func (c contention) count() (n int64) {
	for _, p := range c {
		n += int64(len(p.items))
	}
	return n
}

// wake returns a channel that is ready when items are due, or nil if there are none.
func (c contention) wake() <-chan time.Time {
	var first time.Time
	for _, p := range c {
		if len(p.items) > 0 && (first.IsZero() || p.retryAt.Before(first)) {
			first = p.retryAt
		}
	}
	if first.IsZero() {
		return nil
	}
	return time.After(time.Until(first))
}

// locked is called after a flush has locked the processes of its items. It forgets the processes
// for which no other items wait. Items that wait for the other processes are due at once.
func (c contention) locked(ops []operation) {
	if len(c) == 0 {
		return
	}
	for _, key := range keysOfItems(ops) {
		if p := c[key]; p != nil && len(p.items) == 0 {
			delete(c, key)
		} else if p != nil {
			p.tries, p.retryAt = 0, time.Now()
		}
	}
}

// lockedKeys returns the processes that an item locks.
func lockedKeys(op operation) []process.Key { return keysOfItems([]operation{op}) }

// putAside removes items from their flush, to be retried later. blocked returns the process that an
// item waits for. other means that the locked row is not in processes. Requests that have waited
// too long are completed with an error.
func (l *lane) putAside(ops []operation, blocked func(operation) process.Key, other bool) {
	now := time.Now()
	failed := map[process.Key]bool{}
	for _, op := range ops {
		key := blocked(op)
		p := l.contention[key]
		if p == nil {
			p = &contendedProcess{}
			l.contention[key] = p
		}
		if !failed[key] {
			failed[key] = true
			p.other = p.other || other
			p.retryAt = now.Add(p.backoff())
			p.tries++
			l.store.metrics.contended.Inc()
			if p.tries == 10 {
				l.store.log.Warn("another session has locked a process", "namespace", key.Namespace, "process_id",
					key.ProcessID)
			}
		}
		i := op.base()
		if !isResult(op) && !i.contendedSince.IsZero() && now.Sub(i.contendedSince) >= contentionDeferTime {
			refuseOne(op, fmt.Errorf("process %s: %w", key, process.ErrLocked))
			continue
		}
		l.contention.add(key, op)
	}
}

// begin starts the transaction of a flush in the mode lockUncontended or lockWait, and locks its
// processes. It returns the items whose processes were locked, and puts the others aside.
func (l *lane) begin(
	ctx context.Context, ops []operation, mode lockMode, created map[process.Key]bool,
) ([]operation, error) {
	s := l.store
	request := lockRequest{keys: keysOfItems(ops), created: created}
	contended := map[process.Key]bool{}
	lock := s.waitStage(request)
	if mode == lockUncontended {
		lock = s.lockUncontendedStage(request, contended)
	}
	err := pipeline(ctx, l.conn, []stage{execStage("BEGIN"), s.shortLockTimeoutStage(), lock})
	if err != nil || len(contended) == 0 {
		return ops, err
	}
	var free, aside []operation
	blocked := func(op operation) process.Key {
		keys := lockedKeys(op)
		return keys[max(0, slices.IndexFunc(keys, func(key process.Key) bool { return contended[key] }))]
	}
	for _, op := range ops {
		if contended[blocked(op)] {
			aside = append(aside, op)
		} else {
			free = append(free, op)
		}
	}
	l.putAside(aside, blocked, false)
	return free, nil
}

// rollback ends the transaction of a failed flush, if there is one. It returns the error of the
// flush or, if the flush has none, that of the ROLLBACK. If the flush took too long, the error
// wraps errTimedOut.
func (l *lane) rollback(ctx context.Context, err error) error {
	if !l.conn.IsClosed() && l.conn.PgConn().TxStatus() != 'I' {
		if _, rollbackErr := l.conn.Exec(ctx, "ROLLBACK"); err == nil {
			err = rollbackErr
		}
	}
	if err != nil && errors.Is(ctx.Err(), context.DeadlineExceeded) {
		err = fmt.Errorf("%w: %w", errTimedOut, err)
	}
	return err
}

// blockedBy returns the process that an item waits for when another session has locked a row that
// it needs.
func (l *lane) blockedBy(op operation) process.Key {
	for _, key := range lockedKeys(op) {
		if l.contention[key] != nil {
			return key
		}
	}
	return op.base().key
}

func execStage(sql string) stage {
	return func(ctx context.Context, db DB) error {
		_, err := db.Exec(ctx, sql)
		return err
	}
}

func (s *Store) shortLockTimeoutStage() stage {
	return func(ctx context.Context, db DB) error {
		return s.q.SetLockTimeout(ctx, db, fmt.Sprint(shortLockTimeout.Milliseconds()))
	}
}

// lockUncontendedStage locks the processes that no other session has locked, and adds the others to
// contended.
func (s *Store) lockUncontendedStage(request lockRequest, contended map[process.Key]bool) stage {
	keys := sortedKeys(request.keys)
	var arg dbsqlc.LockUncontendedProcessesParams
	for n, key := range keys {
		arg.Append(dbsqlc.LockUncontendedProcessesItem{
			Ord: int32(n), Key: key, Created: request.created[key],
		})
	}
	return func(ctx context.Context, db DB) error {
		row, err := s.q.LockUncontendedProcesses(ctx, db, arg)
		for _, n := range row.Contended {
			contended[keys[n]] = true
		}
		return err
	}
}

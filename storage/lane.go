package storage

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"slices"
	"sync/atomic"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"github.com/progressor-engine/progressor/process"
	"github.com/progressor-engine/progressor/storage/fastpath"
)

// The limits of one flush. Unnested arrays are fastest with up to 256 items.
const (
	maxFlushItems = 256
	maxFlushBytes = 4 << 20
	// flushTimeout limits a flush on a dead connection. On a live connection, statement_timeout
	// ends a slow flush earlier.
	flushTimeout = 15 * time.Second
	laneQueue    = 4096
	// A result that could not be stored is retried after resultRetry. The wait doubles each time.
	resultRetry    = 50 * time.Millisecond
	resultRetryMax = 5 * time.Second
	// A result that timed out in its own flush is retried after timeoutRetry. The wait doubles each
	// time.
	timeoutRetry    = 10 * time.Second
	timeoutRetryMax = 2 * time.Minute
)

// lane is the group commit: one goroutine with one connection. It sends all items that have arrived
// as one transaction. Items that arrive in the meantime form the next one. A single item is sent at
// once, without waiting for others.
type lane struct {
	store  *Store
	number int
	config *pgx.ConnConfig
	in     chan operation
	held   []operation // taken from in, for the next flush
	busy   fastpath.Busy
	conn   *pgx.Conn
	pid    uint32
	began  time.Time // start time of the backend; with pid it identifies the backend
	gone   chan struct{}
	// failure is the reason why the lane cannot write to the database, or nil if it can.
	failure atomic.Pointer[laneFailure]

	timeout         time.Duration // timeout of a flush: flushTimeout
	contention      contention    // items whose rows another session has locked
	aside           atomic.Int64  // number of these items after the last flush
	alone           bool          // the last flush was for one process (lockWait); the next one is for others
	lockFailures    int           // lock failures of this flush and its parts
	shortLocksUntil time.Time     // until then flushes wait only shortLockTimeout for a lock
}

// laneFailure is the last error of a lane that cannot write to the database.
type laneFailure struct {
	since time.Time
	err   error
}

// failing returns for how many seconds the lane has been unable to write to the database.
func (l *lane) failing() float64 {
	if f := l.failure.Load(); f != nil {
		return time.Since(f.since).Seconds()
	}
	return 0
}

func newLane(s *Store, number int, config *pgx.ConnConfig) *lane {
	return &lane{
		store: s, number: number, config: config, busy: fastpath.Busy{}, in: make(chan operation, laneQueue),
		gone: make(chan struct{}), timeout: flushTimeout, contention: contention{},
	}
}

// singleLaneMax is the number of operations in progress up to which only one lane is used. One lane
// makes larger and cheaper flushes (128 clients: 79 µs of PostgreSQL time per call instead of 97),
// but leaves a core idle. On 2 cores, two lanes reach 11,900 calls/s instead of 9,000 with 128
// clients, 5,400 instead of 4,200 with 32, and 2,200 instead of 1,800 with 8.
const singleLaneMax = 4

// lane returns the lane of a process.
func (s *Store) lane(key process.Key) *lane {
	if s.pending.Load() <= singleLaneMax {
		return s.lanes[0]
	}
	return s.lanes[key.Hash()%uint64(len(s.lanes))]
}

// submit puts an item into its lane and waits until it is completed. The wait does not end with the
// context of the caller, because the item may be stored.
func (s *Store) submit(op operation) error {
	i := op.base()
	s.pending.Add(1)
	defer s.pending.Add(-1)
	l := s.lane(i.home())
	select {
	case l.in <- op:
	case <-s.stopped.Done():
		return unavailable("submit", errStopped)
	}
	select {
	case <-i.done:
		return i.err
	case <-l.gone:
	}
	select {
	case <-i.done:
		return i.err
	default:
		return unavailable("submit", errStopped) // it was submitted after the lane stopped
	}
}

var (
	errStopped = errors.New("the store is closed")
	errUnknown = errors.New("the outcome of the commit is unknown")
	// errTimedOut reports a flush that took longer than the timeout of the lane.
	errTimedOut = errors.New("flush timed out")
)

func (l *lane) run() {
	defer close(l.gone)
	defer l.disconnect()
	for {
		ops, mode, ok := l.collect()
		if !ok {
			l.refuse()
			return
		}
		l.lockFailures = 0
		l.flush(l.deferRepetitions(ops), mode)
		l.aside.Store(l.contention.count())
	}
}

// collect waits for the first item and takes the others that have arrived. A duplicate of a
// request, and a second Start of a process, must see the result of the first one. They are deferred
// to the next flush. (If the first one is refused and several duplicates have arrived, the next
// flush contains all of them. They violate a unique key, and the flush is split.)
func (l *lane) collect() (ops []operation, mode lockMode, ok bool) {
	if l.alone = !l.alone && len(l.contention) > 0; l.alone {
		if ops = l.contention.dueAlone(time.Now()); len(ops) > 0 {
			return ops, lockWait, true
		}
	}
	bytes, initKeys, requests := 0, map[process.Key]struct{}{}, map[uuid.UUID]struct{}{}
	var take func(op operation)
	take = func(op operation) {
		i := op.base()
		full := len(ops) >= maxFlushItems || bytes+i.bytes > maxFlushBytes
		if len(ops) > 0 && (full || i.slow || ops[0].base().slow) {
			l.held = append(l.held, op)
			return
		}
		switch l.contention.admit(op) {
		case admitLater:
			if next := nextOf(op); next != nil {
				take(next)
			}
			return
		case admitUncontended:
			mode = lockUncontended
		}
		isInit := creates(op)
		_, sameInit := initKeys[i.key]
		_, sameRequest := requests[i.requestID]
		if (isInit && sameInit || i.requestID != uuid.Nil && sameRequest) && !i.deferred {
			i.deferred = true
			l.held = append(l.held, op)
			return
		}
		if isInit {
			initKeys[i.key] = struct{}{}
		}
		requests[i.requestID] = struct{}{}
		bytes += i.bytes
		ops = append(ops, op)
		if next := nextOf(op); next != nil {
			take(next)
		}
	}
	held := append(l.contention.due(time.Now()), l.held...)
	l.held = nil
	for _, op := range held {
		take(op)
	}
	if len(ops) == 0 {
		select {
		case op := <-l.in:
			take(op)
			// Let the goroutines that the last flush woke submit their items.
			runtime.Gosched()
		case <-l.contention.wake():
			return nil, mode, true
		case <-l.store.stopped.Done():
			return nil, mode, false
		}
	}
	for len(ops) < maxFlushItems && bytes < maxFlushBytes && len(l.held) < maxFlushItems {
		select {
		case op := <-l.in:
			take(op)
		default:
			return ops, mode, true
		}
	}
	return ops, mode, true
}

// deferRepetitions removes all ends of an attempt except the first from ops, and defers them to the
// next flush. The engine and the collector of zombies may both end an attempt. A statement with
// both ends would store both. deferRepetitions also defers a second checkpoint of an attempt,
// because a worker may repeat its request.
func (l *lane) deferRepetitions(ops []operation) []operation {
	type part struct {
		fencingToken int64
		checkpoint   bool
	}
	seen := make(map[part]struct{}, len(ops))
	return slices.DeleteFunc(ops, func(op operation) bool {
		var p part
		if c := completionOf(op); c != nil {
			p.fencingToken = c.FencingToken
		} else if item, ok := op.(*checkpointItem); ok {
			p = part{item.completion.FencingToken, true}
		} else {
			return false
		}
		_, second := seen[p]
		if second {
			l.held = append(l.held, op)
		}
		seen[p] = struct{}{}
		return second
	})
}

// nextOf returns the call that is stored with a result, and removes it from the result.
func nextOf(op operation) *callItem {
	save, ok := op.(*saveItem)
	if !ok {
		return nil
	}
	next := save.next
	save.next = nil
	return next
}

// refuseOne completes an item that was not sent, and the call that is stored with it, with an
// error.
func refuseOne(op operation, err error) {
	if next := nextOf(op); next != nil {
		finish(next, err)
	}
	finish(op, err)
}

// creates reports whether an item creates a process.
func creates(op operation) bool {
	switch op.(type) {
	case *initItem, Insertion:
		return true
	}
	return false
}

// refuse completes the remaining items with an error when the store closes.
func (l *lane) refuse() {
	for _, op := range append(l.contention.drain(), l.held...) {
		refuseOne(op, unavailable("submit", errStopped))
	}
	for {
		select {
		case op := <-l.in:
			refuseOne(op, unavailable("submit", errStopped))
		default:
			return
		}
	}
}

// flush stores a batch. If PostgreSQL rejects the batch, flush splits it in halves until only the
// faulty items fail.
func (l *lane) flush(ops []operation, mode lockMode) {
	breaks := 0
	for try := 1; len(ops) > 0; try++ {
		var err error
		if ops, err = l.try(ops, mode); err == nil {
			l.complete(ops)
			return
		}
		if timedOut(err) && len(ops) == 1 {
			l.reportTimeout(ops[0], err)
		}
		switch state := SQLState(err); {
		case l.broken(err):
			breaks++
			if ops = l.recover(ops, err); len(ops) > 0 && timedOut(err) || len(ops) > 1 && breaks > 1 {
				l.split(ops, mode, err)
				return
			}
		case l.store.stopped.Err() != nil: // nothing is stored: the connection is intact
			for _, op := range ops {
				finish(op, unavailable("flush", errStopped))
			}
			return
		case state == stateLockNotAvailable && mode == lockAll:
			mode = lockUncontended
		case state == stateLockNotAvailable && mode == lockWait:
			l.putAside(ops, l.blockedBy, false)
			return
		case state == stateLockNotAvailable:
			l.lockFailures++
			l.shortLocksUntil = time.Now().Add(shortLockTime)
			if len(ops) == 1 || l.lockFailures > maxLockFailures {
				l.putAside(ops, l.blockedBy, true)
				return
			}
			l.split(ops, mode, err)
			return
		case (state == stateDeadlock || state == stateSerialization) && try < 10,
			state == stateUniqueViolation && try < insertTries:
			// A unique violation means that another session created the same process: see
			// PrepareInit.
			l.store.metrics.flushRetries.Inc()
		default:
			l.split(ops, mode, err)
			return
		}
	}
}

// split flushes the halves of a batch that failed. A single item is completed with an error or
// retried later.
func (l *lane) split(ops []operation, mode lockMode, err error) {
	if len(ops) == 1 {
		l.fail(ops[0], err)
		return
	}
	l.store.metrics.flushSplits.Inc()
	half := len(ops) / 2
	l.flush(slices.Clone(ops[:half]), mode)
	l.flush(slices.Clone(ops[half:]), mode)
}

// complete completes the items of a committed flush. It retries insertions that request it, and
// items for which the fast path did not apply.
func (l *lane) complete(ops []operation) {
	for _, op := range ops {
		if insertion, ok := op.(Insertion); ok && insertion.Again() {
			l.held = append(l.held, op)
			continue
		}
		if l.fallsBack(op) {
			l.held = append(l.held, op)
			continue
		}
		finish(op, op.base().err)
	}
}

// broken reports whether the outcome of a flush must be determined on a new connection. Client-side
// errors, such as a value that cannot be encoded, leave the connection intact.
func (l *lane) broken(err error) bool {
	return errors.Is(err, errNotReplicated) || l.conn == nil || l.conn.IsClosed() || (SQLState(err) != "" && lost(err))
}

// timedOut reports whether a flush failed because it took too long.
func timedOut(err error) bool {
	return errors.Is(err, errTimedOut) || SQLState(err) == stateQueryCanceled
}

// reportTimeout logs the process of a single item that takes too long to store.
func (l *lane) reportTimeout(op operation, err error) {
	i := op.base()
	l.store.metrics.flushTimeouts.Inc()
	l.store.log.Error("storing a single operation timed out",
		"namespace", i.key.Namespace, "process_id", i.key.ProcessID, "error", err)
}

// fail completes a single item that PostgreSQL did not store. A result or checkpoint is retried
// unless its data is rejected, because the processor has already done the work. If a completion
// also contains a result of the run that waits for the job (Advance), it is retried without that
// result, because that result may have caused the error.
func (l *lane) fail(op operation, err error) {
	state := SQLState(err)
	c := completionOf(op)
	switch {
	case c != nil && c.Advance != nil:
		c.Advance = nil
		l.retryResult(op, state, err)
	case isResult(op) && !rejectsData(err):
		l.retryResult(op, state, err)
	case timedOut(err):
		finish(op, unavailable(fmt.Sprintf("store process %s", op.base().key), err))
	case isTemporary(err):
		finish(op, unavailable("flush", err))
	default:
		finish(op, fmt.Errorf("store process %s: %w", op.base().key, err))
	}
}

// retryResult retries a result after a wait. If another node has taken over the attempt, the result
// is then fenced.
func (l *lane) retryResult(op operation, state string, err error) {
	i := op.base()
	wait := min(resultRetry<<min(i.tries, 8), resultRetryMax)
	if timedOut(err) {
		i.slow = true
		wait = min(timeoutRetry<<min(i.tries, 8), timeoutRetryMax)
	}
	i.tries++
	l.store.metrics.resultRetries.WithLabelValues(state).Inc()
	l.store.log.Warn("cannot store a result, will retry", "namespace", i.key.Namespace, "process_id", i.key.ProcessID,
		"retry_in", wait, "error", err)
	time.AfterFunc(wait, func() { l.again(op) })
}

// again puts an item back into the lane.
func (l *lane) again(op operation) {
	select {
	case l.in <- op:
	case <-l.store.stopped.Done():
		finish(op, unavailable("submit", errStopped))
	}
}

// try sends a batch as one transaction and returns the items that it contained. If err is nil, each
// has its result. In mode lockUncontended, items whose processes another session has locked are put
// aside.
func (l *lane) try(ops []operation, mode lockMode) ([]operation, error) {
	if err := l.connect(); err != nil {
		return ops, err
	}
	ctx, cancel := context.WithTimeout(l.store.stopped, l.timeout)
	defer cancel()
	start := time.Now()
	var stages []stage
	created := createdKeys(ops)
	if mode == lockAll {
		if start.Before(l.shortLocksUntil) {
			stages = append(stages, l.store.shortLockTimeoutStage())
		}
		stages = append(stages, l.store.tryLockStage(lockRequest{keys: keysOfItems(ops), created: created}))
	} else {
		var err error
		if ops, err = l.begin(ctx, ops, mode, created); err != nil || len(ops) == 0 {
			return ops, l.rollback(ctx, err)
		}
	}
	b := batch{lateLocks: lateLocks(created)}
	room := 0
	for _, op := range ops {
		i := op.base()
		i.err, i.fallback = nil, false
		room += i.bytes + 500 // fixed-size columns and the headers of arrays
		i.general = i.general || l.store.generalOnly || l.busy.Has(i.key)
		b.add(op)
	}
	stages = append(stages, b.stages(l.store)...)
	if mode != lockAll {
		stages = append(stages, execStage("COMMIT"))
	}
	l.conn.PgConn().Frontend().Send(roomToSend(room))
	err := pipeline(ctx, l.conn, stages)
	l.store.metrics.flushed(len(ops), time.Since(start))
	if err != nil {
		return ops, l.rollback(ctx, err)
	}
	if err := l.store.replicated(l.conn); err != nil {
		return ops, err
	}
	l.contention.locked(ops)
	l.store.hasFlushed.Store(true)
	l.store.changeReaders.flushed(ops)
	l.store.notifyTargets(b.outgoing.targets, b.outgoing.lowPriority)
	return ops, nil
}

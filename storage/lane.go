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
)

// The bounds of one flush. Up to 256 items unnest arrays are the quickest way to hand rows to PostgreSQL.
const (
	maxFlushItems = 256
	maxFlushBytes = 4 << 20
	// flushTimeout bounds a flush on a connection that does not answer. statement_timeout ends a slow one before.
	flushTimeout = 15 * time.Second
	laneQueue    = 4096
	// A result that was not stored is retried after resultRetry, then after twice as long each time.
	resultRetry    = 50 * time.Millisecond
	resultRetryMax = 5 * time.Second
	// A result that timed out alone is retried after timeoutRetry, then after twice as long each time.
	timeoutRetry    = 10 * time.Second
	timeoutRetryMax = 2 * time.Minute
)

// A lane is the group commit: one goroutine with one connection. It takes the first item that comes, whatever else has arrived
// by then, and sends all of it as one transaction; what arrives meanwhile is the next one. A lone item goes at once: nobody
// waits for a batch to fill.
type lane struct {
	store  *Store
	number int
	config *pgx.ConnConfig
	in     chan operation
	held   []operation // taken from in, for the next flush
	busy   busyProcesses
	conn   *pgx.Conn
	pid    uint32
	began  time.Time // of the backend: with pid its identity
	gone   chan struct{}
	// failure is why the lane cannot write to the database; nil while it can.
	failure atomic.Pointer[laneFailure]

	timeout      time.Duration // of a flush: flushTimeout
	contention   contention    // items whose rows another session has locked
	alone        bool          // the last flush, if it was of the mode lockWait: the next one is for all others
	lockFailures int           // of this flush and its parts
	noDeferUntil time.Time     // until then flushes wait only shortLockTimeout for a lock
}

// A laneFailure is the last error of a lane that cannot write to the database.
type laneFailure struct {
	since time.Time
	err   error
}

// failing returns for how many seconds the lane could not write to the database.
func (l *lane) failing() float64 {
	if f := l.failure.Load(); f != nil {
		return time.Since(f.since).Seconds()
	}
	return 0
}

func newLane(s *Store, number int, config *pgx.ConnConfig) *lane {
	return &lane{
		store: s, number: number, config: config, busy: busyProcesses{}, in: make(chan operation, laneQueue), gone: make(chan struct{}),
		timeout: flushTimeout, contention: contention{},
	}
}

// crowd is how many operations under way one lane takes alone. Few go together, for the sake of one commit; beyond, a second lane
// uses the other core and the time of the first one's commit. Alone, a lane makes larger and cheaper flushes (128 clients: 79 us of
// PostgreSQL's time a call against 97), but leaves half of the machine idle: on 2 cores 9,000 calls/s instead of 11,900 with 128
// clients, 4,200 instead of 5,400 with 32, 3,100 instead of 3,900 with 16, 1,800 instead of 2,200 with 8.
const crowd = 4

// lane picks the lane of a process.
func (s *Store) lane(key process.Key) *lane {
	if s.pending.Load() <= crowd {
		return s.lanes[0]
	}
	return s.lanes[key.Hash()%uint64(len(s.lanes))]
}

// submit puts an item into its lane and waits until it is answered. It does not end with the caller's context: what was
// submitted may be stored, and then somebody has to know.
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
		return unavailable("submit", errStopped) // it came after the lane's last look
	}
}

var (
	errStopped = errors.New("the store is closed")
	errUnknown = errors.New("its outcome is not known")
	errLocked  = errors.New("a row is locked")
	// errTimedOut is a flush that took longer than the lane's timeout.
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
		l.flush(l.deferTwinEnds(ops), mode)
	}
}

// collect waits for the first item and takes what has arrived with it. The twin of a request, or a second Start of a process, has to
// see what became of the first: it is held for the next flush, where all twins go together. (If the first was refused, two of them
// collide there, and the flush is repeated in halves.)
func (l *lane) collect() (ops []operation, mode lockMode, ok bool) {
	if l.alone = !l.alone && len(l.contention) > 0; l.alone {
		if ops = l.contention.dueAlone(time.Now()); len(ops) > 0 {
			return ops, lockWait, true
		}
	}
	bytes := 0
	initKeys := map[process.Key]struct{}{}
	requests := map[uuid.UUID]struct{}{}
	var take func(op operation)
	take = func(op operation) {
		i := op.base()
		if len(ops) > 0 && (len(ops) >= maxFlushItems || bytes+i.bytes > maxFlushBytes || i.slow || ops[0].base().slow) {
			l.held = append(l.held, op)
			return
		}
		switch l.contention.admit(op) {
		case admitLater:
			if next := nextOf(op); next != nil {
				take(next)
			}
			return
		case admitFree:
			mode = lockFree
		}
		isInit := creates(op)
		_, sameInit := initKeys[i.key]
		_, sameRequest := requests[i.requestID]
		if (isInit && sameInit || i.requestID != uuid.Nil && sameRequest) && !i.twin {
			i.twin = true
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
			// Let the goroutines that the last flush woke submit what they have: it makes batches of what would be singles.
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

// deferTwinEnds returns ops without the second end of the same attempt, which it holds for the next flush. The engine and the
// collector may both end an attempt. A statement that gets both would store both, because each finds the running row.
func (l *lane) deferTwinEnds(ops []operation) []operation {
	ended := make(map[int64]struct{}, len(ops))
	return slices.DeleteFunc(ops, func(op operation) bool {
		c := completionOf(op)
		if c == nil {
			return false
		}
		_, twin := ended[c.FencingToken]
		if twin {
			l.held = append(l.held, op)
		}
		ended[c.FencingToken] = struct{}{}
		return twin
	})
}

// nextOf takes from a result the call that goes with it.
func nextOf(op operation) *callItem {
	save, ok := op.(*saveItem)
	if !ok {
		return nil
	}
	next := save.next
	save.next = nil
	return next
}

// refuseOne answers an item of which nothing was sent, and the call that was to go with it.
func refuseOne(op operation, err error) {
	if next := nextOf(op); next != nil {
		finish(next, err)
	}
	finish(op, err)
}

// creates tells whether an item makes a process.
func creates(op operation) bool {
	switch op.(type) {
	case *initItem, *enqueueItem:
		return true
	}
	return false
}

// refuse answers what is left when the store closes.
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

// flush stores a batch and answers its items. If PostgreSQL rejects the batch, it is halved until each error costs only
// the item that caused it.
func (l *lane) flush(ops []operation, mode lockMode) {
	breaks := 0
	for try := 1; len(ops) > 0; try++ {
		var err error
		if ops, err = l.try(ops, mode); err == nil {
			l.answer(ops)
			return
		}
		if timedOut(err) && len(ops) == 1 {
			l.reportTimeout(ops[0], err)
		}
		switch state := sqlState(err); {
		case l.broken(err):
			breaks++
			if ops = l.recover(ops, err); len(ops) > 0 && timedOut(err) || len(ops) > 1 && breaks > 1 {
				l.split(ops, mode, err)
				return
			}
		case l.store.stopped.Err() != nil: // nothing of it is stored: the connection is whole
			for _, op := range ops {
				finish(op, unavailable("flush", errStopped))
			}
			return
		case state == stateLockNotAvailable && mode == lockAll:
			mode = lockFree
		case state == stateLockNotAvailable && mode == lockWait:
			l.putAside(ops, l.blockedBy, false)
			return
		case state == stateLockNotAvailable:
			l.lockFailures++
			l.noDeferUntil = time.Now().Add(noDeferTime)
			if len(ops) == 1 || l.lockFailures > maxLockFailures {
				l.putAside(ops, l.blockedBy, true)
				return
			}
			l.split(ops, mode, err)
			return
		case (state == stateDeadlock || state == stateSerialization) && try < 10, state == stateUniqueViolation && try < 3:
			// (a unique violation: another session has made the same process at the same moment, see PrepareInit)
			l.store.metrics.flushRetries.Inc()
		default:
			l.split(ops, mode, err)
			return
		}
	}
}

// split flushes the halves of a batch that failed. A single item is answered or put aside.
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

// answer hands out what a flush that is committed has brought. A keyed Enqueue that met a job which its statement could not see yet may be the
// twin of the one that made it, on another node: it looks again. So does what the quick statements have missed.
func (l *lane) answer(ops []operation) {
	for _, op := range ops {
		if job, ok := op.(*enqueueItem); ok && job.again() {
			l.held = append(l.held, op)
			continue
		}
		if l.busy.learn(op) {
			l.store.metrics.fastPathFallbacks.Inc()
			l.held = append(l.held, op)
			continue
		}
		finish(op, op.base().err)
	}
}

// broken reports whether the outcome of a flush is settled on a new connection. An error of this side, such as a value
// that cannot be encoded, leaves the connection as it is.
func (l *lane) broken(err error) bool {
	return errors.Is(err, errNotReplicated) || l.conn == nil || l.conn.IsClosed() || (sqlState(err) != "" && lost(err))
}

// timedOut reports whether a flush failed because it took too long.
func timedOut(err error) bool {
	return errors.Is(err, errTimedOut) || sqlState(err) == stateQueryCanceled
}

// reportTimeout names the process of a single item that takes too long to store.
func (l *lane) reportTimeout(op operation, err error) {
	i := op.base()
	l.store.metrics.flushTimeouts.Inc()
	l.store.log.Error("storing one operation of a process timed out", "namespace", i.key.Namespace, "process_id", i.key.ProcessID,
		"error", err)
}

// fail responds to a single item that PostgreSQL did not store. A result is retried unless its data is
// rejected: its processor has done its work, and the state of the server is no fault of the process.
func (l *lane) fail(op operation, err error) {
	state := sqlState(err)
	transient := state == stateDeadlock || state == stateSerialization ||
		state != "" && (state[:2] == classResources || state[:2] == classSystem)
	switch {
	case completionOf(op) != nil && !rejectsData(err):
		l.retryResult(op, state, err)
	case timedOut(err):
		finish(op, unavailable(fmt.Sprintf("store process %s", op.base().key), err))
	case transient:
		finish(op, unavailable("flush", err))
	default:
		finish(op, fmt.Errorf("store process %s: %w", op.base().key, err))
	}
}

// retryResult puts a result back into the lane after a while. If the attempt is taken over meanwhile,
// the next try is fenced.
func (l *lane) retryResult(op operation, state string, err error) {
	i := op.base()
	wait := min(resultRetry<<min(i.tries, 8), resultRetryMax)
	if timedOut(err) {
		i.slow = true
		wait = min(timeoutRetry<<min(i.tries, 8), timeoutRetryMax)
	}
	i.tries++
	l.store.metrics.resultRetries.WithLabelValues(state).Inc()
	l.store.log.Warn("result not stored yet", "namespace", i.key.Namespace, "process_id", i.key.ProcessID,
		"again_in", wait, "error", err)
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

// try sends the batch as one transaction and returns the items that it was sent with. If err is nil, each of these items
// holds its answer. Items that lockFree finds locked by another session are put aside.
func (l *lane) try(ops []operation, mode lockMode) ([]operation, error) {
	if err := l.connect(); err != nil {
		return ops, err
	}
	ctx, cancel := context.WithTimeout(l.store.stopped, l.timeout)
	defer cancel()
	start := time.Now()
	var stages []stage
	if mode == lockAll {
		if start.Before(l.noDeferUntil) {
			stages = append(stages, l.store.shortLockTimeoutStage())
		}
		stages = append(stages, l.store.tryLockStage(keysOfItems(ops)))
	} else {
		var err error
		if ops, err = l.begin(ctx, ops, mode); err != nil || len(ops) == 0 {
			return ops, l.rollback(ctx, err)
		}
	}
	var b batch
	room := 0
	for _, op := range ops {
		i := op.base()
		i.err, i.fallback = nil, false
		room += i.bytes + 500 // the columns of fixed size, the heads of arrays
		i.general = i.general || l.store.generalOnly || l.busy.has(i.key)
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
	l.store.notifyTargets(b.outgoing.targets, b.outgoing.lowPriority)
	return ops, nil
}

// connect makes sure that the lane has a connection.
func (l *lane) connect() error {
	if l.conn != nil && !l.conn.IsClosed() {
		return nil
	}
	ctx, cancel := context.WithTimeout(l.store.stopped, connectTimeout)
	defer cancel()
	conn, err := l.store.connect(ctx, l.config)
	if err != nil {
		return fmt.Errorf("lane %d: connect: %w", l.number, err)
	}
	if err := conn.QueryRow(ctx, "SELECT backend_start FROM pg_stat_activity WHERE pid = pg_backend_pid()").Scan(&l.began); err != nil {
		_ = conn.Close(ctx)
		return fmt.Errorf("lane %d: connect: %w", l.number, err)
	}
	if err := l.store.confirm(ctx, conn); err != nil {
		_ = conn.Close(ctx)
		return fmt.Errorf("lane %d: connect: %w", l.number, err)
	}
	if err := l.store.q.TakeLane(ctx, conn, laneLocks); err != nil {
		_ = conn.Close(ctx)
		return fmt.Errorf("lane %d: connect: %w", l.number, err)
	}
	encodeArrays(conn)
	l.conn, l.pid = conn, conn.PgConn().PID()
	return nil
}

func (l *lane) disconnect() {
	if l.conn == nil {
		return
	}
	ctx, cancel := context.WithTimeout(context.Background(), time.Second)
	defer cancel()
	_ = l.conn.Close(ctx)
	l.conn = nil
}

package storage

import (
	"context"
	"errors"
	"fmt"
	"math"
	"runtime"
	"sync"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/progressor-engine/progressor/process"
	"github.com/progressor-engine/progressor/storage/internal/dbsqlc"
)

// HistoryRange is a part of a history. A forward range has the events with event_id > Offset, in
// ascending order. A backward range has the events with event_id < Offset, in descending order, and
// with Offset 0 it begins at the end of the history.
type HistoryRange struct {
	Offset   int64
	Limit    int // negative means all
	Backward bool
}

// of returns the part of the range that is within a history from first to last. Its limit is the
// number of events in that part. Events are numbered without gaps, so a backward read ends at
// first.
func (rng HistoryRange) of(first, last int64) HistoryRange {
	if !rng.Backward {
		rng.Offset = max(rng.Offset, first-1)
	}
	holds := last - rng.Offset
	if rng.Backward {
		holds = last - first + 1
		if rng.Offset > 0 {
			holds = min(last, rng.Offset-1) - first + 1
		}
	}
	holds = min(max(holds, 0), process.MaxHistoryEvents+1)
	if rng.Limit < 0 || int64(rng.Limit) > holds {
		rng.Limit = int(holds)
	}
	return rng
}

// ReadRange reads a range of the history of p in a transaction. It stops when the payloads and
// metadata of the events exceed maxBytes.
func ReadRange(ctx context.Context, tx pgx.Tx, p *Process, rng HistoryRange, maxBytes int64) ([]Event, error) {
	rng = rng.of(p.FirstEventID, p.LastEventID)
	if rng.Limit == 0 {
		return nil, nil
	}
	arg := dbsqlc.ReadHistoriesParams{MaxBytes: maxBytes}
	addRange(&arg, 0, process.Key{Namespace: p.Namespace, ProcessID: p.ProcessID}, rng)
	rows, err := dbsqlc.New().ReadHistories(ctx, tx, arg)
	if err != nil {
		return nil, err
	}
	events := make([]Event, len(rows))
	for i := range rows {
		events[i] = eventOf(&rows[i])
	}
	return events, nil
}

// historyRead is one reader in a batch.
type historyRead struct {
	key    process.Key
	rng    HistoryRange
	events []Event
	cut    bool // the history has an event that is larger than the read allows
	err    error
	done   chan struct{}
}

// histories reads event histories for many attempts with one statement, as lanes do for writes: the
// readers that arrive during one read share the next one. With 40 events per process, the mode FULL
// then reaches nearly half of the throughput of NONE.
type histories struct {
	mu      sync.Mutex
	waiting []*historyRead
	reading bool
	alone   sync.Mutex // held while the histories of single readers are read
}

// ErrSlowHistory reports a read that PostgreSQL cancelled because of statement_timeout.
var ErrSlowHistory = errors.New("the history takes too long to read")

// ReadHistory reads the range rng of a history that has the events from first to last. It returns
// at most process.MaxHistoryEvents+1 events and stops when their payloads and metadata exceed
// process.MaxHistoryBytes. If the result exceeds either limit, the range may hold more events.
func (s *Store) ReadHistory(key process.Key, rng HistoryRange, first, last int64) ([]Event, error) {
	r := &historyRead{key: key, rng: rng.of(first, last), done: make(chan struct{})}
	if r.rng.Limit == 0 {
		return nil, nil
	}
	h := &s.histories
	h.mu.Lock()
	h.waiting = append(h.waiting, r)
	lead := !h.reading
	h.reading = true
	h.mu.Unlock()
	if lead {
		go s.readHistories()
	}
	<-r.done
	return r.events, r.err
}

// readHistories reads batches until no reader is waiting.
func (s *Store) readHistories() {
	h := &s.histories
	for {
		runtime.Gosched()
		h.mu.Lock()
		n := min(len(h.waiting), maxFlushItems)
		reads := h.waiting[:n:n]
		h.waiting = h.waiting[n:]
		h.reading = n > 0
		h.mu.Unlock()
		if n == 0 {
			return
		}
		s.readBatch(reads)
	}
}

// The limits of one read.
const (
	// historyTimeout exceeds the statement_timeout, so that a slow read can be distinguished from a
	// database that does not answer.
	historyTimeout = 15 * time.Second
	// A read for many readers returns at most maxBatchBytes, and allows at least minShare per
	// reader. Readers that need more are read alone.
	maxBatchBytes = 64 << 20
	minShare      = 256 << 10
	// minLargest is the minimum event size that a read with shortHistories must allow. At this
	// size, 2,048 events of one process and 16,384 events in total fit.
	minLargest = 4 << 10
	// usualEvents is the number of events of a reader for which memory (9 KiB) is allocated in
	// advance.
	usualEvents = 100
)

// readBatch reads for many readers at once. It first uses shortHistories if the readers request few
// enough events. Readers that need more are read with longHistories, and finally alone. If a
// statement fails and the connection is intact, its readers are read alone, so that a history that
// cannot be read delays the others only briefly. readBatch does not wait for the reads of single
// readers.
func (s *Store) readBatch(reads []*historyRead) {
	share := process.MaxHistoryBytes
	if len(reads) > 1 {
		share = min(share, max(maxBatchBytes/len(reads), minShare))
	}
	if largest := largestEvent(reads); largest >= minLargest {
		reads = s.finishReads(reads, s.read(reads, s.shortHistories, largest), func(r *historyRead) bool {
			return r.cut
		})
	}
	if len(reads) == 0 {
		return
	}
	large := s.finishReads(reads, s.read(reads, s.longHistories, share), func(r *historyRead) bool {
		return share < process.MaxHistoryBytes && r.bytes() > share
	})
	if len(large) > 0 {
		go s.readAlone(large)
	}
}

// largestEvent returns the event size up to which one read may return all events of these readers.
func largestEvent(reads []*historyRead) int {
	longest, all := 0, 0
	for _, r := range reads {
		longest, all = max(longest, r.rng.Limit), all+r.rng.Limit
	}
	return min(process.MaxHistoryBytes/longest, maxBatchBytes/all)
}

// finishReads completes the readers whose read succeeded and returns those that need more. If the
// statement failed for several readers on an intact connection, each of them is read alone. After
// any other failure, the readers complete with the error.
func (s *Store) finishReads(reads []*historyRead, err error, wantsMore func(*historyRead) bool) (more []*historyRead) {
	if err != nil && !lost(err) && len(reads) > 1 {
		go s.readAlone(reads)
		return nil
	}
	for _, r := range reads {
		if err == nil && wantsMore(r) {
			more = append(more, r)
			continue
		}
		r.finish(historyError(r.key, err))
	}
	return more
}

func (s *Store) readAlone(reads []*historyRead) {
	s.histories.alone.Lock() // one at a time, because the other connections of the pool are for scans and batches
	defer s.histories.alone.Unlock()
	for n, r := range reads {
		r.finish(historyError(r.key, s.read(reads[n:n+1], s.longHistories, process.MaxHistoryBytes)))
	}
}

// historyQuery is a statement that reads for many readers.
type historyQuery func(ctx context.Context, arg dbsqlc.ReadHistoriesParams, take func(*dbsqlc.ReadHistoriesRow)) error

// longHistories returns, for each reader, the events up to and including the one that exceeds the
// byte limit.
func (s *Store) longHistories(
	ctx context.Context, arg dbsqlc.ReadHistoriesParams, take func(*dbsqlc.ReadHistoriesRow),
) error {
	rows, err := s.q.ReadHistories(ctx, s.hot, arg)
	for n := range rows {
		take(&rows[n])
	}
	return err
}

// shortHistories returns all events, but neither payload nor metadata of those that exceed the byte
// limit.
func (s *Store) shortHistories(
	ctx context.Context, arg dbsqlc.ReadHistoriesParams, take func(*dbsqlc.ReadHistoriesRow),
) error {
	rows, err := s.q.ReadShortHistories(ctx, s.hot, dbsqlc.ReadShortHistoriesParams(arg))
	for n := range rows {
		take((*dbsqlc.ReadHistoriesRow)(&rows[n]))
	}
	return err
}

// read runs a query once for all readers.
func (s *Store) read(reads []*historyRead, query historyQuery, maxBytes int) error {
	ctx, cancel := context.WithTimeout(s.stopped, historyTimeout)
	defer cancel()
	arg := dbsqlc.ReadHistoriesParams{MaxBytes: int64(maxBytes)}
	for n, r := range reads {
		addRange(&arg, n, r.key, r.rng)
		r.events, r.cut = make([]Event, 0, min(r.rng.Limit, usualEvents)), false
	}
	take := func(row *dbsqlc.ReadHistoriesRow) {
		r := reads[row.Ord]
		r.events = append(r.events, eventOf(row))
		r.cut = r.cut || row.Payload == nil
	}
	err := query(ctx, arg, take)
	for try := 1; err != nil && lost(err) && try <= s.hot.maxConns() && ctx.Err() == nil; try++ {
		err = query(ctx, arg, take) // any connection of the pool may have broken while it was idle
	}
	return err
}

func addRange(arg *dbsqlc.ReadHistoriesParams, ord int, key process.Key, rng HistoryRange) {
	bound := rng.Offset
	if rng.Backward && bound == 0 {
		bound = math.MaxInt64
	}
	arg.Append(dbsqlc.ReadHistoriesItem{
		Ord: int32(ord), Key: key, Bound: bound, Lim: int32(rng.Limit), Backward: rng.Backward,
	})
}

func eventOf(r *dbsqlc.ReadHistoriesRow) Event {
	return Event{EventID: r.EventID, TaskID: r.TaskID, Timestamp: r.Timestamp, Metadata: r.Metadata, Payload: r.Payload}
}

// historyError maps a database error to the error of a read. Only ErrSlowHistory and errors of the
// data are due to the history. After any other error, a later read may succeed.
func historyError(key process.Key, err error) error {
	op := "read history of " + key.String()
	switch {
	case err == nil:
		return nil
	case unconnected(err):
		return unavailable(op, err)
	case SQLState(err) == stateQueryCanceled:
		return fmt.Errorf("%s: %w (%w)", op, ErrSlowHistory, err)
	case errors.Is(err, context.Canceled), errors.Is(err, context.DeadlineExceeded):
		return unavailable(op, err)
	case SQLState(err) != "" && !rejectsData(err):
		return unavailable(op, err) // a missing GRANT or an I/O error is not caused by the process
	}
	return mapped(op, err)
}

func (r *historyRead) bytes() int {
	n := 0
	for i := range r.events {
		n += len(r.events[i].Payload) + len(r.events[i].Metadata)
	}
	return n
}

// finish completes a reader. It must be called once.
func (r *historyRead) finish(err error) {
	if err != nil {
		r.events = nil
	}
	r.err = err
	close(r.done)
}

package storage

import (
	"context"
	"math"
	"runtime"
	"sync"
	"time"

	"github.com/progressor-engine/progressor/process"
	"github.com/progressor-engine/progressor/storage/internal/dbsqlc"
)

// HistoryRange is a part of a history. Forward: event_id > Offset, ascending; backward: event_id < Offset (0: from the end).
type HistoryRange struct {
	Offset   int64
	Limit    int // negative: all
	Backward bool
}

// historyRead is one reader in a histories lane.
type historyRead struct {
	key    process.Key
	rng    HistoryRange
	events []Event
	err    error
	done   chan struct{}
}

// histories reads event histories for many attempts by one statement, as lanes do with writes: while one read is in flight,
// those that want one collect. With 40 events a process this is what keeps FULL histories near half the speed of NONE.
type histories struct {
	mu      sync.Mutex
	waiting []*historyRead
	reading bool
}

// ReadHistory reads a part of a history.
func (s *Store) ReadHistory(key process.Key, rng HistoryRange) ([]Event, error) {
	r := &historyRead{key: key, rng: rng, done: make(chan struct{})}
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

// readHistories works until nobody waits.
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

func (s *Store) readBatch(reads []*historyRead) {
	ctx, cancel := context.WithTimeout(s.stopped, 10*time.Second)
	defer cancel()
	var arg dbsqlc.ReadHistoriesParams
	for n, r := range reads {
		bound, limit := r.rng.Offset, r.rng.Limit
		if r.rng.Backward && bound == 0 {
			bound = math.MaxInt64
		}
		if limit < 0 || limit > process.MaxHistoryEvents+1 {
			limit = process.MaxHistoryEvents + 1
		}
		arg.Ords = append(arg.Ords, int32(n)) //nolint:gosec // at most maxFlushItems
		arg.Namespaces = append(arg.Namespaces, r.key.Namespace)
		arg.ProcessIds = append(arg.ProcessIds, r.key.ProcessID)
		arg.Bounds = append(arg.Bounds, bound)
		arg.Limits = append(arg.Limits, int32(limit)) //nolint:gosec // bounded above
		arg.Backwards = append(arg.Backwards, r.rng.Backward)
	}
	rows, err := s.q.ReadHistories(ctx, s.hot, arg)
	for try := 1; err != nil && lost(err) && try <= int(s.hot.Config().MaxConns) && ctx.Err() == nil; try++ {
		rows, err = s.q.ReadHistories(ctx, s.hot, arg) // each connection of the pool may be one that broke while it rested
	}
	for i := range rows {
		r := &rows[i]
		read := reads[r.Ord]
		read.events = append(read.events, Event{EventID: r.EventID, TaskID: r.TaskID, Timestamp: r.Timestamp, Metadata: r.Metadata, Payload: r.Payload})
	}
	for _, r := range reads {
		r.err = mapped("read history of "+r.key.String(), err)
		close(r.done)
	}
}

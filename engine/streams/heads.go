package streams

import (
	"context"
	"sync"
	"time"

	"github.com/progressor-engine/progressor/storage/changes"
)

// heads contains the end of the changes of each namespace that streams watch. The streams of a
// namespace share the queries that look for new changes.
type heads struct {
	mutex sync.Mutex
	used  map[string]*head
}

// head is the end of the changes of a namespace.
type head struct {
	streams int // guarded by heads.mutex

	turn    chan struct{} // holds a value while a stream uses the fields below
	queried time.Time     // when the last query began
	end     changes.Cursor
}

// use returns the head of a namespace. leave must be called when the stream ends.
func (h *heads) use(namespace string) (used *head, leave func()) {
	h.mutex.Lock()
	defer h.mutex.Unlock()
	if h.used == nil {
		h.used = map[string]*head{}
	}
	used = h.used[namespace]
	if used == nil {
		used = &head{turn: make(chan struct{}, 1)}
		h.used[namespace] = used
	}
	used.streams++
	return used, func() {
		h.mutex.Lock()
		defer h.mutex.Unlock()
		if used.streams--; used.streams == 0 {
			delete(h.used, namespace)
		}
	}
}

// passed reports whether a stream at a cursor has to read. It uses the result of the last query if
// that began at most maxAge ago. After an error it returns true, so that the read of the stream
// returns the error.
func (h *head) passed(
	ctx context.Context, at changes.Cursor, maxAge time.Duration,
	query func(context.Context) (changes.Cursor, error),
) bool {
	select {
	case h.turn <- struct{}{}:
		defer func() { <-h.turn }()
	case <-ctx.Done():
		return true
	}
	if time.Since(h.queried) > maxAge {
		began := time.Now()
		end, err := query(ctx)
		if err != nil {
			return true
		}
		h.queried, h.end = began, end
	}
	return isBefore(at, h.end)
}

// isBefore reports whether there are changes between a cursor and a later one.
func isBefore(at, end changes.Cursor) bool {
	for lane, seq := range end.Lanes {
		if at.Lanes[lane] < seq {
			return true
		}
	}
	return at.Generation != end.Generation
}

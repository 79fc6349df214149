package flows

import (
	"context"
	"sync"

	"github.com/progressor-engine/progressor/storage/flows"
)

// looks read templates. Whoever asks for a version before a read of it has begun shares that one: a hundred runs that start at a time cost
// two reads instead of a hundred, and nobody is told what was true before he asked.
type looks struct {
	read func(ctx context.Context, key lookKey) (flows.Template, error)

	mu   sync.Mutex
	next map[lookKey]*look    // that has not begun
	busy map[lookKey]struct{} // what is being read
}

type lookKey struct {
	namespace, templateType string
	version                 int32 // 0: the newest
}

type look struct {
	done chan struct{}
	row  flows.Template
	err  error
}

// at reads a version, together with those who ask for it meanwhile.
func (l *looks) at(ctx context.Context, key lookKey) (flows.Template, error) {
	l.mu.Lock()
	if l.next == nil {
		l.next, l.busy = map[lookKey]*look{}, map[lookKey]struct{}{}
	}
	mine := l.next[key]
	if mine == nil {
		mine = &look{done: make(chan struct{})}
		l.next[key] = mine
		if _, busy := l.busy[key]; !busy {
			l.busy[key] = struct{}{}
			go l.run(context.WithoutCancel(ctx), key)
		}
	}
	l.mu.Unlock()
	select {
	case <-mine.done:
		return mine.row, mine.err
	case <-ctx.Done():
		return flows.Template{}, ctx.Err()
	}
}

// run reads a version as long as somebody has asked since the read before began.
func (l *looks) run(ctx context.Context, key lookKey) {
	for {
		l.mu.Lock()
		now := l.next[key]
		if now == nil {
			delete(l.busy, key)
			l.mu.Unlock()
			return
		}
		delete(l.next, key)
		l.mu.Unlock()
		now.row, now.err = l.read(ctx, key)
		close(now.done)
	}
}

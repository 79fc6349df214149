package streams

import (
	"context"
	"fmt"
	"slices"
	"time"

	"golang.org/x/sync/semaphore"

	"github.com/progressor-engine/progressor/engine"
	"github.com/progressor-engine/progressor/process"
	progressorv1 "github.com/progressor-engine/progressor/proto/progressor/v1"
	"github.com/progressor-engine/progressor/storage"
	"github.com/progressor-engine/progressor/storage/changes"
	"github.com/progressor-engine/progressor/wire"
)

const (
	// readChanges and readBytes limit one read of a stream, and therefore one response.
	readChanges = 500
	readBytes   = 256 << 10
	// maxReadBytes limits the total size of the changes that all streams of a node have read and
	// not yet sent. A stream counts with readBytes while it reads and sends. The streams of a
	// single client cannot reach this limit.
	maxReadBytes = 128 << 20
	// cursorWait is the interval at which a stream whose filter matches no change sends a cursor.
	cursorWait = time.Second
)

// Streams serves the change streams of a node.
type Streams struct {
	engine *engine.Engine
	store  *storage.Store
	pace   changes.Pace
	memory *semaphore.Weighted // has maxReadBytes
	heads  heads
}

// New returns the streams of an engine.
func New(e *engine.Engine, s *storage.Store) *Streams {
	return &Streams{
		engine: e, store: s, pace: changes.UsualPace, memory: semaphore.NewWeighted(maxReadBytes),
	}
}

// Watch sends the changes of a namespace after a cursor until ctx is cancelled. It sends each
// change at least once, and the changes of a process in their order. If stop is set in the request,
// Watch returns nil after the changes that were recorded before it began. It returns
// process.ErrUnavailable when the node drains, and a *process.CursorError if changes after the
// cursor were deleted.
func (s *Streams) Watch(
	ctx context.Context, r *progressorv1.WatchChangesRequest, send func(*progressorv1.WatchChangesResponse) error,
) error {
	leave, err := s.engine.EnterStream(ctx, r.GetNamespace())
	if err != nil {
		return err
	}
	defer leave()
	end, records, err := changes.Now(ctx, s.store, r.GetNamespace())
	if err != nil {
		return err
	}
	if !records {
		return &process.InvalidError{
			Field:   "namespace",
			Message: fmt.Sprintf("%s records no changes: set changes.kinds of the namespace", r.GetNamespace()),
		}
	}
	w := &watch{streams: s, request: r, send: send, at: end, end: end}
	switch {
	case r.GetCursor() != "":
		w.at, err = changes.ParseCursor("cursor", r.GetCursor())
	case r.GetFromTime() != nil && !r.GetFromTime().AsTime().After(time.Unix(0, 0)):
		w.at, err = changes.Oldest(ctx, s.store, r.GetNamespace())
	case r.GetFromTime() != nil:
		w.at, err = changes.At(ctx, s.store, r.GetNamespace(), "from_time", r.GetFromTime().AsTime())
	}
	if err != nil {
		return err
	}
	return w.run(ctx)
}

// watch is one stream.
type watch struct {
	streams *Streams
	request *progressorv1.WatchChangesRequest
	send    func(*progressorv1.WatchChangesResponse) error
	at      changes.Cursor // position after the changes that were read
	end     changes.Cursor // position after the changes that were recorded when the stream began
	sent    time.Time      // when the last response was sent
}

func (w *watch) run(ctx context.Context) error {
	pacer := changes.NewPacer(w.streams.store, w.request.GetNamespace(), w.streams.pace)
	defer pacer.Close()
	end, leave := w.streams.heads.use(w.request.GetNamespace())
	defer leave()
	for {
		pacer.Begin()
		some, more, done, err := w.step(ctx)
		if err != nil || done {
			return err
		}
		if some {
			pacer.Found()
		}
		if more {
			continue
		}
		if err := w.wait(ctx, pacer, end); err != nil {
			return err
		}
	}
}

// wait waits until new changes may have been recorded. It returns an error when ctx is done or the
// node drains.
func (w *watch) wait(ctx context.Context, pacer *changes.Pacer, end *head) error {
	query := func(ctx context.Context) (changes.Cursor, error) {
		end, _, err := changes.Now(ctx, w.streams.store, w.request.GetNamespace())
		return end, err
	}
	for {
		began := time.Now()
		woken := pacer.Wait(ctx, w.streams.engine.Drained())
		select {
		case <-ctx.Done():
			return fmt.Errorf("watch changes of %s: %w", w.request.GetNamespace(), ctx.Err())
		case <-w.streams.engine.Drained():
			return fmt.Errorf("%w (%w)", process.ErrDraining, process.ErrUnavailable)
		default:
		}
		if woken || end.passed(ctx, w.at, time.Since(began)/2, query) {
			return nil
		}
	}
}

// step reads changes and sends them. It reports whether it has read any changes, whether there are
// more, and whether the stream has reached its end.
func (w *watch) step(ctx context.Context) (some, more, done bool, err error) {
	if err := w.streams.memory.Acquire(ctx, readBytes); err != nil {
		return false, false, false, fmt.Errorf("watch changes of %s: %w", w.request.GetNamespace(), err)
	}
	defer w.streams.memory.Release(readBytes)
	found, next, more, err := changes.Read(ctx, w.streams.store, w.request.GetNamespace(), w.at,
		changes.ReadLimit{Changes: readChanges, Bytes: readBytes})
	if err != nil {
		return false, false, false, err
	}
	w.at = next
	done = w.request.GetStop() && !isBefore(w.at, w.end)
	return len(found) > 0, more, done, w.pass(found, done)
}

// pass sends the found changes that match the request. If none of them matches, it sends only the
// cursor, at most once in cursorWait. It always sends the last response of a stream, and also the
// first one, so that a client whose stream breaks has a cursor.
func (w *watch) pass(found []changes.Change, last bool) error {
	response := &progressorv1.WatchChangesResponse{Cursor: w.at.String()}
	for n := range found {
		if !w.matches(&found[n]) {
			continue
		}
		m, err := wire.Change(w.request.GetNamespace(), &found[n])
		if err != nil {
			return err
		}
		response.Changes = append(response.Changes, m)
	}
	overdue := len(found) > 0 && time.Since(w.sent) > cursorWait
	if len(response.Changes) == 0 && !w.sent.IsZero() && !overdue && !last {
		return nil
	}
	w.sent = time.Now()
	return w.send(response)
}

func (w *watch) matches(c *changes.Change) bool {
	kinds, id := w.request.GetKinds(), w.request.GetProcessId()
	return (len(kinds) == 0 || slices.Contains(kinds, wire.ChangeKind(c.Kind))) && (id == "" || id == c.ProcessID)
}

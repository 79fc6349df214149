package jobs

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/progressor-engine/progressor/process"
	progressorv1 "github.com/progressor-engine/progressor/proto/progressor/v1"
	"github.com/progressor-engine/progressor/storage/jobs"
	"github.com/progressor-engine/progressor/storage/search"
	"github.com/progressor-engine/progressor/wire"
)

// ListEvents lists events of jobs, runs and steps that match a filter (see search.ParseEvents),
// newest first. A page may have fewer events than requested, or none, and still have a next page.
func (q *Jobs) ListEvents(
	ctx context.Context, r *progressorv1.ListJobEventsRequest,
) ([]*progressorv1.JobEvent, string, error) {
	_, leave, err := q.engine.Enter(ctx, r.GetNamespace())
	if err != nil {
		return nil, "", err
	}
	defer leave()
	page, err := search.ListEvents(ctx, q.store, search.EventQuery{
		Namespace: r.GetNamespace(), Filter: r.GetFilter(), PageSize: int(r.GetPageSize()), PageToken: r.GetPageToken(),
	})
	if err != nil {
		return nil, "", err
	}
	list := make([]*progressorv1.JobEvent, len(page.Events))
	for n := range page.Events {
		if list[n], err = wire.JobEvent(&page.Events[n]); err != nil {
			return nil, "", err
		}
	}
	return list, page.NextPageToken, nil
}

// WatchEvents sends the events of a namespace that match a filter until ctx is cancelled. It starts
// at a cursor, or now if there is none. Each event is sent once, and the events of a job are sent
// in order. It returns process.ErrUnavailable when the node drains, and a *process.CursorError if
// events after the cursor were deleted.
func (q *Jobs) WatchEvents(
	ctx context.Context, r *progressorv1.WatchJobEventsRequest, send func(*progressorv1.WatchJobEventsResponse) error,
) error {
	leave, err := q.engine.EnterStream(ctx, r.GetNamespace())
	if err != nil {
		return err
	}
	defer leave()
	filter, err := search.ParseEvents(r.GetFilter())
	if err != nil {
		return err
	}
	var at jobs.EventCursor
	if r.GetCursor() == "" {
		at, err = jobs.EventsFromNow(ctx, q.store, r.GetNamespace())
	} else {
		at, err = jobs.ParseEventCursor(ctx, q.store, r.GetNamespace(), "cursor", r.GetCursor())
	}
	if err != nil {
		return err
	}
	w := q.watchers.register(jobs.EventWatch{Namespace: r.GetNamespace(), From: at})
	defer q.watchers.forget(w)
	if r.GetCursor() == "" { // a client whose stream breaks before the first event must not miss any
		if err := send(&progressorv1.WatchJobEventsResponse{Cursor: at.String()}); err != nil {
			return err
		}
	}
	for {
		var found jobs.EventsRead
		select {
		case found = <-w.news:
		case <-ctx.Done():
			return fmt.Errorf("watch job events of %s: %w", r.GetNamespace(), ctx.Err())
		case <-q.engine.Drained():
			return fmt.Errorf("%w (%w)", process.ErrDraining, process.ErrUnavailable)
		}
		if found.Lost != nil {
			return found.Lost
		}
		for n := range found.Events {
			at = at.After(found.Events[n])
			if !filter.MatchesEvent(&found.Events[n]) {
				continue
			}
			event, err := wire.JobEvent(&found.Events[n])
			if err == nil {
				err = send(&progressorv1.WatchJobEventsResponse{Event: event, Cursor: at.String()})
			}
			if err != nil {
				return err
			}
		}
		q.watchers.passedOn(w)
	}
}

// eventWatcher is one client that watches the events of a namespace.
type eventWatcher struct {
	at    jobs.EventWatch
	key   string               // encoded position; watchers with the same key share a read
	news  chan jobs.EventsRead // buffered for the result of one query
	ready bool                 // all events that were received from news were sent to the client
}

// eventWatchers holds the clients of this node that watch job events. One query per second serves
// all watchers. If it leaves events unread, the next query follows at once. Without watchers, no
// query runs. Watchers at the same cursor share the events that a query reads. All watchers that
// have caught up have the same cursor. The events for a slow client are queried again when the
// client is ready.
type eventWatchers struct {
	jobs  *Jobs
	mu    sync.Mutex
	all   map[*eventWatcher]struct{}
	woken chan struct{}

	failing bool // the last query failed; used only by Run
}

func newEventWatchers(q *Jobs) *eventWatchers {
	return &eventWatchers{jobs: q, all: map[*eventWatcher]struct{}{}, woken: make(chan struct{}, 1)}
}

func (w *eventWatchers) register(at jobs.EventWatch) *eventWatcher {
	wt := &eventWatcher{news: make(chan jobs.EventsRead, 1), ready: true}
	wt.move(at)
	w.mu.Lock()
	defer w.mu.Unlock()
	w.all[wt] = struct{}{}
	select {
	case w.woken <- struct{}{}:
	default: // a query is already requested
	}
	return wt
}

func (wt *eventWatcher) move(to jobs.EventWatch) {
	wt.at, wt.key = to, to.Namespace+" "+to.From.String()
}

func (w *eventWatchers) forget(wt *eventWatcher) {
	w.mu.Lock()
	defer w.mu.Unlock()
	delete(w.all, wt)
}

func (w *eventWatchers) passedOn(wt *eventWatcher) {
	w.mu.Lock()
	defer w.mu.Unlock()
	wt.ready = true
}

const (
	eventRest = time.Second // the interval between queries
	// eventGap is the minimum time before a query for a new watcher, or for more events.
	eventGap = 10 * time.Millisecond
)

// Run queries events until ctx is cancelled.
func (w *eventWatchers) Run(ctx context.Context) error {
	tick := time.NewTimer(eventRest)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-tick.C:
		case <-w.woken:
			select { // concurrent requests are served by one query
			case <-ctx.Done():
				return nil
			case <-time.After(eventGap):
			}
		}
		rest := eventRest
		if w.runOnce(ctx) {
			rest = eventGap
		}
		tick.Reset(rest)
	}
}

// maxEventTargets is the maximum number of cursors in one query. If there are more, they take
// turns.
const maxEventTargets = 1000

// runOnce makes one query. more is true if more events can be read now.
func (w *eventWatchers) runOnce(ctx context.Context) (more bool) {
	byPlace := w.targets()
	if len(byPlace) == 0 {
		return false
	}
	keys := slices.Collect(maps.Keys(byPlace)) // the random order of map keys ensures that each gets a turn
	keys = keys[:min(len(keys), maxEventTargets)]
	places := make([]jobs.EventWatch, len(keys))
	for n, key := range keys {
		places[n] = byPlace[key][0].at
	}
	limit, cancel := context.WithTimeout(ctx, 10*time.Second)
	defer cancel()
	found, rest, err := jobs.ReadEvents(limit, w.jobs.store, places)
	if err != nil && ctx.Err() == nil && !w.failing {
		w.jobs.engine.Config().Logger.Warn("cannot read watched job events", "watchers", len(byPlace), "error", err)
	}
	if w.failing = err != nil; err != nil {
		return false
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	for n, place := range places {
		if len(found[n].Events) == 0 && found[n].Lost == nil {
			continue
		}
		place.From = place.From.After(found[n].Events...)
		for _, wt := range byPlace[keys[n]] {
			wt.move(place)
			wt.ready = false
			wt.news <- found[n]
		}
	}
	return rest
}

// targets returns the watchers that are ready for more events, grouped by position.
func (w *eventWatchers) targets() map[string][]*eventWatcher {
	w.mu.Lock()
	defer w.mu.Unlock()
	byPlace := map[string][]*eventWatcher{}
	for wt := range w.all {
		if wt.ready {
			byPlace[wt.key] = append(byPlace[wt.key], wt)
		}
	}
	return byPlace
}

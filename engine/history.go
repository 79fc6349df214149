package engine

import (
	"errors"
	"fmt"
	"time"

	"github.com/progressor-engine/progressor/process"
	progressorv1 "github.com/progressor-engine/progressor/proto/progressor/v1"
	"github.com/progressor-engine/progressor/storage"
	"github.com/progressor-engine/progressor/wire"
)

// knownHistory is the history that was sent to the processor with an attempt. A complete history is
// reused for the next task of the process.
type knownHistory struct {
	first  int64                      // FirstEventID of the process
	asked  *progressorv1.HistoryRange // the range of the request, or nil
	events []storage.Event
	whole  bool
	bytes  int
}

// historyTooLargeError reports a history that does not fit into one message.
type historyTooLargeError struct {
	events int64
	bytes  int
	slow   bool // the database cancelled the read
}

func (e *historyTooLargeError) Error() string {
	if e.slow {
		return fmt.Sprintf("the history has %d events, which take too long to read: request a range (Call.range, "+
			"such as {\"limit\": 100, \"direction\": \"DIRECTION_BACKWARD\"}), or set the namespace's history_mode "+
			"to NONE or LAST", e.events)
	}
	return fmt.Sprintf("the history has %d events (%d bytes read), more than %d events or %d bytes: request a range "+
		"(Call.range, such as {\"limit\": 100, \"direction\": \"DIRECTION_BACKWARD\"}), or set the namespace's "+
		"history_mode to NONE or LAST",
		e.events, e.bytes, process.MaxHistoryEvents, process.MaxHistoryBytes)
}

// historyOf returns the events that the processor receives with a task: those in the range of the
// request or, without a range, those that the history mode of the namespace selects. It returns
// none if the processor has parked a value that depends on all events.
func (e *Engine) historyOf(ns *namespace, t *turn) (*knownHistory, error) {
	c, known := t.claim, t.known
	asked, err := wire.Range(c.HistoryRange)
	if err != nil {
		return nil, err
	}
	rng := wire.ModeRange(ns.history)
	if asked != nil {
		rng = wire.RangeOf(asked)
	}
	length := c.LastEventID - c.FirstEventID + 1
	h := &knownHistory{first: c.FirstEventID, asked: asked, whole: rng == storage.HistoryRange{Limit: -1}}
	if t.kept.Parked() != nil && (!h.whole || length == 0) {
		t.kept.Drop()
	}
	t.kept.SetOmitsHistory()
	if rng.Limit == 0 || length == 0 {
		h.whole = length == 0
		return h, nil
	}
	if h.whole && length > process.MaxHistoryEvents {
		return nil, &historyTooLargeError{events: length}
	}
	if t.kept.OmitsHistory() {
		h.whole = false
		return h, nil
	}
	if h.whole && known != nil && known.whole && known.first == c.FirstEventID && int64(len(known.events)) == length {
		again := *known
		again.asked = asked
		err := again.fits(c)
		return &again, err
	}
	key := process.Key{Namespace: c.Namespace, ProcessID: c.ProcessID}
	if h.events, err = e.store.ReadHistory(key, rng, c.FirstEventID, c.LastEventID); err != nil {
		switch {
		case errors.Is(err, process.ErrUnavailable):
			// The database is unavailable, and the processor has not seen the task. The task is
			// attempted again later.
			return nil, fmt.Errorf("%w: %w", errReleased, err)
		case errors.Is(err, storage.ErrSlowHistory):
			return nil, &historyTooLargeError{events: length, slow: true} // the next read would be as slow
		}
		return nil, err
	}
	for i := range h.events {
		h.bytes += len(h.events[i].Payload) + len(h.events[i].Metadata)
	}
	err = h.fits(c)
	return h, err
}

func (h *knownHistory) fits(c *storage.Claim) error {
	if h.bytes > process.MaxHistoryBytes || len(h.events) > process.MaxHistoryEvents {
		return &historyTooLargeError{events: c.LastEventID - c.FirstEventID + 1, bytes: h.bytes}
	}
	return nil
}

// with returns the complete history, including the events that were just stored. It returns nil if
// the history is not known and must be read again.
func (h *knownHistory) with(done *storage.Completion, next *storage.Claim) *knownHistory {
	if h == nil || !h.whole {
		return nil
	}
	if h.first != next.FirstEventID { // the history was restarted
		if !done.RestartHistory || next.FirstEventID != done.LastEventID+1 {
			return nil
		}
		h = &knownHistory{first: next.FirstEventID, whole: true}
	}
	if done.Outcome != storage.Finished || len(done.Events) == 0 {
		return h
	}
	// h is not used again, so appending may reuse the memory of its events
	grown := &knownHistory{first: h.first, whole: true, bytes: h.bytes, events: h.events}
	grown.add(storedEvents(done, next.RunningTime))
	return grown
}

// add adds events that follow those of a complete history.
func (h *knownHistory) add(events []storage.Event) {
	for _, e := range events {
		h.events = append(h.events, e)
		h.bytes += len(e.Payload) + len(e.Metadata)
	}
}

// storedEvents returns the events of a result as the database has stored them at the time now.
func storedEvents(done *storage.Completion, now time.Time) []storage.Event {
	events := make([]storage.Event, len(done.Events))
	for n, e := range done.Events {
		timestamp := e.Timestamp.Truncate(time.Microsecond) // the precision of the column
		if timestamp.IsZero() {
			timestamp = now // the default in storage
		}
		events[n] = storage.Event{
			EventID: done.LastEventID + int64(n) + 1, TaskID: done.TaskID, Timestamp: timestamp, Metadata: e.Metadata,
			Payload: e.Payload,
		}
	}
	return events
}

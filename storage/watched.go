package storage

import (
	"context"
	"time"

	"github.com/progressor-engine/progressor/process"
	"github.com/progressor-engine/progressor/storage/internal/dbsqlc"
)

// The limits of one query for watched processes. watchedTotal limits all watchers together. The
// other limits apply to each watcher. The next query returns the rest.
const (
	watchedEvents = 1000
	// WatchedBytes limits what a watcher holds in memory while its client does not read.
	WatchedBytes = 128 << 10
	watchedTotal = 16 << 20
)

// WatchRef is a watched process with the state that its watcher knows.
type WatchRef struct {
	Key               process.Key
	AfterEventID      int64
	StatusChangedTime time.Time // when that status began; zero if the watcher knows none
}

// Watched contains the changes of a watched process.
type Watched struct {
	Ord         int // index of its WatchRef
	Gone        bool
	CreatedTime time.Time
	Events      []Event
	More        bool     // there are more events after these
	Process     *Process // set if its status has changed; Events has all events up to the change
}

// ReadWatched returns the changes of watched processes. It omits processes without changes.
func (s *Store) ReadWatched(ctx context.Context, refs []WatchRef) ([]Watched, error) {
	arg := dbsqlc.ReadWatchedParams{Lim: watchedEvents, MaxBytes: WatchedBytes, MaxTotal: watchedTotal}
	for n, r := range refs {
		arg.Append(dbsqlc.ReadWatchedItem{
			Ord: int32(n), Key: r.Key, AfterEventID: r.AfterEventID,
			StatusChangedTime: r.StatusChangedTime,
		})
	}
	rows, err := s.q.ReadWatched(ctx, s.kept, arg)
	if err != nil || len(rows) == 0 {
		return nil, mapped("read watched processes", err)
	}
	var found []Watched
	var last []dbsqlc.ReadWatchedRow // the last row of each process
	for _, r := range rows {
		if len(found) == 0 || found[len(found)-1].Ord != int(r.Ord) {
			found = append(found, Watched{Ord: int(r.Ord), Gone: !r.Found, CreatedTime: r.CreatedTime})
			last = append(last, r)
		}
		w := &found[len(found)-1]
		if r.EventID > 0 {
			w.Events = append(w.Events, Event{
				EventID: r.EventID, TaskID: r.TaskID, Timestamp: r.Timestamp, Metadata: r.Metadata, Payload: r.Payload,
			})
			last[len(last)-1] = r
		}
	}
	return found, s.addChanged(ctx, refs, found, last)
}

// addChanged reads the processes whose status has changed, within the limits.
func (s *Store) addChanged(ctx context.Context, refs []WatchRef, found []Watched, last []dbsqlc.ReadWatchedRow) error {
	arg := dbsqlc.ReadProcessesParams{MaxBytes: watchedTotal}
	wanted := map[process.Key]*Process{}
	for n := range found {
		ref, r := refs[found[n].Ord], last[n]
		found[n].More = !found[n].Gone && max(r.EventID, ref.AfterEventID, r.FirstEventID-1) < r.LastEventID
		_, twice := wanted[ref.Key]
		changed := !r.StatusChangedTime.Equal(ref.StatusChangedTime)
		if found[n].Gone || found[n].More || !changed || twice {
			continue
		}
		wanted[ref.Key] = nil
		arg.Append(dbsqlc.ReadProcessesItem{Key: ref.Key})
	}
	if len(wanted) == 0 {
		return nil
	}
	rows, err := s.q.ReadProcesses(ctx, s.kept, arg)
	if err != nil {
		return mapped("read watched processes", err)
	}
	for n := range rows {
		p := Process(rows[n])
		wanted[process.Key{Namespace: p.Namespace, ProcessID: p.ProcessID}] = &p
	}
	for n := range found {
		ref, r := refs[found[n].Ord], last[n]
		// A process that has changed again since its events were read is returned by the next
		// query.
		if p := wanted[ref.Key]; p != nil && !found[n].More && p.StatusChangedTime.Equal(r.StatusChangedTime) &&
			p.CreatedTime.Equal(r.CreatedTime) &&
			!r.StatusChangedTime.Equal(ref.StatusChangedTime) {
			found[n].Process = p
		}
	}
	return nil
}

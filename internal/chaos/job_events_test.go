//go:build linux

package chaos

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/progressor-engine/progressor/client"
	progressorv1 "github.com/progressor-engine/progressor/proto/progressor/v1"
)

// eventWatch watches the events of the jobs of a chaos run. If its engine fails, it continues with
// another one after the last event that it has received.
type eventWatch struct {
	t     testing.TB
	fleet *fleet

	stop     func()
	watching sync.WaitGroup

	mutex   sync.Mutex
	ids     map[string][]int64 // numbers of the events of each job, in the order of arrival
	total   int
	streams int // streams that returned an event
}

// startEventWatch starts to watch. The events of all jobs that are enqueued later must arrive.
func startEventWatch(f *fleet) *eventWatch {
	w := &eventWatch{t: f.t, fleet: f, ids: map[string][]int64{}}
	ctx, stop := context.WithCancel(f.t.Context())
	w.stop = stop
	f.t.Cleanup(stop)
	begun := make(chan struct{})
	w.watching.Go(func() { w.watch(ctx, sync.OnceFunc(func() { close(begun) })) })
	select {
	case <-begun:
	case <-time.After(testTimeout):
		f.t.Fatal("the watch of job events has not begun")
	}
	return w
}

// watch calls begun when it has a cursor.
func (w *eventWatch) watch(ctx context.Context, begun func()) {
	req := &progressorv1.WatchJobEventsRequest{Namespace: jobNamespace}
	for try := 0; ctx.Err() == nil; try++ {
		stream, err := w.fleet.at(try).JobEvent.WatchJobEvents(ctx, req)
		if err == nil {
			received := false
			for stream.Receive() {
				u := stream.Msg()
				req.Cursor = u.GetCursor()
				begun()
				if u.GetEvent() != nil {
					w.take(u.GetEvent(), !received)
					received = true
				}
			}
			err = stream.Err()
			_ = stream.Close() // the error of the stream says more
		}
		if client.Reason(err) == progressorv1.ErrorDetail_REASON_CURSOR_LOST {
			w.t.Errorf("watch job events: %v", err)
			return
		}
		waitUntil(20*time.Millisecond, func() bool { return ctx.Err() != nil })
	}
}

func (w *eventWatch) take(e *progressorv1.JobEvent, first bool) {
	w.mutex.Lock()
	defer w.mutex.Unlock()
	w.ids[e.GetJobId()] = append(w.ids[e.GetJobId()], e.GetEventId())
	w.total++
	if first {
		w.streams++
	}
}

// end waits until all recorded events have arrived, and returns the recorded ones. When it is
// called, no job may change.
func (w *eventWatch) end(conn *pgx.Conn) map[string][]int64 {
	w.t.Helper()
	recorded, total := map[string][]int64{}, 0
	rows, err := conn.Query(w.t.Context(), `SELECT job_id, array_agg(event_id ORDER BY event_id)
		FROM job_events WHERE namespace = $1 GROUP BY job_id`, jobNamespace)
	if err != nil {
		w.t.Fatal(err)
	}
	var job string
	var ids []int64
	if _, err := pgx.ForEachRow(rows, []any{&job, &ids}, func() error {
		recorded[job] = slices.Clone(ids)
		total += len(ids)
		return nil
	}); err != nil {
		w.t.Fatal(err)
	}
	waitUntil(testTimeout, func() bool { // defects reports what is missing
		w.mutex.Lock()
		defer w.mutex.Unlock()
		return w.total >= total
	})
	w.stop()
	w.watching.Wait()
	return recorded
}

// defects returns the jobs whose events have not all arrived once and in order.
func (w *eventWatch) defects(recorded map[string][]int64) (wrong []string) {
	for job, ids := range recorded {
		if got := w.ids[job]; !slices.Equal(got, ids) {
			wrong = append(wrong, fmt.Sprintf("the watch of job %s has received the events %v, want %v", job, got, ids))
		}
	}
	for job := range w.ids {
		if _, known := recorded[job]; !known {
			wrong = append(wrong, fmt.Sprintf("the watch has received events of job %s, which has none", job))
		}
	}
	slices.Sort(wrong)
	return wrong
}

func (w *eventWatch) figures() []figure {
	return []figure{
		{"events of jobs watched, each once and in order", w.total},
		{"streams of the watch that returned events", w.streams},
	}
}

// Each defect of a watch is detected.
func TestEventWatchDefects(t *testing.T) {
	t.Parallel()
	for name, tt := range map[string]struct {
		got   map[string][]int64
		wrong int
	}{
		"nothing":        {map[string][]int64{"a": {1, 4}, "b": {2}}, 0},
		"a gap":          {map[string][]int64{"a": {4}, "b": {2}}, 1},
		"no event":       {map[string][]int64{"a": {1, 4}}, 1},
		"twice":          {map[string][]int64{"a": {1, 4, 4}, "b": {2}}, 1},
		"another order":  {map[string][]int64{"a": {4, 1}, "b": {2}}, 1},
		"an unknown job": {map[string][]int64{"a": {1, 4}, "b": {2}, "c": {3}}, 1},
	} {
		w := &eventWatch{ids: tt.got}
		if wrong := w.defects(map[string][]int64{"a": {1, 4}, "b": {2}}); len(wrong) != tt.wrong {
			t.Errorf("%s: %v", name, wrong)
		}
	}
}

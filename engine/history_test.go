package engine_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/timestamppb"

	"github.com/progressor-engine/progressor/engine"
	"github.com/progressor-engine/progressor/process"
	"github.com/progressor-engine/progressor/processor"
	progressorv1 "github.com/progressor-engine/progressor/proto/progressor/v1"
	"github.com/progressor-engine/progressor/storage/storagetest"
)

// seen records the last request of a processor.
type seen struct {
	mu   sync.Mutex
	last *progressorv1.Process
}

func (s *seen) process() *progressorv1.Process {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.last
}

// ids returns the numbers of the events in the request.
func (s *seen) ids() string {
	var ids []string
	for _, e := range s.process().GetHistory() {
		ids = append(ids, fmt.Sprint(e.GetEventId()))
	}
	return strings.Join(ids, " ")
}

// processor returns a processor that appends an event for each task and records the request.
func (s *seen) processor() processor.Processor {
	return processor.Func(func(
		_ context.Context, r *progressorv1.ProcessRequest,
	) (*progressorv1.ProcessResponse, error) {
		s.mu.Lock()
		s.last = r.GetProcess()
		s.mu.Unlock()
		return processor.Result().Event(r.GetArgs()).Done()
	})
}

func ranged(limit, offset int, backward bool) *progressorv1.HistoryRange {
	r := &progressorv1.HistoryRange{Offset: new(int64(offset))}
	if limit >= 0 {
		r.Limit = new(int32(limit))
	}
	if backward {
		r.Direction = progressorv1.HistoryRange_DIRECTION_BACKWARD
	}
	return r
}

// The history that a processor gets depends on the range in the call or, without a range, on the
// history mode of the namespace.
func TestHistoryModesAndRanges(t *testing.T) {
	t.Parallel()
	s := &seen{}
	n := start(t, storagetest.DSN(t), s.processor())
	n.started(t, "p")
	events := 1
	call := func(mode progressorv1.HistoryMode, r *progressorv1.HistoryRange) string {
		t.Helper()
		n.put(t, &progressorv1.Namespace{Namespace: "ns", HistoryMode: mode})
		if _, err := n.Call(t.Context(), engine.CallParams{Key: key("p"), Args: []byte("x"), Range: r}); err != nil {
			t.Fatal(err)
		}
		events++
		if got := s.process(); got.GetLastEventId() != int64(events-1) || !proto.Equal(got.GetRange(), r) {
			t.Errorf("last event %d of %d, range %v", got.GetLastEventId(), events-1, got.GetRange())
		}
		return s.ids()
	}
	const (
		full = progressorv1.HistoryMode_HISTORY_MODE_FULL
		none = progressorv1.HistoryMode_HISTORY_MODE_NONE
		last = progressorv1.HistoryMode_HISTORY_MODE_LAST
	)
	for _, tt := range []struct {
		mode progressorv1.HistoryMode
		rng  *progressorv1.HistoryRange
		want string
	}{
		{full, nil, "1"},
		{progressorv1.HistoryMode_HISTORY_MODE_UNSPECIFIED, nil, "1 2"},
		{none, nil, ""},
		{last, nil, "4"},
		{full, ranged(0, 0, false), ""},
		{full, ranged(2, 0, false), "1 2"},
		{full, ranged(2, 3, false), "4 5"},
		{full, ranged(2, 0, true), "8 7"},
		{none, ranged(2, 4, true), "3 2"}, // the range of the request takes precedence
		{none, ranged(-1, 8, false), "9 10"},
		{last, ranged(-1, 3, true), "2 1"},
		{last, ranged(-1, 0, false), "1 2 3 4 5 6 7 8 9 10 11 12"},
		{none, &progressorv1.HistoryRange{}, "1 2 3 4 5 6 7 8 9 10 11 12 13"},
		{full, ranged(5, 100, false), ""},
	} {
		if got := call(tt.mode, tt.rng); got != tt.want {
			t.Errorf("%v, %v: shown %q, want %q", tt.mode, tt.rng, got, tt.want)
		}
	}
	// GetProcess supports the same ranges.
	for _, tt := range []struct {
		rng  *progressorv1.HistoryRange
		want int
	}{{nil, events}, {ranged(0, 0, false), 0}, {ranged(3, 0, true), 3}, {ranged(-1, 5, false), events - 5}} {
		p, err := n.GetProcess(t.Context(), key("p"), tt.rng, 0)
		if err != nil || len(p.GetHistory()) != tt.want || p.GetLastEventId() != int64(events) {
			t.Errorf("%v: %d events, %v", tt.rng, len(p.GetHistory()), err)
		}
	}
}

// The history begins with event 1, even for the task that creates the process.
func TestFirstEventOfInit(t *testing.T) {
	t.Parallel()
	s := &seen{}
	n := start(t, storagetest.DSN(t), s.processor())
	n.started(t, "p")
	if p := s.process(); p.GetFirstEventId() != 1 || p.GetLastEventId() != 0 {
		t.Errorf("the history of a new process is from %d to %d", p.GetFirstEventId(), p.GetLastEventId())
	}
}

// The history that is passed from task to task in memory is equal to the stored history.
func TestCarriedHistoryIsTheStored(t *testing.T) {
	t.Parallel()
	dsn := storagetest.DSN(t)
	const steps = 40
	var mu sync.Mutex
	var last *progressorv1.Process
	timers := 0
	step := func(_ context.Context, r *progressorv1.ProcessRequest) (*progressorv1.ProcessResponse, error) {
		mu.Lock()
		defer mu.Unlock()
		last = r.GetProcess()
		if r.GetType() == timeoutTask {
			timers++
		}
		b := processor.Result().AuxState(fmt.Append(nil, timers)).Metadata(map[string]any{"step": timers})
		for k := range timers % 3 {
			b.EventWith(fmt.Appendf(nil, "%d-%d", timers, k), map[string]any{"version": k, "b": []any{nil, true, "x"}})
		}
		if timers >= steps {
			return b.Done()
		}
		response, err := b.SetTimerAfter(0).Done()
		for k, e := range response.GetResult().GetEvents() {
			if k == 0 {
				// The timestamp is more precise than the column.
				e.Timestamp = timestamppb.New(time.Unix(1_700_000_000+int64(timers), 123_456_789))
			}
		}
		return response, err
	}
	n := start(t, dsn, byTask{initTask: step, timeoutTask: step})
	n.started(t, "p")
	eventually(t, "all steps are done", func() bool {
		mu.Lock()
		defer mu.Unlock()
		return timers == steps && n.Attempts() == 0
	})
	p, err := n.GetProcess(t.Context(), key("p"), nil, 0)
	if err != nil {
		t.Fatal(err)
	}
	shown := last.GetHistory()
	if len(shown) == 0 || len(p.GetHistory()) < len(shown) {
		t.Fatalf("shown %d events, stored are %d", len(shown), len(p.GetHistory()))
	}
	for k, e := range shown {
		if !proto.Equal(e, p.GetHistory()[k]) {
			t.Errorf("event %d: shown %v, stored %v", k+1, e, p.GetHistory()[k])
		}
	}
	if string(last.GetAuxState()) != fmt.Sprint(steps-1) ||
		last.GetMetadata().GetFields()["step"].GetNumberValue() != steps-1 ||
		last.GetStatus() != progressorv1.ProcessStatus_PROCESS_STATUS_RUNNING {
		t.Errorf("the last step was shown %v", last)
	}
	if !last.GetCreatedTime().AsTime().Equal(p.GetCreatedTime().AsTime()) ||
		!last.GetStatusChangedTime().AsTime().Equal(p.GetStatusChangedTime().AsTime()) ||
		last.GetPreviousStatus() != p.GetPreviousStatus() {
		t.Errorf("the last step was shown\n%v, stored is\n%v", last, p)
	}
}

// A history that does not fit into a message fails the task with a reason. With a range, the task
// succeeds.
func TestHistoryTooLarge(t *testing.T) {
	t.Parallel()
	dsn := storagetest.DSN(t)
	n := start(t, dsn, processor.Echo())
	put := func(id string, events, bytes int) {
		r := &progressorv1.PutProcessRequest{
			Namespace: "ns", ProcessId: id, Status: progressorv1.ProcessStatus_PROCESS_STATUS_RUNNING,
		}
		for range events {
			r.History = append(r.History, &progressorv1.Event{Payload: make([]byte, bytes)})
		}
		if _, err := n.PutProcess(t.Context(), r, process.Actor{}); err != nil {
			t.Fatal(err)
		}
	}
	put("many", process.MaxHistoryEvents+1, 1)
	put("fits", process.MaxHistoryEvents, 1)
	put("heavy", 10, 1<<20)
	for _, id := range []string{"many", "heavy"} {
		if _, err := n.Call(t.Context(), engine.CallParams{
			Key: key(id), Args: []byte("x"), Range: ranged(3, 0, true),
		}); err != nil {
			t.Errorf("%s with a range: %v", id, err)
		}
		res := <-n.calling(id, "x")
		te := taskError(t, res.err)
		if te.Failure.GetReason() != process.ReasonHistoryTooLarge ||
			!strings.Contains(te.Failure.GetMessage(), "range") {
			t.Errorf("%s: %+v", id, te)
		}
	}
	n.called(t, "fits", "x")
	var invalid *process.InvalidError
	_, err := n.GetProcess(t.Context(), key("many"), nil, 0)
	if !errors.As(err, &invalid) || invalid.Field != "range.limit" {
		t.Errorf("%v", err)
	}
}

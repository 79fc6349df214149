package engine_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
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

// watch is a client of WatchProcess.
type watch struct {
	updates chan *progressorv1.WatchProcessResponse
	ended   chan error
	cancel  context.CancelFunc
}

// watching starts to watch a process, and does not wait for updates.
func (n *node) watching(id string, after int64) *watch {
	ctx, cancel := context.WithCancel(context.Background())
	w := &watch{
		updates: make(chan *progressorv1.WatchProcessResponse, 100_000), ended: make(chan error, 1), cancel: cancel,
	}
	go func() {
		w.ended <- n.WatchProcess(ctx, key(id), after, func(u *progressorv1.WatchProcessResponse) error {
			w.updates <- u
			return nil
		})
	}()
	return w
}

// next returns the next update in a short form: the number of an event, or the status and last
// event of a process.
func (w *watch) next(t testing.TB) string {
	t.Helper()
	u := receive(t, "an update", w.updates)
	if e := u.GetEvent(); e != nil {
		return fmt.Sprint(e.GetEventId())
	}
	p := u.GetProcess()
	return fmt.Sprint(strings.TrimPrefix(p.GetStatus().String(), "PROCESS_STATUS_"), " ", p.GetLastEventId())
}

func (w *watch) wants(t testing.TB, updates ...string) {
	t.Helper()
	for _, want := range updates {
		if got := w.next(t); got != want {
			t.Fatalf("got %q, want %q", got, want)
		}
	}
}

// completes ends a process that is called with the args "end".
func completes(_ context.Context, r *progressorv1.ProcessRequest) (*progressorv1.ProcessResponse, error) {
	switch string(r.GetArgs()) {
	case "end":
		return processor.Result().Event([]byte("end")).Complete().Done()
	case "fail":
		return nil, processor.Fail("broken", "as asked")
	}
	return processor.Echo().Process(context.Background(), r)
}

// A process is watched from its start to its end, on the node that runs it and on another one.
func TestWatch(t *testing.T) {
	t.Parallel()
	dsn := storagetest.DSN(t)
	g := newGate()
	defer g.release()
	p := byTask{initTask: g.held(true), callTask: completes}
	a, b := start(t, dsn, p), start(t, dsn, p)
	if _, err := a.Start(t.Context(), engine.StartParams{
		Key: key("p"), Args: []byte("start"), Accepted: true,
	}); err != nil {
		t.Fatal(err)
	}
	watches := []*watch{a.watching("p", 0), b.watching("p", 0)}
	each := func(updates ...string) {
		t.Helper()
		for _, w := range watches {
			w.wants(t, updates...)
		}
	}
	each("INIT 0")
	g.release()
	each("1", "RUNNING 1")
	a.called(t, "p", "x")
	each("2")
	b.called(t, "p", "y")
	each("3")
	watches = append(watches, a.watching("p", 0), a.watching("p", 2), a.watching("p", 3), b.watching("p", 100))
	watches[2].wants(t, "1", "2", "3", "RUNNING 3")
	watches[3].wants(t, "3", "RUNNING 3")
	watches[4].wants(t, "RUNNING 3")
	watches[5].wants(t, "RUNNING 3")
	taskError(t, (<-a.calling("p", "fail")).err)
	each("ERROR 3")
	if _, err := b.Repair(t.Context(), engine.RepairParams{Key: key("p"), Simple: true}); err != nil {
		t.Fatal(err)
	}
	each("RUNNING 3")
	watches[5].cancel()
	if err := receive(t, "the end of a cancelled watch", watches[5].ended); !errors.Is(err, context.Canceled) {
		t.Error(err)
	}
	watches = watches[:5]
	a.called(t, "p", "end")
	each("4", "COMPLETED 4")
	watches = append(watches, b.watching("p", 4))
	watches[5].wants(t, "COMPLETED 4")
	for _, w := range watches {
		if err := receive(t, "the end", w.ended); err != nil || len(w.updates) != 0 {
			t.Errorf("%v, %d updates", err, len(w.updates))
		}
	}
	if err := receive(t, "an error", a.watching("nobody", 0).ended); !errors.Is(err, process.ErrProcessNotFound) {
		t.Error(err)
	}
	err := a.WatchProcess(t.Context(), process.Key{Namespace: "nowhere", ProcessID: "p"}, 0, nil)
	if !errors.Is(err, process.ErrNamespaceNotFound) {
		t.Error(err)
	}
}

// A watch ends when its process is removed, even if the ID is immediately reused.
func TestWatchEndsWithRemoval(t *testing.T) {
	t.Parallel()
	dsn := storagetest.DSN(t)
	a, b := start(t, dsn, processor.Echo()), start(t, dsn, processor.Echo())
	a.started(t, "p")
	watches := []*watch{a.watching("p", 0), b.watching("p", 0)}
	for _, w := range watches {
		w.wants(t, "1", "RUNNING 1")
	}
	if err := a.RemoveProcess(t.Context(), key("p"), process.Actor{}); err != nil {
		t.Fatal(err)
	}
	eventually(t, "its ID can be used again", func() bool {
		_, err := a.Start(context.Background(), engine.StartParams{Key: key("p"), Args: []byte("another")})
		return err == nil
	})
	a.called(t, "p", "another's")
	for _, w := range watches {
		if err := receive(t, "the end", w.ended); err != nil || len(w.updates) != 0 {
			t.Errorf("%v, %d updates", err, len(w.updates))
		}
	}
}

// The events in updates are equal to those in reads, whether they come from memory or from the
// database.
func TestWatchShowsWhatReadsShow(t *testing.T) {
	t.Parallel()
	dsn := storagetest.DSN(t)
	at := time.Date(2030, 1, 2, 3, 4, 5, 678901234, time.UTC)
	results := byTask{callTask: func(
		context.Context, *progressorv1.ProcessRequest,
	) (*progressorv1.ProcessResponse, error) {
		response, err := processor.Result().Event([]byte("first")).EventWith([]byte("second"), map[string]any{
			"a": 1, "b": []any{"x"},
		}).Event(nil).Done()
		response.GetResult().GetEvents()[2].Timestamp = timestamppb.New(at)
		return response, err
	}}
	a, b := start(t, dsn, results), start(t, dsn, results)
	a.started(t, "p")
	watches := []*watch{a.watching("p", 0), b.watching("p", 0)}
	for _, w := range watches {
		w.wants(t, "1", "RUNNING 1")
	}
	a.called(t, "p", "x")
	want, err := a.GetProcess(t.Context(), key("p"), nil, 0)
	if err != nil || len(want.GetHistory()) != 4 {
		t.Fatalf("%v, %v", want, err)
	}
	for n, w := range watches {
		for _, e := range want.GetHistory()[1:] {
			if got := receive(t, "an event", w.updates).GetEvent(); !proto.Equal(got, e) {
				t.Errorf("watch %d: got %v, want %v", n, got, e)
			}
		}
	}
}

// Both nodes store many events. Every watcher gets every event once, in order.
func TestWatchMissesNothing(t *testing.T) {
	t.Parallel()
	dsn := storagetest.DSN(t)
	nodes := []*node{start(t, dsn, processor.Echo()), start(t, dsn, processor.Echo())}
	nodes[0].started(t, "p")
	const calls, clients = 100, 4
	var group sync.WaitGroup
	for k := range clients {
		group.Go(func() {
			for c := range calls {
				if res := <-nodes[(k+c/10)%2].persisting("p", "x"); res.err != nil {
					t.Error(res.err)
				}
			}
		})
	}
	var watches []*watch
	for k := range 10 {
		watches = append(watches, nodes[k%2].watching("p", 0))
		pass(5 * time.Millisecond) // so that they start in the middle
	}
	group.Wait()
	for _, w := range watches {
		for event := 1; event <= calls*clients+1; {
			switch got := w.next(t); got {
			case fmt.Sprint(event):
				event++
			default:
				if !strings.HasPrefix(got, "RUNNING ") {
					t.Fatalf("got %q, want event %d", got, event)
				}
			}
		}
		w.cancel()
		if receive(t, "the end", w.ended); len(w.updates) != 0 {
			t.Errorf("%d updates too many", len(w.updates))
		}
	}
}

// A slow client does not delay another client, and in the end it has received all events in order.
func TestSlowWatcher(t *testing.T) {
	t.Parallel()
	n := start(t, storagetest.DSN(t),
		byTask{callTask: func(context.Context, *progressorv1.ProcessRequest) (*progressorv1.ProcessResponse, error) {
			b := processor.Result()
			for range 500 {
				b.Event([]byte("x"))
			}
			return b.Done()
		}})
	n.started(t, "p")
	quick := n.watching("p", 0)
	open := make(chan struct{})
	var got []int64
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() {
		ended <- n.WatchProcess(ctx, key("p"), 0, func(u *progressorv1.WatchProcessResponse) error {
			<-open
			if e := u.GetEvent(); e != nil {
				if got = append(got, e.GetEventId()); e.GetEventId() == 5001 {
					cancel()
				}
			}
			return nil
		})
	}()
	for range 10 {
		n.called(t, "p", "x")
	}
	for last := ""; last != "5001"; last = quick.next(t) {
	}
	close(open)
	if err := receive(t, "the end", ended); !errors.Is(err, context.Canceled) {
		t.Error(err)
	}
	if len(got) != 5001 || !slices.IsSorted(got) || got[0] != 1 {
		t.Errorf("%d events", len(got))
	}
}

// 1,000 watched processes cause at most 20 queries per second, and events of another node arrive
// within 100 ms at the median.
func TestManyWatchersFewQueries(t *testing.T) {
	t.Parallel()
	const clients = 1000
	dsn := storagetest.DSN(t)
	runs := start(t, dsn, processor.Echo())
	line, slow := through(t, dsn)
	shows := start(t, slow, processor.Echo())
	var watches []*watch
	for k := range clients {
		runs.started(t, fmt.Sprint("p", k))
		watches = append(watches, shows.watching(fmt.Sprint("p", k), 0))
	}
	for _, w := range watches {
		w.wants(t, "1", "RUNNING 1")
	}
	// The time may include the chores that a node does every ten seconds.
	if rate := line.rate(5 * time.Second); rate > 20+messagePolls() {
		t.Errorf("%.1f queries per second by a node with %d watchers", rate, clients)
	} else {
		t.Logf("%.1f queries per second", rate)
	}
	var late []time.Duration
	for k, w := range watches[:25] {
		runs.called(t, fmt.Sprint("p", k), "x")
		stored := time.Now()
		w.wants(t, "2")
		late = append(late, time.Since(stored))
	}
	slices.Sort(late)
	if median := late[len(late)/2]; median > 100*time.Millisecond {
		t.Errorf("the median latency of events is %s: %v", median, late)
	}
	for _, w := range watches {
		w.cancel()
		receive(t, "the end", w.ended)
	}
}

// Watchers get the events of this node from memory.
func TestWatchOfOwnResultsQueriesNothing(t *testing.T) {
	t.Parallel()
	line, slow := through(t, storagetest.DSN(t))
	n := start(t, slow, processor.Echo(), func(c *engine.Config) { c.AnswerPoll, c.ScanInterval = longWait, longWait })
	n.started(t, "p")
	var watches []*watch
	for range 100 {
		watches = append(watches, n.watching("p", 0))
	}
	for _, w := range watches {
		w.wants(t, "1", "RUNNING 1")
	}
	before := line.statements.Load()
	for call := range 10 {
		n.called(t, "p", "x")
		for _, w := range watches {
			w.wants(t, fmt.Sprint(call+2))
		}
	}
	if q := line.statements.Load() - before; q > 150 {
		t.Errorf("%d statements for 10 calls with 100 watchers", q)
	}
}

// The streams of a stopping node end, and its clients can use other nodes.
func TestWatchEndsWithNode(t *testing.T) {
	t.Parallel()
	dsn := storagetest.DSN(t)
	a, b := start(t, dsn, processor.Echo()), start(t, dsn, processor.Echo())
	a.started(t, "p")
	w := a.watching("p", 0)
	w.wants(t, "1", "RUNNING 1")
	a.stop()
	if err := receive(t, "the end", w.ended); !errors.Is(err, process.ErrUnavailable) {
		t.Error(err)
	}
	w = b.watching("p", 1)
	w.wants(t, "RUNNING 1")
	w.cancel()
	receive(t, "the end", w.ended)
}

// While the database is unavailable, watchers wait, and later miss no update.
func TestWatchWithoutDatabase(t *testing.T) {
	t.Parallel()
	dsn := storagetest.DSN(t)
	line, slow := through(t, dsn)
	runs, shows := start(t, dsn, processor.Echo()), start(t, slow, processor.Echo())
	runs.started(t, "p")
	w := shows.watching("p", 0)
	w.wants(t, "1", "RUNNING 1")
	line.away()
	runs.called(t, "p", "x")
	pass(200 * time.Millisecond)
	line.back()
	w.wants(t, "2")
	w.cancel()
	receive(t, "the end", w.ended)
}

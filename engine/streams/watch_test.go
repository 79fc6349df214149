package streams_test

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"
	"google.golang.org/protobuf/types/known/timestamppb"

	"github.com/progressor-engine/progressor/engine"
	"github.com/progressor-engine/progressor/engine/enginetest"
	"github.com/progressor-engine/progressor/engine/streams"
	"github.com/progressor-engine/progressor/process"
	"github.com/progressor-engine/progressor/processor"
	progressorv1 "github.com/progressor-engine/progressor/proto/progressor/v1"
	"github.com/progressor-engine/progressor/storage/changes"
	"github.com/progressor-engine/progressor/storage/storagetest"
)

func TestMain(m *testing.M) { storagetest.Main(m) }

// testTimeout is how long a test waits for an event that normally happens soon. It is long because
// the machine may be busy.
const testTimeout = time.Minute

// site is a database with engines whose processor stores its args as an event.
type site struct {
	t   testing.TB
	dsn string
	db  *pgxpool.Pool
}

func newSite(t testing.TB, with ...storagetest.Option) *site {
	dsn := storagetest.DSN(t, with...)
	return &site{t: t, dsn: dsn, db: storagetest.Connect(t, dsn)}
}

// node is an engine with its streams.
type node struct {
	*enginetest.Node
	*streams.Streams
}

// start starts an engine. Namespace ns records all events and lifecycle changes.
func (s *site) start() *node {
	s.t.Helper()
	p := processor.Func(func(_ context.Context, r *progressorv1.ProcessRequest) (*progressorv1.ProcessResponse, error) {
		result := &progressorv1.Result{Events: []*progressorv1.NewEvent{{Payload: r.GetArgs()}}}
		return &progressorv1.ProcessResponse{Outcome: &progressorv1.ProcessResponse_Result{Result: result}}, nil
	})
	n := enginetest.Start(s.t, s.dsn, p)
	settings := &progressorv1.ChangeSettings{Payloads: true, Kinds: []progressorv1.ChangeKind{
		progressorv1.ChangeKind_CHANGE_KIND_EVENT, progressorv1.ChangeKind_CHANGE_KIND_LIFECYCLE,
	}}
	n.Put(s.t, &progressorv1.Namespace{Namespace: "ns", Changes: settings})
	return &node{n, streams.New(n.Engine, n.Store)}
}

func (n *node) begin(t testing.TB, id string) {
	t.Helper()
	_, err := n.Start(context.Background(), engine.StartParams{Key: key(id), Args: []byte("init")})
	if err != nil {
		t.Fatal(err)
	}
}

func key(id string) process.Key { return process.Key{Namespace: "ns", ProcessID: id} }

// text returns changes as lines.
func text(list []*progressorv1.Change) string {
	var lines []string
	for _, c := range list {
		line := c.GetProcessId() + " " + c.GetType()
		if c.GetEventId() > 0 {
			line += fmt.Sprintf(" %d %s", c.GetEventId(), c.GetPayload())
		}
		lines = append(lines, line)
	}
	return strings.Join(lines, ", ")
}

// all returns all changes that a stream with stop returns, and the last cursor.
func (n *node) all(t testing.TB, r *progressorv1.WatchChangesRequest) (list []*progressorv1.Change, cursor string) {
	t.Helper()
	r.Namespace, r.Stop = "ns", true
	err := n.Watch(t.Context(), r, func(u *progressorv1.WatchChangesResponse) error {
		list, cursor = append(list, u.GetChanges()...), u.GetCursor()
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return list, cursor
}

func want(t testing.TB, what, got, wanted string) {
	t.Helper()
	if got != wanted {
		t.Errorf("%s: %s\nwant %s", what, got, wanted)
	}
}

// A stream begins now, at a time, or after a cursor, on any node. It returns the matching changes.
func TestWatchChanges(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	n, other := s.start(), s.start()
	_, empty := n.all(t, &progressorv1.WatchChangesRequest{})
	n.begin(t, "a")
	list, first := n.all(t, &progressorv1.WatchChangesRequest{Cursor: empty})
	want(t, "after a cursor", text(list), "a created, a stored 1 init")
	n.begin(t, "b")
	list, second := other.all(t, &progressorv1.WatchChangesRequest{Cursor: first})
	want(t, "on another node", text(list), "b created, b stored 1 init")
	list, _ = n.all(t, &progressorv1.WatchChangesRequest{Cursor: second})
	want(t, "at the end", text(list), "")
	events := []progressorv1.ChangeKind{progressorv1.ChangeKind_CHANGE_KIND_EVENT}
	list, _ = n.all(t, &progressorv1.WatchChangesRequest{Kinds: events, Cursor: empty})
	want(t, "events", text(list), "a stored 1 init, b stored 1 init")
	list, _ = n.all(t, &progressorv1.WatchChangesRequest{ProcessId: "b", FromTime: timestamppb.New(time.Unix(0, 0))})
	want(t, "of a process, from the beginning", text(list), "b created, b stored 1 init")
	list, _ = n.all(t, &progressorv1.WatchChangesRequest{FromTime: timestamppb.New(time.Now().Add(time.Hour))})
	want(t, "from a later time", text(list), "")
	var at time.Time
	row := s.db.QueryRow(t.Context(), `SELECT "time" FROM changes WHERE process_id = 'b' AND kind = 'event'`)
	if err := row.Scan(&at); err != nil {
		t.Fatal(err)
	}
	list, _ = n.all(t, &progressorv1.WatchChangesRequest{FromTime: timestamppb.New(at)})
	want(t, "from the time of a change", text(list), "b stored 1 init")

	ctx, cancel := context.WithTimeout(t.Context(), testTimeout)
	defer cancel()
	seen := ""
	now := &progressorv1.WatchChangesRequest{Namespace: "ns"}
	err := n.Watch(ctx, now, func(u *progressorv1.WatchChangesResponse) error {
		if len(u.GetChanges()) == 0 && seen == "" {
			seen = "cursor"
			n.begin(t, "c")
		} else if list = append(list, u.GetChanges()...); strings.HasSuffix(text(list), "c stored 1 init") {
			return errors.New("enough")
		}
		return nil
	})
	want(t, "the end of a stream", fmt.Sprint(err), "enough")
	want(t, "from now on", text(list), "b stored 1 init, c created, c stored 1 init")
}

// A commit of the node wakes its streams. Without that, they would read again after an hour.
func TestCommitWakesTheStream(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	n := s.start()
	n.WaitForWake()
	ctx, cancel := context.WithTimeout(t.Context(), testTimeout)
	defer cancel()
	enough := errors.New("enough")
	received, started := 0, 0
	request := &progressorv1.WatchChangesRequest{Namespace: "ns"}
	err := n.Watch(ctx, request, func(u *progressorv1.WatchChangesResponse) error {
		received += len(u.GetChanges())
		if received < 2*started {
			return nil
		}
		if started == 5 {
			return enough
		}
		n.begin(t, fmt.Sprintf("p%d", started))
		started++
		return nil
	})
	if !errors.Is(err, enough) {
		t.Errorf("%d of %d changes were received: %v", received, 2*started, err)
	}
}

// A stream that cannot continue without a gap fails with an error. If the error is a CursorError,
// it contains a cursor with which the stream can continue.
func TestLostCursors(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	n := s.start()
	_, before := n.all(t, &progressorv1.WatchChangesRequest{})
	n.begin(t, "a")
	_, after := n.all(t, &progressorv1.WatchChangesRequest{})
	ignore := func(*progressorv1.WatchChangesResponse) error { return nil }
	refused := func(what string, r *progressorv1.WatchChangesRequest, text string) {
		t.Helper()
		r.Namespace, r.Stop = "ns", true
		ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
		defer cancel()
		err := n.Watch(ctx, r, ignore)
		if err == nil || !strings.Contains(err.Error(), text) {
			t.Errorf("%s: %v", what, err)
		}
		if lost, ok := errors.AsType[*process.CursorError](err); ok {
			n.all(t, &progressorv1.WatchChangesRequest{Cursor: lost.Oldest})
		}
	}
	from := func(cursor string) *progressorv1.WatchChangesRequest {
		return &progressorv1.WatchChangesRequest{Cursor: cursor}
	}
	refused("garbage", from("garbage"), "must be the cursor of a previous response")
	foreign := changes.Cursor{Lanes: map[int64]int64{}}
	refused("another database", from(foreign.String()), "failed over or was restored")
	stranger, err := changes.ParseCursor("cursor", after)
	if err != nil {
		t.Fatal(err)
	}
	stranger.Lanes = maps.Clone(stranger.Lanes)
	stranger.Lanes[1<<40] = 1
	refused("another namespace", from(stranger.String()), "not a cursor of this namespace")
	storagetest.Exec(t, s.db, `WITH d AS (DELETE FROM changes RETURNING namespace, lane, seq, "time")
		INSERT INTO change_drops SELECT namespace, lane, max(seq), max("time") FROM d GROUP BY 1, 2`)
	refused("deleted", from(before), "changes after it were deleted")
	hourAgo := timestamppb.New(time.Now().Add(-time.Hour))
	refused("deleted since a time", &progressorv1.WatchChangesRequest{FromTime: hourAgo},
		"changes since then were deleted")
	list, _ := n.all(t, &progressorv1.WatchChangesRequest{Cursor: after})
	want(t, "after the deleted changes", text(list), "")
	list, _ = n.all(t, &progressorv1.WatchChangesRequest{FromTime: timestamppb.New(time.Unix(0, 0))})
	want(t, "all remaining changes", text(list), "")
	n.Put(t, &progressorv1.Namespace{Namespace: "silent"})
	err = n.Watch(t.Context(), &progressorv1.WatchChangesRequest{Namespace: "silent"}, ignore)
	if err == nil || !strings.Contains(err.Error(), "records no changes: set changes.kinds") {
		t.Errorf("a namespace that records nothing: %v", err)
	}
}

// checker checks that the changes of a watcher have no gap and that those of each process are in
// order. Changes may be repeated.
type checker struct {
	mu     sync.Mutex
	t      testing.TB
	events map[string]int64 // the last event of each process
	ids    map[string]int64 // the last change of each process
	again  int
}

func (c *checker) take(list []*progressorv1.Change) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, change := range list {
		id := change.GetProcessId()
		switch {
		case change.GetChangeId() <= c.ids[id]:
			c.again++
			continue
		case change.GetKind() == progressorv1.ChangeKind_CHANGE_KIND_EVENT && change.GetEventId() != c.events[id]+1:
			c.t.Errorf("%s: event %d follows event %d", id, change.GetEventId(), c.events[id])
		}
		c.ids[id] = change.GetChangeId()
		c.events[id] = max(c.events[id], change.GetEventId())
	}
}

func (c *checker) total() (n int64) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, last := range c.events {
		n += last
	}
	return n
}

// write sends calls to a process, to each of the nodes in turn. In the middle, write breaks the
// connections of all lanes that are executing a statement.
func (s *site) write(nodes []*node, id string, calls int, stored *atomic.Int64) {
	for i := range calls {
		if i == calls/2 { // in the middle of transactions
			_, _ = s.db.Exec(context.Background(), `SELECT pg_terminate_backend(pid) FROM pg_stat_activity
				WHERE datname = current_database() AND application_name = 'progressor lane'
				  AND state = 'active'`)
		}
		call := engine.CallParams{Key: key(id), Args: []byte("x"), IdempotencyKey: fmt.Sprint(i)}
		for again := true; again; {
			_, err := nodes[i%2].Call(context.Background(), call)
			again = errors.Is(err, process.ErrUnavailable)
			if err != nil && !again {
				s.t.Error(err)
			}
		}
		stored.Add(1)
	}
}

// Several nodes write at the same time. One of them is killed, connections break in the middle of
// transactions, and a long transaction of another application is open. A watcher that continues on
// another node misses no event, and sees the events of each process in order. Sometimes, the
// watcher continues before it has stored its cursor.
func TestWatchHasNoGap(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	nodes := []*node{s.start(), s.start(), s.start()}
	storagetest.Begin(t, s.db, "SELECT pg_current_xact_id()")
	_, cursor := nodes[0].all(t, &progressorv1.WatchChangesRequest{})
	const processes, calls = 10, 30
	var stored atomic.Int64
	var writers sync.WaitGroup
	for p := range processes {
		nodes[p%3].begin(t, fmt.Sprintf("p%d", p))
	}
	for p := range processes {
		writers.Go(func() { s.write(nodes[:2], fmt.Sprintf("p%d", p), calls, &stored) })
	}
	enginetest.Eventually(t, testTimeout, "some calls", func() bool { return stored.Load() > processes })
	nodes[2].Store.Close() // as if the node were killed: its attempts become zombies
	check := &checker{t: t, events: map[string]int64{}, ids: map[string]int64{}}
	done := make(chan struct{})
	go func() { writers.Wait(); close(done) }()
	enough := errors.New("continue on another node")
	for turn := 0; ; turn++ {
		ended := false
		select {
		case <-done:
			ended = true
		default:
		}
		before := cursor
		request := &progressorv1.WatchChangesRequest{Namespace: "ns", Cursor: cursor, Stop: true}
		err := nodes[turn%2].Watch(t.Context(), request, func(u *progressorv1.WatchChangesResponse) error {
			check.take(u.GetChanges())
			if turn%3 == 0 {
				return enough // before the cursor is stored: the changes are received again
			}
			cursor = u.GetCursor()
			return nil
		})
		if err != nil && !errors.Is(err, enough) && !errors.Is(err, process.ErrUnavailable) {
			t.Fatal(err)
		}
		if ended && err == nil && cursor == before {
			break
		}
	}
	got, have := check.total(), s.count("SELECT count(*) FROM events")
	if check.again == 0 {
		t.Error("no change was received again")
	}
	if got != have || got < processes*(calls+1) {
		t.Errorf("%d events were received, %d are stored, for at least %d requests", got, have, processes*(calls+1))
	}
}

func (s *site) count(sql string) int64 {
	s.t.Helper()
	return int64(enginetest.Count(s.t, s.db, sql))
}

// A read returns at most a given number of changes and bytes, and the next read continues.
func TestReadsAreBounded(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	n := s.start()
	at, _, err := changes.Now(t.Context(), n.Store, "ns")
	if err != nil {
		t.Fatal(err)
	}
	for i := range 6 {
		n.begin(t, fmt.Sprintf("p%d", i))
	}
	for _, limit := range []changes.ReadLimit{{Changes: 5, Bytes: 1 << 20}, {Changes: 100, Bytes: 500}} {
		next, reads, total := at, 0, 0
		for more := true; more; reads++ {
			var found []changes.Change
			found, next, more, err = changes.Read(t.Context(), n.Store, "ns", next, limit)
			if err != nil || len(found) > 5 {
				t.Fatalf("%d changes, %v", len(found), err)
			}
			total += len(found)
		}
		if total != 12 || reads < 3 {
			t.Errorf("%d changes in %d reads with %+v", total, reads, limit)
		}
	}
}

// The changes of a process that were recorded in several lanes are read in their order, even if a
// read ends between them.
func TestReadsFollowTheProcess(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	n := s.start()
	for _, sql := range []string{
		"INSERT INTO change_heads (namespace, lane) OVERRIDING SYSTEM VALUE VALUES ('ns', 1001), ('ns', 1002)",
		`INSERT INTO changes (namespace, lane, seq, change_id, "time", kind, type, process_id, event_id)
			SELECT 'ns', 1001 + event % 2, (event + 1) / 2, nextval('change_ids'), now(), 'event', 'stored', 'p', event
			  FROM generate_series(1, 8) event ORDER BY event`, // the first event is in the last lane
	} {
		storagetest.Exec(t, s.db, sql)
	}
	next, err := changes.Oldest(t.Context(), n.Store, "ns")
	if err != nil {
		t.Fatal(err)
	}
	events := ""
	for more := true; more; {
		var found []changes.Change
		limit := changes.ReadLimit{Changes: 3, Bytes: 1 << 20}
		found, next, more, err = changes.Read(t.Context(), n.Store, "ns", next, limit)
		if err != nil {
			t.Fatal(err)
		}
		for _, c := range found {
			events += fmt.Sprint(c.EventID, " ")
		}
	}
	want(t, "the events of a process in two lanes", events, "1 2 3 4 5 6 7 8 ")
}

package sinks_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"
	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/types/known/timestamppb"

	"github.com/progressor-engine/progressor/engine"
	"github.com/progressor-engine/progressor/engine/enginetest"
	"github.com/progressor-engine/progressor/engine/sinks"
	"github.com/progressor-engine/progressor/engine/sinks/targets"
	"github.com/progressor-engine/progressor/process"
	"github.com/progressor-engine/progressor/processor"
	"github.com/progressor-engine/progressor/processor/remote"
	progressorv1 "github.com/progressor-engine/progressor/proto/progressor/v1"
	"github.com/progressor-engine/progressor/storage/storagetest"
)

func TestMain(m *testing.M) { storagetest.Main(m) }

// testTimeout is how long a test waits for an event that normally happens soon. It is long because
// the machine may be busy.
const testTimeout = time.Minute

// secret is a valid key of webhooks.
const secret = "whsec_c2VjcmV0LWtleS1mb3ItdGhlLXRlc3RzLTEyMzQ="

var discard = slog.New(slog.DiscardHandler)

// kim is the operator.
var kim = process.Actor{Name: "kim", Source: "10.0.0.7:4711"}

// site is a database with engines whose processor stores its args as an event.
type site struct {
	t   testing.TB
	dsn string
	db  *pgxpool.Pool
}

func newSite(t testing.TB) *site {
	dsn := storagetest.DSN(t)
	return &site{t: t, dsn: dsn, db: storagetest.Connect(t, dsn)}
}

// node is an engine with its sinks.
type node struct {
	*enginetest.Node
	*sinks.Sinks
}

// start starts an engine. Namespace ns records all events and lifecycle changes.
func (s *site) start(change ...func(*sinks.Sinks)) *node {
	s.t.Helper()
	return s.startWith(func(*engine.Config) {}, change...)
}

func (s *site) startWith(config func(*engine.Config), change ...func(*sinks.Sinks)) *node {
	s.t.Helper()
	p := processor.Func(func(_ context.Context, r *progressorv1.ProcessRequest) (*progressorv1.ProcessResponse, error) {
		result := &progressorv1.Result{Events: []*progressorv1.NewEvent{{Payload: r.GetArgs()}}}
		return &progressorv1.ProcessResponse{Outcome: &progressorv1.ProcessResponse_Result{Result: result}}, nil
	})
	n := &node{}
	kinds := func(e *enginetest.Node) []engine.Kind {
		n.Sinks = sinks.New(e.Engine, e.Store, sinks.Config{
			Open: targets.Open(&remote.Egress{}), Registerer: e.Registry, Logger: discard,
		})
		n.ShortenTimes()
		for _, f := range change {
			f(n.Sinks)
		}
		return []engine.Kind{n.Kind()}
	}
	n.Node = enginetest.Start(s.t, s.dsn, p, enginetest.Config(config), enginetest.Add(kinds))
	settings := &progressorv1.ChangeSettings{Kinds: []progressorv1.ChangeKind{
		progressorv1.ChangeKind_CHANGE_KIND_EVENT, progressorv1.ChangeKind_CHANGE_KIND_LIFECYCLE,
	}}
	n.Node.Put(s.t, &progressorv1.Namespace{Namespace: "ns", Changes: settings})
	return n
}

func key(id string) process.Key { return process.Key{Namespace: "ns", ProcessID: id} }

func (n *node) begin(t testing.TB, id string) {
	t.Helper()
	if _, err := n.Start(context.Background(), engine.StartParams{Key: key(id), Args: []byte("init")}); err != nil {
		t.Fatal(err)
	}
}

func (n *node) call(t testing.TB, id string) {
	t.Helper()
	if _, err := n.Call(context.Background(), engine.CallParams{Key: key(id), Args: []byte("x")}); err != nil {
		t.Fatal(err)
	}
}

// sinkTo returns a sink whose webhook is a receiver.
func sinkTo(r *receiver) *progressorv1.Sink {
	return &progressorv1.Sink{Namespace: "ns", SinkId: "s", Target: &progressorv1.Sink_Webhook{
		Webhook: &progressorv1.WebhookTarget{Url: r.url, Secrets: []string{secret}},
	}}
}

func (n *node) put(t testing.TB, m *progressorv1.Sink) *progressorv1.Sink {
	t.Helper()
	got, err := n.Sinks.Put(context.Background(), &progressorv1.PutSinkRequest{Sink: m}, kim)
	if err != nil {
		t.Fatal(err)
	}
	return got
}

// newSink starts a node with the sink s and returns its receiver.
func newSink(t testing.TB) (*site, *node, *receiver) {
	t.Helper()
	s := newSite(t)
	n, r := s.start(), newReceiver(t)
	n.put(t, sinkTo(r))
	return s, n, r
}

// pause pauses sink s.
func (n *node) pause(t testing.TB) {
	t.Helper()
	if _, err := n.Pause(t.Context(), &progressorv1.PauseSinkRequest{Namespace: "ns", SinkId: "s"}); err != nil {
		t.Fatal(err)
	}
}

// resume resumes sink s.
func (n *node) resume(t testing.TB) {
	t.Helper()
	if _, err := n.Resume(t.Context(), &progressorv1.ResumeSinkRequest{Namespace: "ns", SinkId: "s"}); err != nil {
		t.Fatal(err)
	}
}

// status returns the status of sink s.
func (n *node) status(t testing.TB) *progressorv1.SinkStatus {
	t.Helper()
	m, err := n.Get(context.Background(), &progressorv1.GetSinkRequest{Namespace: "ns", SinkId: "s"})
	if err != nil {
		t.Fatal(err)
	}
	return m.GetStatus()
}

// becomes waits until sink s has a state.
func (n *node) becomes(t testing.TB, state progressorv1.SinkState) {
	t.Helper()
	eventually(t, "the sink is "+state.String(), func() bool { return n.status(t).GetState() == state })
}

// drains waits until sink s has delivered all changes.
func (n *node) drains(t testing.TB) {
	t.Helper()
	eventually(t, "all messages are delivered", func() bool { return n.status(t).GetLagChanges() == 0 })
}

func eventually(t testing.TB, what string, cond func() bool) {
	t.Helper()
	enginetest.Eventually(t, testTimeout, what, cond)
}

func want(t testing.TB, what, got, wanted string) {
	t.Helper()
	if got != wanted {
		t.Errorf("%s: %s\nwant %s", what, got, wanted)
	}
}

// receiver is a webhook that checks that the accepted changes have no gap and that those of each
// process are in order. Changes may be repeated.
type receiver struct {
	url string

	mu      sync.Mutex
	t       testing.TB
	lines   []string
	events  map[string]int64 // the last event of each process
	ids     map[string]int64 // the last change of each process
	again   int              // changes that were received again
	faults  int              // requests that got an error
	respond func(c *progressorv1.Change) reaction
}

// reaction is the reaction of a receiver to a request.
type reaction int

const (
	accept reaction = iota
	cut             // accept, then close the connection without a response
	hang            // respond only when the client has closed the connection; values from 100 are HTTP statuses
)

func newReceiver(t testing.TB) *receiver {
	r := &receiver{t: t, events: map[string]int64{}, ids: map[string]int64{}}
	server := httptest.NewServer(r)
	t.Cleanup(server.Close)
	r.url = server.URL
	return r
}

// reacts sets the reaction of the receiver. nil means that it accepts requests.
func (r *receiver) reacts(respond func(*progressorv1.Change) reaction) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.respond = respond
}

func (r *receiver) ServeHTTP(w http.ResponseWriter, request *http.Request) {
	c, err := changeOf(request)
	if err != nil {
		r.t.Error(err)
		return
	}
	r.mu.Lock()
	reaction := accept
	if r.respond != nil {
		reaction = r.respond(c)
	}
	if reaction != accept {
		r.faults++
	}
	if reaction == accept || reaction == cut {
		r.take(c)
	}
	r.mu.Unlock()
	switch {
	case reaction == cut:
		panic(http.ErrAbortHandler)
	case reaction == hang:
		<-request.Context().Done()
	case reaction >= 100:
		http.Error(w, "no "+c.GetProcessId(), int(reaction))
	}
}

// changeOf returns the change of a request in structured CloudEvents.
func changeOf(request *http.Request) (*progressorv1.Change, error) {
	body, err := io.ReadAll(request.Body)
	if err != nil {
		return nil, err
	}
	var event struct{ Data json.RawMessage }
	if err := json.Unmarshal(body, &event); err != nil {
		return nil, fmt.Errorf("%s: %w", body, err)
	}
	c := &progressorv1.Change{}
	if request.Header.Get("webhook-id") == "" || request.Header.Get("webhook-signature") == "" {
		return nil, errors.New("a request without a header of Standard Webhooks")
	}
	return c, protojson.Unmarshal(event.Data, c)
}

func (r *receiver) take(c *progressorv1.Change) {
	id := c.GetProcessId()
	switch {
	case c.GetChangeId() <= r.ids[id]:
		r.again++
		return
	case c.GetKind() == progressorv1.ChangeKind_CHANGE_KIND_EVENT && c.GetEventId() != r.events[id]+1:
		r.t.Errorf("%s: event %d follows event %d", id, c.GetEventId(), r.events[id])
	}
	r.ids[id], r.events[id] = c.GetChangeId(), max(r.events[id], c.GetEventId())
	line := id + " " + c.GetType()
	if c.GetEventId() > 0 {
		line += " " + strconv.FormatInt(c.GetEventId(), 10)
	}
	r.lines = append(r.lines, line)
}

// text returns the accepted changes. They are sorted, because the order of changes of different
// processes is not defined.
func (r *receiver) text() string {
	r.mu.Lock()
	defer r.mu.Unlock()
	return strings.Join(slices.Sorted(slices.Values(r.lines)), ", ")
}

// counts returns the number of accepted events, the number of repeated changes, and the faults.
func (r *receiver) counts() (events int64, again, faults int) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, last := range r.events {
		events += last
	}
	return events, r.again, r.faults
}

func (s *site) exec(sql string, args ...any) {
	s.t.Helper()
	if _, err := s.db.Exec(context.Background(), sql, args...); err != nil {
		s.t.Fatal(err)
	}
}

// beginning is the time of the oldest change.
var beginning = timestamppb.New(time.Unix(0, 0))

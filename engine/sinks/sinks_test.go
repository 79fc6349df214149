package sinks_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/types/known/durationpb"
	"google.golang.org/protobuf/types/known/timestamppb"

	"github.com/progressor-engine/progressor/engine/enginetest"
	"github.com/progressor-engine/progressor/process"
	progressorv1 "github.com/progressor-engine/progressor/proto/progressor/v1"
)

const (
	active   = progressorv1.SinkState_SINK_STATE_ACTIVE
	paused   = progressorv1.SinkState_SINK_STATE_PAUSED
	failing  = progressorv1.SinkState_SINK_STATE_FAILING
	broken   = progressorv1.SinkState_SINK_STATE_BROKEN
	disabled = progressorv1.SinkState_SINK_STATE_DISABLED
)

// A sink with an invalid setting is rejected, and the error names the field.
func TestPutRefuses(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	n := s.start()
	n.Node.Put(t, &progressorv1.Namespace{Namespace: "silent"})
	r := newReceiver(t)
	for wanted, change := range map[string]func(*progressorv1.Sink){
		"sink.namespace: silent records no changes: set changes.kinds of the namespace": func(m *progressorv1.Sink) {
			m.Namespace = "silent"
		},
		"namespace not found": func(m *progressorv1.Sink) { m.Namespace = "nowhere" },
		"sink.kinds[1]: the namespace does not record JOB: it records EVENT, LIFECYCLE": func(m *progressorv1.Sink) {
			m.Kinds = []progressorv1.ChangeKind{
				progressorv1.ChangeKind_CHANGE_KIND_EVENT, progressorv1.ChangeKind_CHANGE_KIND_JOB,
			}
		},
		"sink.filter: line 1, column 7: undefined field 'typo'; it is a CEL expression": func(m *progressorv1.Sink) {
			m.Filter = "change.typo == 'x'"
		},
		"sink.filter: must be true or false": func(m *progressorv1.Sink) { m.Filter = "change.type" },
		"sink.webhook.url: must not contain a user": func(m *progressorv1.Sink) {
			m.GetWebhook().Url = "http://kim:secret@127.0.0.1/"
		},
		"sink.webhook.url: address 169.254.169.254 is not allowed": func(m *progressorv1.Sink) {
			m.GetWebhook().Url = "http://169.254.169.254/"
		},
		"sink.webhook.url: must not contain a fragment": func(m *progressorv1.Sink) {
			m.GetWebhook().Url = "http://127.0.0.1/#a"
		},
		"sink.webhook.secrets[1]: must be whsec_ followed by 24 to 64 bytes in base64": func(m *progressorv1.Sink) {
			m.GetWebhook().Secrets = []string{secret, "whsec_dG9vIHNob3J0"}
		},
		"sink.webhook.secrets[0]: must be whsec_": func(m *progressorv1.Sink) {
			m.GetWebhook().Secrets = []string{strings.TrimPrefix(secret, "whsec_")}
		},
		"sink.webhook.unsigned: must be false if there are secrets": func(m *progressorv1.Sink) {
			m.GetWebhook().Unsigned = true
		},
		"sink.target: is required": func(m *progressorv1.Sink) { m.Target = nil },
		"sink.format: must be":     func(m *progressorv1.Sink) { m.Format = 99 },
	} {
		m := sinkTo(r)
		change(m)
		_, err := n.Sinks.Put(t.Context(), &progressorv1.PutSinkRequest{Sink: m}, kim)
		if err == nil || !strings.Contains(err.Error(), wanted) {
			t.Errorf("got %v\nwant %s", err, wanted)
		}
		if strings.Contains(fmt.Sprint(err), "dG9vIHNob3J0") {
			t.Errorf("the error shows a secret: %v", err)
		}
	}
	if count := enginetest.Count(t, s.db, "SELECT count(*) FROM sinks"); count != 0 {
		t.Errorf("%d sinks are stored", count)
	}
}

// The settings of a sink are stored and replaced. Its secrets are kept and never returned.
func TestSettings(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	n := s.start()
	r := newReceiver(t)
	m := sinkTo(r)
	m.Filter, m.MaxLag = `change.type == "created"`, durationpb.New(time.Hour)
	for name, got := range map[string]*progressorv1.Sink{"put": n.put(t, m), "read": n.sink(t)} {
		if text := protojson.Format(got); strings.Contains(text, secret) || !got.GetWebhook().GetSigned() {
			t.Errorf("%s: %s", name, text)
		}
		want(t, name, fmt.Sprint(got.GetFilter(), got.GetMaxLag().AsDuration(), got.GetStatus().GetState()),
			m.GetFilter()+"1h0m0s "+active.String())
	}
	const sealed = `SELECT count(*) FROM sinks WHERE secrets::text LIKE '%${sealed:database:%'
		AND secrets::text NOT LIKE '%whsec%'`
	if count := enginetest.Count(t, s.db, sealed); count != 1 {
		t.Error("the secrets are not encrypted")
	}
	again := n.sink(t)
	again.Filter = ""
	if got := n.put(t, again); !got.GetWebhook().GetSigned() || got.GetFilter() != "" {
		t.Errorf("replaced without secrets: %v", got)
	}
	n.begin(t, "a")
	n.drains(t) // the receiver requires a signature
	want(t, "delivered", r.text(), "a created, a stored 1")
	again.GetWebhook().Unsigned = true
	if got := n.put(t, again); got.GetWebhook().GetSigned() || got.GetWebhook().GetUnsigned() {
		t.Errorf("made unsigned: %v", got)
	}
	for _, id := range []string{"t", "u"} {
		other := sinkTo(r)
		other.SinkId = id
		n.put(t, other)
	}
	want(t, "listed", n.list(t), "s t, u")
	if err := n.Delete(t.Context(), &progressorv1.DeleteSinkRequest{Namespace: "ns", SinkId: "t"}, kim); err != nil {
		t.Fatal(err)
	}
	want(t, "listed after a deletion", n.list(t), "s u")
	_, err := n.Get(t.Context(), &progressorv1.GetSinkRequest{Namespace: "ns", SinkId: "t"})
	if !errors.Is(err, process.ErrSinkNotFound) {
		t.Errorf("a deleted sink: %v", err)
	}
	if _, err := n.Pause(t.Context(), &progressorv1.PauseSinkRequest{Namespace: "ns", SinkId: "t"}); !errors.Is(err,
		process.ErrSinkNotFound) {
		t.Errorf("pause a deleted sink: %v", err)
	}
	audited := enginetest.Count(t, s.db,
		"SELECT count(*) FROM audit WHERE actor = 'kim' AND method IN ('PutSink', 'DeleteSink') AND "+
			"namespace = 'ns' AND details->(CASE method WHEN 'PutSink' THEN 'after' ELSE 'before' END) IS NOT NULL")
	if audited != 6 {
		t.Errorf("%d commands are audited", audited)
	}
}

func (n *node) sink(t testing.TB) *progressorv1.Sink {
	t.Helper()
	m, err := n.Get(context.Background(), &progressorv1.GetSinkRequest{Namespace: "ns", SinkId: "s"})
	if err != nil {
		t.Fatal(err)
	}
	return m
}

// list returns the IDs of the sinks in pages of two, with commas between pages.
func (n *node) list(t testing.TB) string {
	t.Helper()
	var pages []string
	request := &progressorv1.ListSinksRequest{PageSize: 2}
	for {
		list, next, err := n.List(context.Background(), request)
		if err != nil {
			t.Fatal(err)
		}
		var ids []string
		for _, m := range list {
			ids = append(ids, m.GetSinkId())
		}
		if pages = append(pages, strings.Join(ids, " ")); next == "" {
			return strings.Join(pages, ", ")
		}
		request.PageToken = next
	}
}

// A sink delivers the changes that its kinds and its filter select. A change for which the filter
// fails is not delivered. The cursor moves past the other changes.
func TestFilters(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	n := s.start()
	r := newReceiver(t)
	r.events["b"] = 1 // the first event is not selected
	m := sinkTo(r)
	m.Kinds = []progressorv1.ChangeKind{progressorv1.ChangeKind_CHANGE_KIND_EVENT}
	m.Filter = `change.event_id > 1 && change.process_id == "b" || change.metadata.missing == 1.0`
	n.put(t, m)
	for _, id := range []string{"a", "b"} {
		n.begin(t, id)
		n.call(t, id)
	}
	n.drains(t)
	want(t, "delivered", r.text(), "b stored 2")
	if got := n.status(t).GetDeliveredChanges(); got != 1 {
		t.Errorf("%d changes were counted", got)
	}
}

// A paused sink delivers nothing until it is resumed, and then continues at its position.
func TestPauseAndResume(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	n, other := s.start(), s.start()
	r := newReceiver(t)
	n.put(t, sinkTo(r))
	n.begin(t, "a")
	n.drains(t)
	if _, err := n.Pause(t.Context(), &progressorv1.PauseSinkRequest{Namespace: "ns", SinkId: "s"}, kim); err != nil {
		t.Fatal(err)
	}
	eventually(t, "no node delivers", func() bool { return n.status(t).GetNodeId() == 0 })
	n.begin(t, "b")
	got := n.status(t)
	if got.GetState() != paused || got.GetLagChanges() != 2 || got.GetLag().AsDuration() <= 0 {
		t.Errorf("paused: %v", got)
	}
	want(t, "while it is paused", r.text(), "a created, a stored 1")
	resume := &progressorv1.ResumeSinkRequest{Namespace: "ns", SinkId: "s"}
	if _, err := other.Resume(t.Context(), resume, kim); err != nil {
		t.Fatal(err)
	}
	n.drains(t)
	want(t, "after it was resumed", r.text(), "a created, a stored 1, b created, b stored 1")
	if got := n.status(t); got.GetState() != active || got.GetDeliveredChanges() != 4 {
		t.Errorf("resumed: %v", got)
	}
	if _, again, _ := r.counts(); again != 0 {
		t.Errorf("%d changes were received again", again)
	}
}

// A sink can be rewound to a time, and can skip to a later one. It can also begin in the past.
func TestRewind(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	n := s.start()
	r := newReceiver(t)
	n.begin(t, "a")
	put := &progressorv1.PutSinkRequest{Sink: sinkTo(r), FromTime: beginning}
	if _, err := n.Sinks.Put(t.Context(), put); err != nil {
		t.Fatal(err)
	}
	n.begin(t, "b")
	n.drains(t)
	want(t, "from the beginning", r.text(), "a created, a stored 1, b created, b stored 1")
	rewind := func(to time.Time) error {
		_, err := n.Rewind(t.Context(), &progressorv1.RewindSinkRequest{
			Namespace: "ns", SinkId: "s", ToTime: timestamppb.New(to),
		}, kim)
		return err
	}
	var at time.Time
	if err := s.db.QueryRow(t.Context(), `SELECT "time" FROM changes WHERE process_id = 'b' AND type = 'created'`).
		Scan(&at); err != nil {
		t.Fatal(err)
	}
	for what, to := range map[string]time.Time{"a change": at, "the beginning": time.Unix(0, 0)} {
		_, before, _ := r.counts()
		if err := rewind(to); err != nil {
			t.Fatal(err)
		}
		n.drains(t)
		wanted := 2
		if to.Before(at) {
			wanted = 4
		}
		if _, again, _ := r.counts(); again-before != wanted {
			t.Errorf("after a rewind to %s, %d changes were received again, want %d", what, again-before, wanted)
		}
	}
	n.pause(t)
	n.begin(t, "c")
	if err := rewind(time.Now().Add(time.Hour)); err != nil {
		t.Fatal(err)
	}
	if got := n.status(t); got.GetState() != paused || got.GetLagChanges() != 0 {
		t.Errorf("after it has skipped all: %v", got)
	}
	s.exec(`WITH d AS (DELETE FROM changes RETURNING namespace, lane, seq, "time")
		INSERT INTO change_drops SELECT namespace, lane, max(seq), max("time") FROM d GROUP BY 1, 2`)
	err := rewind(at)
	if lost, ok := errors.AsType[*process.CursorError](err); !ok || lost.Field != "to_time" ||
		!strings.Contains(lost.Message, "use 1970-01-01") {
		t.Errorf("to deleted changes: %v", err)
	}
}

// A scrape shows the lag and the state of each sink, and the number of changes that the node has
// delivered.
func TestMetrics(t *testing.T) {
	t.Parallel()
	_, n, _ := newSink(t)
	n.begin(t, "a")
	n.drains(t)
	n.pause(t)
	eventually(t, "no node delivers", func() bool { return n.status(t).GetNodeId() == 0 })
	n.begin(t, "b")
	families, err := n.Registry.Gather()
	if err != nil {
		t.Fatal(err)
	}
	got := map[string]float64{}
	for _, f := range families {
		for _, m := range f.GetMetric() {
			got[f.GetName()] = m.GetCounter().GetValue() + m.GetGauge().GetValue()
		}
	}
	if got["progressor_sink_changes_delivered_total"] != 2 || got["progressor_sink_lag_changes"] != 2 ||
		got["progressor_sink_lag_seconds"] <= 0 || got["progressor_sink_state"] != 1 {
		t.Errorf("%v", got)
	}
	for _, name := range []string{"progressor_sink_dead_letters_total", "progressor_sink_failures_total"} {
		if value, ok := got[name]; !ok || value != 0 {
			t.Errorf("%s is not exported as 0, so rate() does not count the first event", name)
		}
	}
}

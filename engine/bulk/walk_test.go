package bulk_test

import (
	"context"
	"strings"
	"sync"
	"testing"
	"time"

	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/structpb"
	"google.golang.org/protobuf/types/known/timestamppb"

	"github.com/progressor-engine/progressor/engine"
	"github.com/progressor-engine/progressor/engine/bulk"
	"github.com/progressor-engine/progressor/process"
	"github.com/progressor-engine/progressor/processor"
	progressorv1 "github.com/progressor-engine/progressor/proto/progressor/v1"
	"github.com/progressor-engine/progressor/storage/search"
	"github.com/progressor-engine/progressor/storage/storagetest"
)

type bulks = bulk.Bulks

// paged returns a request whose pages have size processes, one page per second.
func paged(verb progressorv1.BulkVerb, filter string, size float64) *progressorv1.StartBulkRequest {
	r := request(verb, filter)
	r.Rate = size
	return r
}

// begins waits until a bulk has completed its first page.
func (n *node) begins(t testing.TB, b *progressorv1.Bulk) {
	t.Helper()
	eventually(t, "the first page is done", func() bool { return n.get(t, b.GetBulkId()).GetMatched() > 0 })
}

// A bulk handles no more processes per second than its rate allows, because its pages are a second
// apart.
func TestRate(t *testing.T) {
	t.Parallel()
	n := start(t, storagetest.DSN(t))
	n.startAll(t, "", ids("p", 6)...)
	b := n.ended(t, n.begun(t, paged(suspend, "status = RUNNING", 2)))
	if b.GetDone() != 6 {
		t.Errorf("%v", b)
	}
	if pages := n.Count(t, "SELECT count(*) FROM tasks WHERE task_type = 'TIMEOUT'"); pages < 3 {
		t.Errorf("%d pages", pages)
	}
	took := n.Count(t, "SELECT (extract(epoch FROM max(running_time) - min(running_time)) * 1000)::int FROM tasks "+
		"WHERE task_type = 'TIMEOUT'")
	if took < 1990 {
		t.Errorf("the third page began %d ms after the first, at 2 processes a second", took)
	}
}

// A cancelled bulk ends after its current page.
func TestCancelInTheMiddle(t *testing.T) {
	t.Parallel()
	n := start(t, storagetest.DSN(t))
	n.startAll(t, "", ids("p", 60)...)
	b := n.begun(t, paged(suspend, "status = RUNNING", 5))
	n.begins(t, b)
	if c, err := n.Cancel(t.Context(), "ns", b.GetBulkId(), process.Actor{Name: "lee"}); err != nil ||
		c.GetBulkId() != b.GetBulkId() {
		t.Fatalf("%v, %v", c, err)
	}
	b = n.ended(t, b)
	if b.GetStatus() != progressorv1.ProcessStatus_PROCESS_STATUS_CANCELLED || b.GetDone() >= 60 || b.GetDone() < 5 {
		t.Errorf("%v", b)
	}
	if got := n.Count(t, "SELECT count(*) FROM processes WHERE status = 'SUSPENDED'"); got != int(b.GetDone()) {
		t.Errorf("%d processes are suspended, but %d are reported", got, b.GetDone())
	}
	if got := n.Count(t, "SELECT count(*) FROM audit WHERE method = 'CancelProcess' AND actor = 'lee' AND subject = $1",
		"~bulk/"+b.GetBulkId()); got != 1 {
		t.Errorf("the cancel has %d audit entries", got)
	}
	if _, err := n.Cancel(t.Context(), "ns", b.GetBulkId(), kim); err == nil {
		t.Error("the bulk can be cancelled after its end")
	}
}

// If the node that runs a bulk dies or stops, another node completes the bulk.
func TestAnotherNodeContinues(t *testing.T) {
	t.Parallel()
	for _, how := range []string{"killed", "stopped"} {
		t.Run(how, func(t *testing.T) {
			t.Parallel()
			dsn := storagetest.DSN(t)
			a := start(t, dsn)
			a.startAll(t, "", ids("p", 600)...)
			b := a.begun(t, paged(suspend, "status = RUNNING", 100))
			a.begins(t, b)
			if how == "killed" {
				a.Store.Close() // the node releases no task, and its row in nodes stays
			}
			other := start(t, dsn)
			if how == "stopped" {
				a.Stop()
			}
			done := other.get(t, b.GetBulkId()).GetDone()
			b = other.ended(t, b)
			if done == 600 {
				t.Error("the first node completed the bulk")
			}
			if b.GetStatus() != progressorv1.ProcessStatus_PROCESS_STATUS_COMPLETED || b.GetFailed() != 0 ||
				other.statuses(t) != "SUSPENDED 600" {
				t.Errorf("%v; %s", b, other.statuses(t))
			}
			if got := other.Count(t,
				"SELECT count(DISTINCT subject) FROM audit WHERE method = 'SuspendProcess'"); got != 600 {
				t.Errorf("%d commands are audited", got)
			}
		})
	}
}

// A page whose result was not stored is run again without further effects: no process is changed
// twice, and no command is audited twice.
func TestPageTwice(t *testing.T) {
	t.Parallel()
	n := start(t, storagetest.DSN(t))
	n.startAll(t, "", ids("p", 10)...)
	r := request(suspend, `process_id = "p-*"`)
	b := n.ended(t, n.begun(t, r))
	p, err := n.GetProcess(t.Context(), key("~bulk/"+b.GetBulkId()), &progressorv1.HistoryRange{Limit: new(int32)}, 0)
	if err != nil {
		t.Fatal(err)
	}
	for range 2 {
		p.AuxState = nil // as it was before its first page
		if !n.turn(t, p) {
			t.Error("the page is not the last")
		}
	}
	if got := n.Count(t, "SELECT count(*) FROM audit WHERE method = 'SuspendProcess'"); got != 10 ||
		n.statuses(t) != "SUSPENDED 10" {
		t.Errorf("%d commands are audited; %s", got, n.statuses(t))
	}
}

// Processes that change or are removed between two pages are handled according to their status when
// the bulk reaches them. Processes that are created after the start of the bulk are not handled.
// The namespace is paused, and the test runs the pages itself.
func TestChangesWhileItWalks(t *testing.T) {
	t.Parallel()
	n := start(t, storagetest.DSN(t))
	all := ids("p", 40)
	for _, id := range all { // one at a time, because pages follow the order of creation
		n.startAll(t, "", id)
	}
	if _, err := n.SetNamespacePaused(t.Context(), "ns", true); err != nil {
		t.Fatal(err)
	}
	b := n.begun(t, paged(suspend, "status = RUNNING OR status = INIT", 10))
	p, err := n.GetProcess(t.Context(), key("~bulk/"+b.GetBulkId()), nil, 0)
	if err != nil {
		t.Fatal(err)
	}
	if n.turn(t, p) || n.statuses(t) != "RUNNING 30, SUSPENDED 10" {
		t.Fatalf("after a page: %s", n.statuses(t))
	}
	lee := process.Actor{Name: "lee"}
	for _, k := range []int{10, 19, 20, 29} { // on both sides of page boundaries
		if _, err := n.SuspendProcess(t.Context(), key(all[k]), "", lee); err != nil {
			t.Fatal(err)
		}
	}
	for _, k := range []int{5, 18, 21, 39} {
		if err := n.RemoveProcess(t.Context(), key(all[k]), lee); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := n.ResumeProcess(t.Context(), key(all[3]), lee); err != nil { // already visited
		t.Fatal(err)
	}
	for _, id := range append(ids("new", 15), all[21]) {
		if _, err := n.Engine.Start(t.Context(), engine.StartParams{Key: key(id), Accepted: true}); err != nil {
			t.Fatal(err)
		}
	}
	for pages := 1; !n.turn(t, p); pages++ {
		if pages > 5 {
			t.Fatal("the bulk does not end")
		}
	}
	if got := n.statuses(t); got != "INIT 16, RUNNING 1, SUSPENDED 35" {
		t.Errorf("at the end: %s", got)
	}
	if got := n.Count(t, "SELECT count(*) FROM audit WHERE method = 'SuspendProcess' AND actor = 'kim'"); got != 33 {
		t.Errorf("the bulk suspended %d processes", got)
	}
}

// turn runs a page of a bulk, stores the new state in p, and reports whether it was the last page.
func (n *node) turn(t testing.TB, p *progressorv1.Process) (last bool) {
	t.Helper()
	resp, err := n.Page(context.Background(), &progressorv1.ProcessRequest{
		Type: progressorv1.TaskType_TASK_TYPE_TIMEOUT, Process: p,
		Deadline: timestamppb.New(time.Now().Add(time.Minute)),
	})
	if err != nil {
		t.Fatal(err)
	}
	p.AuxState = resp.GetResult().GetAuxState()
	return resp.GetResult().GetComplete() != nil
}

// A node does not change a bulk whose state a newer version of the engine has stored.
func TestStateOfNewerVersion(t *testing.T) {
	t.Parallel()
	n := start(t, storagetest.DSN(t))
	n.startAll(t, "", ids("p", 2)...)
	if _, err := n.SetNamespacePaused(t.Context(), "ns", true); err != nil {
		t.Fatal(err)
	}
	b := n.begun(t, request(suspend, "status = RUNNING"))
	p, err := n.GetProcess(t.Context(), key("~bulk/"+b.GetBulkId()), nil, 0)
	if err != nil {
		t.Fatal(err)
	}
	for state, newer := range map[string]bool{`{"novel": 1, "done": 1}`: true, `{"again": [{"novel": 1}]}`: true,
		`{"done": ""}`: false} {
		p.AuxState = []byte(state)
		_, err = n.Page(t.Context(), &progressorv1.ProcessRequest{
			Type: progressorv1.TaskType_TASK_TYPE_TIMEOUT, Process: p,
			Deadline: timestamppb.New(time.Now().Add(time.Minute)),
		})
		if err == nil || (processor.FailureOf(err).GetReason() == process.ReasonNewerState) != newer {
			t.Errorf("%s: %v", state, err)
		}
	}
	if got := n.statuses(t); got != "RUNNING 2" {
		t.Error(got)
	}
}

// A node leaves a bulk to a newer version if it does not know a part of its command. It shows the
// bulk, even in lists, and can cancel it.
func TestCommandOfNewerVersion(t *testing.T) {
	t.Parallel()
	n := start(t, storagetest.DSN(t))
	n.startAll(t, "", "p")
	b := n.begun(t, paged(suspend, "status = RUNNING", 0.001))
	n.ended(t, b)
	p, err := n.GetProcess(t.Context(), key("~bulk/"+b.GetBulkId()), nil, 0)
	if err != nil {
		t.Fatal(err)
	}
	p.AuxState = nil
	metadata := p.GetMetadata()
	for name, c := range map[string]struct{ value, message string }{
		"verb":   {"polish", `does not accept the verb "polish" (must be one of `},
		"kind":   {"thing", `does not accept the kind "thing" ("thing" is not a kind of bulk`},
		"filter": {"taste = sweet", `does not accept the filter "taste = sweet" (`},
		"novel":  {"x", "a newer version of the engine"},
	} {
		p.Metadata = proto.CloneOf(metadata)
		p.Metadata.Fields[name] = structpb.NewStringValue(c.value)
		_, err = n.Page(t.Context(), &progressorv1.ProcessRequest{
			Type: progressorv1.TaskType_TASK_TYPE_TIMEOUT, Process: p,
			Deadline: timestamppb.New(time.Now().Add(time.Minute)),
		})
		if err == nil || processor.FailureOf(err).GetReason() != process.ReasonNewerState ||
			processor.FailureOf(err).GetNonRetryable() || !strings.Contains(err.Error(), c.message) {
			t.Errorf("%s: %v", name, err)
		}
	}
	if _, err := n.SetNamespacePaused(t.Context(), "ns", true); err != nil {
		t.Fatal(err)
	}
	b = n.begun(t, request(suspend, "status = RUNNING"))
	storagetest.Exec(t, n.DB, `UPDATE processes SET metadata = metadata || '{"verb": "polish", "novel": 1}'
		WHERE process_id = $1`, "~bulk/"+b.GetBulkId())
	if got := n.get(t, b.GetBulkId()); got.GetVerb() != 0 || got.GetFilter() != "status = RUNNING" {
		t.Errorf("%v", got)
	}
	if list, _, err := n.List(t.Context(), "", 0, ""); err != nil || len(list) != 2 {
		t.Errorf("list: %v, %v", list, err)
	}
	if _, err := n.Cancel(t.Context(), "ns", b.GetBulkId(), kim); err != nil {
		t.Errorf("cancel: %v", err)
	}
}

// A bulk does nothing while its namespace is paused.
func TestPausedNamespace(t *testing.T) {
	t.Parallel()
	n := start(t, storagetest.DSN(t))
	n.startAll(t, "", ids("p", 4)...)
	if _, err := n.SetNamespacePaused(t.Context(), "ns", true); err != nil {
		t.Fatal(err)
	}
	b := n.begun(t, request(suspend, "status = RUNNING"))
	if b.GetStatus() != progressorv1.ProcessStatus_PROCESS_STATUS_INIT || b.GetExpected() != 4 || b.GetMatched() != 0 {
		t.Errorf("%v", b)
	}
	if _, err := n.SetNamespacePaused(t.Context(), "ns", false); err != nil {
		t.Fatal(err)
	}
	if b = n.ended(t, b); b.GetDone() != 4 {
		t.Errorf("%v", b)
	}
}

// When the time of a page is over, the next page handles its remaining processes.
func TestPageEndsEarly(t *testing.T) {
	t.Parallel()
	const many = 60
	n := start(t, storagetest.DSN(t), func(b *bulks) { b.EndEarly() })
	n.startAll(t, "", ids("p", many)...)
	b := n.ended(t, n.begun(t, request(suspend, "status = RUNNING")))
	if b.GetDone() != many || n.statuses(t) != "SUSPENDED 60" {
		t.Errorf("%v; %s", b, n.statuses(t))
	}
	if got := n.Count(t, "SELECT count(*) FROM tasks WHERE process_id = $1 AND task_type = 'TIMEOUT'",
		"~bulk/"+b.GetBulkId()); got <= many/10+1 {
		t.Errorf("only %d pages: no page ended early", got)
	}
}

// things returns a target with many items, which can be cancelled if their state is "". states
// contains the others.
func things(many int, states map[string]string, cancelOne func(id string) error) bulk.Target {
	return bulk.Target{
		Kind: "thing", Plural: "things", IDField: "thing_id",
		Check: func(string) error { return nil },
		Find: func(_ context.Context, _, filter, token string, limit int) (found []bulk.Item, next string, err error) {
			for _, id := range ids("t", many) {
				if id <= token || strings.Contains(filter, `= "t-`) && !strings.Contains(filter, id) {
					continue
				}
				if len(found) == limit {
					return found, next, nil
				}
				found = append(found, bulk.Item{Cursor: search.Cursor{ProcessID: id, CreatedTime: time.Unix(1, 0)},
					State: states[id]})
				next = id
			}
			return found, "", nil
		},
		Verbs: map[progressorv1.BulkVerb]bulk.Verb{cancel: {
			Allowed: []string{""},
			Do: func(_ context.Context, key process.Key, _ bulk.Options, _ process.Actor) error {
				return cancelOne(key.ProcessID)
			},
		}},
	}
}

// ofThings returns a bulk that cancels all things.
func ofThings() *progressorv1.StartBulkRequest {
	r := request(cancel, `thing_id = "*"`)
	r.Kind = "thing"
	return r
}

// An item that is in the wrong state is skipped, also after a try that stored nothing, and if the
// state never allowed the verb. If it is unknown whether an earlier try took effect, the item
// counts as done, unless the verb has an idempotency key.
func TestEffectOfEarlierTry(t *testing.T) {
	t.Parallel()
	for keyed, done := range map[bool]int64{false: 2, true: 0} {
		first := map[string]error{
			"t-00001": process.ErrUnavailable, "t-00002": context.DeadlineExceeded,
			"t-00003": process.ErrLocked, "t-00004": process.ErrOverloaded, "t-00005": process.ErrUnavailable,
		}
		var mu sync.Mutex
		target := things(len(first), map[string]string{"t-00005": "ENDED"}, func(id string) error {
			mu.Lock()
			defer mu.Unlock()
			if err := first[id]; err != nil {
				delete(first, id)
				return err
			}
			return &process.WrongStatusError{Key: key(id), Status: process.StatusCancelled}
		})
		verb := target.Verbs[cancel]
		verb.Keyed = keyed
		target.Verbs[cancel] = verb
		n := startWith(t, storagetest.DSN(t), []bulk.Target{target}, (*bulks).FailSoon)
		b := n.ended(t, n.begun(t, ofThings()))
		if b.GetMatched() != 5 || b.GetDone() != done || b.GetSkipped() != 5-done {
			t.Errorf("keyed %t: %v", keyed, b)
		}
	}
}

// Items that a page has found but had no time to handle do not count as failed. The next page
// handles them immediately.
func TestPageOfItemsEndsEarly(t *testing.T) {
	t.Parallel()
	const many = 60
	var mu sync.Mutex
	did := map[string]int{}
	n := startWith(t, storagetest.DSN(t), []bulk.Target{things(many, nil, func(id string) error {
		<-time.After(2 * time.Millisecond) // longer than a page
		mu.Lock()
		defer mu.Unlock()
		did[id]++
		return nil
	})}, (*bulks).EndEarly, (*bulks).NeverRetry)
	b := n.ended(t, n.begun(t, ofThings()))
	if b.GetDone() != many || len(did) != many {
		t.Errorf("%v; %d were handled", b, len(did))
	}
	pages := n.Count(t, "SELECT count(*) FROM tasks WHERE process_id = $1 AND task_type = 'TIMEOUT'",
		"~bulk/"+b.GetBulkId())
	if pages <= many/10+1 {
		t.Errorf("only %d pages: no page ended early", pages)
	}
}

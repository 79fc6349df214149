package bulk_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"slices"
	"strings"
	"testing"

	"google.golang.org/protobuf/proto"

	"github.com/progressor-engine/progressor/engine"
	"github.com/progressor-engine/progressor/engine/bulk"
	"github.com/progressor-engine/progressor/process"
	progressorv1 "github.com/progressor-engine/progressor/proto/progressor/v1"
	"github.com/progressor-engine/progressor/storage/storagetest"
)

const (
	repair  = progressorv1.BulkVerb_BULK_VERB_SIMPLE_REPAIR
	suspend = progressorv1.BulkVerb_BULK_VERB_SUSPEND
	resume  = progressorv1.BulkVerb_BULK_VERB_RESUME
	cancel  = progressorv1.BulkVerb_BULK_VERB_CANCEL
	remove  = progressorv1.BulkVerb_BULK_VERB_REMOVE
)

// A bulk of repairs passes its args to the processor of each process. The bulk records a failed
// repair as a failure. A dry run repairs nothing.
func TestRepairByProcessor(t *testing.T) {
	t.Parallel()
	n := start(t, storagetest.DSN(t))
	n.startAll(t, "", "runs")
	n.startAll(t, "fail", ids("broken", 3)...)
	r := request(progressorv1.BulkVerb_BULK_VERB_REPAIR, `process_id = "*"`)
	r.Args, r.DryRun = []byte("complete"), true
	if b := n.begun(t, r); b.GetMatched() != 4 || b.GetSkipped() != 1 || n.statuses(t) != "ERROR 3, RUNNING 1" {
		t.Errorf("a dry run: %v, %s", b, n.statuses(t))
	}
	r.Args, r.DryRun = []byte("fail"), false
	b := n.ended(t, n.begun(t, r))
	if b.GetDone() != 0 || b.GetSkipped() != 1 || b.GetFailed() != 3 || string(b.GetArgs()) != "fail" ||
		!strings.Contains(n.get(t, b.GetBulkId()).GetFailures()[0].GetError(), "as asked") {
		t.Errorf("failures: %v", b)
	}
	r.Args = []byte("complete")
	if b := n.ended(t, n.begun(t, r)); b.GetDone() != 3 || b.GetSkipped() != 1 || b.GetFailed() != 0 {
		t.Errorf("repairs: %v", b)
	}
	if got := n.statuses(t); got != "COMPLETED 3, RUNNING 1" {
		t.Error(got)
	}
	r.Verb = cancel
	if _, err := n.Start(t.Context(), r, kim); err == nil || !strings.Contains(err.Error(), "only the verb") {
		t.Errorf("args of another verb: %v", err)
	}
}

// A verb gives each process the status that the single command gives it. Each process that a verb
// changes gets an audit entry that names the actor. A bulk skips processes whose status does not
// allow the verb, and does not touch processes of internal kinds.
func TestVerbs(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		verb          progressorv1.BulkVerb
		done, skipped int64
		want, method  string
		noted         int
	}{
		{repair, 2, 9, "COMPLETED 1, RUNNING 6, SUSPENDED 4", "Repair", 2},
		{suspend, 8, 3, "COMPLETED 1, ERROR 2, SUSPENDED 8", "SuspendProcess", 4},
		{resume, 8, 3, "COMPLETED 1, ERROR 2, RUNNING 8", "ResumeProcess", 4},
		{cancel, 10, 1, "CANCELLED 10, COMPLETED 1", "CancelProcess", 10},
		{remove, 11, 0, "", "RemoveProcess", 11},
	} {
		t.Run(tt.verb.String(), func(t *testing.T) {
			t.Parallel()
			n := start(t, storagetest.DSN(t))
			n.startAll(t, "", ids("runs", 4)...)
			n.startAll(t, "", ids("held", 4)...)
			n.startAll(t, "fail", ids("broken", 2)...)
			n.startAll(t, "complete", "done")
			for _, id := range ids("held", 4) {
				if _, err := n.SuspendProcess(t.Context(), key(id), "", process.Actor{Name: "lee"}); err != nil {
					t.Fatal(err)
				}
			}
			if _, err := n.Engine.Start(t.Context(),
				engine.StartParams{Key: key("a-flow"), Kind: "flow", Accepted: true}); err != nil {
				t.Fatal(err)
			}
			b := n.begun(t, request(tt.verb, `process_id = "*"`))
			if b.GetExpected() != 11 || b.GetExpectedMore() || b.GetVerb() != tt.verb || b.GetActor() != "kim" ||
				b.GetReason() != "a test" || b.GetRate() != 10_000 {
				t.Errorf("started: %v", b)
			}
			b = n.ended(t, b)
			if b.GetStatus() != progressorv1.ProcessStatus_PROCESS_STATUS_COMPLETED || b.GetDone() != tt.done ||
				b.GetSkipped() != tt.skipped || b.GetFailed() != 0 {
				t.Errorf("ended: %v", b)
			}
			eventually(t, "the processes are "+tt.want, func() bool { return n.statuses(t) == tt.want })
			noted := n.Count(t,
				`SELECT count(*) FROM audit WHERE method = $1 AND actor = 'kim' AND source = '10.0.0.7:4711'
				AND details->>'via' = $2`, tt.method, "~bulk/"+b.GetBulkId())
			if noted != tt.noted {
				t.Errorf("%d commands are audited, want %d", noted, tt.noted)
			}
			if got := n.Count(t,
				`SELECT count(*) FROM audit WHERE method = 'StartBulk' AND actor = 'kim'
				  AND details->>'filter' = 'process_id = "*"'
				AND details->>'reason' = 'a test'`); got != 1 {
				t.Errorf("the bulk has %d audit entries", got)
			}
			if got := n.Count(t, `SELECT count(*) FROM processes
				WHERE process_id = 'a-flow' AND status IN ('INIT', 'RUNNING')`); got != 1 {
				t.Error("a process of another kind was touched")
			}
		})
	}
}

// A filter that matches internal processes of the engine finds none of them.
func TestOwnProcessesAreLeftAlone(t *testing.T) {
	t.Parallel()
	n := start(t, storagetest.DSN(t))
	first := n.ended(t, n.begun(t, request(suspend, "status = RUNNING")))
	for _, filter := range []string{`process_id = "~bulk/*"`, `process_id = "~bulk/` + first.GetBulkId() + `"`,
		"kind = bulk", "kind != x"} {
		b := n.ended(t, n.begun(t, request(remove, filter)))
		if b.GetMatched() != 0 || b.GetExpected() != 0 {
			t.Errorf("%s: %v", filter, b)
		}
	}
	n.get(t, first.GetBulkId())
}

// A dry run returns the number of matching processes, the IDs of the 20 oldest ones, and how many
// do not allow the verb. It stores nothing.
func TestDryRun(t *testing.T) {
	t.Parallel()
	n := start(t, storagetest.DSN(t))
	n.startAll(t, "fail", ids("broken", 3)...)
	for _, id := range ids("runs", 25) {
		n.startAll(t, "", id)
	}
	before := n.Count(t, "SELECT count(*) FROM processes")
	r := request(repair, `process_id = "runs-*" OR process_id = "broken-*"`)
	r.DryRun = true
	b := n.begun(t, r)
	if !b.GetDryRun() || b.GetBulkId() != "" || b.GetMatched() != 28 || b.GetSkipped() != 25 || b.GetExpectedMore() ||
		b.GetDone() != 0 {
		t.Errorf("%v", b)
	}
	if got := b.GetSampleProcessIds(); len(got) != 20 || !slices.Equal(got[3:], ids("runs", 17)) {
		t.Errorf("samples: %q", got)
	}
	if n.Count(t, "SELECT count(*) FROM processes") != before || n.Count(t, "SELECT count(*) FROM audit") != 0 {
		t.Error("something was stored")
	}
}

// Counting has a time limit, and reports whether there may be more.
func TestCountIsBounded(t *testing.T) {
	t.Parallel()
	dsn := storagetest.DSN(t)
	n := start(t, dsn)
	n.startAll(t, "", ids("p", 1001)...)
	r := request(suspend, "status = RUNNING")
	r.DryRun = true
	if b := n.begun(t, r); b.GetMatched() != 1001 || b.GetExpectedMore() {
		t.Errorf("%v", b)
	}
	n.StopCounting()
	if b := n.begun(t, r); b.GetMatched() != 1000 || !b.GetExpectedMore() {
		t.Errorf("%v", b)
	}
	r.DryRun = false
	if b := n.ended(t, n.begun(t, r)); b.GetExpected() != 1000 || !b.GetExpectedMore() || b.GetDone() != 1001 {
		t.Errorf("%v", b)
	}
}

// Errors of invalid requests name the field, and nothing is stored.
func TestBadRequests(t *testing.T) {
	t.Parallel()
	n := start(t, storagetest.DSN(t))
	for field, requests := range map[string][]*progressorv1.StartBulkRequest{
		"filter": {
			request(cancel, ""), request(cancel, "  "), request(cancel, "status ="), request(cancel, "status = GONE"),
			request(cancel, "taste = sweet"),
			request(cancel, "status = ERROR OR"), request(cancel, "a\x00b"),
		},
		"verb": {request(0, "status = ERROR"), request(99, "status = ERROR")},
		"rate": {rated(-1), rated(math.NaN()), rated(math.Inf(1)), rated(0.0001), rated(10_001)},
	} {
		for _, r := range requests {
			for _, r.DryRun = range []bool{false, true} {
				_, err := n.Start(t.Context(), r, kim)
				if invalid, ok := errors.AsType[*process.InvalidError](err); !ok || invalid.Field != field {
					t.Errorf("%v: %v", r, err)
				}
			}
		}
	}
	r := request(cancel, "status = ERROR")
	r.Namespace = "nobodys"
	if _, err := n.Start(t.Context(), r, kim); !errors.Is(err, process.ErrNamespaceNotFound) {
		t.Errorf("%v", err)
	}
	if got := n.Count(t, "SELECT count(*) FROM processes"); got != 0 {
		t.Errorf("%d processes exist", got)
	}
}

func rated(rate float64) *progressorv1.StartBulkRequest {
	r := request(cancel, "status = ERROR")
	r.Rate = rate
	return r
}

// A repeated request with the same key returns the same bulk, even after the key was deleted. A
// different request with the key is rejected.
func TestStartedTwice(t *testing.T) {
	t.Parallel()
	n := start(t, storagetest.DSN(t))
	n.startAll(t, "", ids("p", 5)...)
	r := request(suspend, "status = RUNNING")
	r.IdempotencyKey = "k"
	first := n.ended(t, n.begun(t, r))
	other := proto.CloneOf(r)
	other.Filter = "status = ERROR"
	for _, when := range []string{"soon", "later"} {
		b, err := n.Start(t.Context(), r, process.Actor{Name: "kim", Source: "10.0.0.7:4712"})
		if err != nil || b.GetBulkId() != first.GetBulkId() || b.GetDone() != 5 {
			t.Errorf("%s: %v, %v", when, b, err)
		}
		if b, err := n.Start(t.Context(), other, kim); !errors.Is(err, process.ErrIdempotencyMismatch) {
			t.Errorf("another request %s: %v, %v", when, b, err)
		}
		storagetest.Exec(t, n.DB, "DELETE FROM requests")
	}
	if got := n.Count(t, "SELECT count(*) FROM audit WHERE method = 'StartBulk'"); got != 1 {
		t.Errorf("%d audit entries", got)
	}
}

// Bulks are listed in pages over all namespaces, newest first in each.
func TestList(t *testing.T) {
	t.Parallel()
	n := start(t, storagetest.DSN(t))
	n.Put(t, &progressorv1.Namespace{Namespace: "a"})
	n.Put(t, &progressorv1.Namespace{Namespace: "empty"})
	n.Put(t, &progressorv1.Namespace{Namespace: "z"})
	var want []string
	for _, namespace := range []string{"a", "ns", "z"} {
		var of []string
		for range 3 {
			r := request(suspend, "status = RUNNING")
			r.Namespace = namespace
			of = append([]string{namespace + " " + n.begun(t, r).GetBulkId()}, of...)
		}
		want = append(want, of...)
	}
	for _, size := range []int32{0, 1, 2, 3, 4} {
		var got []string
		for token, pages := "", 0; pages == 0 || token != ""; pages++ {
			page, next, err := n.List(t.Context(), "", size, token)
			if err != nil || pages > 30 {
				t.Fatalf("page %d: %v", pages, err)
			}
			for _, b := range page {
				got = append(got, b.GetNamespace()+" "+b.GetBulkId())
			}
			token = next
		}
		if !slices.Equal(got, want) {
			t.Errorf("pages of %d: got %q, want %q", size, got, want)
		}
	}
	page, next, err := n.List(t.Context(), "ns", 2, "")
	if err != nil || len(page) != 2 || next == "" {
		t.Fatalf("%v, %q, %v", page, next, err)
	}
	for _, token := range []string{"x", "a:", "z" + next[2:], "ns:x"} {
		_, _, err := n.List(t.Context(), "ns", 2, token)
		if invalid, ok := errors.AsType[*process.InvalidError](err); !ok || invalid.Field != "page_token" {
			t.Errorf("%q: %v", token, err)
		}
	}
}

// The methods of bulks do not find other processes.
func TestNoBulk(t *testing.T) {
	t.Parallel()
	n := start(t, storagetest.DSN(t))
	if _, err := n.Engine.Start(t.Context(), engine.StartParams{Key: key("~bulk/odd"), Accepted: true}); err != nil {
		t.Fatal(err)
	}
	for _, id := range []string{"odd", "nobody"} {
		if b, err := n.Get(t.Context(), "ns", id); !errors.Is(err, process.ErrProcessNotFound) {
			t.Errorf("get %s: %v, %v", id, b, err)
		}
		if b, err := n.Cancel(t.Context(), "ns", id, kim); !errors.Is(err, process.ErrProcessNotFound) {
			t.Errorf("cancel %s: %v, %v", id, b, err)
		}
	}
}

// A bulk retries a verb that fails temporarily a few times, and then records the failure. The
// number of recorded failures is limited. Further failures are only counted.
func TestFailures(t *testing.T) {
	t.Parallel()
	n := start(t, storagetest.DSN(t), func(b *bulks) { b.FailSoon(); b.KeepFailures(2) })
	n.startAll(t, "", ids("p", 20)...)
	storagetest.Begin(t, n.DB,
		"SELECT FROM processes WHERE process_id IN ('p-00003', 'p-00011', 'p-00017') FOR UPDATE")
	b := n.ended(t, n.begun(t, request(suspend, "status = RUNNING")))
	if b.GetMatched() != 20 || b.GetDone() != 17 || b.GetFailed() != 3 || len(b.GetFailures()) != 2 {
		t.Fatalf("%v", b)
	}
	for _, f := range b.GetFailures() {
		if !slices.Contains([]string{"p-00003", "p-00011", "p-00017"}, f.GetProcessId()) ||
			!strings.Contains(f.GetError(), "another session has locked") {
			t.Errorf("%v", f)
		}
	}
	limit := int32(1)
	p, err := n.GetProcess(t.Context(), key("~bulk/"+b.GetBulkId()), &progressorv1.HistoryRange{Limit: &limit}, 0)
	if err != nil || len(p.GetHistory()) != 1 || p.GetLastEventId() != 2 ||
		!strings.Contains(string(p.GetHistory()[0].GetPayload()), `"process_id":"p-000`) {
		t.Errorf("%v, %v", p, err)
	}
}

// The maximum number of failures fits into a history that can be read completely, regardless of the
// length of their JSON. A plain text keeps its first 500 bytes.
func TestFailuresFitIntoAHistory(t *testing.T) {
	t.Parallel()
	const kept = 5_000
	odd := strings.Repeat("\x01", process.MaxProcessIDBytes)
	for _, c := range []struct{ id, text, begins string }{
		{"p", strings.Repeat("x", 10_000), strings.Repeat("x", 500)},
		{"p", strings.Repeat("\"", 10_000), strings.Repeat(`\"`, 500)},
		{"p", strings.Repeat("\x01", 10_000), `\u0001\u0001`},
		{"p", strings.Repeat("\x00", 10_000), "\uFFFD\uFFFD"},
		{"p", strings.Repeat("<\xff", 10_000), `\u003c` + "\uFFFD"},
		{odd, strings.Repeat("é\x01", 10_000), ""},
		{odd, "short", "short"},
	} {
		event, err := bulk.FailureEvent(c.id, c.text)
		if err != nil || len(event)*kept > process.MaxHistoryBytes || !json.Valid(event) ||
			!strings.Contains(string(event), `"error":"`+c.begins) {
			t.Errorf("%d bytes of %q: %v, %s", len(event), c.text[:5], err, event)
		}
	}
}

// A temporary failure is not recorded.
func TestFaultThatPasses(t *testing.T) {
	t.Parallel()
	n := start(t, storagetest.DSN(t))
	n.startAll(t, "", ids("p", 5)...)
	held := storagetest.Begin(t, n.DB, "SELECT FROM processes WHERE process_id = 'p-00002' FOR UPDATE")
	b := n.begun(t, request(suspend, "status = RUNNING"))
	eventually(t, "the others are done", func() bool { return n.get(t, b.GetBulkId()).GetDone() == 4 })
	if err := held.Rollback(t.Context()); err != nil {
		t.Fatal(err)
	}
	if b = n.ended(t, b); b.GetDone() != 5 || b.GetFailed() != 0 || len(b.GetFailures()) != 0 {
		t.Errorf("%v", b)
	}
}

// A process that could not be handled is checked again before each retry. If it no longer matches,
// it is skipped. The namespace is paused, and the test runs the pages itself, because a running
// page would still suspend the process.
func TestTriedAgainOnlyWhileItMatches(t *testing.T) {
	t.Parallel()
	n := start(t, storagetest.DSN(t))
	n.startAll(t, "", ids("p", 5)...)
	if _, err := n.SetNamespacePaused(t.Context(), "ns", true); err != nil {
		t.Fatal(err)
	}
	b := n.begun(t, request(suspend, `process_id = "p-*" AND NOT metadata.keep = true`))
	p, err := n.GetProcess(t.Context(), key("~bulk/"+b.GetBulkId()), nil, 0)
	if err != nil {
		t.Fatal(err)
	}
	held := storagetest.Begin(t, n.DB, `UPDATE processes SET metadata = '{"keep": true}' WHERE process_id = 'p-00002'`)
	if n.turn(t, p) || n.statuses(t) != "RUNNING 1, SUSPENDED 4" {
		t.Fatalf("the bulk does not wait for the locked process: %s", n.statuses(t))
	}
	if err := held.Commit(t.Context()); err != nil {
		t.Fatal(err)
	}
	last := n.turn(t, p)
	if state := string(p.GetAuxState()); !last || !strings.Contains(state, `"done":4,"skipped":1,"failed":0`) ||
		n.statuses(t) != "RUNNING 1, SUSPENDED 4" {
		t.Errorf("%s; %s", state, n.statuses(t))
	}
}

// Each of 10,000 processes is handled once.
func TestTenThousand(t *testing.T) {
	t.Parallel()
	const many = 10_000
	n := start(t, storagetest.DSN(t))
	n.startAll(t, "", ids("p", many)...)
	b := n.begun(t, request(suspend, "status = RUNNING"))
	b = n.ended(t, b)
	if b.GetDone() != many || b.GetMatched() != many || b.GetExpected() != many ||
		n.statuses(t) != fmt.Sprintf("SUSPENDED %d", many) {
		t.Errorf("%v; %s", b, n.statuses(t))
	}
	if got := n.Count(t, "SELECT count(*) FROM audit WHERE method = 'SuspendProcess'"); got != many {
		t.Errorf("%d commands are audited", got)
	}
}

// Lists and counts include the processes of the engine. A filter on kind distinguishes them.
func TestListsAndCountsHaveBulks(t *testing.T) {
	t.Parallel()
	n := start(t, storagetest.DSN(t))
	n.startAll(t, "", ids("p", 3)...)
	n.ended(t, n.begun(t, request(suspend, "status = RUNNING")))
	counts, err := n.CountProcesses(t.Context(), "ns")
	if err != nil || counts["suspended"] != 3 || counts["completed"] != 1 {
		t.Errorf("counted: %v, %v", counts, err)
	}
	for filter, want := range map[string]int{"": 4, `kind = ""`: 3, `kind != ""`: 1} {
		list, _, err := n.ListProcesses(t.Context(),
			&progressorv1.ListProcessesRequest{Namespace: "ns", Filter: filter})
		if err != nil || len(list) != want {
			t.Errorf("%q lists %d, want %d: %v", filter, len(list), want, err)
		}
	}
}

// TestListBulksIsBoundedInBytes checks that a page over several namespaces ends after about 8 MiB.
func TestListBulksIsBoundedInBytes(t *testing.T) {
	t.Parallel()
	n := start(t, storagetest.DSN(t))
	for _, namespace := range []string{"a", "b", "c"} {
		n.Put(t, &progressorv1.Namespace{Namespace: namespace, Processor: &progressorv1.ProcessorConfig{
			Transport: &progressorv1.ProcessorConfig_Pull{Pull: &progressorv1.PullProcessor{}},
		}})
		b, err := n.Start(t.Context(), &progressorv1.StartBulkRequest{
			Namespace: namespace, Filter: `process_id = "none"`, Verb: progressorv1.BulkVerb_BULK_VERB_SUSPEND,
		}, kim)
		if err != nil {
			t.Fatal(err)
		}
		eventually(t, "the bulk ends", func() bool {
			b, err := n.Get(t.Context(), namespace, b.GetBulkId())
			return err == nil && b.GetStatus() == progressorv1.ProcessStatus_PROCESS_STATUS_COMPLETED
		})
	}
	storagetest.Exec(t, n.DB,
		"UPDATE processes SET metadata = metadata || jsonb_build_object('filter', repeat('x', 5 << 20))")
	var pages []int
	for token, more := "", true; more; more = token != "" {
		list, next, err := n.List(t.Context(), "", 0, token)
		if err != nil {
			t.Fatal(err)
		}
		pages, token = append(pages, len(list)), next
	}
	if fmt.Sprint(pages) != "[2 1]" {
		t.Errorf("pages of %v bulks", pages)
	}
}

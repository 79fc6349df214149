package flows_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/progressor-engine/progressor/engine/enginetest"
	"github.com/progressor-engine/progressor/process"
	progressorv1 "github.com/progressor-engine/progressor/proto/progressor/v1"
	"github.com/progressor-engine/progressor/storage/storagetest"
)

// erase erases a run, and returns the number of erased rows of each table.
func (n *node) erase(t *testing.T, r *progressorv1.EraseProcessRequest) map[string]int64 {
	t.Helper()
	rows := map[string]int64{}
	for {
		resp, err := n.EraseProcess(t.Context(), r, kim)
		if err != nil {
			t.Fatal(err)
		}
		for table, count := range resp.GetRows() {
			rows[table] += count
		}
		if r.PageToken = resp.GetNextPageToken(); r.PageToken == "" {
			return rows
		}
	}
}

// with returns the tables that contain a text.
func (n *node) with(t *testing.T, text string) (tables []string) {
	t.Helper()
	names := strings.Fields(n.ask(t, `SELECT string_agg(c.oid::regclass::text, ' ') FROM pg_class c
		WHERE c.relnamespace = 'progressor'::regnamespace AND c.relkind = 'r'`))
	for _, name := range names {
		count := "SELECT count(*)::text FROM " + name + " x WHERE strpos(x::text, $1) > 0"
		if n.ask(t, count, text) != "0" {
			tables = append(tables, name)
		}
	}
	slices.Sort(tables)
	return tables
}

// With children set, the erasure of a run also erases its jobs, and the processes and runs of its
// steps. A dry run erases nothing, and a run that has not ended cannot be erased.
func TestEraseRun(t *testing.T) {
	t.Parallel()
	const run = "person-4711"
	n := start(t, storagetest.DSN(t))
	n.put(t, "ns", `{"type": "inner", "steps": [{"step_id": "only", "job": {}},
		{"step_id": "again", "process": {}}]}`)
	n.put(t, "ns", `{"type": "outer", "steps": [{"step_id": "work", "job": {}}, {"step_id": "proc", "process": {}},
		{"step_id": "sub", "run": {"type": "inner"}}]}`)
	n.put(t, "ns", `{"type": "waits", "steps": [{"step_id": "pause", "delay": {"duration": "3600s"}}]}`)
	n.run(t, "ns", "waits", "open", "null")
	request := func(id string) *progressorv1.EraseProcessRequest {
		return &progressorv1.EraseProcessRequest{Namespace: "ns", ProcessId: "~flow/" + id, Children: true}
	}
	var wrong *process.WrongStatusError
	if _, err := n.EraseProcess(t.Context(), request("open"), kim); !errors.As(err, &wrong) {
		t.Errorf("a run that has not ended: %v", err)
	}
	n.run(t, "ns", "outer", run, `"s3cret"`)
	same(t, runSummary(n.ended(t, "ns", run)), "SUCCEEDED: work SUCCEEDED proc SUCCEEDED sub SUCCEEDED")
	before := n.with(t, run)
	dry := request(run)
	dry.DryRun = true
	if rows := n.erase(t, dry); rows["processes"] != 6 { // two runs, two jobs and two processes
		t.Errorf("a dry run: %v", rows)
	}
	same(t, fmt.Sprint(n.with(t, run)), fmt.Sprint(before))
	if rows := n.erase(t, request(run)); rows["processes"] != 6 || rows["answers"] == 0 || rows["job_events"] == 0 {
		t.Errorf("erased %v", rows)
	}
	same(t, fmt.Sprint(n.with(t, run)), "[]")
	if rows := n.erase(t, request(run)); len(rows) > 0 {
		t.Errorf("a second erasure: %v", rows)
	}
	for _, token := range []string{"x", "eyJwIjp7InQiOjk5fX0", "eyJwIjp7InQiOi0xfX0", "eyJwIjp7ImEiOiJ4In19"} {
		r := request(run)
		r.PageToken = token
		var invalid *process.InvalidError
		if _, err := n.EraseProcess(t.Context(), r, kim); !errors.As(err, &invalid) || invalid.Field != "page_token" {
			t.Errorf("token %s: %v", token, err)
		}
	}
}

// suspend suspends a process as soon as it exists.
func (n *node) suspend(t *testing.T, namespace, id string) {
	t.Helper()
	enginetest.Eventually(t, testTimeout, id+" is suspended", func() bool {
		_, err := n.SuspendProcess(context.Background(), process.Key{Namespace: namespace, ProcessID: id}, "", kim)
		return err == nil
	})
}

// A run that is erased while it is suspended sends no cancels to processes that were erased with
// the run or before it. Otherwise, dead letters would contain the IDs of these processes.
func TestEraseSuspendedRun(t *testing.T) {
	t.Parallel()
	const run, child = "person-4711", "person-4711/p"
	n := startWith(t, storagetest.DSN(t), waitingProcess(make(chan time.Duration, 10)))
	n.put(t, "ns", `{"type": "one", "steps": [{"step_id": "p", "process": {}}]}`)
	begin := func() {
		t.Helper()
		n.run(t, "ns", "one", run, "")
		n.suspend(t, "ns", child)
		n.suspend(t, "ns", "~flow/"+run)
		same(t, n.ask(t, "SELECT status::text FROM flow_steps WHERE process_id = $1", child), "running")
	}
	delivered := func() {
		t.Helper()
		enginetest.Eventually(t, testTimeout, "all messages are delivered", func() bool {
			return n.Count(t, "SELECT count(*) FROM messages") == 0
		})
	}
	begin()
	n.erase(t, &progressorv1.EraseProcessRequest{Namespace: "ns", ProcessId: "~flow/" + run, Children: true})
	delivered()
	same(t, fmt.Sprint(n.with(t, run)), "[]")

	begin() // erased without its children, the run cancels the process
	_, err := n.ResumeProcess(t.Context(), process.Key{Namespace: "ns", ProcessID: child}, kim)
	if err != nil {
		t.Fatal(err)
	}
	n.erase(t, &progressorv1.EraseProcessRequest{Namespace: "ns", ProcessId: "~flow/" + run})
	enginetest.Eventually(t, testTimeout, "the process is cancelled", func() bool {
		return n.Count(t, "SELECT count(*) FROM processes WHERE status = 'CANCELLED'") == 1
	})
	delivered()
	n.erase(t, &progressorv1.EraseProcessRequest{Namespace: "ns", ProcessId: child})

	begin() // the process is erased before the run
	n.erase(t, &progressorv1.EraseProcessRequest{Namespace: "ns", ProcessId: child})
	n.erase(t, &progressorv1.EraseProcessRequest{Namespace: "ns", ProcessId: "~flow/" + run})
	delivered()
	same(t, fmt.Sprint(n.with(t, run)), "[]")
	same(t, n.ask(t, "SELECT count(*)::text FROM dead_letters"), "0")
}

// The audit names a run as the actor without its ID, because actors are not erased. The details
// contain the ID only in the namespace of the run, where the erasure of the run deletes the
// details.
func TestEraseActor(t *testing.T) {
	t.Parallel()
	const run = "person-4711"
	n := startWith(t, storagetest.DSN(t), waitingProcess(make(chan time.Duration, 10)))
	if _, err := n.PutNamespace(t.Context(), &progressorv1.Namespace{
		Namespace: "other", Processor: &progressorv1.ProcessorConfig{
			Transport: &progressorv1.ProcessorConfig_Builtin{Builtin: &progressorv1.BuiltinProcessor{Name: "p"}},
		},
	}); err != nil {
		t.Fatal(err)
	}
	n.put(t, "ns", `{"type": "two", "step_order": "STEP_ORDER_GRAPH", "cancel_policy": {"grace": "0s"}, "steps": [
		{"step_id": "a", "process": {}}, {"step_id": "b", "process": {"namespace": "other"}}]}`)
	n.run(t, "ns", "two", run, "")
	n.suspend(t, "ns", run+"/a")
	n.suspend(t, "other", run+"/b")
	n.cancel(t, "ns", run)
	n.ended(t, "ns", run)
	same(t, n.ask(t, `SELECT string_agg(concat_ws(' ', actor, subject, details->>'via'), ', ' ORDER BY subject)
		FROM audit WHERE method = 'CancelProcess'`), "run "+run+"/a ~flow/"+run+", run "+run+"/b")
	n.erase(t, &progressorv1.EraseProcessRequest{Namespace: "ns", ProcessId: "~flow/" + run, Children: true})
	same(t, n.ask(t, `SELECT coalesce(string_agg(a.namespace, ', '), '') FROM audit a
		WHERE strpos(concat_ws(' ', a.actor, a.details), $1) > 0 OR a.namespace = 'ns' AND strpos(a.subject, $1) > 0`,
		run), "")
}

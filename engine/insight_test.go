package engine_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/progressor-engine/progressor/engine"
	"github.com/progressor-engine/progressor/process"
	"github.com/progressor-engine/progressor/processor"
	progressorv1 "github.com/progressor-engine/progressor/proto/progressor/v1"
	"github.com/progressor-engine/progressor/storage/storagetest"
)

// explains explains a process, and checks what it waits for and that the explanation contains the
// texts.
func (n *node) explains(
	t testing.TB, id string, waits progressorv1.WaitsFor, texts ...string,
) *progressorv1.ExplainProcessResponse {
	t.Helper()
	e, err := n.ExplainProcess(context.Background(), key(id))
	if err != nil {
		t.Fatal(err)
	}
	said := strings.Join([]string{e.GetWaitsForDetail(), e.GetNext(), e.GetUnblock()}, "\n")
	for _, text := range texts {
		if !strings.Contains(said, text) {
			t.Errorf("%s: no %q in\n%s", id, text, said)
		}
	}
	if e.GetWaitsFor() != waits {
		t.Errorf("%s waits for %s, want %s:\n%s", id, e.GetWaitsFor(), waits, said)
	}
	return e
}

const (
	forNothing  = progressorv1.WaitsFor_WAITS_FOR_UNSPECIFIED
	forTime     = progressorv1.WaitsFor_WAITS_FOR_TIME
	forPlace    = progressorv1.WaitsFor_WAITS_FOR_PLACE
	forProcess  = progressorv1.WaitsFor_WAITS_FOR_PROCESS
	forOperator = progressorv1.WaitsFor_WAITS_FOR_OPERATOR
)

// TestExplainProcess checks the explanations of processes that are idle, run a task, or wait for a
// time, for the operator, for another task or for a slot.
func TestExplainProcess(t *testing.T) {
	t.Parallel()
	dsn := storagetest.DSN(t)
	g := newGate()
	defer g.release()
	n := start(t, dsn, byTask{
		callTask: g.heldBefore(words),
		notifyTask: func(context.Context, *progressorv1.ProcessRequest) (*progressorv1.ProcessResponse, error) {
			return nil, processor.Fail("busy", "come again")
		},
	}, func(c *engine.Config) { c.Address = "here:1" })
	n.put(t, &progressorv1.Namespace{Namespace: "ns", MaxRunning: 2, RetryPolicy: &progressorv1.RetryPolicy{
		InitialInterval: durationpb.New(time.Hour), MaxInterval: durationpb.New(time.Hour), MaxAttempts: 4,
	}})
	for _, id := range []string{"idle", "timed", "retried", "broken", "ended", "busy", "busy too"} {
		n.started(t, id)
	}
	n.explains(t, "idle", forNothing, "It is idle")
	n.called(t, "timed", "set 1h")
	if e := n.explains(t, "timed", forTime, "The default timer",
		"fires at"); time.Until(e.GetNextTime().AsTime()) < time.Minute || len(e.GetProcess().GetTimers()) != 1 {
		t.Errorf("%v", e)
	}
	if _, err := n.Start(t.Context(), engine.StartParams{
		Key: key("later"), StartTime: time.Now().Add(time.Hour), Accepted: true,
	}); err != nil {
		t.Fatal(err)
	}
	n.explains(t, "later", forTime, "Its start time is")
	if _, err := n.Call(t.Context(), engine.CallParams{Key: key("retried"), Accepted: true}); err != nil {
		t.Fatal(err)
	}
	rows := openDB(t, dsn)
	eventually(t, "the task will be retried", func() bool {
		return rows.count(t, "SELECT count(*) FROM schedule WHERE retry_interval IS NOT NULL") == 1
	})
	n.explains(t, "retried", forTime, "failed in attempt 1 of 4 (busy: come again)", "Attempt 2 of task")
	taskError(t, (<-n.calling("broken", "fail")).err)
	e := n.explains(t, "broken", forOperator, "(CALL) failed permanently", "progressor repair ns broken --simple")
	if last := e.GetSpans()[len(e.GetSpans())-1]; last.GetWhat() != "operator" || last.GetToTime() != nil {
		t.Errorf("%v", last)
	}

	n.calling("busy", "hold")
	receive(t, "the task runs", g.entered)
	n.explains(t, "busy", forNothing, "(CALL) runs on node", "(here:1), attempt 1", "by its step timeout")
	n.calling("busy", "behind")
	eventually(t, "a call waits", func() bool {
		return rows.count(t, "SELECT count(*) FROM schedule WHERE waits_for = 'process'") == 1
	})
	e = n.explains(t, "busy", forProcess, "behind task", "then task")
	if e.GetTimeByWhat()["processing"].AsDuration() <= 0 || e.GetTimeByWhat()["process"].AsDuration() <= 0 {
		t.Errorf("%v", e.GetTimeByWhat())
	}
	<-n.calling("busy too", "x")
	n.calling("busy too", "hold")
	receive(t, "the task runs", g.entered)
	if _, err := n.Call(t.Context(), engine.CallParams{Key: key("idle"), Accepted: true}); err != nil {
		t.Fatal(err)
	}
	n.explains(t, "idle", forPlace,
		"2 tasks of the namespace run, and its max_running is 2 on each of the nodes that take tasks (1)")
	if _, err := n.SetNamespacePaused(t.Context(), "ns", true); err != nil {
		t.Fatal(err)
	}
	n.explains(t, "idle", forPlace, "namespace ns is paused", "progressor namespace resume ns")
	if _, err := n.ExplainProcess(t.Context(), key("nobody")); !errors.Is(err, process.ErrProcessNotFound) {
		t.Error(err)
	}
}

// A repair without the processor ends the wait for the operator. If the node of a task has missed
// heartbeats, the explanation says so, and states when another node takes over the task.
func TestExplainRepairAndSilence(t *testing.T) {
	t.Parallel()
	dsn := storagetest.DSN(t)
	g := newGate()
	defer g.release()
	n := start(t, dsn, byTask{callTask: g.heldBefore(words)})
	n.started(t, "p")
	taskError(t, (<-n.calling("p", "fail")).err)
	last := func(what string) (before *progressorv1.Span) { // a span is shown when it has lasted a millisecond
		eventually(t, "the last span is "+what, func() bool {
			waits := map[bool]progressorv1.WaitsFor{true: forOperator}
			spans := n.explains(t, "p", waits[what == "operator"]).GetSpans()
			before = spans[len(spans)-2]
			return spans[len(spans)-1].GetWhat() == what
		})
		return before
	}
	last("operator")
	if _, err := n.Repair(t.Context(), engine.RepairParams{Key: key("p"), Simple: true}); err != nil {
		t.Fatal(err)
	}
	if before := last("idle"); before.GetDetail() != "REPAIR without the processor" || before.GetToTime() == nil {
		t.Errorf("%v", before)
	}
	n.calling("p", "hold")
	receive(t, "the task runs", g.entered)
	rows := openDB(t, dsn)
	eventually(t, "the node is reported as silent", func() bool { // between two of its heartbeats
		storagetest.Exec(t, rows, "UPDATE nodes SET beat_time = statement_timestamp() - interval '6 s'")
		e, err := n.ExplainProcess(t.Context(), key("p"))
		return err == nil && strings.Contains(e.GetWaitsForDetail(), "whose last heartbeat was at") &&
			strings.Contains(e.GetNext(), "sends no heartbeat for 10s (engine.zombie_after)")
	})
}

// The explanation of a process with many tasks reads only the newest 1,000 tasks.
func TestExplainIsBounded(t *testing.T) {
	t.Parallel()
	dsn := storagetest.DSN(t)
	n := start(t, dsn, processor.Echo())
	n.started(t, "p")
	_, err := openDB(t, dsn).Exec(t.Context(),
		`INSERT INTO tasks (namespace, process_id, task_id, task_type, status, attempt, fencing_token, scheduled_time,
		running_time, finished_time)
		SELECT 'ns', 'p', nextval('task_ids'), 'CALL', 'FINISHED', 1, nextval('fencing_tokens'), now()
		  + k * interval '1 ms', now() + k * interval '1 ms', now() + (k + 1) * interval '1 ms'
		  FROM generate_series(1, 3000) k`)
	if err != nil {
		t.Fatal(err)
	}
	newest := openDB(t, dsn).count(t, "SELECT max(task_id) FROM tasks")
	e := n.explains(t, "p", forNothing)
	seen := map[string]bool{}
	for _, s := range e.GetSpans() {
		seen[fmt.Sprint(s.GetTaskId())] = true
	}
	if !seen[fmt.Sprint(newest)] || !seen[fmt.Sprint(newest-999)] || seen[fmt.Sprint(newest-1000)] {
		t.Errorf("the spans of %d tasks", len(seen))
	}
}

// Processes with the same error form one group, whose filter matches exactly them.
func TestListErrors(t *testing.T) {
	t.Parallel()
	n := start(t, storagetest.DSN(t), byTask{
		callTask: func(_ context.Context, r *progressorv1.ProcessRequest) (*progressorv1.ProcessResponse, error) {
			reason, message, _ := strings.Cut(string(r.GetArgs()), "/")
			return nil, processor.Fail(reason, "%s", message)
		},
	})
	n.put(t, &progressorv1.Namespace{Namespace: "empty"})
	n.started(t, "well")
	for k, args := range []string{
		`gone/order A-1 is "gone*"`, "busy/come again", `gone/order A-2 is "gone"`, "late/come again",
		`gone/order A-33 is "\"`, "busy/come again", "gone/order A-4 was never here",
	} {
		id := fmt.Sprint("p", k)
		n.started(t, id)
		taskError(t, (<-n.calling(id, args)).err)
	}
	if err := n.RemoveProcess(t.Context(), key("p5"), process.Actor{}); err != nil {
		t.Fatal(err)
	}
	for _, namespace := range []string{"ns", ""} {
		var got []string
		token := ""
		for page := true; page; page = token != "" {
			groups, next, err := n.ListErrors(t.Context(), namespace, 2, token)
			if err != nil || len(groups) > 2 || next != "" && len(groups) < 2 {
				t.Fatalf("%v, %v", groups, err)
			}
			token = next
			for _, g := range groups {
				got = append(got, fmt.Sprint(g.GetCount(), " ", g.GetReason(), " ", g.GetMessage(), " ",
					g.GetNewestId()))
				list, _, err := n.ListProcesses(t.Context(), &progressorv1.ListProcessesRequest{
					Namespace: "ns", Filter: g.GetFilter(),
				})
				if err != nil || int64(len(list)) != g.GetCount() {
					t.Errorf("%s finds %d processes, %v", g.GetFilter(), len(list), err)
				}
				if g.GetFirstTime().AsTime().After(g.GetLastTime().AsTime()) ||
					g.GetCount() > 1 == g.GetFirstTime().AsTime().Equal(g.GetLastTime().AsTime()) {
					t.Errorf("from %s to %s", g.GetFirstTime().AsTime(), g.GetLastTime().AsTime())
				}
			}
		}
		slices.Sort(got)
		want := []string{
			"1 busy come again p1", "1 gone order A-4 was never here p6", "1 late come again p3",
			`3 gone order A-33 is "\" p4`,
		}
		if !slices.Equal(got, want) {
			t.Errorf("%q, want %q", got, want)
		}
	}
	if groups, _, err := n.ListErrors(t.Context(), "empty", 0, ""); err != nil || len(groups) != 0 {
		t.Errorf("%v, %v", groups, err)
	}
	if _, _, err := n.ListErrors(t.Context(), "nowhere", 0, ""); !errors.Is(err, process.ErrNamespaceNotFound) {
		t.Error(err)
	}
	var invalid *process.InvalidError
	if _, _, err := n.ListErrors(t.Context(), "ns", 0, "x"); !errors.As(err, &invalid) {
		t.Error(err)
	}
}

func TestGetOverview(t *testing.T) {
	t.Parallel()
	dsn := storagetest.DSN(t)
	g := newGate()
	defer g.release()
	a := start(t, dsn, byTask{callTask: g.heldBefore(words)}, brief)
	for _, id := range []string{"running", "broken", "timed", "due", "held"} {
		a.started(t, id)
	}
	taskError(t, (<-a.calling("broken", "fail")).err)
	a.called(t, "timed", "set 1h, name x 1h")
	a.called(t, "due", "set 10ms")
	a.calling("held", "hold")
	receive(t, "the task runs", g.entered)
	a.calling("held", "x")
	rows := openDB(t, dsn)
	eventually(t, "a call waits, and the timer has fired", func() bool {
		return rows.count(t, "SELECT count(*) FROM schedule WHERE waits_for = 'process'") == 1 &&
			rows.count(t, "SELECT count(*) FROM tasks WHERE task_type = 'TIMEOUT'") == 1
	})
	if _, err := a.SetNamespacePaused(t.Context(), "ns", true); err != nil {
		t.Fatal(err)
	}
	eventually(t, "a call waits for its slot: a scan that began before the pause may take one", func() bool {
		if rows.count(t, "SELECT count(*) FROM task_list WHERE process_id = 'running' AND finished_time IS NULL") == 0 {
			if _, err := a.Call(t.Context(), engine.CallParams{Key: key("running"), Accepted: true}); err != nil {
				t.Fatal(err)
			}
		}
		return rows.count(t, "SELECT count(*) FROM schedule WHERE waits_for = 'place'") == 1
	})
	var o *progressorv1.GetOverviewResponse
	eventually(t, "the node has reported its load", func() bool {
		var err error
		if o, err = a.GetOverview(t.Context(), "ns", 0); err != nil {
			t.Fatal(err)
		}
		return o.GetTasksPerSecond() > 0 && o.GetTimerLatenessP99().AsDuration() > 0
	})
	if got := fmt.Sprint(o.GetCountByStatus()); got != "map[cancelled:0 completed:0 error:1 running:4 suspended:0]" {
		t.Errorf("counts: %s", got)
	}
	if got := fmt.Sprint(o.GetWaitingByWhat()); got != "map[constraint:0 operator:0 place:1 process:1 time:2]" {
		t.Errorf("waiting: %s", got)
	}
	if len(o.GetNodes()) != 1 || o.GetNodes()[0].GetRunning() != 1 || o.GetOldestRunnableAge().AsDuration() <= 0 {
		t.Errorf("%v", o)
	}
	ns := o.GetNamespaces()
	if len(ns) != 1 || ns[0].GetNamespace() != "ns" || !ns[0].GetPaused() || ns[0].GetRunnable() != 1 ||
		ns[0].GetCountByStatus()["error"] != 1 {
		t.Errorf("by namespace: %v", ns)
	}
	if o.GetProcessingP99().AsDuration() < o.GetProcessingP50().AsDuration() || o.GetProcessingP50().AsDuration() <= 0 {
		t.Errorf("processing: %s, %s", o.GetProcessingP50().AsDuration(), o.GetProcessingP99().AsDuration())
	}
	if all, err := a.GetOverview(t.Context(), "", 0); err != nil || all.GetOldestRunnableAge().AsDuration() != 0 ||
		all.GetWaitingByWhat()["place"] != 1 {
		t.Errorf("%v, %v", all, err) // a paused namespace is not expected to run tasks
	}
	if _, err := a.GetOverview(t.Context(), "nowhere", 0); !errors.Is(err, process.ErrNamespaceNotFound) {
		t.Error(err)
	}
}

// The time in which a process was suspended is known after the process was resumed. Suspensions of
// a removed process with the same ID are not shown.
func TestExplainSuspension(t *testing.T) {
	t.Parallel()
	n := start(t, storagetest.DSN(t), processor.Func(words))
	spansOf := func(ended bool) (found int) {
		e, err := n.ExplainProcess(t.Context(), key("p"))
		if err != nil {
			t.Fatal(err)
		}
		for _, s := range e.GetSpans() {
			if s.GetWhat() == "operator" && (s.GetToTime() != nil) == ended &&
				(!ended || s.GetDetail() == "SUSPENDED: audit") {
				found++
			}
		}
		return found
	}
	n.started(t, "p")
	for count := range 2 {
		if _, err := n.SuspendProcess(t.Context(), key("p"), "audit", process.Actor{}); err != nil {
			t.Fatal(err)
		}
		eventually(t, "the process has been suspended for a millisecond", func() bool { return spansOf(false) == 1 })
		if _, err := n.ResumeProcess(t.Context(), key("p"), process.Actor{}); err != nil {
			t.Fatal(err)
		}
		if got := spansOf(true); got != count+1 {
			t.Errorf("%d suspensions have ended, want %d", got, count+1)
		}
	}
	if err := n.RemoveProcess(t.Context(), key("p"), process.Actor{}); err != nil {
		t.Fatal(err)
	}
	n.started(t, "p")
	if got := spansOf(true); got != 0 {
		t.Errorf("the new process has %d suspensions of the old one", got)
	}
}

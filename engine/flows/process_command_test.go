package flows_test

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"

	"google.golang.org/protobuf/types/known/structpb"

	"github.com/progressor-engine/progressor/engine"
	"github.com/progressor-engine/progressor/engine/enginetest"
	"github.com/progressor-engine/progressor/process"
	"github.com/progressor-engine/progressor/processor"
	progressorv1 "github.com/progressor-engine/progressor/proto/progressor/v1"
	"github.com/progressor-engine/progressor/storage/storagetest"
)

// parent is a processor of namespace "ns" that sends commands when a process starts, and records
// the ends of its children as events. A call cancels the run in its args.
func parent(commands ...*progressorv1.Command) processor.Processor {
	return processor.Func(func(
		ctx context.Context, r *progressorv1.ProcessRequest,
	) (*progressorv1.ProcessResponse, error) {
		result, end := processor.Result(), r.GetChild()
		switch {
		case r.GetJobName() != "":
			return obey(ctx, r)
		case end != nil:
			status := strings.TrimPrefix(end.GetStatus().String(), "PROCESS_STATUS_")
			response := string(end.GetResponse())
			if len(response) > 100 {
				response = fmt.Sprintf("%d bytes", len(response))
			}
			return result.Event(fmt.Appendf(nil, "%s of %s/%s: %s %s%s %s", r.GetArgs(), end.GetNamespace(),
				end.GetProcessId(), status, response, end.GetDetail(), end.GetReason())).Done()
		case r.GetType() == progressorv1.TaskType_TASK_TYPE_CALL:
			return result.Cancel("", "~flow/"+string(r.GetArgs()), "not needed").Done()
		}
		for _, c := range commands {
			result.Command(c)
		}
		return result.Done()
	})
}

// startRun returns the command that starts a run and requests a notification of its end.
func startRun(templateType, id string, payload *structpb.Value) *progressorv1.Command {
	return &progressorv1.Command{Command: &progressorv1.Command_StartRun{StartRun: &progressorv1.StartRunCommand{
		RunId: id, Type: templateType, Payload: payload, NotifyParentArgs: []byte("end"),
		Scope: "order", ScopeId: "7", Metadata: &structpb.Struct{Fields: map[string]*structpb.Value{
			"a": structpb.NewStringValue("b\x00")}},
	}}}
}

// ends waits until the process "parent" has want events and all messages are delivered. It returns
// the events in alphabetical order.
func (n *node) ends(t testing.TB, want int) []string {
	t.Helper()
	enginetest.Eventually(t, testTimeout, "the parent has all ends and no messages are left", func() bool {
		return n.Count(t, "SELECT count(*) FROM events WHERE process_id = 'parent'") >= want &&
			n.Count(t, "SELECT count(*) FROM messages") == 0
	})
	p, err := n.GetProcess(t.Context(), process.Key{Namespace: "ns", ProcessID: "parent"},
		&progressorv1.HistoryRange{}, 0)
	if err != nil {
		t.Fatal(err)
	}
	var list []string
	for _, e := range p.GetHistory() {
		list = append(list, string(e.GetPayload()))
	}
	slices.Sort(list)
	return list
}

// hasRuns waits until this many runs were started.
func (n *node) hasRuns(t testing.TB, want int) {
	t.Helper()
	enginetest.Eventually(t, testTimeout, "the runs were started", func() bool {
		return n.Count(t, "SELECT count(*) FROM flow_runs") == want
	})
}

func (n *node) startParent(t testing.TB) {
	t.Helper()
	_, err := n.Node.Start(t.Context(), engine.StartParams{Key: process.Key{Namespace: "ns", ProcessID: "parent"}})
	if err != nil {
		t.Fatal(err)
	}
}

// TestStartRunCommand checks that a result starts runs, and that the parent gets the end of each
// run, including runs that do not start.
func TestStartRunCommand(t *testing.T) {
	t.Parallel()
	large := structpb.NewStringValue(strings.Repeat("x", process.MaxPayloadBytes-2))
	n := startWith(t, storagetest.DSN(t), parent(
		startRun("work", "good", structpb.NewStringValue("tea")),
		startRun("work", "bad", value(t, `{"fail": {"s": "broken"}}`)),
		startRun("work", "slow", value(t, `{"wait": true}`)),
		startRun("echo", "large", large), startRun("none", "none", nil),
		startRun("strict", "wrong", value(t, `{"x": 1}`)), startRun("off", "off", nil),
		startRun("alone", "second", nil), startRun("work", "good", structpb.NewStringValue("twice")),
	))
	n.put(t, "ns", `{"type": "work", "step_order": "STEP_ORDER_GRAPH", "steps": [
		{"step_id": "w", "condition": "type(payload) == map && has(payload.wait)", "wait": {}},
		{"step_id": "s", "depends_on": ["w"], "join_rule": "JOIN_RULE_ALL_ENDED", "job": {}}]}`)
	n.put(t, "ns", `{"type": "echo", "result": "${payload}", "steps": [{"step_id": "a", "delay": {"duration": "0s"}}]}`)
	n.put(t, "ns", `{"type": "strict", "payload_schema": {"required": ["y"]}, "steps": [{"step_id": "a", "job": {}}]}`)
	n.put(t, "ns", `{"type": "off", "enabled": false, "steps": [{"step_id": "a", "job": {}}]}`)
	n.put(t, "ns", `{"type": "alone", "concurrency_policy": "SCOPE_POLICY_REJECT_SAME_SCOPE",
		"steps": [{"step_id": "a", "wait": {}}]}`)
	if _, err := n.Start(t.Context(), &progressorv1.StartRunRequest{
		Namespace: "ns", Type: "alone", RunId: "first", Scope: "order", ScopeId: "7",
	}, kim); err != nil {
		t.Fatal(err)
	}
	n.startParent(t)
	n.hasRuns(t, 5)
	slow := n.until(t, "ns", "slow", "WAITING_WORKER")
	if slow.GetScope() != "order" || slow.GetScopeId() != "7" ||
		slow.GetMetadata().GetFields()["a"].GetStringValue() != "b\uFFFD" {
		t.Errorf("the run is %v", slow)
	}
	for _, id := range []string{"slow", "missing"} {
		if _, err := n.Call(t.Context(), engine.CallParams{
			Key: process.Key{Namespace: "ns", ProcessID: "parent"}, Args: []byte(id),
		}); err != nil {
			t.Fatal(err)
		}
	}
	got := n.ends(t, 8)
	want := []string{
		`end of ns/~flow/bad: ERROR broken broken`,
		`end of ns/~flow/good: COMPLETED "s \"tea\"" `, `end of ns/~flow/large: COMPLETED 1048576 bytes `,
		`end of ns/~flow/none: UNSPECIFIED not started: there is no template none `,
		`end of ns/~flow/off: UNSPECIFIED not started: template off is disabled `,
		`end of ns/~flow/second: UNSPECIFIED not started: run first of the same scope has not ended `,
		`end of ns/~flow/slow: CANCELLED not needed `,
		`end of ns/~flow/wrong: UNSPECIFIED not started: payload.y: is required `,
	}
	if !slices.Equal(got, want) {
		t.Errorf("got\n%s\nwant\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
	}
	if n.Count(t, "SELECT count(*) FROM flow_runs") != 5 {
		t.Error("more than the 5 expected runs exist")
	}
}

// TestStartRunCommandIsChecked checks that a task fails if its result contains a command to a
// namespace that command_namespaces does not list. No message is stored.
func TestStartRunCommandIsChecked(t *testing.T) {
	t.Parallel()
	c := startRun("work", "r", nil)
	c.GetStartRun().Namespace = "pull"
	n := startWith(t, storagetest.DSN(t), parent(c))
	_, err := n.Node.Start(t.Context(), engine.StartParams{Key: process.Key{Namespace: "ns", ProcessID: "parent"}})
	if err == nil || !strings.Contains(err.Error(), `the namespace "pull" is not`) {
		t.Error(err)
	}
	if k := n.Count(t, "SELECT count(*) FROM messages"); k != 0 {
		t.Errorf("%d messages are stored", k)
	}
}

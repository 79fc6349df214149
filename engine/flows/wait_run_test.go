package flows_test

import (
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	"google.golang.org/protobuf/types/known/durationpb"
	"google.golang.org/protobuf/types/known/structpb"

	"github.com/progressor-engine/progressor/engine"
	"github.com/progressor-engine/progressor/engine/enginetest"
	"github.com/progressor-engine/progressor/engine/flows"
	"github.com/progressor-engine/progressor/process"
	progressorv1 "github.com/progressor-engine/progressor/proto/progressor/v1"
	"github.com/progressor-engine/progressor/storage/storagetest"
)

// waitRun returns a command that starts a run without a template.
func waitRun(id string, w *progressorv1.WaitAction) *progressorv1.Command {
	c := startRun("", id, structpb.NewStringValue("tea"))
	c.GetStartRun().Wait = w
	return c
}

// TestRunWithoutATemplate checks that a command can start a run with a wait instead of a template,
// and that the API shows it like other runs.
func TestRunWithoutATemplate(t *testing.T) {
	t.Parallel()
	n := startWith(t, storagetest.DSN(t), parent(
		waitRun("ask", &progressorv1.WaitAction{Kind: progressorv1.WaitAction_KIND_HUMAN, Title: "Buy ${payload}?"}),
		waitRun("due", &progressorv1.WaitAction{Due: durationpb.New(time.Millisecond)}),
		waitRun("stop", &progressorv1.WaitAction{Title: "a\x00", Assignees: []string{"b\x00"}}),
	))
	n.startParent(t)
	n.hasRuns(t, 3)
	for _, id := range []string{"ask", "stop"} {
		n.until(t, "ns", id, "WAITING_WORKER: answer RUNNING")
	}
	same(t, runSummary(n.ended(t, "ns", "due")), "FAILED: answer FAILED")
	list, _, err := n.ListRuns(t.Context(), &progressorv1.ListRunsRequest{Namespace: "ns", Filter: `run_id = "ask"`})
	if err != nil || len(list) != 1 || list[0].GetPhase() != "answer" || list[0].GetTemplateType() != "~wait" {
		t.Errorf("the runs are %v, %v", list, err)
	}
	waits, _, err := n.ListOpenWaits(t.Context(), &progressorv1.ListOpenWaitsRequest{
		Namespace: "ns", Filter: `template_type = "~wait"`,
	})
	var texts []string
	for _, w := range waits {
		texts = append(texts, w.GetRunId()+" "+w.GetTitle()+" "+strings.Join(w.GetAssignees(), " "))
	}
	slices.Sort(texts)
	if err != nil || !slices.Equal(texts, []string{"ask Buy tea? ", "stop a\uFFFD b\uFFFD"}) {
		t.Errorf("the waits are %q, %v", texts, err)
	}
	if _, err := n.Cancel(t.Context(), &progressorv1.CancelRunRequest{
		Namespace: "ns", RunId: "stop", Reason: "not needed",
	}, kim); err != nil {
		t.Fatal(err)
	}
	if _, err := n.Complete(t.Context(), &progressorv1.CompleteStepRequest{
		Namespace: "ns", RunId: "ask", StepId: "answer",
		Outcome: &progressorv1.CompleteStepRequest_Result{Result: structpb.NewBoolValue(true)},
	}, kim); err != nil {
		t.Fatal(err)
	}
	same(t, strings.Join(n.ends(t, 3), "\n"), strings.Join([]string{
		"end of ns/~flow/ask: COMPLETED true ",
		"end of ns/~flow/due: ERROR no answer arrived within 1ms timeout",
		"end of ns/~flow/stop: CANCELLED not needed ",
	}, "\n"))
	same(t, runSummary(n.ended(t, "ns", "ask")), "SUCCEEDED: answer SUCCEEDED")
	n.retryAndRepeat(t)
}

// retryAndRepeat retries and repeats runs that have no template.
func (n *node) retryAndRepeat(t *testing.T) {
	t.Helper()
	retry := &progressorv1.RetryRunRequest{Namespace: "ns", RunId: "stop", NewestVersion: true}
	var status *flows.StatusError
	if _, err := n.Retry(t.Context(), retry, kim); !errors.As(err, &status) ||
		!strings.Contains(err.Error(), "it has no template") {
		t.Errorf("a retry with the newest version: %v", err)
	}
	retry.NewestVersion = false
	if _, err := n.Retry(t.Context(), retry, kim); err != nil {
		t.Fatal(err)
	}
	n.until(t, "ns", "stop", "WAITING_WORKER: answer RUNNING 2")
	var template *flows.TemplateError
	if _, err := n.Repeat(t.Context(), &progressorv1.RepeatRunRequest{
		Namespace: "ns", RunId: "ask",
	}, kim); !errors.As(err, &template) {
		t.Errorf("a repeat: %v", err)
	}
}

// TestRunWithAWrongWait checks that a task fails if its result contains a command with a wait that
// no template could have.
func TestRunWithAWrongWait(t *testing.T) {
	t.Parallel()
	n := startWith(t, storagetest.DSN(t), parent(waitRun("ask", &progressorv1.WaitAction{Title: "${payload.}"})))
	_, err := n.Node.Start(t.Context(), engine.StartParams{Key: process.Key{Namespace: "ns", ProcessID: "parent"}})
	if err == nil || !strings.Contains(err.Error(), "commands[0].start_run: wait.title") {
		t.Error(err)
	}
	enginetest.Eventually(t, testTimeout, "there are no messages and no runs", func() bool {
		return n.Count(t, "SELECT count(*) FROM messages")+n.Count(t, "SELECT count(*) FROM flow_runs") == 0
	})
}

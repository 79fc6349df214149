package engine_test

import (
	"context"
	"testing"

	"github.com/progressor-engine/progressor/engine"
	"github.com/progressor-engine/progressor/process"
	"github.com/progressor-engine/progressor/processor"
	progressorv1 "github.com/progressor-engine/progressor/proto/progressor/v1"
	"github.com/progressor-engine/progressor/storage"
	"github.com/progressor-engine/progressor/storage/storagetest"
)

// Runs that crons start wait while crons decide, and start afterwards. Processes that others start
// do not wait.
func TestRunsWaitForDecisions(t *testing.T) {
	t.Parallel()
	fires := processor.Func(func(
		ctx context.Context, _ *progressorv1.ProcessRequest,
	) (*progressorv1.ProcessResponse, error) {
		engine.AttemptOf(ctx).Send(storage.Message{Kind: storage.MessageStart, Target: key("run")})
		return processor.Result().Done()
	})
	none := func(context.Context, []storage.ClaimLimit) ([]storage.Claim, error) { return nil, nil }
	p := byTask{callTask: answers(processor.Result().Command(startOf("child")))}
	n := startKinds(t, storagetest.DSN(t), p, []engine.Kind{
		{Name: "cron", Processor: fires, Urgent: &engine.Urgent{Timers: none, Calls: none}},
	})
	ended := n.AssumeUrgent()
	defer ended()
	if _, err := n.Start(t.Context(), engine.StartParams{Key: key("~cron/c"), Kind: "cron"}); err != nil {
		t.Fatal(err)
	}
	n.started(t, "p")
	n.called(t, "p", "x")
	eventually(t, "the other child runs", func() bool { return n.status(t, "child") == string(process.StatusRunning) })
	if got := n.WaitingTargets(); got != 1 {
		t.Fatalf("%d targets wait, want only the run", got)
	}
	ended()
	eventually(t, "the run has started", func() bool { return n.status(t, "run") == string(process.StatusRunning) })
}

package engine_test

import (
	"context"
	"strings"
	"testing"
	"time"

	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/progressor-engine/progressor/explain"
	"github.com/progressor-engine/progressor/process"
	"github.com/progressor-engine/progressor/processor"
	progressorv1 "github.com/progressor-engine/progressor/proto/progressor/v1"
	"github.com/progressor-engine/progressor/storage/storagetest"
)

// The newest 10 failed attempts of a timer are stored with its task, with messages of limited
// length. The task has the time at which the timer was first due. The failed attempts are removed
// with the process.
func TestFailedAttemptsStayWithTheTask(t *testing.T) {
	t.Parallel()
	dsn := storagetest.DSN(t)
	long := strings.Repeat("é", 5000)
	n := start(t, dsn, byTask{
		callTask: words,
		timeoutTask: func(_ context.Context, r *progressorv1.ProcessRequest) (*progressorv1.ProcessResponse, error) {
			if r.GetAttempt() <= 12 {
				return nil, processor.Fail("odd", "try %d %s", r.GetAttempt(), long)
			}
			return processor.Result().Done()
		},
	})
	n.put(t, &progressorv1.Namespace{Namespace: "ns", RetryPolicy: &progressorv1.RetryPolicy{
		InitialInterval: durationpb.New(2 * time.Millisecond), BackoffCoefficient: new(1.0), MaxAttempts: 20,
		Jitter: new(0.0),
	}})
	n.started(t, "p")
	n.called(t, "p", "set 1ms")
	rows := openDB(t, dsn)
	eventually(t, "the timer has run", func() bool {
		return rows.count(t, "SELECT count(*) FROM tasks WHERE task_type = 'TIMEOUT' AND attempt = 13") == 1
	})
	trace, err := n.TraceProcess(t.Context(), key("p"), 0, "")
	if err != nil {
		t.Fatal(err)
	}
	var timer *progressorv1.Task
	for _, task := range trace.GetTasks() {
		if task.GetType() == progressorv1.TaskType_TASK_TYPE_TIMEOUT {
			timer = task
		} else if len(task.GetFailures()) > 0 || task.GetFirstScheduledTime() != nil {
			t.Errorf("a task that did not fail has failures: %v", task)
		}
	}
	failures := timer.GetFailures()
	if len(failures) != 10 {
		t.Fatalf("%d failures, want the newest 10", len(failures))
	}
	for k, f := range failures {
		if f.GetAttempt() != int32(k+3) || f.GetReason() != "odd" || !strings.HasPrefix(f.GetMessage(), "try ") ||
			len([]rune(f.GetMessage())) != 1000 || f.GetNodeId() == "" || f.GetFailedTime() == nil {
			t.Errorf("failure %d: attempt %d, %s, %d bytes, node %s", k, f.GetAttempt(), f.GetReason(),
				len(f.GetMessage()), f.GetNodeId())
		}
	}
	first := timer.GetFirstScheduledTime().AsTime()
	if !first.Before(timer.GetScheduledTime().AsTime().Add(-20*time.Millisecond)) ||
		!first.Before(failures[0].GetFailedTime().AsTime()) {
		t.Errorf("first scheduled at %s, then at %s", first, timer.GetScheduledTime().AsTime())
	}
	said, err := n.ExplainProcess(t.Context(), key("p"))
	if err != nil {
		t.Fatal(err)
	}
	spans := 0
	for _, s := range said.GetSpans() {
		if s.GetWhat() == explain.Processing && strings.Contains(s.GetDetail(), "failed: odd") {
			spans++
		}
	}
	if spans != 10 {
		t.Errorf("explain shows %d failed attempts, want 10: %v", spans, said.GetSpans())
	}
	if err := n.RemoveProcess(t.Context(), key("p"), process.Actor{}); err != nil {
		t.Fatal(err)
	}
	eventually(t, "the failed attempts are removed", func() bool {
		return rows.count(t, "SELECT count(*) FROM failed_attempts") == 0
	})
}

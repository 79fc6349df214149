package engine_test

import (
	"context"
	"testing"

	"github.com/progressor-engine/progressor/engine"
	"github.com/progressor-engine/progressor/process"
	progressorv1 "github.com/progressor-engine/progressor/proto/progressor/v1"
	"github.com/progressor-engine/progressor/storage/storagetest"
)

// A client that waits on another node gets the response even if the process and its history are
// removed right after the call.
func TestAnswerOutlivesItsProcess(t *testing.T) {
	t.Parallel()
	dsn := storagetest.DSN(t)
	g := newGate()
	defer g.release()
	p := byTask{initTask: words,
		callTask: func(ctx context.Context, r *progressorv1.ProcessRequest) (*progressorv1.ProcessResponse, error) {
			if err := g.pass(ctx, r, true); err != nil {
				return nil, err
			}
			return words(ctx, r)
		}}
	a, b := start(t, dsn, p), start(t, dsn, p)
	a.started(t, "p")
	call := a.calling("p", "remove 0s")
	task := receive(t, "the call runs", g.entered).GetTaskId()
	type awaited struct {
		task *progressorv1.Task
		err  error
	}
	got := make(chan awaited, 1)
	go func() {
		task, err := b.AwaitTask(context.Background(), engine.AwaitParams{
			Key: key("p"), TaskID: task, Timeout: longWait,
		})
		got <- awaited{task, err}
	}()
	rows := openDB(t, dsn)
	g.release()
	if res := receive(t, "the answer on a", call); res.err != nil {
		t.Fatalf("%+v", res)
	}
	eventually(t, "the process is removed", func() bool { return rows.count(t, "SELECT count(*) FROM processes") == 0 })
	if w := receive(t, "the answer on b", got); w.err != nil || string(w.task.GetResponse()) != "remove 0s" {
		t.Errorf("%v, %v", w.task, w.err)
	}
	// A later client also gets the response. Other tasks have no answers, except those that have
	// finished.
	if w, err := b.AwaitTask(t.Context(), engine.AwaitParams{Key: key("p"), TaskID: task}); err != nil ||
		w.GetFinishedTime() == nil {
		t.Errorf("%v, %v", w, err)
	}
	if got := rows.count(t, "SELECT count(*) FROM answers WHERE task_type NOT IN ('INIT', 'CALL') AND status <> $1",
		process.TaskStatusFinished); got != 0 {
		t.Errorf("%d other answers", got)
	}
}

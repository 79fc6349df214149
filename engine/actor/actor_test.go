package actor

import (
	"errors"
	"fmt"
	"io"
	"strings"
	"testing"
	"time"

	"github.com/progressor-engine/progressor/process"
	"github.com/progressor-engine/progressor/processor"
	progressorv1 "github.com/progressor-engine/progressor/proto/progressor/v1"
)

// letter is a task of a kind whose state is the sequence of letters of its tasks.
type letter struct {
	*Task
	state string
}

// letters returns an actor that fails with readErr when it reads a state, and with err when it
// handles a task.
func letters(readErr, err error) *Actor[*letter] {
	add := func(s string) func(*letter) error {
		return func(l *letter) error {
			l.state += s
			return err
		}
	}
	return &Actor[*letter]{
		Noun: "a letter",
		New:  func(t *Task) *letter { return &letter{Task: t} },
		Read: func(l *letter) error {
			l.state = string(l.Request.GetProcess().GetAuxState())
			return readErr
		},
		Init: add("I"), Call: add("C"), Timer: add("T"), Notify: add("N"),
		Done: func(l *letter) error {
			l.Result.AuxState([]byte(l.state + "."))
			return nil
		},
	}
}

// send returns the result of a task for a process with the state "s".
func send(a *Actor[*letter], taskType progressorv1.TaskType) (*progressorv1.ProcessResponse, error) {
	return a.handle(&Task{Result: processor.Result(), Request: &progressorv1.ProcessRequest{
		Type: taskType, Process: &progressorv1.Process{AuxState: []byte("s")},
	}})
}

// TestHandlers checks that a task runs the handler of its type with the state of its process, and
// that Done completes the result. INIT does not read a state. Without a handler, a CANCEL has an
// empty result, and other tasks fail.
func TestHandlers(t *testing.T) {
	for taskType, want := range map[progressorv1.TaskType]string{
		progressorv1.TaskType_TASK_TYPE_INIT:    "I.",
		progressorv1.TaskType_TASK_TYPE_CALL:    "sC.",
		progressorv1.TaskType_TASK_TYPE_TIMEOUT: "sT.",
		progressorv1.TaskType_TASK_TYPE_NOTIFY:  "sN.",
		progressorv1.TaskType_TASK_TYPE_CANCEL:  "",
	} {
		r, err := send(letters(nil, nil), taskType)
		if err != nil || string(r.GetResult().GetAuxState()) != want {
			t.Errorf("%s: %v, %v", taskType, r, err)
		}
	}
	_, err := send(letters(nil, nil), progressorv1.TaskType_TASK_TYPE_REPAIR)
	if f := processor.FailureOf(err); f.GetReason() != processor.ReasonNotHandled || !f.GetNonRetryable() ||
		!strings.HasPrefix(f.GetMessage(), "a letter does not accept tasks of type") {
		t.Errorf("a task without a handler: %v", err)
	}
}

// TestUnavailable checks that an UnreachableError, which causes a retry, is returned if the
// database is not available for Read or for a handler. Other errors are returned as they are.
func TestUnavailable(t *testing.T) {
	away := fmt.Errorf("read: %w", process.ErrUnavailable)
	for _, c := range []struct {
		readErr, err error
		unreachable  bool
	}{{away, nil, true}, {nil, away, true}, {io.EOF, nil, false}, {nil, io.EOF, false}} {
		r, err := send(letters(c.readErr, c.err), progressorv1.TaskType_TASK_TYPE_CALL)
		if r != nil || err == nil || processor.Unreachable(err) != c.unreachable ||
			errors.Is(err, process.ErrUnavailable) != c.unreachable {
			t.Errorf("%v, %v: %v, %v", c.readErr, c.err, r, err)
		}
	}
}

// TestMoveTimer checks that MoveTimer sets or unsets a timer only if its time changes.
func TestMoveTimer(t *testing.T) {
	one, two := time.Unix(1, 0), time.Unix(2, 0)
	for _, c := range []struct {
		timer, at time.Time
		want      string
	}{
		{one, one, ""},
		{one, two, "set"},
		{time.Time{}, two, "set"},
		{one, time.Time{}, "unset"},
		{time.Time{}, time.Time{}, ""},
	} {
		task := &Task{Result: processor.Result()}
		task.MoveTimer(&c.timer, c.at)
		r, err := task.Result.Done()
		got := ""
		if result := r.GetResult(); result.GetSetTimer() != nil && result.GetSetTimer().GetAt().AsTime().Equal(c.at) {
			got = "set"
		} else if result.GetUnsetTimer() != nil {
			got = "unset"
		}
		if err != nil || got != c.want || !c.timer.Equal(c.at) {
			t.Errorf("%v: %v, %v", c, r, err)
		}
	}
}

package durable_test

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/progressor-engine/progressor/process"
	"github.com/progressor-engine/progressor/processor"
	"github.com/progressor-engine/progressor/processor/durable"
	"github.com/progressor-engine/progressor/processor/durable/durabletest"
	"github.com/progressor-engine/progressor/processor/processortest"
	progressorv1 "github.com/progressor-engine/progressor/proto/progressor/v1"
)

const (
	completed = progressorv1.ProcessStatus_PROCESS_STATUS_COMPLETED
	broken    = progressorv1.ProcessStatus_PROCESS_STATUS_ERROR
	cancelled = progressorv1.ProcessStatus_PROCESS_STATUS_CANCELLED
	removed   = progressorv1.ProcessStatus_PROCESS_STATUS_UNSPECIFIED
)

// parent returns the number with which its child responds.
func parent(ctx durable.Ctx) (string, error) {
	n, err := durable.Child[int](ctx, "c", 7, durable.In("kids")).Get()
	return fmt.Sprint(n), err
}

// endOf reports the end of the child c of a process in a test.
func endOf(t *testing.T, p *processortest.Process, id string, end *progressorv1.ChildEnd) {
	t.Helper()
	end.Namespace, end.ProcessId = "kids", id
	if err := p.ChildEnded(t.Context(), end, []byte(`"c"`)); err != nil {
		t.Fatal(err)
	}
}

func TestChild(t *testing.T) {
	rejection := `{"k":"fail","n":"g","e":{"reason":"full","message":"no seats","rejected":true}}`
	ended := func(value string) string { return `{"k":"end","n":"f","v":"` + value + `"}` }
	rejected := `{"k":"fail","n":"f","e":{"reason":"full","message":"child c: no seats","rejected":true}}`
	failed := func(reason, message string) string {
		return `{"k":"fail","n":"f","e":{"reason":"` + reason + `","message":"child c: ` + message + `"}}`
	}
	for name, test := range map[string]struct {
		status           progressorv1.ProcessStatus
		response, detail string
		want             string
	}{
		"completed":          {completed, "5", "", ended("5")},
		"without a response": {completed, "", "", ended("0")},
		"a rejection":        {completed, rejection, "", rejected},
		"a large rejection": {completed, strings.Replace(rejection, "no seats", strings.Repeat("x", 1<<20), 1), "",
			strings.Replace(rejected, "no seats", strings.Repeat("x", 8<<10-len("child c: "))+"…", 1)},
		"rejected":             {removed, "", "rejected: full: no seats", rejected},
		"rejected in one word": {removed, "", "rejected: no seats", strings.Replace(rejected, "full", "no seats", 1)},
		"not started":          {removed, "", "not started: no", failed("child_failed", "not started: no")},
		"removed":              {removed, "", "", failed("child_removed", "the process was removed")},
		"removed by a result":  {removed, "5", "", ended("5")},
		"cancelled":            {cancelled, "", "", failed("child_cancelled", "the process was cancelled")},
		"broken":               {broken, "", "odd", failed("child_failed", "odd")},
		"no JSON":              {completed, "paid", "", failed("bad_value", "the response is not JSON")},
		"large": {completed, strings.Repeat("1", 1<<20), "",
			failed("bad_value", "the response has 1048576 bytes, at most 1044480 are allowed")},
		"another type": {completed, `"x"`, "", `{"k":"ended","n":"c","v":"x"}`},
	} {
		t.Run(name, func(t *testing.T) {
			p := start(t, function(parent))
			check(t, "commands", fmt.Sprint(p.Commands()), fmt.Sprint([]*progressorv1.Command{{
				Command: &progressorv1.Command_Start{Start: &progressorv1.StartCommand{
					Namespace: "kids", ProcessId: "process/c~1", Args: []byte("7"), NotifyParentArgs: []byte(`"c"`),
				}},
			}}))
			endOf(t, p, "process/c~1", &progressorv1.ChildEnd{
				Status: test.status, Response: []byte(test.response), Detail: test.detail,
			})
			check(t, "last event", lastEvent(p.Snapshot()), test.want)
			want := process.StatusError
			if strings.Contains(test.want, `"k":"end"`) || strings.Contains(test.want, `"rejected":true`) {
				want = process.StatusCompleted
			}
			if p.Status() != want {
				t.Error(p.Status(), p.Detail())
			}
		})
	}
}

// A function that is a child responds with its value or its rejection, even if its last task was a
// call.
func TestResponseOfChild(t *testing.T) {
	for name, test := range map[string]struct{ call, want string }{
		"a value":     {"5", `"5"`},
		"a rejection": {"0", `{"k":"fail","n":"f","e":{"reason":"zero","message":"no","rejected":true}}`},
	} {
		p := start(t, function(func(ctx durable.Ctx) (string, error) {
			calls := durable.Calls(ctx, "go", durable.Accept(func(int) (string, error) { return "taken", nil }))
			n := calls.Next()
			if n == 0 {
				return "", processor.Reject("zero", "no")
			}
			return fmt.Sprint(n), nil
		}))
		response, err := p.Call(t.Context(), []byte(`{"go":`+test.call+`}`))
		if err != nil || string(response) != `"taken"` || p.Status() != process.StatusCompleted {
			t.Errorf("%s: %s %v %s", name, response, err, p.Status())
		}
		tasks := p.Trace()
		check(t, name, string(tasks[len(tasks)-1].GetResponse()), test.want)
	}
}

// After a restart, a child has another ID. The ends of old children and of other processes are
// ignored, and so is an end that is reported again.
func TestChildAfterRestart(t *testing.T) {
	p := start(t, function(func(ctx durable.Ctx) (string, error) {
		calls := durable.Calls[int, int](ctx, "again")
		child := durable.Child[int](ctx, "c", 7, durable.In("kids"))
		if durable.First(ctx, "which", calls, child) == calls {
			calls.Next()
			return "", durable.Restart(struct{}{})
		}
		durable.Sleep(ctx, "pause", time.Hour)
		n, err := child.Get()
		return fmt.Sprint(n, child.Process()), err
	}))
	if _, err := p.Call(t.Context(), []byte(`{"again":1}`)); err != nil {
		t.Fatal(err)
	}
	for n, id := range []string{"process/c~1", "other", "process/c~2", "process/c~2"} {
		endOf(t, p, id, &progressorv1.ChildEnd{Status: completed, Response: fmt.Appendf(nil, "%d", n)})
	}
	if err := p.ChildEnded(t.Context(), &progressorv1.ChildEnd{}, []byte("?")); err != nil {
		t.Fatal(err)
	}
	check(t, "journal", journal(p), "start:f child:c ended:c first:which timer:pause")
	if err := p.Advance(t.Context(), time.Hour); err != nil {
		t.Fatal(err)
	}
	check(t, "end", lastEvent(p.Snapshot()), `{"k":"end","n":"f","v":"2 kids/process/c~2"}`)
}

// A result has at most 100 commands and 8 MiB. All children are started, and cancelled if the
// function fails.
func TestManyChildren(t *testing.T) {
	for name, test := range map[string]struct{ children, bytes int }{"many": {250, 10}, "large": {12, 1_000_000}} {
		t.Run(name, func(t *testing.T) {
			p := start(t, function(func(ctx durable.Ctx) (string, error) {
				calls := durable.Calls[int, int](ctx, "stop")
				for range test.children {
					durable.Child[int](ctx, "c", strings.Repeat("x", test.bytes))
				}
				calls.Next()
				return "", errors.New("odd")
			}))
			if n := len(p.Commands()); n != test.children {
				t.Fatalf("%d children were started: %s %s", n, p.Status(), p.Detail())
			}
			if _, err := p.Call(t.Context(), []byte(`{"stop":1}`)); err != nil || p.Status() != process.StatusError {
				t.Fatal(err, p.Status())
			}
			asked := map[string]bool{}
			for _, c := range p.Commands()[test.children:] {
				asked[c.GetCancel().GetProcessId()] = true
			}
			if len(asked) != test.children || len(p.Commands()) != 2*test.children {
				t.Errorf("%d children were cancelled by %d commands", len(asked), len(p.Commands()))
			}
		})
	}
}

// A task with checkpoints also starts children. The end of a child is stored even if the function
// panics because of it.
func TestChildBeforeDefect(t *testing.T) {
	defective := true
	var done effects
	p := start(t, function(func(ctx durable.Ctx) (string, error) {
		if _, err := durable.Step(ctx, "a", done.says("a")); err != nil {
			return "", err
		}
		child := durable.Child[int](ctx, "c", 7, durable.In("kids"))
		if _, err := durable.Step(ctx, "b", done.says("b")); err != nil {
			return "", err
		}
		n, err := child.Get()
		if defective {
			panic("odd")
		}
		return fmt.Sprint(n), err
	}))
	endOf(t, p, "process/c~1", &progressorv1.ChildEnd{Status: completed, Response: []byte("5")})
	if err := p.Advance(t.Context(), time.Minute); err != nil || p.Status() != process.StatusError {
		t.Fatal(err, p.Status())
	}
	defective = false
	if err := p.RepairSimple(t.Context()); err != nil || p.Status() != process.StatusCompleted {
		t.Error(err, p.Status())
	}
	check(t, "journal", journal(p), "start:f step:a child:c step:b ended:c end:f")
	if n := len(p.Commands()); n != 1 || done.String() != "a b" {
		t.Error(n, done.String())
	}
}

// A cancelled function cancels its children and starts no more.
func TestCancelChildren(t *testing.T) {
	more := false
	p := start(t, function(func(ctx durable.Ctx) (string, error) {
		durable.Child[int](ctx, "c", 7)
		if more {
			durable.Child[int](ctx, "d", 7)
		}
		durable.Sleep(ctx, "pause", time.Hour)
		return "", nil
	}))
	more = true
	if err := p.Cancel(t.Context(), "no more"); err != nil || p.Status() != process.StatusCancelled {
		t.Fatal(err, p.Status())
	}
	check(t, "journal", journal(p), "start:f child:c timer:pause cancel:c")
	if last := p.Commands()[1].GetCancel(); len(p.Commands()) != 2 || last.GetProcessId() != "process/c~1" ||
		last.GetReason() != "the parent was cancelled" {
		t.Error(p.Commands())
	}
}

// A child that cannot be started is misuse.
func TestChildMisuse(t *testing.T) {
	for want, f := range map[string]func(ctx durable.Ctx){
		"child c: result.commands[0].namespace": func(ctx durable.Ctx) {
			durable.Child[int](ctx, "c", 7, durable.In("a b"))
		},
		"child c: result.commands[0].reason": func(ctx durable.Ctx) {
			durable.Child[int](ctx, "c", 7).Cancel(strings.Repeat("x", 5000))
		},
		"the args of child c: the value cannot be encoded": func(ctx durable.Ctx) {
			durable.Child[int](ctx, "c", func() {})
		},
		"child c: result.commands[0].process_id": func(ctx durable.Ctx) {
			durable.Child[int](ctx, "c", 7)
		},
	} {
		id := "process"
		if strings.Contains(want, "process_id") {
			id = strings.Repeat("x", 255)
		}
		p := processortest.New(function(func(ctx durable.Ctx) (string, error) {
			f(ctx)
			return "", nil
		}), processortest.WithKey("ns", id))
		if _, err := p.Start(t.Context(), []byte(`{}`)); err != nil {
			t.Fatal(err)
		}
		if detail := p.Detail(); !strings.Contains(detail, "child_test.go") || !strings.Contains(detail, want) {
			t.Errorf("%q, want %s", detail, want)
		}
	}
}

// The script fails if it ends a child that was not started.
func TestEndChild(t *testing.T) {
	p := start(t, function(parent))
	for name, want := range map[string]bool{"c": true, "d": false} {
		if err := durabletest.EndChild(name, 5)(t.Context(), p); (err == nil) != want {
			t.Error(name, err)
		}
	}
}

package storage_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/progressor-engine/progressor/process"
	"github.com/progressor-engine/progressor/storage"
)

// ofRun makes a completion notify the run ~flow/r, for which this node has a slot.
func ofRun(c *storage.Completion) { c.Run, c.MayContinue = key("~flow/r"), true }

// steps creates the run ~flow/r with started steps, and returns the claims of their jobs.
func (b *bench) steps(names ...string) map[string]*storage.Claim {
	b.t.Helper()
	b.namespace(ns)
	var starts []storage.Message
	for _, name := range names {
		starts = append(starts, startOf("r/"+name, notifySender(name)))
	}
	b.save(end(b.start("~flow/r", func(in *storage.Init) { in.Kind = "flow" }), storage.Finished,
		withMessages(starts...),
		func(c *storage.Completion) { c.AuxState = []byte("state") }))
	for _, name := range names {
		b.deliver("r/" + name)
	}
	claims := map[string]*storage.Claim{}
	for _, c := range b.searchCalls(100) {
		claims[strings.TrimPrefix(c.ProcessID, "r/")] = &c
	}
	return claims
}

// endsIn describes the ends of children that a claim contains.
func endsIn(t *testing.T, c *storage.Claim) string {
	t.Helper()
	if c == nil {
		return "no claim"
	}
	var list []string
	all, err := storage.ChildEnds(c)
	for _, e := range must(t, all, err) {
		list = append(list, fmt.Sprintf("%s %s %s %q", e.Args, strings.TrimPrefix(e.ProcessID, "r/"),
			strings.TrimPrefix(e.Status, "PROCESS_STATUS_"), e.Response))
	}
	return string(c.TaskType) + " of " + c.ProcessID + ": " + strings.Join(list, ", ")
}

// An idle run continues at once with the end of a step. While the run is busy, further ends are
// collected in one task. The end of a fenced attempt is rejected.
func TestEndsOfStepsAreTasksOfTheRun(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	jobs := b.steps("a", "b", "c", "d", "e")
	var first storage.Saved
	equal(t, "messages", b.targets(func() { first = b.save(end(jobs["a"], storage.Completed, ofRun, answer("1"))) }),
		"[]")
	equal(t, "the first end", endsIn(t, first.Next), `NOTIFY of ~flow/r: a a COMPLETED "1"`)
	equal(t, "the run", []any{string(first.Next.AuxState), first.Next.Kind, first.Next.Status, first.Next.Attempt},
		[]any{"state", "flow", process.StatusRunning, 1})
	_, err := b.SaveResult(end(jobs["a"], storage.Completed, ofRun))
	equal(t, "a late end", err, process.ErrFenced)
	for _, name := range []string{"b", "c"} {
		saved := b.save(end(jobs[name], storage.Completed, ofRun))
		equal(t, "continuation while the run is busy", []any{saved.Next == nil, saved.Deferred}, []any{true, false})
	}
	equal(t, "waiting tasks", ask[int](b, "SELECT count(*) FROM schedule WHERE process_id = '~flow/r'"), 1)
	second := b.save(end(first.Next, storage.Finished))
	equal(t, "the other ends", endsIn(t, second.Next), `NOTIFY of ~flow/r: b b COMPLETED "", c c COMPLETED ""`)
	b.save(end(second.Next, storage.Finished))
	noSlot := func(c *storage.Completion) { c.MayContinue = false }
	saved := b.save(end(jobs["d"], storage.Completed, ofRun, noSlot))
	equal(t, "without a slot", []any{saved.Next == nil, saved.Deferred}, []any{true, true})
	b.save(end(jobs["e"], storage.Completed, ofRun))
	claims := b.searchCalls(10)
	equal(t, "the claims", len(claims), 1)
	equal(t, "the last ends", endsIn(t, &claims[0]), `NOTIFY of ~flow/r: d d COMPLETED "", e e COMPLETED ""`)
	equal(t, "parents", ask[int](b, "SELECT count(*) FROM parents"), 0)
}

// The end of a step is sent as a message if its run has undelivered messages, if the run is not
// RUNNING, or if the completion names another run.
func TestEndsOfStepsAreMessages(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	jobs := b.steps("a", "b", "c")
	b.send(notifyOf("~flow/r", "first"))
	targets := func(job *storage.Claim, change ...func(*storage.Completion)) (targets []string) {
		return b.targets(func() {
			saved := b.save(end(job, storage.Completed, append([]func(*storage.Completion){ofRun}, change...)...))
			equal(t, "continuation", []any{saved.Next == nil, saved.Deferred}, []any{true, false})
		})
	}
	equal(t, "message behind another message", targets(jobs["a"]), "[~flow/r]")
	equal(t, "delivery of both messages", b.deliver("~flow/r"), "notify delivered, child_end delivered")
	must(t, 0, b.SuspendProcess(key("~flow/r"), "later"))
	equal(t, "message to a suspended run", targets(jobs["b"]), "[~flow/r]")
	equal(t, "delivery to a suspended run", b.deliver("~flow/r"), "child_end held")
	must(t, 0, b.ResumeProcess(key("~flow/r")))
	b.deliver("~flow/r")
	other := func(c *storage.Completion) { c.Run = key("~flow/other") }
	equal(t, "message to a run that is not locked", targets(jobs["c"], other), "[~flow/r]")
	equal(t, "delivery to a run that is not locked", b.deliver("~flow/r"), "child_end delivered")
	equal(t, "parents", ask[int](b, "SELECT count(*) FROM parents"), 0)
}

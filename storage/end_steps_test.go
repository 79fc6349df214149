package storage_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/progressor-engine/progressor/process"
	"github.com/progressor-engine/progressor/storage"
)

// ofRun tells the run ~flow/r of the end of a job, where this node has a place to go on with it.
func ofRun(c *storage.Completion) { c.Run, c.GoesOn = key("~flow/r"), true }

// steps makes the run ~flow/r, which has begun steps, and gives the claims of what does them.
func (b *bench) steps(names ...string) map[string]*storage.Claim {
	b.t.Helper()
	b.namespace(ns)
	var starts []storage.Message
	for _, name := range names {
		starts = append(starts, startOf("r/"+name, told(name)))
	}
	b.save(end(b.start("~flow/r", func(in *storage.Init) { in.Kind = "flow" }), storage.Finished, says(starts...), func(c *storage.Completion) { c.AuxState = []byte("state") }))
	for _, name := range names {
		b.deliver("r/" + name)
	}
	claims := map[string]*storage.Claim{}
	for _, c := range b.searchCalls(100) {
		claims[strings.TrimPrefix(c.ProcessID, "r/")] = &c
	}
	return claims
}

// toldBy is what a claim tells.
func toldBy(t *testing.T, c *storage.Claim) string {
	t.Helper()
	if c == nil {
		return "no claim"
	}
	var list []string
	all, err := storage.ChildEnds(c)
	for _, e := range must(t, all, err) {
		list = append(list, fmt.Sprintf("%s %s %s %q", e.Args, strings.TrimPrefix(e.ProcessID, "r/"), strings.TrimPrefix(e.Status, "PROCESS_STATUS_"), e.Response))
	}
	return string(c.TaskType) + " of " + c.ProcessID + ": " + strings.Join(list, ", ")
}

// A run that is free goes on at once with the end of a step; while it runs, ends wait together. Whoever has lost its job tells nothing.
func TestEndsOfStepsAreTasksOfTheRun(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	jobs := b.steps("a", "b", "c", "d", "e")
	var first storage.Saved
	equal(t, "messages", b.targets(func() { first = b.save(end(jobs["a"], storage.Completed, ofRun, answer("1"))) }), "[]")
	equal(t, "the first end", toldBy(t, first.Next), `NOTIFY of ~flow/r: a a COMPLETED "1"`)
	equal(t, "the run", []any{string(first.Next.AuxState), first.Next.Kind, first.Next.Status, first.Next.Attempt}, []any{"state", "flow", process.StatusRunning, 1})
	_, err := b.SaveResult(end(jobs["a"], storage.Completed, ofRun))
	equal(t, "a late end", err, process.ErrFenced)
	for _, name := range []string{"b", "c"} {
		saved := b.save(end(jobs[name], storage.Completed, ofRun))
		equal(t, "what goes on while the run does", []any{saved.Next == nil, saved.Deferred}, []any{true, false})
	}
	equal(t, "waiting tasks", ask[int](b, "SELECT count(*) FROM schedule WHERE process_id = '~flow/r'"), 1)
	second := b.save(end(first.Next, storage.Finished))
	equal(t, "the other ends", toldBy(t, second.Next), `NOTIFY of ~flow/r: b b COMPLETED "", c c COMPLETED ""`)
	b.save(end(second.Next, storage.Finished))
	noPlace := func(c *storage.Completion) { c.GoesOn = false }
	saved := b.save(end(jobs["d"], storage.Completed, ofRun, noPlace))
	equal(t, "without a place", []any{saved.Next == nil, saved.Deferred}, []any{true, true})
	b.save(end(jobs["e"], storage.Completed, ofRun))
	claims := b.searchCalls(10)
	equal(t, "the claims", len(claims), 1)
	equal(t, "the last ends", toldBy(t, &claims[0]), `NOTIFY of ~flow/r: d d COMPLETED "", e e COMPLETED ""`)
	equal(t, "parents", ask[int](b, "SELECT count(*) FROM parents"), 0)
}

// Where a message stands for the run, where it is not RUNNING, and where it is another process that waits for the end, that is told by a message.
func TestEndsOfStepsAreMessages(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	jobs := b.steps("a", "b", "c")
	b.say(notifyOf("~flow/r", "first"))
	told := func(job *storage.Claim, change ...func(*storage.Completion)) (told []string) {
		return b.targets(func() {
			saved := b.save(end(job, storage.Completed, append([]func(*storage.Completion){ofRun}, change...)...))
			equal(t, "what goes on", []any{saved.Next == nil, saved.Deferred}, []any{true, false})
		})
	}
	equal(t, "behind a message", told(jobs["a"]), "[~flow/r]")
	equal(t, "the delivery", b.deliver("~flow/r"), "notify delivered, child_end delivered")
	must(t, 0, b.SuspendProcess(key("~flow/r"), "later"))
	equal(t, "to a run that is suspended", told(jobs["b"]), "[~flow/r]")
	equal(t, "that delivery", b.deliver("~flow/r"), "child_end held")
	must(t, 0, b.ResumeProcess(key("~flow/r")))
	b.deliver("~flow/r")
	other := func(c *storage.Completion) { c.Run = key("~flow/other") }
	equal(t, "to one that is not locked", told(jobs["c"], other), "[~flow/r]")
	equal(t, "its delivery", b.deliver("~flow/r"), "child_end delivered")
	equal(t, "parents", ask[int](b, "SELECT count(*) FROM parents"), 0)
}

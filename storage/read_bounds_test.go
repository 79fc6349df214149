package storage_test

import (
	"bytes"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/progressor-engine/progressor/storage"
)

// large is a value of 1 MiB. Eight of them fill the result of one read.
var large = bytes.Repeat([]byte("x"), 1<<20)

// One read of answers returns about 8 MiB, ordered by task, and reports that there may be more.
func TestReadAnswersIsBoundedInBytes(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	var refs []storage.TaskRef
	for n := range 12 {
		id := fmt.Sprint("p", n)
		b.process(id)
		c := b.claim(id)
		b.save(end(c, storage.Finished, func(c *storage.Completion) { c.Response = large }))
		refs = append(refs, storage.TaskRef{Key: key(id), TaskID: c.TaskID})
	}
	for _, want := range []string{"[0 1 2 3 4 5 6 7] true", "[0 1 2 3] false"} {
		answers, cut, err := b.ReadAnswers(t.Context(), refs)
		var ords []int32
		for _, a := range must(t, answers, err) {
			ords = append(ords, a.Ord)
		}
		slices.Sort(ords)
		equal(t, "answers", fmt.Sprint(ords, " ", cut), want)
		refs = refs[len(answers):]
	}
}

// A node adopts about 8 MiB of lost claims at a time, and collects about 8 MiB of zombies, each
// time those with the smallest tokens.
func TestRunningRowsAreReadInBoundedBytes(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	b.backlog("ns", 12, "CALL", "place")
	for range 6 {
		claims, err := b.SearchCalls(t.Context(), []storage.ClaimLimit{
			{Namespace: "ns", Max: 100, StepTimeout: timeout},
		})
		must(t, claims, err)
	}
	tokens := ask[[]int64](b, "SELECT array_agg(fencing_token ORDER BY fencing_token) FROM running")
	var known []int64
	for _, want := range [][]int64{tokens[:8], tokens[8:], nil} {
		rows, err := b.ListRunning(t.Context(), known, 0)
		var got []int64
		for _, r := range must(t, rows, err) {
			got = append(got, r.FencingToken)
		}
		slices.Sort(got)
		equal(t, "lost claims", got, want)
		known = append(known, got...)
	}
	b.exec("UPDATE running SET context = args, deadline = statement_timestamp() - interval '1 hour'")
	suspects, err := b.ListSuspects(t.Context(), 5*time.Second, 100)
	equal(t, "suspects", len(must(t, suspects, err)), 12)
	for _, want := range [][]int64{tokens[:8], tokens[8:]} {
		rows, err := b.ReadZombies(t.Context(), suspects, 5*time.Second)
		var got []int64
		for _, z := range must(t, rows, err) {
			got = append(got, z.FencingToken)
		}
		slices.Sort(got)
		equal(t, "zombies", got, want)
		suspects = slices.DeleteFunc(suspects, func(s storage.Suspect) bool {
			return slices.Contains(got, s.FencingToken)
		})
	}
	b.recount()
}

// The results of one flush promote next tasks of at most 8 MiB in total, and no task gets more than
// an equal part. Larger tasks wait for a slot.
func TestNextTasksAreReadInBoundedBytes(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	s := open(t, b.dsn, storage.Config{Lanes: 1}).WaitForLocks()
	b.process("first")
	var claims []*storage.Claim
	for k := range 12 {
		id := fmt.Sprintf("p%02d", k)
		b.process(id)
		claims = append(claims, b.claim(id))
		b.call(id, func(c *storage.Call) { c.Args = make([]byte, (1+k%2)<<19) })
	}
	release := b.foreign("SELECT FROM processes WHERE process_id = 'first' FOR UPDATE")
	first := later(func() (storage.Prepared, error) { return s.PrepareCall(call("first")) })
	b.blocked(1) // so that the following items form one flush
	saves := make([]func() (storage.Saved, error), len(claims))
	for k, c := range claims {
		saves[k] = later(func() (storage.Saved, error) { return s.SaveResult(end(c, storage.Finished)) })
	}
	b.until("all results are in the lane", func() bool { return s.Pending() == int64(len(claims))+1 })
	release()
	must(t, 0, second(first()))
	next, deferred := 0, 0
	for _, save := range saves {
		saved, err := save()
		if must(t, saved, err).Next != nil {
			next++
			equal(t, "bytes of args", len(saved.Next.Args), 1<<19)
		} else if saved.Deferred {
			deferred++
		}
	}
	equal(t, "next tasks that run and wait", []int{next, deferred}, []int{6, 6})
	equal(t, "tasks that wait for a slot", ask[int](b, "SELECT count(*) FROM schedule WHERE waits_for = 'place'"), 6)
}

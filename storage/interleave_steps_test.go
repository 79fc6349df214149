package storage_test

import (
	"errors"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/progressor-engine/progressor/process"
	"github.com/progressor-engine/progressor/storage"
	"github.com/progressor-engine/progressor/storage/jobs"
)

// runOf returns the run to which the job belongs.
func runOf(id string) string { return "~flow/" + id }

// stepJob creates a run that waits for a job, which a worker holds, and returns the claim of the
// job.
func (b *bench) stepJob(id string) *storage.Claim {
	b.t.Helper()
	b.save(end(b.start(runOf(id), func(in *storage.Init) { in.Kind = "flow" }), storage.Finished,
		state("one job")))
	b.enqueue(id)
	b.exec(`INSERT INTO parents (namespace, process_id, parent_namespace, parent_process_id, args)
		VALUES ($1, $2, $1, $3, 'the step')`, ns, id, runOf(id))
	return b.leased(id)
}

// ofItsRun makes a completion notify the run of its job.
func ofItsRun(mayContinue bool) func(*storage.Completion) {
	return func(c *storage.Completion) { c.Run, c.MayContinue = key(runOf(c.Key.ProcessID)), mayContinue }
}

// aheadOfItsRun adds the next result of a job's run to the completion of the job.
func aheadOfItsRun(c *storage.Completion) {
	ofItsRun(true)(c)
	notify := &storage.Claim{
		Namespace: ns, ProcessID: c.Run.ProcessID, TaskID: c.TaskID, TaskType: process.TaskNotify, Attempt: 1,
		FencingToken: c.FencingToken,
	}
	c.Advance = &storage.Advance{Completion: end(notify, storage.Finished, state("no job")), State: []byte("one job")}
}

var stepTransactions = []transaction{
	ends("succeed", storage.Completed, answer("7"), of(&jobs.End{}), ofItsRun(true)),
	ends("succeed and advance the run", storage.Completed, answer("7"), of(&jobs.End{}), aheadOfItsRun),
	ends("succeed without a slot for the run", storage.Completed, answer("7"), of(&jobs.End{}), ofItsRun(false)),
	ends("fail", storage.Failed, broken("no"), of(&jobs.End{Failure: []byte(`{"reason": "no"}`)})),
	ends("try again later", storage.Retry, retryInAnHour,
		of(&jobs.End{Failure: []byte(`{"reason": "no"}`)}, jobs.EndIfCancelled{})),
	ends("lose the worker", storage.Retry, loseWorker),
	{"cancel the job", false, cancel.run},
	{"end an overdue cancel of the job", false, endOverdueCancel.run},
	commandOf("cancel the run", func(s *storage.Store, id string) (string, error) {
		state, err := s.CancelProcess(storage.Cancel{Key: key(runOf(id)), Grace: time.Hour})
		return fmt.Sprintf("%+v", state), err
	}),
	commandOf("suspend the run", func(s *storage.Store, id string) (string, error) {
		return "", s.SuspendProcess(key(runOf(id)), "why")
	}),
}

var stepSituations = []situation{
	{"the run waits", func(b *bench, id string) *storage.Claim { return b.stepJob(id) }},
	{"a task of the run runs", func(b *bench, id string) *storage.Claim {
		c := b.stepJob(id)
		b.claim(runOf(id))
		return c
	}},
	{"the run is to be cancelled", func(b *bench, id string) *storage.Claim {
		c := b.stepJob(id)
		b.cancelFor(runOf(id), time.Hour)
		return c
	}},
	{"the run is suspended", func(b *bench, id string) *storage.Claim {
		c := b.stepJob(id)
		b.suspend(runOf(id))
		return c
	}},
	{"the grace period of a cancel of the job is over", func(b *bench, id string) *storage.Claim {
		c := b.stepJob(id)
		b.cancelFor(id, 0)
		return c
	}},
}

// stepState returns the stored state of a job and its run. The run was notified, or a row in
// parents shows that it will be notified, but never both.
func (b *bench) stepState(id string) string {
	b.t.Helper()
	notified := ask[string](b, `SELECT coalesce(string_agg(x.how, ', '), 'never') FROM (
		SELECT 'by a task' AS how FROM running
		 WHERE namespace = 'shop' AND process_id = $2 AND child IS NOT NULL
		UNION ALL SELECT 'by a waiting task' FROM schedule
		 WHERE namespace = 'shop' AND process_id = $2 AND child IS NOT NULL
		UNION ALL SELECT 'by a message' FROM messages
		 WHERE namespace = 'shop' AND process_id = $2 AND kind = 'child_end'
		UNION ALL SELECT 'not yet' FROM parents
		 WHERE namespace = 'shop' AND process_id = $1) x`, id, runOf(id))
	return b.jobState(id) + " run " + b.state(runOf(id)) + " notified " + notified
}

// Two concurrent transactions of two nodes on the job of a step and its run have the same result as
// if they ran one after the other, and the run is notified once. Examples are the end of the job
// and a cancel of the run, or the end and the collection of the job. Commands to the run and
// commands to the job wait for different rows.
func TestEveryTwoTransactionsOfAStep(t *testing.T) {
	t.Parallel()
	matrix{
		situations: stepSituations, first: stepTransactions, second: stepTransactions, fastPath: true,
		extraState: (*bench).stepState,
	}.run(t)
}

// The end of a step shares a flush with the late result of an earlier attempt, whose worker was
// lost. The run gets the response.
func TestEndOfAStepSharesAFlushWithALateResult(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	b.process("other")
	s := open(t, b.dsn, storage.Config{Lanes: 1}).WithGeneralStatements().WaitForLocks()
	lost := func(c *storage.Claim) *storage.Completion { return end(c, storage.Retry, loseWorker) }
	for round := range 10 {
		id := fmt.Sprint("j", round)
		first := b.stepJob(id)
		b.save(lost(first))
		second := b.leased(id)
		release := b.foreign("SELECT FROM processes WHERE process_id = 'other' FOR UPDATE")
		var all sync.WaitGroup
		// The lane waits, and items that arrive in the meantime share the next flush.
		all.Go(func() { _, _ = s.PrepareCall(call("other", withoutSlot)) })
		b.waits(1)
		all.Go(func() {
			if _, err := s.SaveResult(lost(first)); !errors.Is(err, process.ErrFenced) {
				t.Errorf("the late result: %v", err)
			}
		})
		all.Go(func() {
			success := end(second, storage.Completed, answer("7"), of(&jobs.End{}), ofItsRun(true))
			if _, err := s.SaveResult(success); err != nil {
				t.Errorf("the end: %v", err)
			}
		})
		release()
		all.Wait()
		responses := ask[string](b, `SELECT string_agg(coalesce(x.response, 'none'), ', ') FROM (
			SELECT convert_from(decode(y.e->>'response', 'base64'), 'UTF8') AS response FROM (
				SELECT jsonb_array_elements(coalesce(child->'ends', jsonb_build_array(child))) AS e
				  FROM running WHERE process_id = $1 AND child IS NOT NULL
				UNION ALL
				SELECT child FROM messages WHERE process_id = $1 AND child IS NOT NULL) y) x`, runOf(id))
		equal(t, "the response of "+id, responses, "7")
	}
}

package storage

import (
	"context"
	"fmt"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"

	"github.com/progressor-engine/progressor/process"
	"github.com/progressor-engine/progressor/storage/internal/dbsqlc"
)

// insertion simulates the Insertion of a kind.
type insertion struct{ InsertItem }

func (*insertion) Again() bool { return false }

func (*insertion) Stages(s *Store, _ []Insertion) []func(context.Context, DB) error {
	return []stage{func(ctx context.Context, db DB) error {
		_, err := s.q.EnqueueJobs(ctx, db, dbsqlc.EnqueueJobsParams{})
		return err
	}}
}

// A flush starts by locking its processes. The statements that claim or release tasks take rows
// with SKIP LOCKED. Flushes are checked for every combination of operations, because all their
// statements are built in one place.
func TestFirstStatementLocks(t *testing.T) {
	s := &Store{q: dbsqlc.New()}
	key := process.Key{Namespace: "n", ProcessID: "p"}
	timers := []SetTimer{{Name: "n"}}
	kinds := []operation{
		&saveItem{item: newItem(key, 0, true), completion: &Completion{
			TaskAttempt: TaskAttempt{Key: key, TaskType: process.TaskRepair},
			Result:      Result{Outcome: Finished, NamedTimers: timers},
		}},
		&saveItem{
			item:       newItem(key, 0, true),
			completion: &Completion{TaskAttempt: TaskAttempt{Key: key}, Result: Result{Outcome: Retry}},
		},
		&saveItem{
			item:       newItem(key, 0, true),
			completion: &Completion{TaskAttempt: TaskAttempt{Key: key}, Result: Result{Outcome: Failed}},
		},
		&checkpointItem{
			item:       newItem(key, 0, true),
			completion: &Completion{TaskAttempt: TaskAttempt{Key: key}, Result: Result{Events: []NewEvent{{}}}},
		},
		&removeItem{item: newItem(key, 0, true)},
		&suspendItem{item: newItem(key, 0, true)},
		&suspendItem{item: newItem(key, 0, true), resumes: true},
		&cancelItem{item: newItem(key, 0, true)},
		&initItem{item: newItem(key, 0, false), init: &Init{Call: Call{Key: key}}},
		&insertion{InsertItem{newItem(key, 0, false)}},
		&callItem{item: newItem(key, 0, false), call: &Call{Key: key}},
		&repairItem{item: newItem(key, 0, false), call: &Call{Key: key}},
		&simpleRepairItem{item: newItem(key, 0, false), call: &Call{Key: key}},
		&deliverItem{item: newItem(key, 0, true)},
	}
	for mix := 1; mix < 1<<len(kinds); mix++ {
		var b batch
		for n, op := range kinds {
			if mix&(1<<n) != 0 {
				b.add(op)
			}
		}
		locks := s.tryLockStage(lockRequest{keys: []process.Key{key}})
		queued := recordStages(t, append([]stage{locks}, b.stages(s)...))
		for n, sql := range queued {
			// A delivery also locks the processes that its starts have created.
			made := n > 0 && strings.HasPrefix(queued[n-1], "-- name: DeliverStarts ")
			if locks := strings.HasPrefix(sql, "-- name: TryLockProcesses "); locks != (n == 0 || made) {
				t.Fatalf("mix %b: statement %d is %.60s", mix, n, sql)
			}
		}
		if len(queued) < 2 {
			t.Fatalf("mix %b has %d statements", mix, len(queued))
		}
	}
	scans := recordStages(t, []stage{
		func(ctx context.Context, db DB) error {
			_, err := s.q.SearchCalls(ctx, db, dbsqlc.SearchCallsParams{})
			return err
		},
		func(ctx context.Context, db DB) error {
			_, err := s.q.SearchTimers(ctx, db, dbsqlc.SearchTimersParams{})
			return err
		},
		func(ctx context.Context, db DB) error {
			_, err := s.q.Poll(ctx, db, dbsqlc.PollParams{})
			return err
		},
		func(ctx context.Context, db DB) error {
			_, err := s.q.ReleaseTimers(ctx, db, dbsqlc.ReleaseTimersParams{})
			return err
		},
	})
	for _, sql := range scans {
		if !strings.Contains(sql, "FOR NO KEY UPDATE OF s, p SKIP LOCKED") {
			t.Errorf("a scan waits for locks: %.60s", sql)
		}
	}
}

func recordStages(t *testing.T, stages []stage) []string {
	t.Helper()
	queued := &pgx.Batch{}
	for _, st := range stages {
		_ = st(t.Context(), queue{queued}) // errQueued
	}
	var list []string
	for _, q := range queued.QueuedQueries {
		list = append(list, q.SQL)
	}
	return list
}

// A flush with results and calls of both kinds uses the fast path for those that fit, unless they
// are few.
func TestFlushUsesBothPaths(t *testing.T) {
	s := &Store{q: dbsqlc.New()}
	for _, c := range []struct {
		fast, continued, ended, jobs, general int
		want                                  string
	}{
		{1, 0, 0, 0, 0, "SaveFinished CaptureCall"},
		{1, 1, 1, 1, 0, "SaveFinished SaveContinued SaveEnded SaveCompleted CaptureCall"},
		{0, 0, 1, 0, 0, "SaveEnded CaptureCall"},
		{minFastPath - 1, 0, 0, 0, 1, "SaveResult PrepareCall"},
		{minFastPath, 0, 0, 0, 1, "SaveFinished SaveResult CaptureCall PrepareCall"},
		{minFastPath - 1, 0, 0, 1, 1, "SaveFinished SaveCompleted SaveResult CaptureCall PrepareCall"},
		{0, 0, 0, 0, 9, "SaveResult PrepareCall"},
	} {
		var b batch
		add := func(outcome Outcome, general bool, timer *SetTimer, effects ...Effect) {
			key := process.Key{Namespace: "n", ProcessID: fmt.Sprint("p", len(b.saves))}
			save := &saveItem{
				item: newItem(key, 0, true),
				completion: &Completion{
					TaskAttempt: TaskAttempt{Key: key}, Result: Result{Outcome: outcome, Timer: timer},
					Continuation: Continuation{Promote: true}, EffectsOnEnd: effects,
				},
			}
			call := &callItem{item: newItem(key, 0, false), call: &Call{Key: key, Capture: !general}}
			save.general, call.general = general, general
			b.add(save)
			b.add(call)
		}
		for range c.general {
			add(Finished, true, nil)
		}
		for range c.fast {
			add(Finished, false, nil)
		}
		for range c.continued {
			add(Finished, false, &SetTimer{})
		}
		for range c.ended {
			add(Completed, false, nil)
		}
		for range c.jobs {
			add(Completed, false, nil, FreeKeys{})
		}
		var names []string
		for _, sql := range recordStages(t, b.stages(s)) {
			switch name := strings.Fields(sql)[2]; name {
			case "SaveFinished", "SaveContinued", "SaveEnded", "SaveCompleted", "SaveResult", "CaptureCall",
				"PrepareCall":
				names = append(names, name)
			}
		}
		if got := strings.Join(names, " "); got != c.want {
			t.Errorf("%d finished, %d continued, %d ended, %d jobs, %d general: %s, want %s", c.fast, c.continued,
				c.ended, c.jobs, c.general, got, c.want)
		}
	}
}

// Two calls to one process are stored in the order in which they arrive, by the general statement.
func TestCallsOfOneProcessStayTogether(t *testing.T) {
	var b batch
	for n := range minFastPath + 2 {
		key := process.Key{Namespace: "n", ProcessID: fmt.Sprint("p", min(n, minFastPath))} // the last two are equal
		b.add(&callItem{item: newItem(key, 0, false), call: &Call{Key: key, Capture: true}})
	}
	callStages(&Store{q: dbsqlc.New()}, b.calls)
	for n, it := range b.calls {
		if it.fast != (n < minFastPath) {
			t.Errorf("call %d of %s: fast is %t", n, it.key.ProcessID, it.fast)
		}
	}
}

package storage

import (
	"context"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/progressor-engine/progressor/process"
	"github.com/progressor-engine/progressor/storage/internal/dbsqlc"
)

// recover determines the outcome of a flush whose connection broke:
//
//  1. It terminates the old backend and waits until it is gone, so that it cannot commit any more.
//  2. Results whose token is still in the table running were not stored and are sent again. Those
//     that are stored under their token are completed. The others return ErrFenced, because
//     something else has ended their attempt.
//  3. Repeatable items, such as requests with an idempotency key, are sent again and find their
//     first try. The others return ErrUnavailable, even if they were committed. Step 5 runs their
//     captured tasks, and scans claim those that wait.
//  4. It commits a write and waits for it, so that the synchronous standby has everything that was
//     committed before.
//  5. Running rows of this node that the lost commit created are adopted.
//
// It returns the items to send again. While the database is unavailable, it fails requests at once
// and keeps results.
func (l *lane) recover(ops []operation, cause error) []operation {
	l.store.metrics.recoveries.Inc()
	l.store.log.Warn("database connection lost", "lane", l.number, "items", len(ops), "error", cause)
	sent := l.conn != nil && SQLState(cause) != stateReadOnly // a read-only server has committed nothing
	since := time.Now()
	l.disconnect()
	keys := keysOfItems(ops)
	wait := 10 * time.Millisecond
	for {
		again, err := l.tryRecover(ops, keys, sent)
		if err == nil {
			if l.failure.Swap(nil) != nil {
				l.store.resetPools() // their sessions may still be read-only
			}
			l.store.log.Info("database connection recovered", "lane", l.number, "again", len(again))
			return again
		}
		l.failure.Store(&laneFailure{since: since, err: err})
		ops = refuseRequests(ops, err)
		l.drainRequests(err)
		select {
		case <-l.store.stopped.Done():
			for _, op := range ops {
				finish(op, unavailable("recover", errStopped))
			}
			return nil
		case <-time.After(wait):
			wait = min(wait*2, time.Second)
		}
	}
}

// refuseRequests fails requests while the database is unavailable, and returns the results and
// checkpoints, which wait for it.
func refuseRequests(ops []operation, cause error) []operation {
	var saves []operation
	for _, op := range ops {
		if isResult(op) {
			if next := nextOf(op); next != nil {
				finish(next, unavailable("store process "+next.key.String(), cause))
			}
			saves = append(saves, op)
			continue
		}
		finish(op, unavailable("store process "+op.base().key.String(), cause))
	}
	return saves
}

// drainRequests fails the requests that have arrived in the meantime, so that their clients learn
// at once that the database is unavailable.
func (l *lane) drainRequests(cause error) {
	waiting := append(l.contention.drain(), l.held...)
	l.held = nil
	for range len(l.in) {
		waiting = append(waiting, <-l.in)
	}
	l.held = refuseRequests(waiting, cause)
}

// tryRecover does all steps of recover on a new connection, or none. If the flush was not sent, it
// only connects. keys are the processes of all items of the lost flush, including items that were
// completed in the meantime, because the tasks that they started are adopted.
func (l *lane) tryRecover(ops []operation, keys []process.Key, sent bool) ([]operation, error) {
	ctx, cancel := context.WithTimeout(l.store.stopped, flushTimeout)
	defer cancel()
	old := struct {
		pid   uint32
		began time.Time
	}{l.pid, l.began}
	if err := l.connect(); err != nil {
		return nil, err
	}
	if !sent {
		return ops, nil
	}
	if old.pid != 0 && old.pid != l.pid {
		if err := endBackend(ctx, l.conn, old.pid, old.began); err != nil {
			l.pid, l.began = old.pid, old.began
			l.disconnect()
			return nil, err
		}
	}
	again, answered, err := l.classify(ctx, ops)
	if err == nil {
		err = l.confirmCommits(ctx)
	}
	if err == nil {
		err = l.store.adoptKeys(ctx, l.conn, keys, tokensOf(again))
	}
	if err != nil {
		l.pid, l.began = old.pid, old.began
		l.disconnect()
		return nil, err
	}
	l.store.changeReaders.committed(keys)
	for op, outcome := range answered {
		finish(op, outcome)
	}
	return again, nil
}

// endBackend terminates a backend and waits until it is gone.
func endBackend(ctx context.Context, conn *pgx.Conn, pid uint32, began time.Time) error {
	for {
		var alive bool
		err := conn.QueryRow(ctx, `SELECT coalesce(bool_or(pg_terminate_backend(pid, 1000) IS NOT NULL), false)
			FROM pg_stat_activity WHERE pid = $1 AND backend_start = $2`, pid, began).Scan(&alive)
		if err != nil || !alive {
			return err
		}
	}
}

// classify determines which items are sent again and how the others are completed.
func (l *lane) classify(
	ctx context.Context, ops []operation,
) (again []operation, answered map[operation]error, err error) {
	answered = map[operation]error{}
	var completions []operation
	var arg dbsqlc.ReadAppliedParams
	for _, op := range ops {
		c := completionOf(op)
		switch {
		case c != nil:
			arg.Append(dbsqlc.ReadAppliedItem{
				Ord: int32(len(completions)), Key: c.Key, TaskID: c.TaskID,
				FencingToken: c.FencingToken, Outcome: c.storedOutcome(),
				Failure: string(c.Failure),
			})
			completions = append(completions, op)
		case op.base().repeatable:
			op.base().repeated = true
			again = append(again, op)
		default:
			answered[op] = unavailable("the connection broke during the commit", errUnknown)
		}
	}
	if len(completions) == 0 {
		return again, answered, nil
	}
	rows, err := l.store.q.ReadApplied(ctx, l.conn, arg)
	if err != nil {
		return nil, nil, err
	}
	for _, r := range rows {
		op := completions[r.Ord]
		switch {
		case r.Holds:
			again = append(again, op)
		case r.Applied:
			markApplied(op)
			l.store.notifyTargets(completionOf(op).targets(), nil)
			answered[op] = nil
		default:
			answered[op] = process.ErrFenced
		}
	}
	return again, answered, nil
}

// tokensOf returns the attempts whose results are sent again.
func tokensOf(ops []operation) map[AttemptRef]bool {
	tokens := map[AttemptRef]bool{}
	for _, op := range ops {
		if c := completionOf(op); c != nil {
			tokens[AttemptRef{c.Key, c.FencingToken}] = true
		}
	}
	return tokens
}

// isResult reports whether an item is a result or a checkpoint of an attempt.
func isResult(op operation) bool {
	_, checkpoint := op.(*checkpointItem)
	return checkpoint || completionOf(op) != nil
}

// completionOf returns the end of an attempt that an item stores, or nil.
func completionOf(op operation) *Completion {
	switch op := op.(type) {
	case *saveItem:
		return op.completion
	case *removeItem:
		return op.completion
	}
	return nil
}

// markApplied completes an item that was committed although the response was lost. The task that it
// promoted is adopted.
func markApplied(op operation) {
	switch op := op.(type) {
	case *saveItem:
		op.saved = Saved{ResponseLost: true, Deferred: true, TimerDelay: -1}
	case *removeItem:
		op.removed = true
	}
}

// adoptKeys passes the running rows of this node that belong to the given processes to OnAdopt,
// except those with known tokens. They may include attempts that already run here and were not part
// of the lost flush; the callback checks the tokens.
func (s *Store) adoptKeys(ctx context.Context, db DB, keys []process.Key, known map[AttemptRef]bool) error {
	run := s.adopt.Load()
	if run == nil {
		return nil
	}
	of := keysParamsOf(keys)
	rows, err := s.q.ListRunningOf(ctx, db, dbsqlc.ListRunningOfParams{
		Namespaces: of.namespaces, ProcessIds: of.processIDs, NodeID: s.nodeID.Load(),
	})
	if err != nil {
		return err
	}
	claims := make([]Claim, 0, len(rows))
	for _, r := range rows {
		if !known[AttemptRef{process.Key{Namespace: r.Namespace, ProcessID: r.ProcessID}, r.FencingToken}] {
			claims = append(claims, Claim(r))
		}
	}
	if len(claims) > 0 {
		(*run)(claims)
	}
	return nil
}

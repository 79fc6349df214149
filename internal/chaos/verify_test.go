//go:build linux

package chaos

import (
	"bytes"
	"context"
	"fmt"
	"math/rand/v2"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/progressor-engine/progressor/storage"
)

// settle waits until no work is left, including timers, and then checks the state at rest: no work
// is stuck, and every invariant holds.
func settle(t testing.TB, dsn string) {
	t.Helper()
	began := time.Now()
	defer func() { t.Logf("settled and examined in %s", time.Since(began).Round(time.Millisecond)) }()
	conn := observe(t, dsn)
	if !waitUntil(testTimeout, func() bool {
		return count(t, conn,
			`SELECT (SELECT count(*) FROM running) + (SELECT count(*) FROM schedule) + (SELECT count(*) FROM `+
				`messages)`) == 0
	}) {
		t.Errorf("not all tasks and messages end within %s: %s", testTimeout, leftOver(t, conn))
	}
	report, err := storage.CheckQuiescent(t.Context(), conn, 10*time.Second, 10*time.Second)
	if err != nil {
		t.Fatal(err)
	}
	for _, v := range report.Violations {
		t.Errorf("violation: %v", v)
	}
	doctor(t, dsn)
}

// leftOver lists the tasks in running and schedule. If an ended task has the same number as one of
// them, the list says how that task ended.
func leftOver(t testing.TB, conn *pgx.Conn) (list string) {
	t.Helper()
	err := conn.QueryRow(t.Context(),
		`SELECT coalesce(string_agg(format(E'\n%s of %s/%s, %s, %s: %s', x.task_id, x.namespace, x.process_id,
		  x.task_type, x.place,
			coalesce((SELECT format('ended %s as %s, attempt %s, at %s', t.task_type, t.status, t.attempt,
			  t.finished_time)
				FROM tasks t WHERE (t.namespace, t.process_id, t.task_id) = (x.namespace, x.process_id,
				  x.task_id)), 'not ended')), '' ORDER BY x.task_id), 'none')
		FROM (SELECT namespace, process_id, task_id, task_type,
		  format('runs, attempt %s, token %s, since %s', attempt, fencing_token, running_time) AS place FROM running
			UNION ALL SELECT namespace, process_id, task_id, task_type,
			  format('waits for %s, attempt %s', waits_for, attempt) FROM schedule) x`).Scan(&list)
	if err != nil {
		t.Error(err)
	}
	return list
}

// history is the data of one process in the database.
type history struct {
	answers map[string][][]byte // by operation; exactly one if there is no defect
	applied []appliedOperation
	last    link
}

// appliedOperation is an operation with its position in a chain.
type appliedOperation struct {
	op   string
	link link // after it
}

// readHistories reads the events of all processes and rebuilds their chains.
func readHistories(t testing.TB, conn *pgx.Conn) map[string]*history {
	t.Helper()
	histories := map[string]*history{}
	rows, err := conn.Query(t.Context(),
		`SELECT process_id, event_id, attempt, payload FROM events WHERE namespace = $1 ORDER BY process_id, event_id`,
		namespace)
	if err != nil {
		t.Fatal(err)
	}
	var id string
	var eventID int64
	var attempt int32
	var payload []byte
	_, err = pgx.ForEachRow(rows, []any{&id, &eventID, &attempt, &payload}, func() error {
		h := histories[id]
		if h == nil {
			h = &history{answers: map[string][][]byte{}}
			histories[id] = h
		}
		h.last = h.last.append(string(payload))
		if uint64(eventID) != h.last.n {
			return fmt.Errorf("event %d of %s is the %dth", eventID, id, h.last.n)
		}
		h.applied = append(h.applied, appliedOperation{string(payload), h.last})
		h.answers[string(payload)] = append(h.answers[string(payload)], h.last.answer(attempt))
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return histories
}

// verify compares the journal with the database: every acknowledged operation is in its process
// once, every other one at most once, and a rejected one not at all. Responses must match the
// chain, and calls of one process must be linearizable.
func verify(t testing.TB, dsn string, entries []*entry) map[string]*history {
	t.Helper()
	conn := observe(t, dsn)
	histories := readHistories(t, conn)
	counts := map[outcome]int{}
	for _, e := range entries {
		counts[e.outcome]++
		h := histories[e.process]
		if h == nil {
			t.Errorf("process %s has no events", e.process)
			continue
		}
		answers := h.answers[e.op]
		switch n := len(answers); {
		case n > 1:
			t.Errorf("%s was applied %d times in %s", e.op, n, e.process)
		case e.outcome == acked && n == 0:
			t.Errorf("%s was acknowledged but was not applied in %s", e.op, e.process)
		case e.outcome == refused && n > 0:
			t.Errorf("%s was rejected, but was applied in %s", e.op, e.process)
		case e.outcome == acked && !e.notify && !bytes.Equal(e.answer, answers[0]):
			t.Errorf("%s of %s returned %x, but the stored response is %x", e.op, e.process, e.answer, answers[0])
		}
	}
	for id, h := range histories {
		for op, answers := range h.answers {
			if len(answers) > 1 {
				t.Errorf("%s was applied %d times in %s", op, len(answers), id)
			}
		}
		var state []byte
		if err := conn.QueryRow(t.Context(), `SELECT aux_state FROM processes WHERE namespace = $1 AND process_id = $2`,
			namespace, id).Scan(&state); err != nil {
			t.Fatal(err)
		}
		if !bytes.Equal(state, h.last.bytes()) {
			t.Errorf("the state of %s is not the state after its last event", id)
		}
	}
	linearizable(t, histories, entries)
	t.Logf("journal: %d acknowledged, %d refused, %d unknown", counts[acked], counts[refused], counts[unknown])
	return histories
}

// maxReplayed limits the number of requests that a long run repeats.
const maxReplayed = 2000

// replay repeats requests that were answered, with the same keys. The responses must be the same.
func replay(t testing.TB, f *fleet, entries []*entry) {
	t.Helper()
	work := make(chan *entry)
	var group sync.WaitGroup
	for i := range 64 {
		group.Go(func() {
			for e := range work {
				again := &entry{process: e.process, op: e.op, notify: e.notify}
				ctx, cancel := context.WithTimeout(t.Context(), testTimeout)
				err := f.do(ctx, again, i, &responseCounts{})
				cancel()
				if err != nil || again.outcome != e.outcome || !bytes.Equal(again.answer, e.answer) {
					t.Errorf("%s of %s was answered with %d %x, but now with %d %x, %v", e.op, e.process,
						e.outcome, e.answer, again.outcome, again.answer, err)
				}
			}
		})
	}
	for _, i := range rand.Perm(len(entries))[:min(len(entries), maxReplayed)] {
		if entries[i].outcome != unknown && !entries[i].unkeyed {
			work <- entries[i]
		}
	}
	close(work)
	group.Wait()
}

// longest returns the longest time that a client waited for the end of an operation, over all its
// tries.
func longest(entries []*entry) time.Duration {
	worst := time.Duration(0)
	for _, e := range entries {
		worst = max(worst, e.ended.Sub(e.begun))
	}
	return worst
}

package engine_test

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/progressor-engine/progressor/engine"
	"github.com/progressor-engine/progressor/processor"
	progressorv1 "github.com/progressor-engine/progressor/proto/progressor/v1"
	"github.com/progressor-engine/progressor/storage/storagetest"
)

// drains sets the drain timeout.
func drains(d time.Duration) func(*engine.Config) {
	return func(c *engine.Config) { c.DrainTimeout = d }
}

// A task that does not end during the drain is released, even if its processor does not return, and
// the attempt is not counted. Another node runs the task. If the processor stops when its context
// is cancelled, the task does not begin on the other node before the first attempt has ended.
func TestDrainReleasesTasks(t *testing.T) {
	t.Parallel()
	for name, heeds := range map[string]bool{"heeds": true, "hangs": false} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			dsn := storagetest.DSN(t)
			g := newGate()
			defer g.release()
			j := newJournal()
			reg := newRegistry()
			hang := g.held(heeds)
			n := start(t, dsn, j.recording(byTask{callTask: hang, initTask: hang, notifyTask: hang}),
				drains(50*time.Millisecond), reg.use)
			n.put(t, &progressorv1.Namespace{
				Namespace: "ns", ZombiePolicy: progressorv1.ZombiePolicy_ZOMBIE_POLICY_ERROR,
			})
			const processes = 20
			for k := range processes {
				_, err := n.Start(t.Context(), engine.StartParams{
					Key: key(fmt.Sprint("p", k)), Args: []byte("a"), Accepted: true,
				})
				if err != nil {
					t.Fatal(err)
				}
				receive(t, "the task runs", g.entered)
			}
			n.stop()
			rows := openDB(t, dsn)
			if got := rows.count(t, `SELECT count(*) FROM schedule WHERE waits_for = 'place' AND attempt = 0
				AND failure IS NULL`); got != processes {
				t.Errorf("%d of %d tasks were released", got, processes)
			}
			second := start(t, dsn, j.recording(processor.Echo()))
			second.put(t, &progressorv1.Namespace{
				Namespace: "ns", ZombiePolicy: progressorv1.ZombiePolicy_ZOMBIE_POLICY_ERROR,
			})
			eventually(t, "all have started", func() bool {
				return rows.count(t, "SELECT count(*) FROM processes WHERE status = 'RUNNING'") == processes
			})
			if got := rows.count(t, "SELECT count(*) FROM tasks WHERE attempt <> 1"); got != 0 {
				t.Errorf("%d tasks have an attempt after the first", got)
			}
			if heeds && j.overlap {
				t.Error("a task began on the second node before its first attempt had ended")
			}
		})
	}
}

// Clients call processes and repeat failed calls while nodes stop and start. Each call is stored
// once, with the attempt number 1.
func TestRollingRestarts(t *testing.T) {
	t.Parallel()
	dsn := storagetest.DSN(t)
	j := newJournal()
	p := j.recording(byTask{callTask: func(
		ctx context.Context, r *progressorv1.ProcessRequest,
	) (*progressorv1.ProcessResponse, error) {
		select {
		case <-time.After(time.Duration(r.GetTaskId()%7) * time.Millisecond):
		case <-ctx.Done():
			return nil, errors.New("interrupted") // without the reason
		}
		return processor.Echo().Process(ctx, r)
	}})
	var mu sync.Mutex
	nodes := []*node{start(t, dsn, p, drains(20*time.Millisecond)), start(t, dsn, p, drains(20*time.Millisecond))}
	pick := func(k int) *node {
		mu.Lock()
		defer mu.Unlock()
		return nodes[k%2]
	}
	nodes[0].put(t, &progressorv1.Namespace{
		Namespace: "ns", ZombiePolicy: progressorv1.ZombiePolicy_ZOMBIE_POLICY_ERROR,
	})
	const processes, calls = 6, 60
	var group sync.WaitGroup
	for k := range processes {
		id := fmt.Sprint("p", k)
		nodes[0].started(t, id)
		group.Go(func() {
			for c := range calls {
				op := engine.CallParams{
					Key: key(id), Args: fmt.Append(nil, c), IdempotencyKey: fmt.Sprint("k", c),
					Timeout: 5 * time.Second,
				}
				for try := range 200 {
					_, err := pick(k+try).Call(context.Background(), op)
					if err == nil {
						break
					}
					var te *engine.TaskError
					if errors.As(err, &te) && !te.WaitTimeout && !te.Draining || try == 199 {
						t.Errorf("%s, call %d: %v", id, c, err)
						return
					}
					pass(5 * time.Millisecond)
				}
			}
		})
	}
	done := make(chan struct{})
	go func() { group.Wait(); close(done) }()
	restarts := 0
	for running := true; running; {
		select {
		case <-done:
			running = false
		case <-time.After(100 * time.Millisecond):
			fresh := start(t, dsn, p, drains(20*time.Millisecond))
			mu.Lock()
			old := nodes[restarts%2]
			nodes[restarts%2] = fresh
			mu.Unlock()
			old.stop()
			restarts++
		}
	}
	rows := openDB(t, dsn)
	if got := rows.count(t, `SELECT count(*) FROM tasks WHERE task_type = 'CALL' AND status = 'FINISHED'
		AND attempt = 1`); got != processes*calls {
		t.Errorf("%d of %d calls were finished by their first attempt", got, processes*calls)
	}
	if got := rows.count(t, "SELECT count(*) FROM events WHERE task_id > 0"); got != processes*(calls+1) {
		t.Errorf("%d events", got)
	}
	if restarts == 0 {
		t.Error("nothing was restarted")
	}
	t.Logf("%d restarts", restarts)
}

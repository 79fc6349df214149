package bench

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/progressor-engine/progressor/process"
)

const (
	lockedClients = 8
	// tenantPause is the time before a client of the tenant repeats a call that was rejected.
	tenantPause = 500 * time.Millisecond
)

// openGate lets the task of the process fail.
func (n *neighborhood) openGate(context.Context) error {
	n.gate.open()
	return nil
}

// suspendQueue suspends the process and lets its task end.
func (n *neighborhood) suspendQueue(ctx context.Context) error {
	_, err := n.site.engine.SuspendProcess(ctx, tenantKey(queueID), "bench", process.Actor{})
	n.gate.open()
	return err
}

func (n *neighborhood) resumeQueue(ctx context.Context) error {
	_, err := n.site.engine.ResumeProcess(ctx, tenantKey(queueID), process.Actor{})
	return err
}

func (n *neighborhood) removeQueue(ctx context.Context) error {
	return n.site.engine.RemoveProcess(ctx, tenantKey(queueID), process.Actor{})
}

// message sends SQL messages to the process.
func (n *neighborhood) message(ctx context.Context) error {
	return n.fillMessages(ctx, n.command.NeighborBacklog, false)
}

// whileLocked runs use while another database client holds a lock on the row of the process, until
// ctx ends.
func (n *neighborhood) whileLocked(ctx context.Context, use func(ctx context.Context) error) error {
	whole := context.WithoutCancel(ctx)
	conn, err := n.database.connect(whole, engineSchema)
	if err != nil {
		return err
	}
	defer func() { _ = conn.Close(whole) }()
	tx, err := conn.Begin(whole)
	if err != nil {
		return err
	}
	if _, err := tx.Exec(whole, lockQueue, tenantName, queueID); err != nil {
		return fmt.Errorf("lock the process: %w", err)
	}
	err = use(ctx)
	<-ctx.Done()
	return errors.Join(err, tx.Rollback(whole))
}

func (n *neighborhood) messageLocked(ctx context.Context) error { return n.whileLocked(ctx, n.message) }

// callLocked calls the process from several clients while it is locked.
func (n *neighborhood) callLocked(ctx context.Context) error {
	return n.whileLocked(ctx, func(ctx context.Context) error {
		n.repeatCalls(ctx, lockedClients, func(ctx context.Context, _ int) error {
			return n.callTenant(ctx, queueID, n.args)
		})
		return nil
	})
}

// floodTenant offers calls of the tenant at the peak rate.
func (n *neighborhood) floodTenant(ctx context.Context) error {
	_, err := flood{rate: n.peak, duration: n.command.Duration, do: func(ctx context.Context, c *client) error {
		if n.callTenant(ctx, processID(c.random.Uint64N(tenantProcesses)), n.args) != nil {
			return process.ErrOverloaded // the responses to the tenant do not matter
		}
		return nil
	}}.run(ctx)
	return err
}

// fillClients starts clients that wait for calls that the gate holds, until no more clients are
// admitted.
func (n *neighborhood) fillClients(ctx context.Context) error {
	if err := n.startTenants(ctx); err != nil {
		return err
	}
	var waiting context.Context
	waiting, n.stopClients = context.WithCancel(ctx)
	go n.repeatCalls(waiting, n.command.NeighborClients, func(ctx context.Context, i int) error {
		return n.callTenant(ctx, processID(uint64(i)%tenantProcesses), []byte(argsHold))
	})
	for last := -1; ; {
		var have int
		if err := n.conn.QueryRow(ctx, countWaiting, tenantName).Scan(&have); err != nil {
			return fmt.Errorf("count the waiting calls: %w", err)
		}
		if have == last {
			return nil
		}
		last = have
		if err := wait(ctx, tenantPause); err != nil {
			return err
		}
	}
}

// keepClients leaves the clients waiting.
func (n *neighborhood) keepClients(context.Context) error { return nil }

// repeatCalls runs clients that repeat a call until ctx ends, and ignore the responses.
func (n *neighborhood) repeatCalls(ctx context.Context, clients int, call func(ctx context.Context, i int) error) {
	var running sync.WaitGroup
	for i := range clients {
		running.Go(func() {
			for ctx.Err() == nil {
				if call(ctx, i) != nil {
					_ = wait(ctx, tenantPause) // the loop checks ctx
				}
			}
		})
	}
	running.Wait()
}

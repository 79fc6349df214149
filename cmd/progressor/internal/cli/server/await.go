package server

import (
	"context"
	"fmt"
	"log/slog"
	"time"

	"github.com/progressor-engine/progressor/engine/rpc"
	"github.com/progressor-engine/progressor/storage"
)

// The limits of the pause between two attempts to reach the database at startup.
const (
	firstPause = 250 * time.Millisecond
	maxPause   = 5 * time.Second
)

// awaitDatabase waits until the database can be reached, at most db.wait. If waiting cannot help,
// for example because the password is wrong, it returns an error at once.
func (n *node) awaitDatabase(ctx context.Context, log *slog.Logger, front *rpc.Front) error {
	until := time.Now().Add(n.db.Wait)
	for pause := firstPause; ; pause = min(2*pause, maxPause) {
		dsn, err := n.db.current(ctx)
		if err != nil {
			return err
		}
		err = storage.Reach(ctx, dsn)
		left := time.Until(until)
		switch {
		case err == nil:
			return nil
		case ctx.Err() != nil:
			return ctx.Err()
		case n.db.Wait == 0 || !storage.MayBecomeReachable(err):
			return err
		case left <= 0:
			return fmt.Errorf("--db.wait: the database could not be reached within %s: %w", n.db.Wait, err)
		}
		const phase = "waiting for the database"
		log.Warn(phase, "host", storage.HostsOf(n.db.DSN), "error", err, "left", left.Round(time.Millisecond))
		n.setPhase(front, log, phase)
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-time.After(min(pause, left)):
		}
	}
}

// setPhase reports why the program is not ready.
func (n *node) setPhase(front *rpc.Front, log *slog.Logger, phase string) {
	front.SetPhase(phase)
	n.ops.setPhase(phase)
	n.notify(log, "STATUS="+phase)
}

// migrate updates the schema of the database if db.migrate is set.
func (n *node) migrate(ctx context.Context, log *slog.Logger, front *rpc.Front) error {
	if !n.db.Migrate {
		return nil
	}
	const phase = "migrating the schema"
	n.setPhase(front, log, phase)
	dsn, err := n.db.current(ctx)
	if err != nil {
		return err
	}
	waiting := func(holder string) { log.Warn("the migration waits for a table", "holder", holder) }
	return storage.Migration{DSN: dsn, Waiting: waiting}.Up(ctx)
}

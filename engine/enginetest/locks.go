package enginetest

import (
	"context"
	"sync"
	"testing"
	"time"

	"github.com/progressor-engine/progressor/storage/storagetest"
)

// KeepLocked keeps a process locked by two sessions, which take turns without a pause, until unlock
// is called.
func KeepLocked(t testing.TB, dsn, processID string) (unlock func()) {
	t.Helper()
	pool := storagetest.Connect(t, dsn)
	ctx, cancel := context.WithCancel(t.Context())
	var group sync.WaitGroup
	for range 2 {
		group.Go(func() {
			for ctx.Err() == nil {
				_, err := pool.Exec(t.Context(), `
					WITH locked AS MATERIALIZED (SELECT 1 FROM processes WHERE process_id = $1 FOR UPDATE)
					SELECT pg_sleep(0.05) FROM locked`, processID)
				if err != nil && ctx.Err() == nil {
					t.Error(err)
				}
			}
		})
	}
	unlock = sync.OnceFunc(func() {
		cancel()
		group.Wait()
	})
	t.Cleanup(unlock)
	Eventually(t, time.Minute, "a session waits for the lock of the other", func() bool {
		return Count(t, pool, `SELECT count(*) FROM pg_stat_activity
			WHERE datname = current_database() AND wait_event_type = 'Lock'`) > 0
	})
	return unlock
}

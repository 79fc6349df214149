package storage_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/progressor-engine/progressor/storage"
	"github.com/progressor-engine/progressor/storage/jobs"
	"github.com/progressor-engine/progressor/storage/pull"
)

// All statements that return claims or zombies return the same columns of their jobs.
func TestClaimsReturnTheJob(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	b.namespace(ns)
	b.enqueue("now")
	b.enqueue("due", inAnHour)
	b.exec(`UPDATE jobs SET takeovers = 2, tags = '["a", "b"]', options = '{"maxRetry": 3}',
		failures = '[{"attempt": 1}]', constraints_version = 5, constraint_keys = '{}'`)
	b.exec(`INSERT INTO constraint_sets (namespace, version, changed_time, began_time)
		VALUES ($1, 7, now(), now())`, ns)
	b.delay()
	text := func(j jobs.Job) string {
		return fmt.Sprintf("%s %s %s %d %s %s %d %s", j.Name, j.Options, j.Timeout, j.Takeovers, j.Tags, j.Failures,
			j.ConstraintsVersion, j.ConstraintKeys)
	}
	check := func(name, id string, c *storage.Claim, version int64) {
		t.Helper()
		j, ok := jobs.JobOf(c)
		equal(t, name+": it is a job", ok, true)
		equal(t, name, text(j), id+` {"maxRetry": 3} 1h0m0s 2 ["a", "b"] [{"attempt": 1}] 5 {}`)
		equal(t, name+": version of the constraints", j.ConstraintsNow, version)
	}

	limits := []storage.ClaimLimit{{Namespace: ns, Max: 10, StepTimeout: timeout}}
	calls, err := b.SearchCalls(t.Context(), limits)
	check("SearchCalls", "now", &must(t, calls, err)[0], 7)
	running, err := b.ListRunning(t.Context(), nil, 0)
	check("ListRunning", "now", &must(t, running, err)[0], 0)
	b.release(&calls[0])
	timers, _, err := b.SearchTimers(t.Context(), limits)
	check("SearchTimers", "due", &must(t, timers, err)[0], 7)
	b.release(&timers[0])
	for _, grouped := range []bool{false, true} {
		l, err := leaseOf(b.Store, "w", "now", grouped)
		check(fmt.Sprint("Poll, grouped ", grouped), "now", &must(t, l, err).Claim, 7)
		token := pull.LeaseToken{Key: key("now"), FencingToken: l.Claim.FencingToken, Salt: l.Salt}
		held, err := pull.ReadLease(t.Context(), b.Store, token)
		must(t, held, err)
		check("ReadLease", "now", &held.Claim, 0)
		b.exec("UPDATE leases SET expires_time = statement_timestamp() - interval '1 hour'")
		suspects, err := b.ListSuspects(t.Context(), time.Second, 10)
		zombies, err2 := b.ReadZombies(t.Context(), must(t, suspects, err), time.Second)
		check("ReadZombies", "now", storage.ZombieClaim(&must(t, zombies, err2)[0]), 0)
		b.release(&l.Claim)
	}
	claim := b.start("no-job")
	_, ok := jobs.JobOf(claim)
	equal(t, "a claim of another process is a claim of a job", ok, false)
	b.call("no-job")
	b.save(end(claim, storage.Finished, func(c *storage.Completion) { c.Promote = false }))
	calls, err = b.SearchCalls(t.Context(), limits)
	for n := range must(t, calls, err) {
		if calls[n].ProcessID != "no-job" {
			b.release(&calls[n])
			continue
		}
		_, ok := jobs.JobOf(&calls[n])
		equal(t, "its claim by SearchCalls is a claim of a job", ok, false)
		b.save(end(&calls[n], storage.Finished))
	}
}

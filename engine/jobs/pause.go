package jobs

import (
	"context"
	"math/rand/v2"

	"github.com/progressor-engine/progressor/engine"
	"github.com/progressor-engine/progressor/process"
	"github.com/progressor-engine/progressor/storage"
	"github.com/progressor-engine/progressor/storage/jobs"
)

// pause decides how a pushed job waits for its processor after the processor was not reached. The
// retry policy of the namespace determines the waits, until the timeout of the job is over. Like a
// job that waits for a worker, the job has no slot and uses up no attempt.
func (q *Jobs) pause(
	ctx context.Context, c *storage.Claim, retry process.RetryPolicy, cause string,
) (engine.Pause, bool, error) {
	row, ok := jobs.JobOf(c)
	if !ok {
		return engine.Pause{}, false, nil
	}
	before, now, err := jobs.ReadUnreached(ctx, q.store, process.Key{Namespace: c.Namespace, ProcessID: c.ProcessID})
	if err != nil {
		return engine.Pause{}, false, err
	}
	u := jobs.Unreached{Attempt: c.Attempt, Tries: 1, Since: c.RunningTime, Cause: short(cause)}
	if before.Attempt == c.Attempt {
		u.Tries, u.Since = before.Tries+1, before.Since
	}
	left := row.Timeout - now.Sub(u.Since)
	if left <= 0 {
		return engine.Pause{}, false, nil
	}
	wait := min(retry.Interval(u.Tries, rand.Float64()), left)
	return engine.Pause{For: wait, Effect: u}, true, nil
}

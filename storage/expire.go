package storage

import (
	"context"
	"time"

	"github.com/progressor-engine/progressor/process"
	"github.com/progressor-engine/progressor/storage/internal/dbsqlc"
)

// expireBatch is the maximum number of ended processes per namespace and status that one
// transaction removes. It is also the maximum number of jobs that the transaction removes for each
// run. The transaction locks the rows for a few milliseconds.
const expireBatch = 100

// Retention is how long a namespace keeps ended processes, by outcome; 0 means forever.
type Retention struct {
	Completed time.Duration // for COMPLETED processes; failed runs among them may be kept longer
	Failed    time.Duration // for FAILED jobs, and for failed runs if it is longer than Completed
	Cancelled time.Duration
}

// Longest returns the longest retention; 0 means forever.
func (r Retention) Longest() time.Duration {
	if min(r.Completed, r.Failed, r.Cancelled) == 0 {
		return 0
	}
	return max(r.Completed, r.Failed, r.Cancelled)
}

// Expire removes processes whose retention is over, one batch per namespace and status. It returns
// the number of removed processes per namespace. PurgeRemoved removes their histories later.
func (s *Store) Expire(ctx context.Context, retention map[string]Retention) (map[string]int, error) {
	arg := dbsqlc.ExpireProcessesParams{Lim: expireBatch}
	for namespace, keep := range retention {
		for _, of := range []struct {
			status string
			keep   time.Duration
		}{{"COMPLETED", keep.Completed}, {"ERROR", keep.Failed}, {"CANCELLED", keep.Cancelled}} {
			if of.keep == 0 {
				continue
			}
			failed := keep.Failed
			if failed == 0 {
				failed = process.MaxDuration
			}
			arg.Append(dbsqlc.ExpireProcessesItem{
				Namespace: namespace, Status: of.status, RetentionUs: of.keep.Microseconds(),
				FailedUs: failed.Microseconds(),
			})
		}
	}
	if len(arg.Namespaces) == 0 {
		return nil, nil
	}
	rows, err := s.q.ExpireProcesses(ctx, s.general, arg)
	if err != nil {
		return nil, mapped("expire processes", err)
	}
	expired := map[string]int{}
	for _, r := range rows {
		expired[r.Namespace]++
	}
	return expired, nil
}

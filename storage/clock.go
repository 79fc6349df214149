package storage

import (
	"context"

	"github.com/progressor-engine/progressor/storage/internal/dbsqlc"
)

// RepairTimes corrects times that are in the future because the database clock was set back. Grace
// periods of cancels, timeouts of attempts, leases and rate limits start again from now. If all is
// set, it also corrects the backoffs of retries, which reads all of schedule. It returns the number
// of changed rows.
func (s *Store) RepairTimes(ctx context.Context, all bool) (repaired int64, err error) {
	repairs := []func(context.Context, dbsqlc.DBTX, int32) (int64, error){
		s.q.RestartGraces, s.q.RestartAttempts, s.q.RestartLeases, s.q.RestartBuckets,
	}
	if all {
		repairs = append(repairs, s.q.RestartBackoffs)
	}
	for _, repair := range repairs {
		for more := true; more; {
			n, err := repair(ctx, s.general, forgetBatch)
			if err != nil {
				return repaired, mapped("repair times", err)
			}
			repaired += n
			more = n == forgetBatch
		}
	}
	return repaired, nil
}

package crons

import (
	"context"

	"github.com/progressor-engine/progressor/storage"
	"github.com/progressor-engine/progressor/storage/internal/dbsqlc"
)

// ClaimTimers claims due timers of crons, longest due first, up to the limit of each namespace.
func ClaimTimers(
	ctx context.Context, s *storage.Store, limits []storage.ClaimLimit,
) (claims []storage.Claim, err error) {
	p := dbsqlc.SearchCronTimersParams{NodeID: s.NodeID()}
	for _, r := range limits {
		p.Append(dbsqlc.SearchCronTimersItem{
			Namespace: r.Namespace, Lim: int32(r.Max), StepTimeoutUs: r.StepTimeout.Microseconds(),
		})
	}
	err = s.Scan(ctx, "search cron timers", func(ctx context.Context, db storage.DB) error {
		rows, err := dbsqlc.New().SearchCronTimers(ctx, db, p)
		for n := range rows {
			claims = append(claims, storage.Claim(rows[n]))
		}
		return err
	})
	return claims, err
}

// ClaimCalls claims the other tasks of crons, such as the ends of their runs. It sets Own and
// Urgent in limits.
func ClaimCalls(ctx context.Context, s *storage.Store, limits []storage.ClaimLimit) ([]storage.Claim, error) {
	for n := range limits {
		limits[n].Own, limits[n].Urgent = true, true
	}
	return s.SearchCalls(ctx, limits)
}

package storage

import (
	"context"
	"time"

	"github.com/progressor-engine/progressor/storage/internal/dbsqlc"
)

// Growth holds metrics that show whether database maintenance falls behind.
type Growth struct {
	XIDAge       int64         // age of the oldest transaction ID that is not frozen
	FreezeMaxAge int64         // age at which autovacuum is forced to freeze a table
	KeyOverdue   time.Duration // how long the oldest idempotency key has been kept beyond its retention
	MessageAge   time.Duration // how long the oldest undelivered message has waited
	Messages     int64         // undelivered messages, counted to the limit
	Backlogs     int64         // processes whose large queue is being moved, counted to the limit
}

// ReadGrowth reads Growth. It counts to limit.
func (s *Store) ReadGrowth(ctx context.Context, retention time.Duration, limit int) (Growth, error) {
	r, err := s.q.ReadGrowth(ctx, s.general, dbsqlc.ReadGrowthParams{
		RetentionUs: retention.Microseconds(), Lim: int32(limit),
	})
	if err != nil {
		return Growth{}, mapped("read growth", err)
	}
	g := Growth{
		KeyOverdue: microseconds(r.KeyOverdueUs), MessageAge: microseconds(r.MessageAgeUs),
		Messages: r.Messages, Backlogs: r.Backlogs,
	}
	// sqlc does not know the system catalogs.
	err = s.general.QueryRow(ctx, `
		SELECT age(datfrozenxid), current_setting('autovacuum_freeze_max_age')::bigint
		FROM pg_database WHERE datname = current_database()`).Scan(&g.XIDAge, &g.FreezeMaxAge)
	return g, mapped("read the age of the database", err)
}

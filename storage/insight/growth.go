package insight

import (
	"context"
	"time"

	"github.com/progressor-engine/progressor/storage"
	"github.com/progressor-engine/progressor/storage/internal/dbsqlc"
)

// Growth holds metrics that show whether database maintenance falls behind.
type Growth struct {
	XIDAge       int64         // age of the oldest transaction ID that is not frozen
	FreezeMaxAge int64         // age at which autovacuum is forced to freeze a table
	KeyOverdue   time.Duration // how long the oldest idempotency key has been kept beyond its retention
	MessageAge   time.Duration // how long the oldest undelivered message that is not held has waited
	Messages     int64         // undelivered messages that are not held, counted up to the limit
	Backlogs     int64         // processes whose large queue is being moved, counted up to the limit
	Pending      int64         // results from SQL that no node has handled, counted up to the limit
}

// ReadGrowth reads the metrics of Growth. Each count stops at limit.
func ReadGrowth(ctx context.Context, s *storage.Store, retention time.Duration, limit int) (Growth, error) {
	r, err := storage.Query(ctx, s.ReadOne, "read growth", dbsqlc.New().ReadGrowth, dbsqlc.ReadGrowthParams{
		RetentionUs: retention.Microseconds(), Lim: int32(limit),
	})
	if err != nil {
		return Growth{}, err
	}
	g := Growth{
		KeyOverdue: time.Duration(r.KeyOverdueUs) * time.Microsecond,
		MessageAge: time.Duration(r.MessageAgeUs) * time.Microsecond,
		Messages:   r.Messages, Backlogs: r.Backlogs, Pending: r.PendingResults,
	}
	// sqlc does not know the system catalogs.
	err = s.ReadOne(ctx, "read the age of the database", func(ctx context.Context, db storage.DB) error {
		return db.QueryRow(ctx, `
		SELECT age(datfrozenxid), current_setting('autovacuum_freeze_max_age')::bigint
		FROM pg_database WHERE datname = current_database()`).Scan(&g.XIDAge, &g.FreezeMaxAge)
	})
	return g, err
}

package insight

import (
	"context"
	"time"

	"github.com/progressor-engine/progressor/storage"
	"github.com/progressor-engine/progressor/storage/internal/dbsqlc"
)

// Waiting has the number of waiting tasks by the event that they wait for.
type Waiting = dbsqlc.WaitingByWhatRow

// CountWaiting counts the waiting tasks of namespaces. In each namespace, it counts tasks that wait
// for a time and tasks that wait for a slot up to limit each. It counts the other tasks among the
// first limit rows of the namespace.
func CountWaiting(ctx context.Context, s *storage.Store, namespaces []string, limit int) (Waiting, error) {
	return storage.Query(ctx, s.ReadOne, "count waiting tasks", dbsqlc.New().WaitingByWhat, dbsqlc.WaitingByWhatParams{
		Namespaces: namespaces, Lim: int32(limit),
	})
}

// CountWorkers returns how many workers of each namespace were seen within the given time.
func CountWorkers(
	ctx context.Context, s *storage.Store, namespaces []string, seen time.Duration,
) (map[string]int64, error) {
	rows, err := storage.Query(ctx, s.ReadOne, "count workers", dbsqlc.New().CountWorkers, dbsqlc.CountWorkersParams{
		Namespaces: namespaces, SeenUs: seen.Microseconds(),
	})
	if err != nil {
		return nil, err
	}
	counts := make(map[string]int64, len(rows))
	for _, r := range rows {
		counts[r.Namespace] = r.N
	}
	return counts, nil
}

// CountRuns returns for each namespace the number of runs by status: those that have not ended and
// those that ended without success. It counts each of these two groups up to limit.
func CountRuns(
	ctx context.Context, s *storage.Store, namespaces []string, limit int,
) (map[string]map[string]int64, error) {
	rows, err := storage.Query(ctx, s.ReadOne, "count runs", dbsqlc.New().CountRuns, dbsqlc.CountRunsParams{
		Namespaces: namespaces, Lim: int32(limit),
	})
	if err != nil {
		return nil, err
	}
	counts := map[string]map[string]int64{}
	for _, r := range rows {
		if counts[r.Namespace] == nil {
			counts[r.Namespace] = map[string]int64{}
		}
		counts[r.Namespace][r.Status] += r.N
	}
	return counts, nil
}

// CountOpenWaits returns the number of open waits of each namespace, counted up to limit.
func CountOpenWaits(
	ctx context.Context, s *storage.Store, namespaces []string, limit int,
) (map[string]int64, error) {
	rows, err := storage.Query(ctx, s.ReadOne, "count open waits", dbsqlc.New().CountOpenWaits,
		dbsqlc.CountOpenWaitsParams{Namespaces: namespaces, Lim: int32(limit)})
	if err != nil {
		return nil, err
	}
	counts := make(map[string]int64, len(rows))
	for _, r := range rows {
		counts[r.Namespace] = r.N
	}
	return counts, nil
}

// Depth is the number of tasks in a namespace that could run but still wait.
type Depth struct {
	Namespace string
	Waiting   int64 // counted up to the limit
	Oldest    time.Duration
}

// QueueDepths returns how many tasks of each namespace could run now, counted up to limit, and how
// long the oldest has waited.
func QueueDepths(ctx context.Context, s *storage.Store, namespaces []string, limit int) ([]Depth, error) {
	rows, err := storage.Query(ctx, s.ReadOne, "queue depths", dbsqlc.New().QueueDepths, dbsqlc.QueueDepthsParams{
		Namespaces: namespaces, Lim: int32(limit),
	})
	depths := make([]Depth, len(rows))
	for n, r := range rows {
		depths[n] = Depth{
			Namespace: r.Namespace, Waiting: r.Waiting, Oldest: time.Duration(r.OldestUs) * time.Microsecond,
		}
	}
	return depths, err
}

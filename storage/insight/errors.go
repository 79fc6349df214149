package insight

import (
	"context"
	"time"

	"github.com/progressor-engine/progressor/storage"
	"github.com/progressor-engine/progressor/storage/internal/dbsqlc"
)

// Broken is a process in ERROR, with the reason, the beginning of the message, and the fingerprint
// of its error.
type Broken = dbsqlc.ListBrokenRow

// ListBroken lists the processes in ERROR of namespaces, newest first. Messages are cut to
// maxDetail characters.
func ListBroken(ctx context.Context, s *storage.Store, namespaces []string, maxDetail, limit int) ([]Broken, error) {
	return storage.Query(ctx, s.ReadOne, "list processes in ERROR", dbsqlc.New().ListBroken, dbsqlc.ListBrokenParams{
		Namespaces: namespaces, MaxDetail: int32(maxDetail), Lim: int32(limit),
	})
}

// NewestErrors returns how long ago a process of each namespace last went to ERROR and stayed
// there. Namespaces without such processes are missing.
func NewestErrors(ctx context.Context, s *storage.Store, namespaces []string) (map[string]time.Duration, error) {
	rows, err := storage.Query(ctx, s.ReadOne, "read the newest errors", dbsqlc.New().NewestErrors, namespaces)
	ages := make(map[string]time.Duration, len(rows))
	for _, r := range rows {
		ages[r.Namespace] = time.Duration(r.AgeUs) * time.Microsecond
	}
	return ages, err
}

// FailedRun is a run that is FAILED or EXPIRED, with the beginning of its message.
type FailedRun = dbsqlc.ListFailedRunsRow

// ListFailedRuns lists the FAILED and EXPIRED runs of namespaces, newest first. It omits runs that
// are steps of other runs, and reads only the newest limit runs of each namespace that ended
// without success. Messages are cut to maxDetail characters.
func ListFailedRuns(
	ctx context.Context, s *storage.Store, namespaces []string, maxDetail, limit int,
) ([]FailedRun, error) {
	return storage.Query(ctx, s.ReadOne, "list failed runs", dbsqlc.New().ListFailedRuns, dbsqlc.ListFailedRunsParams{
		Namespaces: namespaces, MaxDetail: int32(maxDetail), Lim: int32(limit),
	})
}

// FailingCron is a cron whose last run has failed, with its error.
type FailingCron = dbsqlc.ListFailingCronsRow

// maxCrons is the maximum number of crons of a namespace that are read to find those that fail.
const maxCrons = 10_000

// ListFailingCrons lists the failing crons of namespaces. Messages are cut to maxDetail characters.
func ListFailingCrons(
	ctx context.Context, s *storage.Store, namespaces []string, maxDetail int,
) ([]FailingCron, error) {
	return storage.Query(ctx, s.ReadOne, "list failing crons", dbsqlc.New().ListFailingCrons,
		dbsqlc.ListFailingCronsParams{Namespaces: namespaces, MaxDetail: int32(maxDetail), Lim: maxCrons})
}

// CountFailingCrons counts the failing crons of namespaces. Namespaces without any are missing.
func CountFailingCrons(ctx context.Context, s *storage.Store, namespaces []string) (map[string]int64, error) {
	rows, err := storage.Query(ctx, s.ReadOne, "count failing crons", dbsqlc.New().CountFailingCrons,
		dbsqlc.CountFailingCronsParams{Namespaces: namespaces, Lim: maxCrons})
	counts := make(map[string]int64, len(rows))
	for _, r := range rows {
		counts[r.Namespace] = r.N
	}
	return counts, err
}

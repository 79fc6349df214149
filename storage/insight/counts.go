package insight

import (
	"context"

	"github.com/progressor-engine/progressor/process"
	"github.com/progressor-engine/progressor/storage"
	"github.com/progressor-engine/progressor/storage/internal/dbsqlc"
)

// CountProcesses returns the number of processes in each status of a namespace, or of all
// namespaces if namespace is "". Processes in INIT count as RUNNING. It reads the counters of the
// lanes, so its cost does not depend on the number of processes.
func CountProcesses(ctx context.Context, s *storage.Store, namespace string) (map[process.Status]int64, error) {
	rows, err := storage.Query(ctx, s.ReadOne, "count processes", dbsqlc.New().CountProcesses, namespace)
	if err != nil {
		return nil, err
	}
	counts := make(map[process.Status]int64, len(rows))
	for _, r := range rows {
		counts[r.Status] = r.N
	}
	return counts, nil
}

const (
	// maxInternal is the maximum number of internal processes that CountByOwner reads in each range
	// of their IDs, for all namespaces together.
	maxInternal = 100_000
	// minInternal is the minimum of this limit per namespace, even if there are many namespaces.
	minInternal = 20
)

// Owned has the numbers of processes of a namespace by status. Processes in INIT count as RUNNING.
type Owned struct {
	All      map[process.Status]int64
	Internal map[process.Status]int64 // processes that search.OfUsers does not match
	More     bool                     // some internal processes may be missing in Internal
}

// CountByOwner counts the processes of namespaces, and the internal ones among them. It reads the
// counters. It must count suspended jobs, members of jobs of several workers, and internal
// processes that are not jobs one by one. In each range of their IDs, it counts up to a limit that
// is an equal share of maxInternal for each namespace.
func CountByOwner(ctx context.Context, s *storage.Store, namespaces []string) (map[string]Owned, error) {
	limit := max(minInternal, maxInternal/max(1, len(namespaces)))
	rows, err := storage.Query(ctx, s.ReadOne, "count processes by owner", dbsqlc.New().CountByOwner,
		dbsqlc.CountByOwnerParams{Namespaces: namespaces, Lim: int32(limit)})
	if err != nil {
		return nil, err
	}
	counts := map[string]Owned{}
	for _, r := range rows {
		owned, ok := counts[r.Namespace]
		if !ok {
			owned = Owned{All: map[process.Status]int64{}, Internal: map[process.Status]int64{}, More: r.More}
			counts[r.Namespace] = owned
		}
		owned.All[r.Status], owned.Internal[r.Status] = r.N, r.Internal
	}
	return counts, nil
}

// CountNamespaces is like CountProcesses, for each of several namespaces.
func CountNamespaces(
	ctx context.Context, s *storage.Store, namespaces []string,
) (map[string]map[process.Status]int64, error) {
	rows, err := storage.Query(ctx, s.ReadOne, "count processes of namespaces", dbsqlc.New().CountNamespaces,
		namespaces)
	if err != nil {
		return nil, err
	}
	counts := map[string]map[process.Status]int64{}
	for _, r := range rows {
		if counts[r.Namespace] == nil {
			counts[r.Namespace] = map[process.Status]int64{}
		}
		counts[r.Namespace][r.Status] = r.N
	}
	return counts, nil
}

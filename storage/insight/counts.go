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

// maxInternal is the maximum number of internal processes of a namespace that CountUserProcesses
// reads.
const maxInternal = 100_000

// CountUserProcesses returns the number of processes of users in each status of a namespace, as
// search.OfUsers selects them. Processes in INIT count as RUNNING. It reads the counters, and
// subtracts the internal processes. It has to count those that are not jobs one by one. atMost
// reports that there are too many of them, so that the counts include some internal processes.
func CountUserProcesses(
	ctx context.Context, s *storage.Store, namespace string,
) (counts map[process.Status]int64, atMost bool, err error) {
	rows, err := storage.Query(ctx, s.ReadOne, "count processes of users", dbsqlc.New().CountUserProcesses,
		dbsqlc.CountUserProcessesParams{Namespace: namespace, Lim: maxInternal})
	counts = make(map[process.Status]int64, len(rows))
	for _, r := range rows {
		counts[r.Status], atMost = r.N, r.AtMost
	}
	return counts, atMost, err
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

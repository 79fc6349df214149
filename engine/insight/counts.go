package insight

import (
	"context"
	"strings"

	"github.com/progressor-engine/progressor/engine"
	"github.com/progressor-engine/progressor/process"
	progressorv1 "github.com/progressor-engine/progressor/proto/progressor/v1"
	"github.com/progressor-engine/progressor/storage/insight"
)

// CountProcesses returns the number of processes by the lower case name of their status. If the
// namespace is "", it counts all visible namespaces together. Processes in INIT count as running.
func (i *Insight) CountProcesses(ctx context.Context, namespace string) (map[string]int64, error) {
	names, leave, err := i.engine.Enter(ctx, namespace)
	if err != nil {
		return nil, err
	}
	defer leave()
	if namespace == "" && engine.Visible(ctx) != nil {
		return i.countVisible(ctx, names)
	}
	counted, err := insight.CountProcesses(ctx, i.store, namespace)
	if err != nil {
		return nil, err
	}
	return namedCounts(counted), nil
}

// CountUserProcesses returns the number of processes of users in each status, in a namespace or, if
// it is "", in all visible namespaces together.
func (i *Insight) CountUserProcesses(
	ctx context.Context, namespace string,
) (*progressorv1.CountProcessesResponse, error) {
	names, leave, err := i.engine.Enter(ctx, namespace)
	if err != nil {
		return nil, err
	}
	defer leave()
	counted, err := insight.CountByOwner(ctx, i.store, names)
	if err != nil {
		return nil, err
	}
	users, internal, atMost := map[process.Status]int64{}, map[process.Status]int64{}, false
	for _, owned := range counted {
		atMost = atMost || owned.More
		for status, n := range owned.All {
			users[status] += n - owned.Internal[status]
			internal[status] += owned.Internal[status]
		}
	}
	return &progressorv1.CountProcessesResponse{
		CountByStatus: namedCounts(users), InternalByStatus: namedCounts(internal), AtMost: atMost,
	}, nil
}

// countVisible counts the processes of the given namespaces together.
func (i *Insight) countVisible(ctx context.Context, names []string) (map[string]int64, error) {
	counted, err := insight.CountNamespaces(ctx, i.store, names)
	if err != nil {
		return nil, err
	}
	all := map[process.Status]int64{}
	for _, counts := range counted {
		for status, n := range counts {
			all[status] += n
		}
	}
	return namedCounts(all), nil
}

// namedCounts returns counts by the lower case names of the statuses, as in the API.
func namedCounts(counted map[process.Status]int64) map[string]int64 {
	counts := map[string]int64{}
	for _, status := range process.Statuses() {
		if status != process.StatusInit {
			counts[strings.ToLower(string(status))] = counted[status]
		}
	}
	return counts
}

package insight

import (
	"context"
	"strings"

	"github.com/progressor-engine/progressor/process"
	"github.com/progressor-engine/progressor/storage/insight"
)

// CountProcesses returns the number of processes in each status, by its lower case name. If the
// namespace is "", it counts all namespaces together. Processes in INIT count as running.
func (i *Insight) CountProcesses(ctx context.Context, namespace string) (map[string]int64, error) {
	_, leave, err := i.engine.Enter(ctx, namespace)
	if err != nil {
		return nil, err
	}
	defer leave()
	counted, err := insight.CountProcesses(ctx, i.store, namespace)
	if err != nil {
		return nil, err
	}
	return namedCounts(counted), nil
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

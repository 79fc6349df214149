package engine

import (
	"context"
	"strings"

	"github.com/progressor-engine/progressor/process"
)

// CountProcesses tells how many processes a namespace has in each status, by its name in lower case; namespace "": all of them
// together. Those in INIT are counted as running.
func (e *Engine) CountProcesses(ctx context.Context, namespace string) (map[string]int64, error) {
	share := e.shareOf(namespace)
	if err := e.admit(share); err != nil {
		return nil, err
	}
	defer e.leave(share)
	if _, err := e.namesOf(ctx, namespace); err != nil {
		return nil, err
	}
	counted, err := e.store.CountProcesses(ctx, namespace)
	if err != nil {
		return nil, err
	}
	return namedCounts(counted), nil
}

// namedCounts has the counts under the statuses' names in lower case, as the API does.
func namedCounts(counted map[process.Status]int64) map[string]int64 {
	counts := map[string]int64{}
	for _, status := range process.Statuses() {
		if status != process.StatusInit {
			counts[strings.ToLower(string(status))] = counted[status]
		}
	}
	return counts
}

package storage

import (
	"context"

	"github.com/progressor-engine/progressor/process"
)

// laneLocks is the class of the advisory locks by which lanes number themselves: "prog" in ASCII.
const laneLocks = 0x70726f67

// changesStatus tells whether a result may change which of the counted statuses its process has. INIT and RUNNING are one of them:
// of all that finish only a repair leads from one to another.
func (c *Completion) changesStatus() bool {
	switch c.Outcome {
	case Failed, Completed, Cancelled:
		return true
	case Finished:
		return c.TaskType == process.TaskRepair
	}
	return false
}

// CountProcesses tells how many processes a namespace has in each status; "": all namespaces. Those in INIT are counted as RUNNING.
// It reads what the lanes have counted, some rows for each, whatever the number of processes is.
func (s *Store) CountProcesses(ctx context.Context, namespace string) (map[process.Status]int64, error) {
	rows, err := s.q.CountProcesses(ctx, s.general, namespace)
	if err != nil {
		return nil, mapped("count processes", err)
	}
	counts := make(map[process.Status]int64, len(rows))
	for _, r := range rows {
		counts[r.Status] = r.N
	}
	return counts, nil
}

// CountNamespaces tells how many processes each of the namespaces has in each status, as CountProcesses does.
func (s *Store) CountNamespaces(ctx context.Context, namespaces []string) (map[string]map[process.Status]int64, error) {
	rows, err := s.q.CountNamespaces(ctx, s.general, namespaces)
	if err != nil {
		return nil, mapped("count processes of namespaces", err)
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

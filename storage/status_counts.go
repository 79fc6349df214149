package storage

import (
	"context"

	"github.com/progressor-engine/progressor/process"
)

// laneLocks is the class of the advisory locks that number the lanes: "prog" in ASCII.
const laneLocks = 0x70726f67

// changesStatus reports whether a result may change the counted status of its process. INIT and
// RUNNING count as one status. Of the tasks that finish, only a repair changes it.
func (c *Completion) changesStatus() bool {
	switch c.Outcome {
	case Failed, Completed, Cancelled:
		return true
	case Finished:
		return c.TaskType == process.TaskRepair
	}
	return false
}

// CountProcesses returns the number of processes in each status of a namespace, or of all
// namespaces if it is "". Processes in INIT count as RUNNING. It reads the counters of the lanes,
// so its cost does not depend on the number of processes.
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

// CountNamespaces returns the number of processes in each status for each of the namespaces, like
// CountProcesses.
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

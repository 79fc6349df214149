package jobs

import (
	"cmp"
	"maps"
	"slices"

	"github.com/progressor-engine/progressor/storage/jobs"
)

// A job that needs several keys gets all of them at once, or none. If it had to wait until all its
// keys happen to be free at the same time, jobs that need fewer keys would always go first.
// Therefore, such a job reserves its keys when another job has taken a key that was free when this
// job began to wait for a later key. When a reserved key becomes free, it is kept for the job,
// unless the next job in the queue precedes it. A key has at most one reservation. A job reserves
// all of its keys or none. The job that precedes all others gets its keys one after the other, so
// no two jobs wait for each other.

// reservation keeps one unit of a key for a job.
type reservation struct {
	job      string
	priority int32
	taskID   int64
	changed  bool // not stored yet
}

// precededBy reports whether a job comes before the one that has the reservation.
func (r *reservation) precededBy(j *jobs.QueuedJob) bool {
	return cmp.Or(cmp.Compare(j.Priority, r.priority), cmp.Compare(j.TaskID, r.taskID)) < 0
}

// isFor reports whether the key is reserved for a job.
func (l *keyQueue) isFor(j *jobs.QueuedJob) bool {
	return l.reserved != nil && l.reserved.job == j.ProcessID
}

// isFree reports whether a job can have the key.
func (l *keyQueue) isFree(j *jobs.QueuedJob) bool {
	if l.reserved == nil || l.isFor(j) || l.reserved.precededBy(j) {
		return l.room > 0
	}
	return l.room > 1
}

// reserve reserves the keys of a job if another job has taken one that was free. The names in lines
// are sorted. The job has moved to its current queue because all earlier keys were free. missing is
// the index of the first key that it lacks now.
func (p *placer) reserve(j *jobs.QueuedJob, lines []string, missing int) {
	if j.Stale || missing >= slices.Index(lines, j.Line) {
		return
	}
	for _, name := range lines {
		if r := p.queues[name].reserved; r != nil && r.job != j.ProcessID && !r.precededBy(j) {
			return
		}
	}
	for _, name := range lines {
		l := p.queues[name]
		if l.isFor(j) {
			continue
		}
		if l.reserved != nil {
			p.unreserve(l.reserved.job)
		}
		l.reserved = &reservation{job: j.ProcessID, priority: j.Priority, taskID: j.TaskID, changed: true}
	}
}

// unreserve drops the reservations of a job.
func (p *placer) unreserve(job string) {
	p.unreserved[job] = struct{}{}
	for _, l := range p.queues {
		if l != nil && l.reserved != nil && l.reserved.job == job {
			l.reserved = nil
		}
	}
}

// storeReservations stores the changed reservations. It returns the key queues of dropped
// reservations, in which jobs may continue.
func (p *placer) storeReservations() ([]string, error) {
	reserved := map[string][]string{}
	for name, l := range p.queues {
		if l.reserved != nil && l.reserved.changed {
			reserved[l.reserved.job] = append(reserved[l.reserved.job], name)
		}
	}
	return p.tx.Reserve(slices.Sorted(maps.Keys(p.unreserved)), reserved)
}

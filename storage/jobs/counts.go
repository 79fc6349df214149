package storage

import (
	"context"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/progressor-engine/progressor/storage/internal/dbsqlc"
)

// JobCounts are the counts of the jobs with one name.
type JobCounts struct {
	Namespace, Name string
	ByState         map[string]int64 // by state in lower case, without zeros
	// Oldest is how long the oldest available job has been available. It is negative if there is
	// none.
	Oldest time.Duration
}

// Limits of the search for the oldest jobs: key queues and pairs of name and priority per
// namespace, and jobs of each.
const (
	oldestPlaces = 1000
	oldestJobs   = 16
)

// CountJobs returns for each name the number of jobs in each state and the age of the oldest
// available job, ordered by namespace and name. It reads counters and the table running, so its
// cost does not depend on the number of jobs.
func (s *Store) CountJobs(ctx context.Context, namespaces []string) ([]*JobCounts, error) {
	var counts []dbsqlc.ReadJobCountsRow
	var oldest []dbsqlc.OldestAvailableRow
	conn, err := s.kept.Acquire(ctx)
	if err != nil {
		return nil, mapped("count jobs", err)
	}
	defer conn.Release()
	err = pipeline(ctx, conn.Conn(), []stage{
		func(ctx context.Context, db DB) (err error) {
			counts, err = s.q.ReadJobCounts(ctx, db, namespaces)
			return err
		},
		func(ctx context.Context, db DB) (err error) {
			oldest, err = s.q.OldestAvailable(ctx, db, dbsqlc.OldestAvailableParams{Namespaces: namespaces, Most: oldestPlaces, Lim: oldestJobs})
			return err
		},
	})
	if err != nil {
		return nil, mapped("count jobs", err)
	}
	return jobCounts(counts, oldest), nil
}

func jobCounts(counts []dbsqlc.ReadJobCountsRow, oldest []dbsqlc.OldestAvailableRow) []*JobCounts {
	type name struct{ namespace, name string }
	byName := map[name]*JobCounts{}
	var list []*JobCounts
	of := func(n name) *JobCounts {
		c := byName[n]
		if c == nil {
			c = &JobCounts{Namespace: n.namespace, Name: n.name, ByState: map[string]int64{}, Oldest: -1}
			byName[n], list = c, append(list, c)
		}
		return c
	}
	for _, r := range counts {
		c := of(name{r.Namespace, r.Name})
		c.ByState[r.State] += r.N
		if r.State == "running" || r.State == "cancel_requested" {
			c.ByState["available"] -= r.N
		}
	}
	for _, r := range oldest {
		of(name{r.Namespace, r.Name}).Oldest = max(microseconds(r.AgeUs), 0)
	}
	return list
}

// ForgetJobNames deletes the counters of names that no longer have jobs. more reports that there
// may be more.
func (s *Store) ForgetJobNames(ctx context.Context) (more bool, err error) {
	const batch = 100
	err = pgx.BeginFunc(ctx, s.general, func(tx pgx.Tx) error {
		names, err := s.q.EmptyJobNames(ctx, tx, batch)
		if err != nil || len(names) == 0 {
			return err
		}
		more = len(names) == batch
		var lock dbsqlc.LockJobCountsParams
		for _, n := range names {
			lock.Namespaces = append(lock.Namespaces, n.Namespace)
			lock.Names = append(lock.Names, n.Name)
		}
		rows, err := s.q.LockJobCounts(ctx, tx, lock)
		if err != nil {
			return err
		}
		return s.q.DropJobCounts(ctx, tx, emptyCounts(rows))
	})
	return more, mapped("delete unused job names", err)
}

// emptyCounts returns the rows whose counts add up to zero. Counts that other transactions have
// added since are not among them.
func emptyCounts(rows []dbsqlc.JobCount) dbsqlc.DropJobCountsParams {
	type counted struct{ namespace, name, state string }
	sums := map[counted]int64{}
	for _, r := range rows {
		sums[counted{r.Namespace, r.Name, r.State}] += r.N
	}
	var drop dbsqlc.DropJobCountsParams
	for _, r := range rows {
		if sums[counted{r.Namespace, r.Name, r.State}] == 0 {
			drop.Namespaces = append(drop.Namespaces, r.Namespace)
			drop.Names = append(drop.Names, r.Name)
			drop.Lanes = append(drop.Lanes, r.Lane)
			drop.States = append(drop.States, r.State)
		}
	}
	return drop
}

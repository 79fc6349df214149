package jobs

import (
	"context"
	"time"

	"github.com/progressor-engine/progressor/storage"
	"github.com/progressor-engine/progressor/storage/internal/dbsqlc"
)

// Counts are the numbers of jobs with one name.
type Counts struct {
	Namespace, Name string
	ByState         map[string]int64 // by state in lower case, without zeros
	// Oldest is how long the oldest available job has been available. It is negative if there is
	// none.
	Oldest time.Duration
}

// The limits of the search for the oldest jobs. oldestPlaces limits the number of key queues that
// are searched, and of pairs of a name and a priority. oldestJobs limits the jobs that are read in
// each of them.
const (
	oldestPlaces = 1000
	oldestJobs   = 16
)

// Count returns for each name the number of jobs in each state and the age of the oldest available
// job, ordered by namespace and name. It reads counters, running jobs, jobs of several workers and
// cancel requests, and a limited number of waiting jobs. So its cost does not grow with the number
// of waiting or ended jobs.
func Count(ctx context.Context, s *storage.Store, namespaces []string) (list []*Counts, err error) {
	err = s.RunReserved(ctx, "count jobs", func(ctx context.Context, db storage.DB) error {
		counts, err := dbsqlc.New().ReadJobCounts(ctx, db, namespaces)
		if err != nil {
			return err
		}
		oldest, err := dbsqlc.New().OldestAvailable(ctx, db, dbsqlc.OldestAvailableParams{
			Namespaces: namespaces, Most: oldestPlaces, Lim: oldestJobs,
		})
		list = countsOf(counts, oldest)
		return err
	})
	return list, err
}

func countsOf(counts []dbsqlc.ReadJobCountsRow, oldest []dbsqlc.OldestAvailableRow) []*Counts {
	type name struct{ namespace, name string }
	byName := map[name]*Counts{}
	var list []*Counts
	of := func(n name) *Counts {
		c := byName[n]
		if c == nil {
			c = &Counts{Namespace: n.namespace, Name: n.name, ByState: map[string]int64{}, Oldest: -1}
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
		of(name{r.Namespace, r.Name}).Oldest = max(time.Duration(r.AgeUs)*time.Microsecond, 0)
	}
	return list
}

// ForgetNames deletes the counters of names that no longer have jobs. more is true if there may be
// more.
func ForgetNames(ctx context.Context, s *storage.Store) (more bool, err error) {
	const batch = 100
	err = s.RunLocked(ctx, "delete unused job names", nil, func(ctx context.Context, db storage.DB) error {
		names, err := dbsqlc.New().EmptyJobNames(ctx, db, batch)
		if err != nil || len(names) == 0 {
			return err
		}
		more = len(names) == batch
		var lock dbsqlc.LockJobCountsParams
		for _, n := range names {
			lock.Append(dbsqlc.LockJobCountsItem(n))
		}
		rows, err := dbsqlc.New().LockJobCounts(ctx, db, lock)
		if err != nil {
			return err
		}
		return dbsqlc.New().DropJobCounts(ctx, db, emptyCounts(rows))
	})
	return more, err
}

// emptyCounts returns the rows whose counts add up to zero. It omits counts that other transactions
// have added since.
func emptyCounts(rows []dbsqlc.JobCount) dbsqlc.DropJobCountsParams {
	type counted struct{ namespace, name, state string }
	sums := map[counted]int64{}
	for _, r := range rows {
		sums[counted{r.Namespace, r.Name, r.State}] += r.N
	}
	var drop dbsqlc.DropJobCountsParams
	for _, r := range rows {
		if sums[counted{r.Namespace, r.Name, r.State}] == 0 {
			drop.Append(dbsqlc.DropJobCountsItem{
				Namespace: r.Namespace, Name: r.Name, Lane: r.Lane, State: r.State,
			})
		}
	}
	return drop
}

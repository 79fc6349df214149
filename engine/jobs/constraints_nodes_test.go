package jobs_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/progressor-engine/progressor/engine/enginetest"
	"github.com/progressor-engine/progressor/engine/pull"
	"github.com/progressor-engine/progressor/process"
	progressorv1 "github.com/progressor-engine/progressor/proto/progressor/v1"
	"github.com/progressor-engine/progressor/storage/storagetest"
)

// watch counts the running jobs by key, and records the limits.
type watch struct {
	mu      sync.Mutex
	running map[string]int
	limits  []int // in the order in which they were put
	putting bool  // the last limit is being put, so the previous one may still be in force
	most    int   // the highest number of running jobs of one key
	faults  []string
}

// polls returns the index of the first limit that may be in force for a poll that begins now.
func (w *watch) polls() int {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.putting {
		return len(w.limits) - 2
	}
	return len(w.limits) - 1
}

func (w *watch) starts(key string, since int) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.running[key]++
	most := 0
	for _, l := range w.limits[since:] {
		most = max(most, l)
	}
	w.most = max(w.most, w.running[key])
	if w.running[key] > most {
		w.faults = append(w.faults, fmt.Sprintf("%d of %s run, at most %d", w.running[key], key, most))
	}
}

func (w *watch) ends(key string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.running[key]--
}

// In a random sequence of events on two nodes, and with random changes of the limit, no more jobs
// of a key run than the limit allows. All jobs end.
func TestLimitHoldsOnTwoNodes(t *testing.T) {
	t.Parallel()
	const jobs, workers = 150, 6
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	random := rand.New(rand.NewPCG(seed, 0))
	dsn := storagetest.DSN(t)
	nodes := []*node{start(t, dsn, scripted()), start(t, dsn, scripted())}
	w := &watch{running: map[string]int{}, limits: []int{2}}
	put := func(limit int) {
		w.mu.Lock()
		w.limits, w.putting = append(w.limits, limit), true // the limit may be in force from now on
		w.mu.Unlock()
		nodes[random.IntN(2)].limit(t, &progressorv1.Constraint{
			Name: "region", Key: byRegion, MaxRunning: int32(limit),
		})
		w.mu.Lock()
		w.limits, w.putting = append(w.limits, limit), false // from now on, no other limit is in force
		w.mu.Unlock()
	}
	put(2)
	nodes[0].limit(t, &progressorv1.Constraint{
		Name: "all", Match: []string{"true", `job.args.region != "us"`, "job.priority == 1"}[random.IntN(3)],
		MaxRunning: 5,
	})
	nodes[1].limit(t, &progressorv1.Constraint{Name: "odd", Match: `job.priority == 1`, MaxRunning: 1})
	ctx, stop := context.WithCancel(t.Context())
	var group sync.WaitGroup
	defer group.Wait()
	defer stop()
	var ended atomic.Int64
	for k := range workers {
		own := rand.New(rand.NewPCG(seed, uint64(k)+1))
		group.Go(func() { work(ctx, nodes[k%2], fmt.Sprint("w", k), own, w, &ended) })
	}
	for k := range jobs {
		id := fmt.Sprint("j", k)
		nodes[random.IntN(2)].limited(t, "pull", id, []string{"eu", "us", "as"}[random.IntN(3)],
			&progressorv1.JobOptions{
				MaxRetry: 3, Priority: int32(random.IntN(2)),
				Backoff: &progressorv1.Backoff{
					Steps: []*durationpb.Duration{durationpb.New(0), durationpb.New(time.Millisecond)},
				},
			})
		switch random.IntN(20) {
		case 0:
			put(1 + random.IntN(3))
		case 1:
			// The job may have ended.
			_, _ = nodes[random.IntN(2)].Cancel(ctx, key("pull", fmt.Sprint("j", random.IntN(k+1))), "why",
				process.Actor{})
		}
	}
	db := nodes[0].DB
	enginetest.Eventually(t, 2*testTimeout, "all jobs end", func() bool {
		return enginetest.Count(t, db, "SELECT count(*) FROM processes WHERE status = 'INIT'") == 0
	})
	stop()
	group.Wait()
	if len(w.faults) > 0 || w.most < 2 {
		t.Errorf("%v; at most %d of a key ran at a time", w.faults, w.most)
	}
	// A job that ended while a new version of the constraints gave it a key keeps the key until the
	// next pass of the collector.
	enginetest.Eventually(t, testTimeout, "no key is held", func() bool {
		return enginetest.Count(t, db, "SELECT count(*) FROM constraint_holds") == 0
	})
}

// work leases jobs and ends them in different ways.
func work(ctx context.Context, n *node, id string, random *rand.Rand, w *watch, ended *atomic.Int64) {
	for ctx.Err() == nil {
		since := w.polls()
		leases, err := n.Poll(ctx, pull.PollParams{
			Namespaces: []string{"pull"}, WorkerID: id, Max: 1 + random.IntN(3), Wait: 50 * time.Millisecond,
		})
		if err != nil {
			continue // the test has ended
		}
		for _, l := range leases {
			w.starts(l.GetJob().GetArgs().GetStructValue().GetFields()["region"].GetStringValue(), since)
		}
		for _, l := range leases {
			// Count the end before the engine can start the next job.
			w.ends(l.GetJob().GetArgs().GetStructValue().GetFields()["region"].GetStringValue())
			switch random.IntN(5) {
			case 0:
				_ = n.fail(l, "no") // it may have been cancelled
			case 1:
				_ = n.ReleaseLeases(ctx, []string{l.GetLeaseToken()}, 0)
			default:
				_ = n.succeed(l, nil)
			}
			ended.Add(1)
		}
	}
}

// A node that does not yet know about a change of a constraint does not run jobs under the old
// version. It releases the jobs that it claims, and they are evaluated again.
func TestNodeThatIsBehind(t *testing.T) {
	t.Parallel()
	dsn := storagetest.DSN(t)
	a, b := start(t, dsn, scripted()), start(t, dsn, scripted())
	for k := range 20 {
		b.limited(t, "pull", fmt.Sprint("j", k), "eu", nil)
	}
	a.limit(t, &progressorv1.Constraint{Name: "one", MaxRunning: 1}) // b claims during the evaluation
	var leased []*progressorv1.Lease
	for range 20 {
		leased = append(leased, b.leaseAll(t, "w")...)
		b.limited(t, "pull", fmt.Sprint("k", len(leased), rand.Uint64()), "eu", nil)
	}
	if len(leased) > 1 {
		t.Errorf("leased %s", ids(leased))
	}
	for enginetest.Count(t, a.DB, "SELECT count(*) FROM processes WHERE status = 'INIT'") > 35 {
		for _, l := range b.poll(t, "w", 10) {
			leased = append(leased, l)
			must(t, b.succeed(l, nil))
		}
	}
}

// In any period, no more jobs of a push namespace start than the burst and the rate allow.
func TestRate(t *testing.T) {
	t.Parallel()
	n := start(t, storagetest.DSN(t), scripted())
	const rate, burst, count = 40, 3, 15
	n.limit(t, &progressorv1.Constraint{
		Namespace: "ns", Name: "rate",
		Rate: &progressorv1.RateLimit{Count: rate, Per: durationpb.New(time.Second), Burst: burst},
	})
	for k := range count {
		n.limited(t, "ns", fmt.Sprint("j", k), "", nil)
	}
	for k := range count {
		n.job(t, "ns", fmt.Sprint("j", k), succeeded)
	}
	worst := n.Count(t, `SELECT max(ceil(x.n - $1::float8 * extract(epoch FROM x.took)))::int FROM (
		SELECT (SELECT count(*) FROM tasks c WHERE c.running_time BETWEEN a.running_time
		  AND b.running_time) AS n, b.running_time - a.running_time AS took
		  FROM tasks a, tasks b WHERE a.running_time <= b.running_time) x`, rate)
	if worst > burst {
		t.Errorf("%d more jobs start at once than the rate allows, at most %d", worst, burst)
	}
}

// blocked_on of a job that waits for a rate contains the time at which the next job starts.
func TestBlockedOnRate(t *testing.T) {
	t.Parallel()
	n := start(t, storagetest.DSN(t), scripted())
	n.limit(t, &progressorv1.Constraint{
		Name: "rate", Rate: &progressorv1.RateLimit{Count: 1, Per: durationpb.New(time.Hour)},
	})
	n.limited(t, "pull", "first", "", nil)
	n.placed(t, "pull", 1)
	n.limited(t, "pull", "second", "", nil)
	n.leaseOne(t, "w")
	enginetest.Eventually(t, testTimeout, "the next start is known", func() bool {
		states, err := n.ListConstraints(context.Background(), "pull")
		return err == nil && states[0].GetWaiting() == 1 &&
			time.Until(states[0].GetNextFreeTime().AsTime()) > 50*time.Minute
	})
	job := n.job(t, "pull", "second", available)
	next := enginetest.Count(t, n.DB,
		"SELECT count(*) FROM constraint_buckets WHERE $1 LIKE 'constraint rate: rate: next at ' || "+
			"to_char(next_time AT TIME ZONE 'UTC', 'YYYY-MM-DD\"T\"HH24:MI') || '%; 0 before it'", job.GetBlockedOn())
	if next != 1 {
		t.Errorf("blocked on %q", job.GetBlockedOn())
	}
}

// A bucket is deleted once it is full. The bucket of a deleted constraint is also deleted.
// Otherwise, such buckets would stay due and be read a hundred times a second.
func TestBucketsRest(t *testing.T) {
	t.Parallel()
	n := start(t, storagetest.DSN(t), scripted())
	buckets := func() int { return n.Count(t, "SELECT count(*) FROM constraint_buckets") }
	n.limit(t, &progressorv1.Constraint{
		Namespace: "ns", Name: "quick", Rate: &progressorv1.RateLimit{Count: 100, Per: durationpb.New(time.Second)},
	})
	n.limited(t, "ns", "j", "", nil)
	n.job(t, "ns", "j", succeeded)
	enginetest.Eventually(t, testTimeout, "the full bucket is deleted", func() bool { return buckets() == 0 })

	n.limit(t, &progressorv1.Constraint{
		Name: "slow", Rate: &progressorv1.RateLimit{Count: 1, Per: durationpb.New(time.Hour)},
	})
	n.limited(t, "pull", "first", "", nil)
	n.leaseOne(t, "w")
	enginetest.Eventually(t, testTimeout, "the next start is known", func() bool { return buckets() == 1 })
	if err := n.DeleteConstraint(context.Background(), "pull", "slow"); err != nil || buckets() != 0 {
		t.Errorf("%v; %d buckets without a constraint", err, buckets())
	}
}

// The audit records who has put or deleted a constraint. It does not record a delete that found no
// constraint.
func TestConstraintsAreAudited(t *testing.T) {
	t.Parallel()
	n := start(t, storagetest.DSN(t), scripted())
	kim := process.Actor{Name: "kim", Source: "10.0.0.7:1"}
	if _, err := n.PutConstraint(t.Context(), &progressorv1.Constraint{
		Namespace: "pull", Name: "one", Match: "true", MaxRunning: 1,
	}, kim); err != nil {
		t.Fatal(err)
	}
	for _, want := range []error{nil, process.ErrConstraintNotFound} {
		if err := n.DeleteConstraint(t.Context(), "pull", "one", kim); !errors.Is(err, want) {
			t.Fatalf("%v, want %v", err, want)
		}
	}
	var noted string
	err := n.DB.QueryRow(t.Context(),
		`SELECT string_agg(concat_ws(' ', actor, source, method, namespace, subject), '; ' ORDER BY audit_id) FROM audit
			WHERE method LIKE '%Constraint'`).Scan(&noted)
	if want := "kim 10.0.0.7:1 PutConstraint pull one; kim 10.0.0.7:1 DeleteConstraint pull one"; err != nil ||
		noted != want {
		t.Errorf("noted %q, %v, want %q", noted, err, want)
	}
}

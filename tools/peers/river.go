package main

import (
	"context"
	"fmt"
	"io"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/riverqueue/river"
	"github.com/riverqueue/river/riverdriver/riverpgxv5"
	"github.com/riverqueue/river/rivermigrate"
)

// mail is a job of River, with the args that the jobs of progressor bench have.
type mail struct {
	To       string `json:"to"`
	Template string `json:"template"`
	Attempt  int    `json:"attempt"`
	N        int    `json:"n,omitempty"`
}

func (mail) Kind() string { return "send_mail" }

func mailTo(n int) mail {
	return mail{To: fmt.Sprintf("somebody%03d@example.org", n%1000), Template: "welcome", Attempt: 1}
}

// mailer executes the jobs. It does nothing, and reports when each begins.
type mailer struct {
	river.WorkerDefaults[mail]

	begins func(job mail)
}

func (m *mailer) Work(_ context.Context, job *river.Job[mail]) error {
	m.begins(job.Args)
	return nil
}

// riverPeer measures River in this program.
type riverPeer struct{}

func (riverPeer) name() string { return "River" }

// measure measures River in an empty database.
func (riverPeer) measure(ctx context.Context, d *database, s size) (results, error) {
	jobs := s.jobs
	pool, err := pgxpool.NewWithConfig(ctx, d.pool(20))
	if err != nil {
		return nil, err
	}
	defer pool.Close()
	driver := riverpgxv5.New(pool)
	migrator, err := rivermigrate.New(driver, nil)
	if err != nil {
		return nil, err
	}
	if _, err := migrator.Migrate(ctx, rivermigrate.DirectionUp, nil); err != nil {
		return nil, err
	}
	r := results{}
	if err := d.measure(ctx, r, enqueued, jobs, func() (time.Duration, error) {
		return riverEnqueue(ctx, driver, jobs)
	}); err != nil {
		return nil, err
	}
	if err := d.measure(ctx, r, drained, jobs, func() (time.Duration, error) {
		return riverDrain(ctx, driver, jobs)
	}); err != nil {
		return nil, err
	}
	var left int
	err = pool.QueryRow(ctx, `SELECT count(*) FROM river_job WHERE state <> 'completed'`).Scan(&left)
	if err != nil || left > 0 {
		return nil, fmt.Errorf("%d jobs of River are not completed: %w", left, err)
	}
	r[latency], err = riverLatency(ctx, driver)
	return r, err
}

type (
	riverDriver = *riverpgxv5.Driver
	riverTx     = pgx.Tx
)

// riverClient returns a client whose jobs call begins.
func riverClient(driver riverDriver, begins func(mail)) (*river.Client[riverTx], error) {
	workers := river.NewWorkers()
	river.AddWorker(workers, &mailer{begins: begins})
	return river.NewClient(driver, &river.Config{
		// These are the settings of River's own benchmark.
		FetchCooldown: 2 * time.Millisecond, FetchPollInterval: 5 * time.Millisecond,
		Queues:  map[string]river.QueueConfig{river.QueueDefault: {MaxWorkers: 2000}},
		Workers: workers, Logger: slog.New(slog.NewTextHandler(io.Discard, nil)),
	})
}

func riverEnqueue(ctx context.Context, driver riverDriver, jobs int) (time.Duration, error) {
	client, err := river.NewClient(driver, &river.Config{})
	if err != nil {
		return 0, err
	}
	began := time.Now()
	var next atomic.Int64
	errs := make(chan error, enqueuers)
	for range enqueuers {
		go func() { errs <- riverInsert(ctx, client, &next, jobs) }()
	}
	for range enqueuers {
		if e := <-errs; e != nil {
			err = e
		}
	}
	return time.Since(began), err
}

// riverInsert inserts batches until next has reached jobs.
func riverInsert(ctx context.Context, client *river.Client[riverTx], next *atomic.Int64, jobs int) error {
	for {
		first := int(next.Add(batch)) - batch
		if first >= jobs {
			return nil
		}
		params := make([]river.InsertManyParams, batch)
		for i := range params {
			params[i].Args = mailTo(first + i)
		}
		if _, err := client.InsertManyFast(ctx, params); err != nil {
			return err
		}
	}
}

func riverDrain(ctx context.Context, driver riverDriver, jobs int) (time.Duration, error) {
	var done atomic.Int64
	all := make(chan struct{})
	client, err := riverClient(driver, func(mail) {
		if done.Add(1) == int64(jobs) {
			close(all)
		}
	})
	if err != nil {
		return 0, err
	}
	began := time.Now()
	if err := client.Start(ctx); err != nil {
		return 0, err
	}
	select {
	case <-all:
	case <-time.After(10 * time.Minute):
		return 0, fmt.Errorf("River has done only %d of %d jobs", done.Load(), jobs)
	}
	err = client.Stop(ctx) // also stores that the last jobs are done
	return time.Since(began), err
}

func riverLatency(ctx context.Context, driver riverDriver) (result, error) {
	var mu sync.Mutex
	started := map[int]chan time.Time{}
	client, err := riverClient(driver, func(job mail) {
		now := time.Now()
		mu.Lock()
		defer mu.Unlock()
		started[job.N] <- now
	})
	if err != nil {
		return result{}, err
	}
	if err := client.Start(ctx); err != nil {
		return result{}, err
	}
	var took []time.Duration
	for n := 1; n <= singleJobs; n++ {
		job := mailTo(n)
		job.N = n
		begins := make(chan time.Time, 1)
		mu.Lock()
		started[n] = begins
		mu.Unlock()
		began := time.Now()
		if _, err := client.Insert(ctx, job, nil); err != nil {
			return result{}, err
		}
		select {
		case at := <-begins:
			took = append(took, at.Sub(began))
		case <-time.After(time.Minute):
			return result{}, fmt.Errorf("job %d of River has not begun within a minute", n)
		}
		pause(ctx, 5*time.Millisecond) // so that the client is idle
	}
	return quantiles(took), client.Stop(ctx)
}

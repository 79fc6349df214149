package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"sync/atomic"
	"time"

	"github.com/dbos-inc/dbos-transact-golang/dbos"
)

// dbosPeer measures DBOS in this program.
type dbosPeer struct{}

func (dbosPeer) name() string { return "DBOS" }

// dbosStop limits how long DBOS waits for its functions when it stops.
const dbosStop = time.Minute

// measure measures DBOS in an empty database.
func (dbosPeer) measure(ctx context.Context, d *database, s size) (results, error) {
	r := results{}
	for _, c := range []struct {
		name    string
		clients int
		run     func(context.Context, *database, int, time.Duration) (dbosRuns, error)
	}{
		{oneStep, functionClients, dbosOneStep},
		{oneStepAlone, 1, dbosOneStep},
		{steps, functionClients, dbosSteps},
	} {
		before, err := d.wal(ctx)
		if err != nil {
			return nil, err
		}
		runs, err := c.run(ctx, d, c.clients, s.duration)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", c.name, err)
		}
		after, err := d.wal(ctx)
		if err != nil {
			return nil, err
		}
		r[c.name] = result{
			Rate:     float64(runs.operations) / runs.took.Seconds(),
			WALBytes: float64(after-before) / float64(runs.operations),
		}
		if c.clients == 1 {
			r[c.name] = quantiles(runs.latencies)
		}
	}
	return r, nil
}

// dbosRuns is what a case has done.
type dbosRuns struct {
	operations int
	took       time.Duration
	latencies  []time.Duration // nil if there are several clients
}

// dbosContext returns the context of DBOS with its default settings, but without its log.
func dbosContext(ctx context.Context, d *database) (dbos.Context, error) {
	return dbos.NewContext(ctx, dbos.Config{
		AppName: "peers", DatabaseURL: d.dsn(), Logger: slog.New(slog.NewTextHandler(io.Discard, nil)),
	})
}

// dbosOneStep measures runs with one step that does nothing. Each client starts a run and waits
// until its step has run, like the clients of progressor bench.
func dbosOneStep(ctx context.Context, d *database, clients int, duration time.Duration) (runs dbosRuns, err error) {
	client, err := dbosContext(ctx, d)
	if err != nil {
		return dbosRuns{}, err
	}
	ran := make([]chan struct{}, clients)
	for i := range ran {
		ran[i] = make(chan struct{}, 1)
	}
	function := func(c dbos.Context, i int) (int, error) {
		return dbos.RunAsStep(c, func(context.Context) (int, error) {
			ran[i] <- struct{}{}
			return i, nil
		}, dbos.WithStepName("step"))
	}
	dbos.RegisterWorkflow(client, function, dbos.WithWorkflowName("one"))
	if err := dbos.Launch(client); err != nil {
		return dbosRuns{}, err
	}
	defer func() { err = errors.Join(err, dbos.Shutdown(client, dbosStop)) }()
	var done atomic.Int64
	began := time.Now()
	errs := make(chan error, clients)
	for i := range clients {
		go func() {
			for time.Since(began) < duration {
				started := time.Now()
				if _, err := dbos.RunWorkflow(client, function, i); err != nil {
					errs <- err
					return
				}
				<-ran[i]
				done.Add(1)
				if clients == 1 {
					runs.latencies = append(runs.latencies, time.Since(started))
				}
			}
			errs <- nil
		}()
	}
	for range clients {
		err = errors.Join(err, <-errs)
	}
	runs.operations, runs.took = int(done.Load()), time.Since(began)
	return runs, err
}

// dbosSteps measures runs that do one step after the other.
func dbosSteps(ctx context.Context, d *database, number int, duration time.Duration) (runs dbosRuns, err error) {
	client, err := dbosContext(ctx, d)
	if err != nil {
		return dbosRuns{}, err
	}
	var done atomic.Int64
	var over atomic.Bool
	function := func(c dbos.Context, _ int) (int, error) {
		for n := 1; ; n++ {
			stop, err := dbos.RunAsStep(c, func(context.Context) (bool, error) {
				done.Add(1)
				return over.Load(), nil
			}, dbos.WithStepName("step"))
			if err != nil || stop {
				return n, err
			}
		}
	}
	dbos.RegisterWorkflow(client, function, dbos.WithWorkflowName("steps"))
	if err := dbos.Launch(client); err != nil {
		return dbosRuns{}, err
	}
	defer func() { err = errors.Join(err, dbos.Shutdown(client, dbosStop)) }()
	began := time.Now()
	handles := make([]dbos.WorkflowHandle[int], number)
	for i := range handles {
		if handles[i], err = dbos.RunWorkflow(client, function, i); err != nil {
			return dbosRuns{}, err
		}
	}
	pause(ctx, duration)
	runs.operations, runs.took = int(done.Load()), time.Since(began)
	over.Store(true)
	for _, h := range handles {
		if _, err := h.GetResult(); err != nil {
			return dbosRuns{}, err
		}
	}
	return runs, nil
}

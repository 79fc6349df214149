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
	"golang.org/x/sync/errgroup"
)

// dbosPeer measures DBOS in this program.
type dbosPeer struct{}

func (dbosPeer) name() string { return "DBOS" }

// dbosStop limits how long a client waits for a step, and how long DBOS waits for its functions
// when it stops.
const dbosStop = time.Minute

// measure measures DBOS in an empty database.
func (dbosPeer) measure(ctx context.Context, d *database, s size) (results, error) {
	r := results{}
	var err error
	if r[oneStep], err = dbosOneStep(ctx, d, functionClients, s.duration); err != nil {
		return nil, fmt.Errorf("%s: %w", oneStep, err)
	}
	if r[oneStepAlone], err = dbosOneStep(ctx, d, 1, s.duration); err != nil {
		return nil, fmt.Errorf("%s: %w", oneStepAlone, err)
	}
	if r[steps], err = dbosSteps(ctx, d, s.duration); err != nil {
		return nil, fmt.Errorf("%s: %w", steps, err)
	}
	return r, nil
}

// dbosContext returns the context of DBOS with its default settings, but without its log.
func dbosContext(ctx context.Context, d *database) (dbos.Context, error) {
	return dbos.NewContext(ctx, dbos.Config{
		AppName: "peers", DatabaseURL: d.dsn(), Logger: slog.New(slog.NewTextHandler(io.Discard, nil)),
	})
}

// dbosOneStep measures runs with one step that does nothing. Each client starts a run and waits
// until its step has run, like the clients of progressor bench. A single client then waits until
// the run has ended. This wait is not measured.
func dbosOneStep(ctx context.Context, d *database, clients int, duration time.Duration) (r result, err error) {
	ctx, stop := context.WithCancel(ctx)
	defer stop()
	client, err := dbosContext(ctx, d)
	if err != nil {
		return result{}, err
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
	dbos.RegisterWorkflow(client, function, dbos.WithWorkflowName(fmt.Sprint("one-", clients)))
	if err := dbos.Launch(client); err != nil {
		return result{}, err
	}
	defer func() { err = errors.Join(err, dbos.Shutdown(client, dbosStop)) }()
	var done atomic.Int64
	var over atomic.Bool
	took := make([][]time.Duration, clients)
	var group errgroup.Group
	for i := range clients {
		group.Go(func() error {
			for !over.Load() {
				began := time.Now()
				run, err := dbos.RunWorkflow(client, function, i)
				if err != nil {
					return err
				}
				select {
				case <-ran[i]:
				case <-ctx.Done():
					return ctx.Err()
				case <-time.After(dbosStop):
					return errors.New("the step of a run did not run")
				}
				done.Add(1)
				took[i] = append(took[i], time.Since(began))
				if clients > 1 {
					continue
				}
				if _, err := run.GetResult(); err != nil {
					return err
				}
			}
			return nil
		})
	}
	r, err = d.window(ctx, &done, duration)
	over.Store(true)
	if err = errors.Join(err, group.Wait()); err == nil && clients == 1 {
		r = quantiles(took[0])
	}
	return r, err
}

// dbosSteps measures runs that do one step after the other.
func dbosSteps(ctx context.Context, d *database, duration time.Duration) (r result, err error) {
	client, err := dbosContext(ctx, d)
	if err != nil {
		return result{}, err
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
		return result{}, err
	}
	defer func() { err = errors.Join(err, dbos.Shutdown(client, dbosStop)) }()
	handles := make([]dbos.WorkflowHandle[int], functionClients)
	for i := range handles {
		if handles[i], err = dbos.RunWorkflow(client, function, i); err != nil {
			return result{}, err
		}
	}
	r, err = d.window(ctx, &done, duration)
	over.Store(true)
	for _, h := range handles {
		_, runErr := h.GetResult()
		err = errors.Join(err, runErr)
	}
	return r, err
}

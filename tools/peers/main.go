// Peers compares Progressor with other programs that use PostgreSQL: jobs with River and
// graphile-worker, and durable functions with DBOS. All run on the same server, in alternation, and
// execute jobs or steps that do nothing.
//
//	make bench-peers ARGS='-jobs 100000 -rounds 3'
//	make bench-peers ARGS='-compare functions -duration 10s -rounds 3'
//
// Each queue has the settings of its own benchmark, and DBOS has its defaults. The queues store
// different data: Progressor keeps the history of each job, River keeps the job, and
// graphile-worker deletes it. Functions run in the program that starts them. For Progressor, this
// program is progressor bench, which contains the engine. Progressor and DBOS keep the runs and the
// results of their steps, but Progressor's function with many steps restarts its history after 100
// steps.
package main

import (
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"time"

	"github.com/progressor-engine/progressor/internal/pgembed"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	if err := run(ctx); err != nil {
		fmt.Fprintln(os.Stderr, "peers:", err)
		os.Exit(1)
	}
}

// peer is a program that can be measured.
type peer interface {
	name() string
	// measure measures all cases in the empty database d.
	measure(ctx context.Context, d *database, s size) (results, error)
}

// size describes how much each case measures.
type size struct {
	jobs     int
	duration time.Duration // duration of a case of functions
}

// minDuration is the shortest duration of a case of functions.
const minDuration = time.Second

func run(ctx context.Context) (err error) {
	compare := flag.String("compare", "jobs", "`what` is compared: jobs or functions")
	dsn := flag.String("dsn", "", "PostgreSQL `server` to measure; its role needs CREATEDB (default: a private one)")
	jobs := flag.Int("jobs", 100_000, "`number` of jobs of a measurement, a multiple of 1,000")
	duration := flag.Duration("duration", 10*time.Second, "`duration` of each case of functions")
	rounds := flag.Int("rounds", 3, "`number` of measurements of each peer, in alternation")
	program := flag.String("progressor", "progressor", "`path` of the progressor program")
	graphile := flag.String("graphile", "", "`directory` of bench.mjs (default: graphile-worker is not measured)")
	asJSON := flag.Bool("json", false, "print the results of all rounds as JSON")
	flag.Parse()
	if *jobs < batch || *jobs%batch != 0 {
		return fmt.Errorf("-jobs is %d: it must be a positive multiple of %d", *jobs, batch)
	}
	if *duration < minDuration {
		return fmt.Errorf("-duration is %s: it must be at least %s", *duration, minDuration)
	}
	if *rounds < 1 {
		return fmt.Errorf("-rounds is %d: it must be at least 1", *rounds)
	}
	peers, figures, err := comparison(*compare, *program, *graphile)
	if err != nil {
		return err
	}
	if *dsn == "" {
		// With these settings, no checkpoint begins during a measurement.
		settings := map[string]string{"shared_buffers": "1GB", "max_wal_size": "8GB"}
		server, startErr := pgembed.Start(ctx, pgembed.Config{Ephemeral: true, Settings: settings})
		if startErr != nil {
			return startErr
		}
		defer func() { err = errors.Join(err, server.Stop(context.WithoutCancel(ctx))) }()
		*dsn = server.DSN()
	}
	measured, err := measureAll(ctx, *dsn, peers, size{*jobs, *duration}, *rounds)
	if err != nil {
		return err
	}
	if *asJSON {
		return json.NewEncoder(os.Stdout).Encode(measured)
	}
	names := make([]string, len(peers))
	for i, p := range peers {
		names[i] = p.name()
	}
	return printTable(os.Stdout, names, figures, measured)
}

// comparison returns the peers of a comparison and the lines of its table.
func comparison(compare, program, graphile string) ([]peer, []figure, error) {
	switch compare {
	case "jobs":
		peers := []peer{progressorPeer{program: program}, riverPeer{}}
		if graphile != "" {
			peers = append(peers, graphilePeer{dir: graphile})
		}
		return peers, jobFigures, nil
	case "functions":
		return []peer{functionsPeer{program: program}, dbosPeer{}}, functionFigures, nil
	}
	return nil, nil, fmt.Errorf("-compare is %q: it must be jobs or functions", compare)
}

// measureAll measures each peer in each round.
func measureAll(
	ctx context.Context, dsn string, peers []peer, s size, rounds int,
) (map[string][]results, error) {
	measured := map[string][]results{}
	for round := range rounds {
		for _, p := range peers {
			fmt.Fprintf(os.Stderr, "round %d of %d: %s\n", round+1, rounds, p.name())
			r, err := measureOne(ctx, dsn, p, s)
			if err != nil {
				return nil, fmt.Errorf("%s: %w", p.name(), err)
			}
			measured[p.name()] = append(measured[p.name()], r)
		}
	}
	return measured, nil
}

func measureOne(ctx context.Context, dsn string, p peer, s size) (r results, err error) {
	d, err := createDatabase(ctx, dsn)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, d.drop(ctx)) }()
	return p.measure(ctx, d, s)
}

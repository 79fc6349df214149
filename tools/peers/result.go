package main

import (
	"context"
	"fmt"
	"io"
	"slices"
	"text/tabwriter"
	"time"
)

// The cases that are measured.
const (
	enqueued = "enqueue" // in batches of many clients
	drained  = "drain"   // all that were enqueued, by a processor in the same program
	pulled   = "pull"    // the same by workers over RPC; only Progressor supports this
	latency  = "latency" // enqueued → started, one at a time
)

// The cases of functions.
const (
	oneStep      = "one step"       // runs with one step, by many clients
	oneStepAlone = "one step alone" // the same by one client: start → the step has run
	steps        = "steps"          // many runs that do one step after the other
)

// functionClients is the number of clients of oneStep, and the number of runs of steps.
const functionClients = 128

const (
	batch      = 1000 // jobs in a batch
	enqueuers  = 4    // clients that enqueue batches
	singleJobs = 500  // jobs that are enqueued one after the other, for latency
)

// result is the measurement of a case. A value that the case does not have is 0.
type result struct {
	Rate      float64 `json:"ops_per_second,omitempty"`
	P50Millis float64 `json:"p50_ms,omitempty"`
	P99Millis float64 `json:"p99_ms,omitempty"`
	WALBytes  float64 `json:"wal_bytes_per_op,omitempty"`
}

// results are the results of a peer, by case.
type results map[string]result

// quantiles returns the quantiles of durations. It sorts them.
func quantiles(d []time.Duration) result {
	slices.Sort(d)
	at := func(percent int) float64 { return d[(len(d)-1)*percent/100].Seconds() * 1000 }
	return result{P50Millis: at(50), P99Millis: at(99)}
}

func pause(ctx context.Context, d time.Duration) {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
	case <-ctx.Done():
	}
}

// figure is a line of the table.
type figure struct {
	name   string
	format string
	of     func(results) float64 // 0 if the peer does not have the figure
}

var jobFigures = []figure{
	{"bulk enqueue, jobs/s", "%.0f", func(r results) float64 { return r[enqueued].Rate }},
	{"drain, in the same program, jobs/s", "%.0f", func(r results) float64 { return r[drained].Rate }},
	{"drain, pulled over RPC, jobs/s", "%.0f", func(r results) float64 { return r[pulled].Rate }},
	{"enqueued → started, p50, ms", "%.2f", func(r results) float64 { return r[latency].P50Millis }},
	{"enqueued → started, p99, ms", "%.2f", func(r results) float64 { return r[latency].P99Millis }},
	{"WAL per job, enqueue and run, bytes", "%.0f", func(r results) float64 {
		return r[enqueued].WALBytes + r[drained].WALBytes
	}},
}

var functionFigures = []figure{
	{"one-step runs, 128 clients, runs/s", "%.0f", func(r results) float64 { return r[oneStep].Rate }},
	{"sequential steps, 128 runs, steps/s", "%.0f", func(r results) float64 { return r[steps].Rate }},
	{"start → step has run, p50, ms", "%.2f", func(r results) float64 { return r[oneStepAlone].P50Millis }},
	{"start → step has run, p99, ms", "%.2f", func(r results) float64 { return r[oneStepAlone].P99Millis }},
	{"WAL per one-step run, bytes", "%.0f", func(r results) float64 { return r[oneStep].WALBytes }},
}

// printTable prints a line for each figure: the median of each peer over all rounds, and the median
// of the first peer divided by that of each other one.
func printTable(w io.Writer, names []string, figures []figure, rounds map[string][]results) error {
	// The names of the lines are padded to align them to the left, because all columns are aligned
	// to the right.
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', tabwriter.AlignRight)
	for _, name := range names {
		fmt.Fprintf(t, "\t%s", name)
	}
	for _, name := range names[1:] {
		fmt.Fprintf(t, "\tratio to %s", name)
	}
	fmt.Fprintln(t, "\t")
	for _, f := range figures {
		fmt.Fprintf(t, "%-36s", f.name)
		first := median(rounds[names[0]], f.of)
		for _, name := range names {
			fmt.Fprintf(t, "\t%s", number(f.format, median(rounds[name], f.of)))
		}
		for _, name := range names[1:] {
			ratio := 0.0
			if other := median(rounds[name], f.of); other > 0 {
				ratio = first / other
			}
			fmt.Fprintf(t, "\t%s", number("%.2f", ratio))
		}
		fmt.Fprintln(t, "\t")
	}
	return t.Flush()
}

func number(format string, v float64) string {
	if v == 0 {
		return "–"
	}
	return fmt.Sprintf(format, v)
}

func median(rounds []results, of func(results) float64) float64 {
	values := make([]float64, len(rounds))
	for i, r := range rounds {
		values[i] = of(r)
	}
	slices.Sort(values)
	return values[len(values)/2]
}

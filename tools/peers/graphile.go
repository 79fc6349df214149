package main

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"strconv"
	"time"
)

// graphilePeer measures graphile-worker in a program for Node.
type graphilePeer struct {
	dir string // contains bench.mjs and its node_modules
}

func (graphilePeer) name() string { return "graphile-worker" }

// measure measures graphile-worker in an empty database.
func (p graphilePeer) measure(ctx context.Context, d *database, s size) (results, error) {
	jobs := s.jobs
	if _, err := p.run(ctx, d, "migrate", 0); err != nil {
		return nil, err
	}
	r := results{}
	for _, c := range []string{enqueued, drained} {
		if err := d.measure(ctx, r, c, jobs, func() (time.Duration, error) {
			out, err := p.run(ctx, d, c, jobs)
			return time.Duration(out.Seconds * float64(time.Second)), err
		}); err != nil {
			return nil, err
		}
	}
	out, err := p.run(ctx, d, latency, singleJobs)
	r[latency] = result{P50Millis: out.P50Millis, P99Millis: out.P99Millis}
	return r, err
}

type graphileOutput struct {
	Seconds   float64 `json:"seconds"`
	P50Millis float64 `json:"p50_ms"`
	P99Millis float64 `json:"p99_ms"`
}

func (p graphilePeer) run(ctx context.Context, d *database, mode string, jobs int) (graphileOutput, error) {
	cmd := exec.CommandContext(ctx, "node", "bench.mjs", mode, strconv.Itoa(jobs))
	cmd.Dir, cmd.Env = p.dir, append(os.Environ(), d.environment()...)
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	stdout, err := cmd.Output()
	if err != nil {
		return graphileOutput{}, fmt.Errorf("node bench.mjs %s: %w\n%s", mode, err, stderr.Bytes())
	}
	var out graphileOutput
	if err := json.Unmarshal(stdout, &out); err != nil {
		return graphileOutput{}, fmt.Errorf("node bench.mjs %s: %w: %s", mode, err, stdout)
	}
	return out, nil
}

package main

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"os/exec"
	"strconv"
	"strings"
)

// progressorPeer measures Progressor with progressor bench.
type progressorPeer struct {
	program string
}

func (progressorPeer) name() string { return "Progressor" }

// measure runs progressor bench on the server of d. The bench creates its own databases there.
func (p progressorPeer) measure(ctx context.Context, d *database, s size) (results, error) {
	rows, err := runBench(ctx, p.program, d, "jobs", "--jobs", strconv.Itoa(s.jobs))
	if err != nil {
		return nil, err
	}
	r := results{}
	for _, row := range rows {
		_, name, _ := strings.Cut(row.Workload, ": ")
		r[name] = result{Rate: row.OpsPerSecond, WALBytes: row.WALBytes}
		if name == latency {
			r[name] = result{P50Millis: row.P50Millis, P99Millis: row.P99Millis}
		}
	}
	return r, r.check("jobs", enqueued, drained, latency, pulled)
}

// functionsPeer measures the durable functions of Progressor with progressor bench.
type functionsPeer struct {
	program string
}

func (functionsPeer) name() string { return "Progressor" }

// measure runs progressor bench on the server of d. The bench creates its own databases there.
func (p functionsPeer) measure(ctx context.Context, d *database, s size) (results, error) {
	rows, err := runBench(ctx, p.program, d, "durable", "--duration", s.duration.String(),
		"--clients", fmt.Sprintf("1,%d", functionClients))
	if err != nil {
		return nil, err
	}
	r := results{}
	for _, row := range rows {
		name := strings.TrimSuffix(strings.TrimPrefix(row.Workload, "durable ("), ")")
		switch {
		case row.Clients == functionClients:
			r[name] = result{Rate: row.OpsPerSecond, WALBytes: row.WALBytes}
		case name == oneStep:
			r[oneStepAlone] = result{P50Millis: row.P50Millis, P99Millis: row.P99Millis}
		}
	}
	return r, r.check("durable", oneStep, oneStepAlone, steps)
}

// benchRow is a row of the report of progressor bench.
type benchRow struct {
	Workload     string  `json:"workload"`
	Clients      int     `json:"clients"`
	OpsPerSecond float64 `json:"ops_per_second"`
	P50Millis    float64 `json:"p50_ms"`
	P99Millis    float64 `json:"p99_ms"`
	WALBytes     float64 `json:"wal_bytes_per_op"`
}

// runBench runs a workload of progressor bench on the server of d.
func runBench(ctx context.Context, program string, d *database, workload string, flags ...string) ([]benchRow, error) {
	args := []string{"bench", "--workloads", workload, "--no-baseline", "--dsn", d.server, "-o", "json"}
	cmd := exec.CommandContext(ctx, program, append(args, flags...)...)
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	stdout, err := cmd.Output()
	if err != nil {
		return nil, fmt.Errorf("progressor bench: %w\n%s", err, stderr.Bytes())
	}
	var report struct {
		Rows []benchRow `json:"rows"`
	}
	if err := json.Unmarshal(stdout, &report); err != nil {
		return nil, fmt.Errorf("progressor bench: %w", err)
	}
	return report.Rows, nil
}

// check returns an error if the result of a case is missing.
func (r results) check(workload string, cases ...string) error {
	for _, name := range cases {
		if _, ok := r[name]; !ok {
			return fmt.Errorf("the report of progressor bench --workloads %s has no row %q", workload, name)
		}
	}
	return nil
}

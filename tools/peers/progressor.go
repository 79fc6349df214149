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
func (p progressorPeer) measure(ctx context.Context, d *database, jobs int) (results, error) {
	cmd := exec.CommandContext(ctx, p.program, "bench", "--workloads", "jobs", "--no-baseline",
		"--jobs", strconv.Itoa(jobs), "--dsn", d.server, "-o", "json")
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	stdout, err := cmd.Output()
	if err != nil {
		return nil, fmt.Errorf("progressor bench: %w\n%s", err, stderr.Bytes())
	}
	var report struct {
		Rows []struct {
			Workload     string  `json:"workload"`
			OpsPerSecond float64 `json:"ops_per_second"`
			P50Millis    float64 `json:"p50_ms"`
			P99Millis    float64 `json:"p99_ms"`
			WALBytes     float64 `json:"wal_bytes_per_op"`
		} `json:"rows"`
	}
	if err := json.Unmarshal(stdout, &report); err != nil {
		return nil, fmt.Errorf("progressor bench: %w", err)
	}
	r := results{}
	for _, row := range report.Rows {
		_, name, _ := strings.Cut(row.Workload, ": ")
		r[name] = result{Rate: row.OpsPerSecond, WALBytes: row.WALBytes}
		if name == latency {
			r[name] = result{P50Millis: row.P50Millis, P99Millis: row.P99Millis}
		}
	}
	for _, name := range []string{enqueued, drained, latency, pulled} {
		if _, ok := r[name]; !ok {
			return nil, fmt.Errorf("the report of progressor bench has no row jobs: %s", name)
		}
	}
	return r, nil
}

package main

import (
	"encoding/json"
	"runtime/debug"
	"slices"
	"strings"
	"testing"

	"github.com/progressor-engine/progressor/cmd/progressor/internal/cli/clitest"
	"github.com/progressor-engine/progressor/internal/bench"
	"github.com/progressor-engine/progressor/storage/storagetest"
)

// TestAttacks runs small attacks with progressor bench. It checks the limits that do not depend on
// the load of the machine. Only a full run of the workload can check the other limits.
func TestAttacks(t *testing.T) {
	t.Parallel()
	attacks := []string{"expanding-requests", "expanding-responses", "long-numbers", "patterns", "foreign-hosts",
		"tokens"}
	race := hasRaceDetector(t)
	dsn := storagetest.DSN(t, storagetest.WithoutInvariants())
	var report bench.Report
	for _, duration := range []string{"300ms", "5s"} { // a busy machine needs more time
		r := clitest.Program{Commands: newCommands}.Run(t, "bench", "--dsn", dsn, "--workloads", "attacks",
			"--attacks", strings.Join(attacks, ","), "--attack-size", "15", "--duration", duration, "--warmup", "0s",
			"--rpc-clients", "4", "-o", "json")
		report = bench.Report{}
		if err := json.Unmarshal([]byte(r.Stdout), &report); err != nil || len(report.Rows) != len(attacks) {
			t.Fatalf("%v, %d rows\n%s", err, len(report.Rows), r.Stderr)
		}
		if !slices.ContainsFunc(report.Rows, func(r *bench.Row) bool { return r.Operations == 0 || r.Ratio == nil }) {
			break
		}
	}
	for n, row := range report.Rows {
		if row.Workload != "attacks ("+attacks[n]+")" || row.Operations == 0 || row.Ratio == nil {
			t.Errorf("the row of attack %s contains no measurement: %+v", attacks[n], row)
		}
		for _, broken := range row.Broken() {
			if strings.HasPrefix(broken, "the victim kept") || strings.HasPrefix(broken, "/livez took") ||
				race && strings.HasPrefix(broken, "the engine used") {
				continue
			}
			t.Errorf("%s: %s", row.Workload, broken)
		}
	}
}

// hasRaceDetector reports whether the test program was built with the race detector. Its shadow
// memory is several times as large as the memory of the program.
func hasRaceDetector(t *testing.T) bool {
	t.Helper()
	info, ok := debug.ReadBuildInfo()
	if !ok {
		t.Fatal("the test program has no build information")
	}
	return slices.Contains(info.Settings, debug.BuildSetting{Key: "-race", Value: "true"})
}

package bench

import (
	"bytes"
	"encoding/json"
	"io"
	"slices"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/schollz/progressbar/v3"

	"github.com/progressor-engine/progressor/storage/storagetest"
)

// short contains flags for a bench run that ends within moments. The figures of such a run have no
// meaning.
var short = []string{
	"--duration=1s", "--warmup=0s", "--clients=1,20", "--processes=50", "--events=5", "--rpc-clients=4",
	"--timers=100",
	"--spread-timers=20", "--spread=100ms", "--flat-processes=20", "--flat-tasks=60", "--flat-clients=4",
	"--flat-warmup=0s",
	"--in-flight=5", "--waiting=20", "--idle=100ms", "--crons=20", "--jobs=1000", "--crons-every=1s", "--crons-fires=2",
	"--crons-down=5",
	"--neighbor-namespaces=3", "--neighbor-large-calls=7", "--neighbor-queue=3000", "--neighbor-backlog=100",
	"--neighbor-clients=50",
}

func runShort(t *testing.T, args ...string) *Report {
	t.Helper()
	dsn := storagetest.DSN(t, storagetest.WithoutInvariants())
	c := parse(t, append(append([]string{"--dsn", dsn}, short...), args...)...)
	var stdout bytes.Buffer
	var stderr lockedBuffer
	err := c.Run(t.Context(), Environment{Stdin: strings.NewReader(""), Stdout: &stdout, Stderr: &stderr, JSON: true})
	if err != nil {
		t.Fatalf("%v\n%s", err, &stderr)
	}
	var report Report
	if err := json.Unmarshal(stdout.Bytes(), &report); err != nil {
		t.Fatal(err)
	}
	noScratch(t, dsn)
	return &report
}

// noScratch fails the test if a database of the bench still exists.
func noScratch(t *testing.T, dsn string) {
	t.Helper()
	conn, err := pgx.Connect(t.Context(), dsn)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close(t.Context())
	var left int
	if err := conn.QueryRow(t.Context(),
		`SELECT count(*) FROM pg_database WHERE datname LIKE 'progressor_bench_%'`).Scan(&left); err != nil {
		t.Fatal(err)
	}
	if left != 0 {
		t.Errorf("%d databases of the bench are left", left)
	}
}

// After an hour without an engine, crons decide all missed fire times, with each misfire policy.
func TestCronsDown(t *testing.T) {
	report := runShort(t, "--workloads=crons-down")
	if len(report.Rows) != 3 {
		t.Fatalf("%d rows, want one for each policy", len(report.Rows))
	}
	for n, missed := range []float64{295, 295, 250} {
		row := report.Rows[n]
		if len(row.Figures) != 3 || row.Figures[2].Value < missed || row.Operations < 300 {
			t.Errorf("%s: %d fire times, %+v", row.Note, row.Operations, row.Figures)
		}
	}
}

func TestWorkloadsInOneProcess(t *testing.T) {
	report := runShort(t, "--workloads=start,call,hot,hot-snapshot,loop,timers,crons,flat,search",
		"--history=none,full", "--metadata")
	// The rows per workload are start 4, call 8, hot 2, hot-snapshot 1, loop 2, timers 2, crons 1,
	// flat 4, search 10
	if len(report.Rows) != 34 {
		t.Errorf("%d rows, want 34", len(report.Rows))
	}
	for _, row := range report.Rows {
		if row.Operations == 0 || row.OpsPerSecond == 0 || row.P99Millis == nil {
			t.Errorf("%s, %d clients: nothing was measured: %+v", row.Workload, row.Clients, row)
		}
		invariant := "task_in_one_place"
		if row.Workload == "search" { // its processes have no tasks
			invariant = "counts_agree"
		}
		if row.Checked[invariant] == 0 {
			t.Errorf("%s, %d clients: nothing was checked", row.Workload, row.Clients)
		}
		if row.Ratio != nil || row.Subject != subjectEngine {
			t.Errorf("%s: a comparison on a server without fsync: %+v", row.Workload, row)
		}
	}
}

// If the last task of a process is repeated, no step is counted, and the process ends only once.
func TestRepeatedEnd(t *testing.T) {
	t.Parallel()
	l := newLooper(1)
	l.step(0)
	l.end(0)
	if stop := l.step(0); !stop || l.steps[0].n != 1 {
		t.Errorf("stop is %t after %d steps, want true after 1", stop, l.steps[0].n)
	}
	l.end(0)
	if len(l.ended) != 1 {
		t.Errorf("%d processes ended, want 1", len(l.ended))
	}
}

func TestDurableFunctions(t *testing.T) {
	report := runShort(t, "--workloads=durable")
	if len(report.Rows) != 9 {
		t.Fatalf("%d rows, want 9", len(report.Rows))
	}
	if last := report.Rows[8]; last.Figures[0].Value != 20 || last.Figures[1].Value <= 0 {
		t.Errorf("runs in memory and their size: %+v", last.Figures)
	}
	for _, row := range report.Rows[:8] {
		if row.Operations == 0 || row.P99Millis == nil || row.Checked["task_in_one_place"] == 0 {
			t.Errorf("%s, %d clients: nothing was measured: %+v", row.Workload, row.Clients, row)
		}
	}
}

func TestJobs(t *testing.T) {
	report := runShort(t, "--workloads=jobs")
	if len(report.Rows) != 4 {
		t.Fatalf("%d rows, want 4", len(report.Rows))
	}
	for n, jobs := range []int64{1000, 1000, singleJobs, 1000} {
		if row := report.Rows[n]; row.Operations != jobs || row.OpsPerSecond == 0 || row.Checked["job_has_row"] == 0 {
			t.Errorf("%s: nothing was measured: %+v", row.Workload, row)
		}
	}
}

func TestJobsClaims(t *testing.T) {
	report := runShort(t, "--workloads=jobs-claims")
	if len(report.Rows) != 5 {
		t.Fatalf("%d rows, want 5", len(report.Rows))
	}
	for n, row := range report.Rows {
		if row.Operations != 1000 || row.OpsPerSecond == 0 || row.Checked["job_has_row"] == 0 {
			t.Errorf("%s: nothing was measured: %+v", row.Workload, row)
		}
		if (row.Ratio != nil) != (n == 2 || n == 4) { // claimed, and ended, with keys
			t.Errorf("%s: compared with %q", row.Workload, row.RatioTo)
		}
	}
}

func TestWorkloadsWithProcessesOfTheirOwn(t *testing.T) {
	report := runShort(t, "--workloads=rpc,idle,memory", "--keys=on")
	if len(report.Rows) != 3 {
		t.Fatalf("%d rows, want 3", len(report.Rows))
	}
	if rpc := report.Rows[0]; rpc.Operations == 0 || rpc.FlushItems == nil {
		t.Errorf("rpc: nothing was measured: %+v", rpc)
	}
	for _, row := range report.Rows[1:] {
		if len(row.Figures) < 3 {
			t.Errorf("%s: figures %v", row.Workload, row.Figures)
		}
	}
}

// The same calls run with and without authentication. Only a real run shows the difference.
func TestAuth(t *testing.T) {
	report := runShort(t, "--workloads=auth", "--keys=off")
	if len(report.Rows) != 2 {
		t.Fatalf("%d rows, want 2", len(report.Rows))
	}
	for n, state := range []string{withoutAuth, withKey} {
		row := report.Rows[n]
		if row.Workload != "auth ("+state+")" || row.Operations == 0 || row.EngineCPU == nil || row.P99Millis == nil {
			t.Errorf("nothing was measured: %+v", row)
		}
	}
	keyed := report.Rows[1]
	if keyed.Ratio == nil || keyed.RatioTo != withoutAuth || keyed.Checked["task_in_one_place"] == 0 ||
		len(keyed.Figures) != 1 {
		t.Errorf("not compared, or not checked: %+v", keyed)
	}
}

// standardError returns the standard error of the mean of the ratios. It ignores slices without
// calls.
func TestStandardError(t *testing.T) {
	if e := standardError([]float64{1, 3}, []float64{1, 1}); e != 1 {
		t.Errorf("%g, want 1", e)
	}
	if e := standardError([]float64{2, 4, 6}, []float64{1, 2, 3}); e != 0 {
		t.Errorf("%g, want 0: all ratios are the same", e)
	}
	if e := standardError([]float64{1, 7, 3}, []float64{1, 0, 1}); e != 1 {
		t.Errorf("%g, want 1: a slice without calls has no ratio", e)
	}
	if e := standardError([]float64{1, 7}, []float64{1, 0}); e != 0 {
		t.Errorf("%g, want 0: one ratio has no error", e)
	}
}

// The overload workload returns all its figures. At twice the peak load, no result of a task is
// refused. Only a real run shows how many calls are executed, and how fast.
func TestOverload(t *testing.T) {
	report := runShort(t, "--workloads=overload")
	if len(report.Rows) != 1 {
		t.Fatalf("%d rows, want 1", len(report.Rows))
	}
	row := report.Rows[0]
	if row.Operations == 0 || row.Ratio == nil || row.Clients != 20 || row.Checked["task_in_one_place"] == 0 {
		t.Errorf("nothing was measured: %+v", row)
	}
	figures := map[string]float64{}
	for _, f := range row.Figures {
		figures[f.Name] = f.Value
	}
	if figures["peak before"] == 0 || figures["peak after"] == 0 || figures["offered"] == 0 || figures["done"] == 0 ||
		figures["goodput, within 1 s"] == 0 || figures["goodput, within 1 s"] > figures["done"] ||
		figures["leases lost and results refused"] != 0 {
		t.Errorf("figures %v", figures)
	}
	if _, ok := figures["latency normal again after"]; !ok {
		t.Errorf("the time after the overload is missing: %v", figures)
	}
}

// The changes workload measures calls without and with recorded changes, a sink to Kafka and a sink
// to a webhook. No change is delivered twice to Kafka. Only a real run shows the speed.
func TestChanges(t *testing.T) {
	report := runShort(t, "--workloads=changes")
	if len(report.Rows) != 4 {
		t.Fatalf("%d rows, want 4", len(report.Rows))
	}
	for n, row := range report.Rows {
		if row.Operations == 0 || row.P50Millis == nil || row.Checked["task_in_one_place"] == 0 {
			t.Errorf("nothing was measured: %+v", row)
		}
		if compared := n == 1 || n == 2; compared != (row.Ratio != nil) {
			t.Errorf("%s: ratio %v", row.Workload, row.Ratio)
		}
	}
	figures := map[string]float64{}
	for _, f := range report.Rows[2].Figures {
		figures[f.Name] = f.Value
	}
	if figures["backlog delivered"] == 0 || figures["changes delivered twice"] != 0 {
		t.Errorf("figures of the sink: %v", figures)
	}
}

// The neighbors workload returns a row with all figures for each state of a tenant. Only a real run
// shows the throughput that is left for other tenants.
func TestNeighbors(t *testing.T) {
	report := runShort(t, "--workloads=neighbors")
	idle := func(r *Row) bool { return r.Operations == 0 }
	if slices.ContainsFunc(report.Rows, idle) { // on a loaded machine, no call may end within 300 ms
		report = runShort(t, "--workloads=neighbors", "--duration=3s")
	}
	if len(report.Rows) != len(neighborNames) {
		t.Fatalf("%d rows, want %d", len(report.Rows), len(neighborNames))
	}
	for i, row := range report.Rows {
		if want := "neighbors (" + neighborNames[i] + ")"; row.Workload != want {
			t.Errorf("row %d is of %s, want %s", i, row.Workload, want)
		}
		figures := map[string]float64{}
		for _, f := range row.Figures {
			figures[f.Name] = f.Value
		}
		if row.Operations == 0 || row.Ratio == nil || row.Note == "" || row.Checked["task_in_one_place"] == 0 {
			t.Errorf("%s: nothing was measured: %+v", row.Workload, row)
		}
		for _, name := range []string{"peak", "offered", "done while the tenant is quiet", "latency of calls, p99",
			"lateness of timers, p99", "lateness of timers, p99, while the tenant is quiet",
			"lateness of SQL messages, p99"} {
			if figures[name] <= 0 {
				t.Errorf("%s: no %s: %v", row.Workload, name, figures)
			}
		}
	}
}

func TestBaseline(t *testing.T) {
	dsn := storagetest.DSN(t, storagetest.WithoutInvariants())
	c := parse(t, append([]string{"--dsn", dsn}, short...)...)
	server, err := openServer(t.Context(), dsn, nil)
	if err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := server.close(t.Context()); err != nil {
			t.Error(err)
		}
	}()
	r := &runner{command: c, env: Environment{Stderr: io.Discard}, server: server, bar: progressbar.DefaultSilent(1)}
	for _, v := range []variant{
		{"start", 4, true, historyNone, true, "", ""}, {"call", 4, true, historyNone, false, "", ""},
		{"call", 4, false, historyFull, false, "", ""},
		{"hot", 20, false, historyNone, false, "", ""}, {"hot-snapshot", 4, false, historyNone, false, "", ""},
		{"loop", 4, false, historyNone, false, "", ""},
		{"timers", 0, false, historyNone, false, "", ""},
	} {
		row, err := r.baseline(t.Context(), v)
		if err != nil {
			t.Fatalf("%s: %v", v, err)
		}
		if row.Operations == 0 {
			t.Errorf("%s: nothing was measured", v)
		}
	}
	noScratch(t, dsn)
}

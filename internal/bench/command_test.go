package bench

import (
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/alecthomas/kong"
)

func parse(t *testing.T, args ...string) *Command {
	t.Helper()
	var c Command
	parser, err := kong.New(&c)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := parser.Parse(args); err != nil {
		t.Fatal(err)
	}
	return &c
}

func TestFlagDefaults(t *testing.T) {
	c := parse(t)
	if err := c.check(); err != nil {
		t.Fatal(err)
	}
	if !slices.Equal(c.Clients, []int{1, 32, 128, 512}) || c.Duration != 10*time.Second || c.Warmup != 2*time.Second ||
		!c.Baseline || c.Role != roleBench {
		t.Errorf("defaults: %+v", c)
	}
	cases := map[string]int{}
	for _, p := range c.plan() {
		cases[p.variant.workload]++
	}
	want := map[string]int{"start": 8, "call": 8, "hot": 4, "loop": 4, "timers": 1, "rpc": 2}
	for name, n := range want {
		if cases[name] != n {
			t.Errorf("%d cases of %s, want %d", cases[name], name, n)
		}
	}
	if len(cases) != len(want) {
		t.Errorf("workloads %v, want %v", cases, want)
	}
}

func TestPlanFollowsFlags(t *testing.T) {
	c := parse(t, "--workload", "call,hot-snapshot", "--clients", "512,64", "--keys", "on", "--history", "none,full",
		"--metadata")
	var got []string
	for _, p := range c.plan() {
		got = append(got, p.variant.String())
		if p.workload.name == "call" && !p.variant.metadata {
			t.Errorf("%s has no metadata", p.variant)
		}
	}
	want := []string{
		"call, 512 clients, keys", "call, 64 clients, keys",
		"call, 512 clients, keys, full history", "call, 64 clients, keys, full history",
		"hot-snapshot, 64 clients",
	}
	if !slices.Equal(got, want) {
		t.Errorf("plan is\n%s\nwant\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
	}
}

func TestCheckRefuses(t *testing.T) {
	for flags, want := range map[string]string{
		"--workloads=nap":           `unknown workload "nap"`,
		"--clients=0":               "--clients",
		"--duration=0s":             "--duration",
		"--warmup=-1s":              "--warmup",
		"--processes=-1":            "--processes",
		"--lanes=0":                 "--lanes",
		"--neighbor-states=noisy":   `unknown state "noisy"`,
		"--neighbor-queue=0":        "--neighbor-queue",
		"--attacks=noisy":           `unknown attack "noisy"`,
		"--attack-size=0":           "--attack-size",
		"--dsn=host=x port=secret1": "--dsn: must be a connection string",
		"--flat-database=x":         "--flat-database requires --dsn",
	} {
		err := parse(t, flags).check()
		if err == nil || !strings.Contains(err.Error(), want) || strings.Contains(err.Error(), "secret1") {
			t.Errorf("%s: %v, want %s", flags, err, want)
		}
	}
}

func TestDSNOfAnotherDatabase(t *testing.T) {
	for dsn, want := range map[string]string{
		"host=/tmp user=postgres dbname=app":                "host=/tmp user=postgres dbname=app dbname=scratch",
		"postgres://u:p%40@h:5432/app?sslmode=disable":      "postgres://u:p%40@h:5432/scratch?sslmode=disable",
		"postgresql:///app?host=/tmp&dbname=other&user=joe": "postgresql:///scratch?host=%2Ftmp&user=joe",
		"": " dbname=scratch",
	} {
		got, err := dsnWith(dsn, "scratch")
		if err != nil || got != want {
			t.Errorf("%q: %q, %v, want %q", dsn, got, err, want)
		}
	}
	if _, err := dsnWith("postgres://u:secret1@h:port/app", "scratch"); err == nil || strings.Contains(err.Error(), "secret1") {
		t.Errorf("the error of an invalid URL: %v", err)
	}
}

func TestPayload(t *testing.T) {
	p := newPayload(t.Context())
	for name, sizes := range map[string][2]int{
		"args": {len(p.args), 200}, "event": {len(p.event), 200}, "state": {len(p.state), 200},
		"response": {len(p.response), 100},
	} {
		if sizes[0] != sizes[1] {
			t.Errorf("%s has %d bytes, want %d", name, sizes[0], sizes[1])
		}
	}
	seen := map[string]bool{}
	for n := range uint64(10_000) {
		id := processID(n)
		if len(id) != 18 || seen[id] {
			t.Fatalf("id %d is %q", n, id)
		}
		seen[id] = true
	}
}

func TestParseProcStat(t *testing.T) {
	text := "42 (postgres: x) (y) S 7 42 42 0 -1 4194304 100 200 0 0 150 50 30 20 20 0 1 0 99 1000 10"
	got, err := parseProcStat([]byte(text))
	want := procStat{command: "postgres: x) (y", parent: 7, own: 2 * time.Second, children: 500 * time.Millisecond}
	if err != nil || got != want {
		t.Errorf("%+v, %v, want %+v", got, err, want)
	}
	for _, broken := range []string{"", "42 postgres S", "42 (postgres) S 7",
		"42 (p) S x 1 1 1 1 1 1 1 1 1 1 1 1 1 1 1"} {
		if _, err := parseProcStat([]byte(broken)); err == nil {
			t.Errorf("%q was read", broken)
		}
	}
	bytes, err := parseMemory("Name:\tx\nVmRSS:\t  1024 kB\nThreads: 3\n", "VmRSS")
	if err != nil || bytes != 1<<20 {
		t.Errorf("resident: %d, %v", bytes, err)
	}
	if _, err := parseMemory("Name:\tx\n", "VmRSS"); err == nil {
		t.Error("a text without VmRSS was read")
	}
}

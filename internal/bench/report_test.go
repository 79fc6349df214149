package bench

import (
	"bytes"
	"encoding/json"
	"strings"
	"testing"
	"time"
)

func sampleReport(fsync string) *Report {
	var latencies histogram
	for range 1000 {
		latencies.add(8 * time.Millisecond)
	}
	w := &window{latencies: latencies, elapsed: 500 * time.Millisecond, refused: 3, spent: spent{
		walBytes: new(2_000_000.0), postgresTime: new(65 * time.Millisecond), engineTime: new(40 * time.Millisecond),
		flushItems: new(31.25),
	}}
	v := variant{workload: "call", clients: 128, keys: true, history: historyNone, metadata: true}
	engine, base := v.row(subjectEngine), v.row(subjectBaseline)
	engine.rate(w)
	base.fill(500, 500*time.Millisecond, nil, spent{})
	engine.compare(base, subjectBaseline)
	engine.Checked = map[string]int64{"no_orphans": 7}
	idle := variant{workload: "idle", history: historyNone}.row(subjectEngine)
	idle.figure("queries", 4.1, "1/s")
	return &Report{
		Machine: Machine{Cores: 2, PostgreSQL: "15.18", Fsync: fsync, SynchronousCommit: "on", FullPageWrites: "on",
			WALInitZero: "off", FdatasyncMillis: new(0.11)},
		Rows: []*Row{engine, base, idle},
	}
}

func TestTable(t *testing.T) {
	var b bytes.Buffer
	if err := sampleReport("on").WriteTable(&b); err != nil {
		t.Fatal(err)
	}
	lines := strings.Split(b.String(), "\n")
	for _, want := range []string{
		"progressor 2 cores PostgreSQL 15.18 on another machine",
		"fsync=on synchronous_commit=on full_page_writes=on wal_init_zero=off fdatasync=0.110ms",
		"workload subject clients keys history ops/s p50 ms p99 ms WAL B/op PG µs/op engine µs/op batch ratio note",
		"call progressor 128 on none 2,000 8.06 8.06 2,000 65 40 31.2 2.00 × baseline metadata, 3 refused",
		"call baseline 128 on none 1,000 metadata",
		"idle queries 4.10 1/s",
	} {
		found := false
		for _, line := range lines {
			found = found || hasWords(line, strings.Fields(want))
		}
		if !found {
			t.Errorf("no line %q in:\n%s", want, b.String())
		}
	}
	if strings.Contains(b.String(), "No ratio") {
		t.Errorf("a durable server was rejected:\n%s", b.String())
	}
}

// hasWords reports whether a line contains the words in this order.
func hasWords(line string, words []string) bool {
	for _, word := range words {
		_, after, found := strings.Cut(line, word)
		if !found {
			return false
		}
		line = after
	}
	return true
}

func TestTableSaysWhyThereIsNoRatio(t *testing.T) {
	var b bytes.Buffer
	if err := sampleReport("off").WriteTable(&b); err != nil {
		t.Fatal(err)
	}
	if !strings.Contains(b.String(), "No ratio") {
		t.Errorf("fsync=off is not reported:\n%s", b.String())
	}
}

func TestDurable(t *testing.T) {
	on := Machine{Fsync: "on", SynchronousCommit: "on", FullPageWrites: "on"}
	for want, changes := range map[bool][]func(*Machine){
		true: {
			func(*Machine) {},
			func(m *Machine) { m.SynchronousCommit = "local" },
			func(m *Machine) { m.WALInitZero = "on" },
		},
		false: {
			func(m *Machine) { m.Fsync = "off" },
			func(m *Machine) { m.SynchronousCommit = "off" },
			func(m *Machine) { m.FullPageWrites = "off" },
		},
	} {
		for _, change := range changes {
			m := on
			change(&m)
			if m.Durable() != want {
				t.Errorf("%+v: durable is %t, want %t", m, m.Durable(), want)
			}
		}
	}
}

func TestJSON(t *testing.T) {
	var b bytes.Buffer
	if err := sampleReport("on").WriteJSON(&b); err != nil {
		t.Fatal(err)
	}
	var got struct {
		Machine map[string]any
		Rows    []map[string]any
	}
	if err := json.Unmarshal(b.Bytes(), &got); err != nil {
		t.Fatal(err)
	}
	want := map[string]any{
		"workload": "call", "subject": "progressor", "clients": 128.0, "keys": true, "operations": 1000.0,
		"seconds":        0.5,
		"ops_per_second": 2000.0, "wal_bytes_per_op": 2000.0, "postgres_cpu_us_per_op": 65.0,
		"engine_cpu_us_per_op": 40.0,
		"flush_items":          31.25, "ratio": 2.0, "ratio_to": "baseline", "refused": 3.0,
	}
	for name, value := range want {
		if got.Rows[0][name] != value {
			t.Errorf("%s is %v, want %v", name, got.Rows[0][name], value)
		}
	}
	if _, known := got.Rows[1]["p50_ms"]; known {
		t.Error("a row without latencies has a p50")
	}
	if got.Machine["fdatasync_ms"] != 0.11 {
		t.Errorf("fdatasync_ms is %v", got.Machine["fdatasync_ms"])
	}
}

func TestNumber(t *testing.T) {
	for _, c := range []struct {
		value    *float64
		decimals int
		want     string
	}{
		{nil, 2, ""}, {new(0.0), 0, "0"}, {new(999.4), 0, "999"}, {new(1000.0), 0, "1,000"},
		{new(1234567.891), 2, "1,234,567.89"}, {new(-12345.0), 0, "-12,345"},
	} {
		if got := number(c.value, c.decimals); got != c.want {
			t.Errorf("number is %q, want %q", got, c.want)
		}
	}
}

func TestMedianRound(t *testing.T) {
	round := func(rate, ratio float64) []*Row {
		row := &Row{OpsPerSecond: rate}
		if ratio > 0 {
			row.Ratio = &ratio
		}
		return []*Row{row}
	}
	for name, test := range map[string]struct {
		rounds [][]*Row
		want   float64
	}{
		"one":              {[][]*Row{round(5, 0)}, 5},
		"by rate":          {[][]*Row{round(5, 0), round(9, 0), round(7, 0)}, 7},
		"by ratio":         {[][]*Row{round(5, 3), round(9, 2), round(7, 1)}, 9},
		"two, the quicker": {[][]*Row{round(5, 3), round(9, 2)}, 5},
	} {
		if got := medianRound(test.rounds)[0].OpsPerSecond; got != test.want {
			t.Errorf("%s: the round of %v, want %v", name, got, test.want)
		}
	}
}

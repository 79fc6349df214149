package engine_test

import (
	"errors"
	"log/slog"
	"strings"
	"testing"
	"time"

	"github.com/progressor-engine/progressor/engine"
	"github.com/progressor-engine/progressor/process"
	"github.com/progressor-engine/progressor/processor"
	progressorv1 "github.com/progressor-engine/progressor/proto/progressor/v1"
	"github.com/progressor-engine/progressor/storage"
	"github.com/progressor-engine/progressor/storage/storagetest"
)

// Each operation changes its metric, and durations are in milliseconds.
func TestOperationsChangeTheirMetrics(t *testing.T) {
	t.Parallel()
	dsn := storagetest.DSN(t)
	reg := newRegistry()
	n := start(t, dsn, byTask{
		initTask: words, callTask: words, repairTask: words, notifyTask: words,
		timeoutTask: answers(processor.Result()),
	}, reg.use, func(c *engine.Config) { c.ScanInterval = 20 * time.Millisecond })
	call := func(args string) func(*testing.T) {
		return func(t *testing.T) { n.calling("p", args) }
	}
	broken := func(t *testing.T) {
		n.started(t, "q")
		taskError(t, (<-n.calling("q", "fail")).err)
	}
	for _, step := range []struct {
		metric string
		labels []string
		do     func(*testing.T)
	}{
		{"progressor_calls_scanning_duration_ms", []string{"namespace="}, func(*testing.T) {}},
		{"progressor_timers_scanning_duration_ms", []string{"namespace="}, func(*testing.T) {}},
		{"progressor_request_preparing_duration_ms", []string{"namespace=ns", "task_type=init"},
			func(t *testing.T) { n.started(t, "p") }},
		{"progressor_request_preparing_duration_ms", []string{"namespace=ns", "task_type=call"}, call("")},
		{"progressor_request_preparing_duration_ms", []string{"namespace=ns", "task_type=notify"}, func(t *testing.T) {
			if _, err := n.Call(t.Context(), engine.CallParams{Key: key("p"), Accepted: true}); err != nil {
				t.Fatal(err)
			}
		}},
		{"progressor_task_processing_duration_ms", []string{"namespace=ns", "task_type=call"}, call("")},
		{"progressor_task_processing_duration_ms", []string{"namespace=ns", "task_type=timeout"}, call("set 1ms")},
		{"progressor_task_completion_duration_ms", []string{"namespace=ns", "completion_type=unlock"}, call("")},
		{"progressor_task_completion_duration_ms", []string{"namespace=ns", "completion_type=suspend"}, call("set 1h")},
		{"progressor_task_completion_duration_ms", []string{"namespace=ns", "completion_type=continue"},
			call("set 0s")},
		{"progressor_timer_lateness_seconds", nil, call("set 1ms")},
		{"progressor_task_completion_duration_ms", []string{"namespace=ns", "completion_type=error"}, broken},
		{"progressor_request_preparing_duration_ms", []string{"namespace=ns", "task_type=repair"}, func(t *testing.T) {
			if _, err := n.Repair(t.Context(), engine.RepairParams{Key: key("q")}); err != nil {
				t.Fatal(err)
			}
		}},
		{"progressor_task_completion_duration_ms", []string{"namespace=ns", "completion_type=remove"}, call("gone")},
		{"progressor_process_removing_duration_ms", []string{"namespace=ns"}, func(t *testing.T) {
			if err := n.RemoveProcess(t.Context(), key("q"), process.Actor{}); err != nil {
				t.Fatal(err)
			}
		}},
	} {
		before := reg.value(t, step.metric, step.labels...)
		step.do(t)
		eventually(t, step.metric+" moves", func() bool { return reg.value(t, step.metric, step.labels...) > before })
	}
	if reg.value(t, "progressor_notification_duration_ms") != 0 {
		t.Error("a NOTIFY task was observed as a notification")
	}
	for _, kind := range []string{"event_sink", "lifecycle_sink"} {
		if !reg.has(t, "progressor_notification_duration_ms", "notification_type="+kind) {
			t.Errorf("no series with notification_type %s", kind)
		}
	}
	families, err := reg.Gather()
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range families {
		if f.GetName() != "progressor_task_processing_duration_ms" {
			continue
		}
		for _, m := range f.GetMetric() {
			if m.GetHistogram().GetSampleCount() == 0 {
				t.Errorf("exported without observations: %v", m)
			}
			// Tasks that do nothing take less than a second. In another unit, the values would be
			// off by a factor of 1,000.
			if h := m.GetHistogram(); h.GetSampleCount() > 0 && h.GetSampleSum()/float64(h.GetSampleCount()) > 500 {
				t.Errorf("%v", m)
			}
		}
	}
}

// The gauges have the current values.
func TestGauges(t *testing.T) {
	t.Parallel()
	dsn := storagetest.DSN(t)
	g := newGate()
	defer g.release()
	reg := newRegistry()
	n := start(t, dsn, byTask{callTask: g.held(true)}, reg.use)
	n.started(t, "p")
	n.started(t, "q")
	n.put(t, &progressorv1.Namespace{Namespace: "ns", MaxRunning: 1})
	first := n.persisting("p", "1")
	receive(t, "the call runs", g.entered)
	if _, err := n.Call(t.Context(), engine.CallParams{Key: key("q"), Accepted: true}); err != nil {
		t.Fatal(err)
	}
	for name, want := range map[string]float64{
		"progressor_requests_in_flight": 1, "progressor_tasks_running": 1, "progressor_tasks_awaited": 1,
		"progressor_places_taken":   1,
		"progressor_runnable_tasks": 1,
	} {
		if got := reg.value(t, name); got != want {
			t.Errorf("%s is %v, want %v", name, got, want)
		}
	}
	g.release()
	receive(t, "the call", first)
	for _, name := range []string{
		"progressor_requests_in_flight", "progressor_tasks_running", "progressor_tasks_awaited",
		"progressor_places_taken",
	} {
		eventually(t, name+" is 0", func() bool { return reg.value(t, name) == 0 })
	}
}

// A failed scan is counted, and zombie collection is observed.
func TestScanErrors(t *testing.T) {
	t.Parallel()
	dsn := storagetest.DSN(t)
	line, slow := through(t, dsn)
	reg := newRegistry()
	n := start(t, slow, processor.Echo(), reg.use, brief)
	eventually(t, "zombies are collected", func() bool {
		return reg.value(t, "progressor_zombie_collection_duration_ms") > 0
	})
	line.away()
	for _, scan := range []string{"calls", "timers"} {
		eventually(t, "a scan for "+scan+" fails", func() bool {
			n.ScanNow()
			return reg.value(t, "progressor_scan_errors_total", "scan="+scan) > 0
		})
	}
	line.back()
}

// A scrape does not wait for the database again if the previous scrape failed to read the queues.
func TestDepthsAfterFailure(t *testing.T) {
	t.Parallel()
	dsn := storagetest.DSN(t)
	line, slow := through(t, dsn)
	reg := newRegistry()
	var log lockedBuffer
	start(t, slow, processor.Echo(), reg.use, func(c *engine.Config) {
		c.Logger = slog.New(slog.NewTextHandler(&log, nil))
	})
	line.away()
	defer line.back()
	for range 3 {
		if depth := reg.value(t, "progressor_runnable_tasks"); depth != 0 {
			t.Errorf("progressor_runnable_tasks is %v without a database", depth)
		}
	}
	if n := strings.Count(log.String(), "cannot read queue depths"); n != 1 {
		t.Errorf("the queues were read %d times, want once:\n%s", n, log.String())
	}
}

// TestStoreMetrics checks the metrics of the store: operations per commit, and recoveries after
// broken connections.
func TestStoreMetrics(t *testing.T) {
	t.Parallel()
	dsn := storagetest.DSN(t)
	line, slow := through(t, dsn)
	reg := newRegistry()
	store, err := storage.Open(t.Context(), storage.Config{
		DSN: slow, Logger: slog.New(slog.DiscardHandler), Registerer: reg,
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(store.Close)
	n := start(t, dsn, processor.Echo(), func(c *engine.Config) {
		c.Store.Close()
		c.Store = store
	})
	n.started(t, "p")
	if reg.value(t, "progressor_flush_items") < 2 || reg.value(t, "progressor_flush_duration_seconds") < 2 {
		t.Error("flushes were not observed")
	}
	for _, pool := range []string{"pool=hot", "pool=general", "pool=heartbeat"} {
		if reg.value(t, "progressor_pool_max_connections", pool) == 0 {
			t.Errorf("%s is not exported", pool)
		}
	}
	line.Cut()
	eventually(t, "a lane has recovered", func() bool {
		_, err := n.Call(t.Context(), engine.CallParams{Key: key("p"), Args: []byte("x")})
		if err != nil && !errors.Is(err, process.ErrUnavailable) {
			t.Error(err)
		}
		return reg.value(t, "progressor_flush_recoveries_total") > 0
	})
}

package engine

import (
	"log/slog"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"go.opentelemetry.io/otel/trace"

	"github.com/progressor-engine/progressor/processor"
	progressorv1 "github.com/progressor-engine/progressor/proto/progressor/v1"
	"github.com/progressor-engine/progressor/storage"
)

// Config of an Engine. Zero values stand for the defaults.
type Config struct {
	Store      *storage.Store
	Logger     *slog.Logger          // default: slog.Default
	Registerer prometheus.Registerer // nil: no metrics
	// Traces makes the spans of tasks; nil: there are none, and nothing of a trace is stored. Its ids have to be made by tracing.IDs: the span of
	// a task that a worker has is begun by one node and ended by another.
	Traces trace.TracerProvider

	// Builtins are Go processors by the name that a namespace's processor.builtin.name gives.
	Builtins map[string]processor.Processor
	// Dial makes the processor of a namespace that is pushed to.
	Dial func(namespace string, cfg *progressorv1.ConnectProcessor, maxRunning int) (processor.Processor, error)

	Address string // shown in table nodes
	Version string

	MaxInFlight  int           // requests in this node at a time, those that wait for an answer included; default 20,000
	MaxRunning   int           // tasks that this node runs at a time, of all namespaces together; default 10,000
	ZombieAfter  time.Duration // a node that has not beaten for so long is dead; default 10 s
	ZombieMargin time.Duration // what a live node may hold a task past its deadline; default 5 s
	KeyRetention time.Duration // how long idempotency keys, and answers of removed processes, are kept after the end of their task; default 24 h
	DrainTimeout time.Duration // at the end: how long what runs may go on; default 30 s
	ScanInterval time.Duration // at rest, between two looks for calls; timers are looked for every third time; default 1 s
	AnswerPoll   time.Duration // between two looks for answers of tasks that run on other nodes; default 75 ms
}

// maxSteps is how many tasks of one process run in a row while others wait for a place.
const maxSteps = 16

func (c *Config) setDefaults() {
	if c.Logger == nil {
		c.Logger = slog.Default()
	}
	if c.MaxInFlight <= 0 {
		c.MaxInFlight = 20_000
	}
	if c.MaxRunning <= 0 {
		c.MaxRunning = 10_000
	}
	for _, d := range []struct {
		field    *time.Duration
		standard time.Duration
	}{
		{&c.ZombieAfter, 10 * time.Second}, {&c.ZombieMargin, 5 * time.Second}, {&c.DrainTimeout, 30 * time.Second}, {&c.KeyRetention, 24 * time.Hour},
		{&c.ScanInterval, time.Second}, {&c.AnswerPoll, 75 * time.Millisecond},
	} {
		if *d.field <= 0 {
			*d.field = d.standard
		}
	}
}

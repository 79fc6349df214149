package engine

import (
	"cmp"
	"context"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"go.opentelemetry.io/otel/trace"

	"github.com/progressor-engine/progressor/engine/secrets"
	"github.com/progressor-engine/progressor/internal/durations"
	"github.com/progressor-engine/progressor/process"
	"github.com/progressor-engine/progressor/processor"
	"github.com/progressor-engine/progressor/processor/remote"
	progressorv1 "github.com/progressor-engine/progressor/proto/progressor/v1"
	"github.com/progressor-engine/progressor/storage"
)

// Config configures an Engine. Zero values select the defaults.
type Config struct {
	Store      *storage.Store
	Logger     *slog.Logger          // slog.Default() if nil
	Registerer prometheus.Registerer // no metrics if nil
	// Traces creates the spans of tasks. If nil, tracing is off and trace contexts are not stored.
	// Its ID generator must be tracing.IDs, because the span of a leased task may be started by one
	// node and ended by another.
	Traces trace.TracerProvider

	// Builtins maps the names in processor.builtin.name of a namespace to Go processors.
	Builtins map[string]processor.Processor
	// Dial creates the processor of a namespace with a push processor. credentials returns the
	// credentials for each request. credentials is nil if cfg has neither headers nor signing
	// secrets nor a client certificate.
	Dial func(namespace string, cfg *progressorv1.ConnectProcessor, maxRunning int,
		credentials func(context.Context) (remote.Credentials, error)) (processor.Processor, error)
	// Secrets seals and opens headers. The default uses the key in the database.
	Secrets *secrets.Vault

	// FileNamespaces are the namespaces of the configuration file. DeleteNamespace refuses to
	// delete them, because the program would create them again.
	FileNamespaces []string

	Address string // stored in table nodes
	Version string
	// RequestsOnly makes the node accept requests and polls of workers, but run no tasks. Other
	// nodes run them.
	RequestsOnly bool

	// MaxInFlight is the maximum number of concurrent requests to this node, including those that
	// wait for a response. The default is 20,000.
	MaxInFlight int
	// MaxNamespaces is the maximum number of namespaces. At this number, the node refuses to create
	// another one. The default is 1,000.
	MaxNamespaces int
	// MaxRunning is the maximum number of tasks that this node runs at a time, in all namespaces
	// together. The default is 10,000.
	MaxRunning int
	// ZombieAfter is the time without a heartbeat after which a node is considered dead. The
	// default is 10 s.
	ZombieAfter time.Duration
	// ZombieMargin is how long a live node may exceed the deadline of a task. The default is 5 s.
	ZombieMargin time.Duration
	// KeyRetention is how long idempotency keys and the answers of removed processes are kept after
	// the end of their tasks. The default is 24 h.
	KeyRetention time.Duration
	// DrainTimeout is how long running attempts may continue after the drain begins. The default is
	// 30 s.
	DrainTimeout time.Duration
	// ScanInterval is the interval at which an idle node scans for calls. It scans for timers every
	// third interval. The default is 1 s.
	ScanInterval time.Duration
	// AnswerPoll is the interval between queries for the answers of tasks that run on other nodes.
	// The default is 75 ms.
	AnswerPoll time.Duration
}

// maxConsecutive is the number of consecutive tasks that run in one slot while other tasks wait for
// a slot.
const maxConsecutive = 16

func (c *Config) setDefaults() {
	if c.Logger == nil {
		c.Logger = slog.Default()
	}
	if c.MaxInFlight <= 0 {
		c.MaxInFlight = 20_000
	}
	if c.MaxNamespaces <= 0 {
		c.MaxNamespaces = 1000
	}
	if c.MaxRunning <= 0 {
		c.MaxRunning = 10_000
	}
	for _, d := range []struct {
		field    *time.Duration
		standard time.Duration
	}{
		{&c.ZombieAfter, 10 * time.Second}, {&c.ZombieMargin, 5 * time.Second}, {&c.DrainTimeout, 30 * time.Second},
		{&c.KeyRetention, 24 * time.Hour},
		{&c.ScanInterval, time.Second}, {&c.AnswerPoll, 75 * time.Millisecond},
	} {
		if *d.field <= 0 {
			*d.field = d.standard
		}
	}
}

func (c *Config) processorOf(
	name string, cfg *progressorv1.ProcessorConfig, maxRunning int,
) (processor.Processor, error) {
	switch t := cfg.GetTransport().(type) {
	case *progressorv1.ProcessorConfig_Builtin:
		p, ok := c.Builtins[t.Builtin.GetName()]
		if !ok {
			return nil, &process.InvalidError{Field: "namespace.processor.builtin.name",
				Message: fmt.Sprintf("this node has no processor %q; it has %s",
					t.Builtin.GetName(), cmp.Or(strings.Join(slices.Sorted(maps.Keys(c.Builtins)), ", "), "none"))}
		}
		return p, nil
	case *progressorv1.ProcessorConfig_Connect:
		if c.Dial == nil {
			return nil, &process.InvalidError{
				Field: "namespace.processor.connect", Message: "this node does not call processors over the network",
			}
		}
		p, err := c.Dial(name, t.Connect, maxRunning, c.credentialsOf(name, t.Connect))
		if err != nil {
			return nil, err
		}
		return p, nil
	case *progressorv1.ProcessorConfig_Pull:
		if d := t.Pull.GetLeaseDuration().AsDuration(); d > maxLease {
			return nil, &process.InvalidError{
				Field:   "namespace.processor.pull.lease_duration",
				Message: fmt.Sprintf("%s is more than %s", durations.Exact(d), durations.Exact(maxLease)),
			}
		}
		return nil, nil
	}
	return nil, &process.InvalidError{
		Field: "namespace.processor", Message: "is required: set one of connect, pull and builtin",
	}
}

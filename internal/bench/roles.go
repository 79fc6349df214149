package bench

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"runtime/debug"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"
	"google.golang.org/protobuf/encoding/protojson"

	"github.com/progressor-engine/progressor/engine/auth"
	"github.com/progressor-engine/progressor/engine/insight"
	"github.com/progressor-engine/progressor/engine/rpc"
	"github.com/progressor-engine/progressor/processor"
	progressorv1 "github.com/progressor-engine/progressor/proto/progressor/v1"
)

// The roles of a bench process. The engine and the processor of rpc, auth, idle and memory run in
// their own processes, as in production. Such a process reads its order, one line of JSON, from its
// standard input, and writes its address to its standard output. It ends when its standard input is
// closed, even if the bench has died.
const (
	roleBench     = "bench"
	roleEngine    = "engine"
	roleProcessor = "processor"
)

// order tells a process what to do.
type order struct {
	// For an engine. With Protect, it serves the API at a second address, which requires
	// authentication.
	DSN        string            `json:"dsn,omitempty"`
	Lanes      int               `json:"lanes,omitempty"`
	Namespaces []json.RawMessage `json:"namespaces,omitempty"`
	Protect    bool              `json:"protect,omitempty"`
	// For a processor. With Hold, it holds every CALL until a second line arrives.
	Hold bool `json:"hold,omitempty"`
}

// ready is the line of a process that is ready.
type ready struct {
	Address   string `json:"address"`
	Protected string `json:"protected,omitempty"` // the address that requires authentication
}

func serveRole(ctx context.Context, role string, env Environment) error {
	input := bufio.NewReader(env.Stdin)
	line, err := input.ReadBytes('\n')
	if err != nil {
		return fmt.Errorf("read the order: %w", err)
	}
	var o order
	if err := json.Unmarshal(line, &o); err != nil {
		return fmt.Errorf("read the order: %w", err)
	}
	listener, err := new(net.ListenConfig).Listen(ctx, "tcp", "127.0.0.1:0")
	if err != nil {
		return err
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	log := slog.New(slog.NewTextHandler(env.Stderr, &slog.HandlerOptions{Level: slog.LevelWarn}))
	if role == roleEngine {
		go func() { _, _ = io.Copy(io.Discard, input); cancel() }()
		return serveEngine(ctx, o, listener, log, env)
	}
	p := processor.BenchNoop()
	var release func()
	if o.Hold {
		p, release = holdCalls(p)
	}
	go func() {
		if _, err := input.ReadBytes('\n'); err == nil && release != nil {
			release()
		}
		_, _ = io.Copy(io.Discard, input)
		cancel()
	}()
	if err := announce(env.Stdout, listener, nil); err != nil {
		return err
	}
	return processor.ServeOn(ctx, listener, p, processor.WithLogger(log), processor.WithStopTimeout(time.Second))
}

// announce writes the addresses of a process. protected may be nil.
func announce(w io.Writer, listener, protected net.Listener) error {
	line := ready{Address: listener.Addr().String()}
	if protected != nil {
		line.Protected = protected.Addr().String()
	}
	return json.NewEncoder(w).Encode(line)
}

// serveEngine does what `progressor serve` does: it runs an engine with the API.
func serveEngine(ctx context.Context, o order, listener net.Listener, log *slog.Logger, env Environment) error {
	s, err := openSite(ctx, o.DSN, o.Lanes, log, processor.BenchNoop())
	if err != nil {
		return err
	}
	for _, text := range o.Namespaces {
		var ns progressorv1.Namespace
		if err = protojson.Unmarshal(text, &ns); err == nil {
			_, err = s.engine.PutNamespace(ctx, &ns)
		}
		if err != nil {
			return errors.Join(fmt.Errorf("put a namespace: %w", err), s.close())
		}
	}
	return errors.Join(s.serve(ctx, o.Protect, listener, log, env), s.close())
}

// serve serves the API until ctx ends. With Protect, it also serves the API at a second address,
// which requires authentication.
func (s *site) serve(
	ctx context.Context, protect bool, listener net.Listener, log *slog.Logger, env Environment,
) error {
	cfg := rpc.Config{
		Engine: s.engine, Insight: insight.New(s.engine), Workers: s.workers, Jobs: s.jobs,
		Logger: log, Registerer: s.registry, Gatherer: s.registry, Version: env.Version,
	}
	var protected net.Listener
	if protect {
		var err error
		if protected, err = new(net.ListenConfig).Listen(ctx, "tcp", "127.0.0.1:0"); err != nil {
			return err
		}
	}
	group, ctx := errgroup.WithContext(ctx)
	serve := func(listener net.Listener, handler http.Handler) {
		group.Go(func() error { return rpc.Serve(ctx, listener, handler, nil, log, time.Second) })
	}
	serve(listener, rpc.NewHandler(cfg))
	if protected != nil {
		cfg.Auth = auth.New(s.store, "", s.registry)
		cfg.Registerer = nil // the metrics of the first handler are registered
		serve(protected, rpc.NewHandler(cfg))
	}
	debug.FreeOSMemory() // as `progressor serve` does when it is ready
	group.Go(func() error { return announce(env.Stdout, listener, protected) })
	return group.Wait()
}

// holdCalls holds every CALL in the processor until release.
func holdCalls(p processor.Processor) (holding processor.Processor, release func()) {
	gate := make(chan struct{})
	holding = processor.Func(
		func(ctx context.Context, req *progressorv1.ProcessRequest) (*progressorv1.ProcessResponse, error) {
			if req.GetType() == progressorv1.TaskType_TASK_TYPE_CALL {
				select {
				case <-gate:
				case <-ctx.Done():
					return nil, ctx.Err()
				}
			}
			return p.Process(ctx, req)
		})
	return holding, sync.OnceFunc(func() { close(gate) })
}

package bench

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"sync/atomic"

	"connectrpc.com/connect"
	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/types/known/durationpb"
	"google.golang.org/protobuf/types/known/structpb"

	sdk "github.com/progressor-engine/progressor/client"
	"github.com/progressor-engine/progressor/internal/onewrite"
	"github.com/progressor-engine/progressor/process"
	progressorv1 "github.com/progressor-engine/progressor/proto/progressor/v1"
)

// rig is an engine and a processor in their own processes, and a client in this one.
type rig struct {
	payload
	engine    *spawned
	processor *spawned
	api       *sdk.Client
	sequence  atomic.Uint64
}

// openRig starts the processes with an order for both of them. change edits the namespace before it
// is put.
func (r *runner) openRig(
	ctx context.Context, d *scratch, o order, change func(*progressorv1.Namespace),
) (*rig, error) {
	p, err := r.spawn(ctx, roleProcessor, o)
	if err != nil {
		return nil, err
	}
	ns := &progressorv1.Namespace{
		Namespace: namespaceName, HistoryMode: progressorv1.HistoryMode_HISTORY_MODE_NONE,
		Processor: &progressorv1.ProcessorConfig{Transport: &progressorv1.ProcessorConfig_Connect{
			Connect: &progressorv1.ConnectProcessor{Url: p.url()},
		}},
	}
	change(ns)
	text, err := protojson.Marshal(ns)
	if err != nil {
		return nil, errors.Join(err, p.close())
	}
	o.DSN, o.Lanes, o.Namespaces = d.dsn, r.command.Lanes, []json.RawMessage{text}
	e, err := r.spawn(ctx, roleEngine, o)
	if err != nil {
		return nil, errors.Join(err, p.close())
	}
	return &rig{
		payload: newPayload(ctx), engine: e, processor: p,
		api: sdk.New(e.url(), sdk.WithHTTPClient(newHTTPClient()), sdk.WithoutKeys()),
	}, nil
}

func (g *rig) close() error { return errors.Join(g.engine.close(), g.processor.close()) }

// start starts the process with number n.
func (g *rig) start(ctx context.Context, n uint64, metadata bool) error {
	req := &progressorv1.StartRequest{Namespace: namespaceName, ProcessId: processID(n), Args: g.args}
	if metadata {
		req.Metadata = &structpb.Struct{}
		if err := protojson.Unmarshal(processMetadata(n), req.Metadata); err != nil {
			return err
		}
	}
	_, err := g.api.Process.Start(ctx, req)
	return asOverload(err)
}

// call calls the process with number n. If timeout is nil, the timeout of the namespace applies.
func (g *rig) call(ctx context.Context, n uint64, key string, timeout *durationpb.Duration) error {
	return g.callBy(ctx, g.api, n, key, timeout)
}

func (g *rig) callBy(
	ctx context.Context, api *sdk.Client, n uint64, key string, timeout *durationpb.Duration,
) error {
	_, err := api.Process.Call(ctx, &progressorv1.CallRequest{
		Namespace: namespaceName, ProcessId: processID(n), Args: g.args, IdempotencyKey: key, Timeout: timeout,
	})
	return asOverload(err)
}

// asOverload converts RESOURCE_EXHAUSTED to the error of the engine.
func asOverload(err error) error {
	if connect.CodeOf(err) == connect.CodeResourceExhausted {
		return fmt.Errorf("%w: %w", process.ErrOverloaded, err)
	}
	return err
}

// newHTTPClient returns a client that keeps every connection. There are never more connections than
// clients.
func newHTTPClient() *http.Client {
	return &http.Client{Transport: onewrite.Transport{
		Next: &http.Transport{MaxIdleConns: 100_000, MaxIdleConnsPerHost: 100_000, DisableCompression: true}}}
}

// rpc measures calls over Connect to an engine that calls its processor over Connect.
func (r *runner) rpc(ctx context.Context, v variant) error {
	row := v.row(subjectEngine)
	err := r.inScratch(ctx, func(d *scratch) error {
		g, err := r.openRig(ctx, d, order{}, func(*progressorv1.Namespace) {})
		if err != nil {
			return err
		}
		calls, err := r.loadRig(ctx, d, g, v, row)
		if err := errors.Join(err, g.close()); err != nil {
			return err
		}
		return r.verify(ctx, d, row,
			acknowledged{process.TaskInit: int64(r.command.Processes), process.TaskCall: calls})
	})
	if err != nil {
		return err
	}
	v.workload = "call"
	return r.add(ctx, row, v)
}

func (r *runner) loadRig(ctx context.Context, d *scratch, g *rig, v variant, row *Row) (calls int64, err error) {
	if err := r.fillRig(ctx, d, g, v); err != nil {
		return 0, err
	}
	m := &meter{conn: r.server.admin, postmaster: r.server.postmaster, engineCPU: g.engine.cpu,
		flushes: g.engine.flushes}
	l := load{clients: v.clients, warmup: r.command.Warmup, duration: r.command.Duration, do: g.caller(r, g.api, v)}
	w, err := l.run(ctx, m)
	if err != nil {
		return 0, err
	}
	row.rate(w)
	return w.acknowledged, nil
}

// fillRig starts the processes that are called.
func (r *runner) fillRig(ctx context.Context, d *scratch, g *rig, v variant) error {
	err := each(ctx, r.command.Processes, 64,
		func(ctx context.Context, i int) error { return g.start(ctx, uint64(i), v.metadata) })
	if err != nil {
		return err
	}
	return r.settle(ctx, d.analyze)
}

// caller returns an operation that calls a random process.
func (g *rig) caller(r *runner, api *sdk.Client, v variant) func(context.Context, *client) error {
	return func(ctx context.Context, c *client) error {
		key := ""
		if v.keys {
			key = requestKey(g.sequence.Add(1))
		}
		return g.callBy(ctx, api, c.random.Uint64N(uint64(r.command.Processes)), key, nil)
	}
}

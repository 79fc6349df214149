package bench

import (
	"context"
	"errors"
	"sync/atomic"

	"github.com/progressor-engine/progressor/engine"
	"github.com/progressor-engine/progressor/process"
	"github.com/progressor-engine/progressor/processor"
)

// fillers is the number of goroutines that create the processes of a workload.
const fillers = 256

// requests measures start, call, hot and hot-snapshot: clients in this process that call the
// methods of the engine.
func (r *runner) requests(ctx context.Context, v variant) error {
	row := v.row(subjectEngine)
	err := r.onEngine(ctx, v.history, processor.BenchNoop(), row, func(d *scratch, s *site) (acknowledged, error) {
		o := &operations{site: s, variant: v, payload: newPayload(ctx), processes: processesOf(r.command, v)}
		do, counted := o.start, process.TaskInit
		done := acknowledged{}
		if v.workload != "start" {
			do, counted = o.call, process.TaskCall
			if err := o.fill(ctx, d, r.command.Events); err != nil {
				return nil, err
			}
			done[process.TaskInit] = int64(o.processes)
		}
		if v.workload == "hot-snapshot" {
			release, err := holdSnapshot(ctx, d, engineSchema)
			if err != nil {
				return nil, err
			}
			defer release()
		}
		if err := r.settle(ctx, d.analyze); err != nil {
			return nil, err
		}
		w, err := load{clients: v.clients, warmup: r.command.Warmup, duration: r.command.Duration, do: do}.run(ctx,
			r.meterOf(s))
		if err != nil {
			return nil, err
		}
		row.rate(w)
		done[counted] = w.acknowledged
		return done, nil
	})
	if err != nil {
		return err
	}
	return r.add(ctx, row, v)
}

// operations are the requests of a variant to an engine in this process.
type operations struct {
	payload
	site      *site
	variant   variant
	processes uint64
	sequence  atomic.Uint64
}

func (o *operations) start(ctx context.Context, _ *client) error {
	return o.startProcess(ctx, o.sequence.Add(1))
}

func (o *operations) startProcess(ctx context.Context, n uint64) error {
	p := engine.StartParams{Key: process.Key{Namespace: namespaceName, ProcessID: processID(n)}, Args: o.args}
	if o.variant.metadata {
		p.Metadata = processMetadata(n)
	}
	if o.variant.keys {
		p.IdempotencyKey = requestKey(n)
	}
	_, err := o.site.engine.Start(ctx, p)
	return err
}

func (o *operations) call(ctx context.Context, c *client) error {
	id := processID(c.random.Uint64N(o.processes))
	p := engine.CallParams{Key: process.Key{Namespace: namespaceName, ProcessID: id}, Args: o.args}
	if o.variant.keys {
		p.IdempotencyKey = requestKey(o.sequence.Add(1))
	}
	_, err := o.site.engine.Call(ctx, p)
	return err
}

// fill starts those of the processes 0 to n-1 that do not exist yet. If the processor gets their
// history, it adds events to them.
func (o *operations) fill(ctx context.Context, d *scratch, events int) error {
	filling := &operations{payload: o.payload, site: o.site, variant: o.variant}
	filling.variant.keys = false
	err := each(ctx, int(o.processes), fillers, func(ctx context.Context, i int) error {
		if err := filling.startProcess(ctx, uint64(i)); !errors.Is(err, process.ErrProcessExists) {
			return err
		}
		return nil
	})
	if err != nil || o.variant.history != historyFull {
		return err
	}
	return d.addEvents(ctx, events, o.event)
}

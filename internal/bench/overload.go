package bench

import (
	"context"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/progressor-engine/progressor/process"
	"github.com/progressor-engine/progressor/processor"
)

// recoveryLimit is how long the latency after an overload is watched. A larger figure means that
// the latency did not return to normal.
const recoveryLimit = 30 * time.Second

// overload offers calls at twice the peak rate of the engine. It measures how many calls the engine
// executes, how quickly it rejects the others, whether it loses accepted calls, and how soon it
// returns to normal.
func (r *runner) overload(ctx context.Context, v variant) error {
	row := v.row(subjectEngine)
	err := r.onEngine(ctx, v.history, processor.BenchNoop(), row, func(d *scratch, s *site) (acknowledged, error) {
		o := &operations{site: s, variant: v, payload: newPayload(ctx), processes: uint64(r.command.Processes)}
		if err := o.fill(ctx, d, 0); err != nil {
			return nil, err
		}
		if err := r.settle(ctx, d.analyze); err != nil {
			return nil, err
		}
		calls, err := r.measureOverload(ctx, o, row)
		return acknowledged{process.TaskInit: int64(o.processes), process.TaskCall: calls}, err
	})
	r.report.Rows = append(r.report.Rows, row)
	return err
}

// measureOverload finds the peak rate. It then offers half of the peak, twice the peak, and half of
// the peak again. Then it finds the peak again, because an engine with new tables is faster than
// after ten seconds of load. The figures are compared with the mean of both peaks.
func (r *runner) measureOverload(ctx context.Context, o *operations, row *Row) (calls int64, err error) {
	duration := r.command.Duration
	m := r.meterOf(o.site)
	top := load{clients: o.variant.clients, warmup: r.command.Warmup, duration: duration, do: o.call}
	r.step("overload: the peak")
	first, err := top.run(ctx, m)
	if err != nil {
		return 0, err
	}
	normal := flood{rate: first.rate() / 2, duration: duration, do: o.call}
	r.step("overload: half of the peak")
	before, err := normal.run(ctx)
	if err != nil {
		return 0, err
	}
	r.step("overload: twice the peak")
	lostBefore, err := lost(o.site.registry)
	if err != nil {
		return 0, err
	}
	var overloaded *flooded
	var ended time.Time
	spent, err := m.measure(ctx, func() (err error) {
		overloaded, err = flood{rate: 2 * first.rate(), duration: duration, do: o.call}.run(ctx)
		ended = time.Now()
		return err
	})
	if err != nil {
		return 0, err
	}
	r.step("overload: after it")
	again, after, err := r.awaitNormalLatency(ctx, normal, before, ended)
	if err != nil {
		return 0, err
	}
	lostAfter, err := lost(o.site.registry)
	if err != nil {
		return 0, err
	}
	r.step("overload: the peak again")
	last, err := top.run(ctx, m)
	if err != nil {
		return 0, err
	}
	peak := (first.rate() + last.rate()) / 2
	row.Refused = int64(overloaded.refused.n)
	row.fill(int64(overloaded.done.n), overloaded.elapsed, &overloaded.done, spent)
	row.Ratio, row.RatioTo = new(row.OpsPerSecond/peak), "the peak"
	row.figure("peak before", first.rate(), "1/s")
	row.figure("peak after", last.rate(), "1/s")
	row.figure("offered", float64(overloaded.offered)/overloaded.elapsed.Seconds(), "1/s")
	done := 100 * row.OpsPerSecond / peak
	row.figure("done", done, "% of the peak")
	row.figure("goodput, within 1 s", done*(float64(overloaded.good)/float64(overloaded.done.n)), "% of the peak")
	row.figure("refused, p50", millis(overloaded.refused.quantile(0.50)), "ms")
	row.figure("refused, p99", millis(overloaded.refused.quantile(0.99)), "ms")
	row.figure("leases lost and results refused", lostAfter-lostBefore, "")
	row.figure("latency at half of the peak before, p99", millis(before.done.quantile(0.99)), "ms")
	row.figure("latency normal again after", again.Seconds(), "s")
	return first.acknowledged + before.acknowledged + overloaded.acknowledged + after + last.acknowledged, nil
}

// awaitNormalLatency offers the normal rate, second by second, until a second is as before (nothing
// is rejected, and the 99th percentile is at most 50 % higher), or until recoveryLimit has passed.
func (r *runner) awaitNormalLatency(
	ctx context.Context, normal flood, before *flooded, ended time.Time,
) (again time.Duration, calls int64, err error) {
	limit := before.done.quantile(0.99) * 3 / 2
	normal.duration = min(normal.duration, time.Second)
	for {
		again = time.Since(ended)
		second, err := normal.run(ctx)
		if err != nil {
			return 0, 0, err
		}
		calls += second.acknowledged
		if second.refused.n == 0 && second.done.quantile(0.99) <= limit || again > recoveryLimit {
			return again, calls, nil
		}
	}
}

// lost counts the losses of an engine that cannot keep its leases: the tasks that were taken from
// it, and its late results.
func lost(registry *prometheus.Registry) (n float64, err error) {
	families, err := registry.Gather()
	for _, family := range families {
		switch family.GetName() {
		case "progressor_zombies_total", "progressor_stale_results_total":
			for _, metric := range family.GetMetric() {
				n += metric.GetCounter().GetValue()
			}
		}
	}
	return n, err
}

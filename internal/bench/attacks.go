package bench

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/progressor-engine/progressor/process"
)

// The bounds of attacks. A bench whose engine breaks one of them fails.
const (
	maxAttackedMemory = 512 // MiB
	minAttackedRate   = 0.8
	maxProbeTime      = 5 * time.Second
)

const (
	// attackWarmup is the time between the beginning of an attack and the measured window.
	attackWarmup = time.Second
	// withoutAttack is the name of the rate with which an attack is compared.
	withoutAttack = "without an attack"
	// probeEvery is the interval between probes of /livez during an attack.
	probeEvery = 250 * time.Millisecond
	// maxShownTime is how long an attack continues until a metric shows it.
	maxShownTime = 10 * time.Second
	// victimProcesses is the number of processes that the victim calls.
	victimProcesses = 1000
)

// attacks measures how an attack affects another tenant, the victim: the requests per second of the
// victim before, during and after the attack. The engine runs in its own process, as in production.
// It must stay within the bounds, and a metric must show the attack.
func (r *runner) attacks(ctx context.Context, v variant) error {
	row := v.row(subjectEngine)
	which := attackKinds[v.state]
	row.Note = which.note(r.command)
	err := r.inScratch(ctx, func(d *scratch) error {
		a, err := r.openAttacked(ctx, d, v)
		if err != nil {
			return err
		}
		defer a.close()
		err = r.underAttack(ctx, d, a, which, row)
		return errors.Join(err, a.stop())
	})
	r.report.Rows = append(r.report.Rows, row)
	return err
}

// underAttack measures the peak, then windows before, during and after the attack.
func (r *runner) underAttack(ctx context.Context, d *scratch, a *attacked, which attackKind, row *Row) error {
	prefix := a.variant.String() + ": "
	r.step(prefix + "the peak")
	if which.prepare != nil {
		if err := which.prepare(a, ctx); err != nil {
			return fmt.Errorf("prepare the attack: %w", err)
		}
	}
	if err := r.settle(ctx, d.analyze); err != nil {
		return err
	}
	m := &meter{conn: r.server.admin, postmaster: r.server.postmaster, engineCPU: a.cpu}
	top, err := load{clients: a.variant.clients, warmup: r.command.Warmup, duration: r.command.Duration,
		do: a.work}.run(ctx, m)
	if err != nil {
		return err
	}
	offered := flood{rate: top.rate() * offeredPortion, duration: r.command.Duration, do: a.tolerantWork}
	r.step(prefix + "before it")
	before, err := offered.run(ctx)
	if err != nil {
		return err
	}
	r.step(prefix + "the attack")
	shown, err := a.metric(ctx, which.metric)
	if err != nil {
		return err
	}
	during := offered
	during.duration = max(during.duration, which.takes)
	w, spent, err := a.attack(ctx, which, during, m, shown)
	if err != nil {
		return err
	}
	r.step(prefix + "after it")
	after, err := offered.run(ctx)
	if err != nil {
		return err
	}
	row.Refused = int64(w.refused.n)
	row.fill(int64(w.done.n), w.elapsed, &w.done, spent)
	quiet := float64(before.done.n+after.done.n) / (before.elapsed + after.elapsed).Seconds()
	if quiet > 0 { // a short run on a busy machine may measure nothing
		row.Ratio, row.RatioTo = new(row.OpsPerSecond/quiet), withoutAttack
	}
	before.done.merge(&after.done)
	return a.report(ctx, which, row, &before.done, shown)
}

// attack offers the load of the victim while the attack runs. The attack continues until its metric
// is above shown, because a single request of some attacks can take longer than the load.
func (a *attacked) attack(
	ctx context.Context, which attackKind, load flood, m *meter, shown float64,
) (*flooded, spent, error) {
	attacking, end := context.WithCancel(ctx)
	defer end()
	var running sync.WaitGroup
	var attackErr error
	running.Go(func() {
		if err := which.run(a, attacking); attacking.Err() == nil {
			attackErr = errors.Join(err, errors.New("the attack ended early"))
		}
	})
	running.Go(func() { a.probe(attacking) })
	var w *flooded
	err := wait(ctx, attackWarmup)
	var cost spent
	if err == nil {
		a.failed.Store(0)
		cost, err = m.measure(ctx, func() (err error) {
			w, err = load.run(ctx)
			return err
		})
	}
	if err == nil {
		err = a.awaitMetric(ctx, which.metric, shown)
	}
	end()
	running.Wait()
	return w, cost, errors.Join(err, attackErr)
}

// awaitMetric waits until a series is above a value, but at most maxShownTime. It ignores errors,
// because an attack can make the engine reject the request for its metrics.
func (a *attacked) awaitMetric(ctx context.Context, s series, value float64) error {
	for began := time.Now(); time.Since(began) < maxShownTime; {
		if now, err := a.metric(ctx, s); err == nil && now > value {
			return nil
		}
		if err := wait(ctx, probeEvery); err != nil {
			return err
		}
	}
	return nil
}

// report fills in the figures of an attack, and the bounds that the engine has broken.
func (a *attacked) report(
	ctx context.Context, which attackKind, row *Row, quiet *histogram, shownBefore float64,
) error {
	memory, err := peakBytes(a.cmd.Process.Pid)
	if err != nil {
		return fmt.Errorf("read the memory of the engine: %w", err)
	}
	shown, err := a.metric(ctx, which.metric)
	if err != nil {
		return err
	}
	row.figure(figureMemory, float64(memory)/(1<<20), "MiB")
	row.figure("requests of the attack", float64(a.requests.Load()), "")
	row.figure("connections of the attack", float64(a.connections.Load()), "")
	row.figure("requests of the victim that failed", float64(a.failed.Load()), "")
	row.figure("latency of the victim, p99, without an attack", millis(quiet.quantile(0.99)), "ms")
	row.figure(figureProbe, millis(time.Duration(a.slowest.Load())), "ms")
	row.figure(figureShown+which.metric.String(), shown-shownBefore, "")
	return nil
}

// The names of the figures that have bounds. The last one is followed by the name of a metric.
const (
	figureMemory = "peak of the memory of the engine"
	figureProbe  = "slowest probe"
	figureShown  = "increase of "
)

// Broken returns the bounds that the engine has broken in an attack. It returns nil for other
// workloads.
func (r *Row) Broken() (broken []string) {
	if r.RatioTo != withoutAttack {
		return nil
	}
	if *r.Ratio < minAttackedRate {
		broken = append(broken, fmt.Sprintf("the victim kept %.2f of its rate", *r.Ratio))
	}
	for _, f := range r.Figures {
		switch {
		case f.Name == figureMemory && f.Value > maxAttackedMemory:
			broken = append(broken, fmt.Sprintf("the engine used %.0f MiB", f.Value))
		case f.Name == figureProbe && f.Value > millis(maxProbeTime):
			broken = append(broken, fmt.Sprintf("/livez took %.0f ms", f.Value))
		case strings.HasPrefix(f.Name, figureShown) && f.Value <= 0:
			broken = append(broken, "no "+f.Name)
		}
	}
	return broken
}

// broken returns an error with the bounds that engines have broken.
func (r *Report) broken() error {
	var errs []error
	for _, row := range r.Rows {
		if broken := row.Broken(); len(broken) > 0 {
			errs = append(errs, fmt.Errorf("%s: %s", row.Workload, strings.Join(broken, ", ")))
		}
	}
	return errors.Join(errs...)
}

// probe requests /livez until ctx ends, each time over a new connection, as Kubernetes does.
func (a *attacked) probe(ctx context.Context) {
	client := &http.Client{Transport: &http.Transport{DisableKeepAlives: true}, Timeout: 2 * maxProbeTime}
	for wait(ctx, probeEvery) == nil {
		begin := time.Now()
		request, err := http.NewRequestWithContext(ctx, http.MethodGet, a.url("127.0.0.1")+"/livez", http.NoBody)
		if err != nil {
			return
		}
		answer, err := client.Do(request)
		took := time.Since(begin)
		if err == nil {
			_ = answer.Body.Close()
		}
		if ctx.Err() == nil && (err != nil || answer.StatusCode != http.StatusOK) {
			took = max(took, 2*maxProbeTime)
		}
		a.slowest.Store(max(a.slowest.Load(), int64(took)))
	}
}

// tolerantWork is like work, but it counts a failed request and returns ErrOverloaded, because an
// attack must not end the bench.
func (a *attacked) tolerantWork(ctx context.Context, c *client) error {
	err := a.work(ctx, c)
	if err == nil || ctx.Err() != nil || errors.Is(err, process.ErrOverloaded) {
		return err
	}
	a.failed.Add(1)
	return process.ErrOverloaded
}

// counts contains the counters of an attack. It is safe for concurrent use.
type counts struct {
	requests    atomic.Int64 // answered requests of the attack
	connections atomic.Int64 // opened connections of the attack
	created     atomic.Int64 // created namespaces
	failed      atomic.Int64 // failed requests of the victim, in the window
	slowest     atomic.Int64 // duration of the slowest probe, in nanoseconds
}

// attackVariants returns one case for each of --attacks.
func attackVariants(c *Command, name string) []variant {
	var variants []variant
	for _, state := range attackNames {
		if len(c.Attacks) == 0 || slices.Contains(c.Attacks, state) {
			v := variant{workload: name, clients: c.RPCClients, history: historyNone, state: state}
			variants = append(variants, v)
		}
	}
	return variants
}

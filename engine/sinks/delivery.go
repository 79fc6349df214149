package sinks

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/progressor-engine/progressor/process"
	progressorv1 "github.com/progressor-engine/progressor/proto/progressor/v1"
	"github.com/progressor-engine/progressor/storage/changes"
	"github.com/progressor-engine/progressor/wire"
)

// maxError limits the stored text of an error, in bytes.
const maxError = 1000

// delivery delivers for one sink while this node has its lease.
type delivery struct {
	sinks   *Sinks
	lease   changes.SinkLease
	claimed changes.ClaimedSink
	log     *slog.Logger

	ctx    context.Context // cancelled when the lease is lost
	abort  context.CancelCauseFunc
	expiry *time.Timer   // calls abort when the lease expires
	ending chan struct{} // closed when the delivery must end after the current changes
	end    func()
	done   chan struct{} // closed when run returns

	target   openTarget
	filter   *filter
	at       changes.Cursor
	unsaved  bool      // at is not stored yet, because only unselected changes were read
	saved    time.Time // when the cursor was stored
	failures int
	wait     time.Duration // before the first attempt
	offline  bool          // the last statement failed
	retries  retries
	settled  settled
}

func newDelivery(s *Sinks, c changes.ClaimedSink) *delivery {
	d := &delivery{
		sinks: s, lease: c.SinkLease, claimed: c, at: c.Cursor,
		failures: c.Failures, wait: min(c.Wait, s.limits.retry.Max), ending: make(chan struct{}),
		done: make(chan struct{}), retries: retries{asked: make(chan struct{}, 1)}, settled: settled{},
		log: s.log.With("namespace", c.Namespace, "sink_id", c.SinkID),
	}
	s.metrics.start(s.labels(c.Namespace, c.SinkID))
	d.ctx, d.abort = context.WithCancelCause(context.Background())
	d.end = sync.OnceFunc(func() { close(d.ending) })
	return d
}

// run delivers until it is ended or aborted, or the sink has failed permanently. Then it releases
// the lease.
func (d *delivery) run() {
	defer close(d.done)
	defer d.abort(nil)
	defer d.expiry.Stop()
	err := d.open()
	if err == nil {
		defer func() { d.target.Close() }()
		err = d.loop()
	} else {
		err = d.fail(err)
	}
	switch {
	case errors.Is(err, errEnded):
	case d.ctx.Err() != nil:
		d.log.Info("deliveries aborted", "reason", context.Cause(d.ctx))
	case errors.Is(err, process.ErrFenced):
		d.log.Info("deliveries ended", "reason", errLeaseLost)
	case errors.Is(err, changes.ErrNewGeneration):
		d.log.Warn("the sink continues at its stored position; the target may have received changes that were lost",
			"reason", err)
	case err != nil:
		d.log.Error("deliveries ended", "error", err)
	}
	limit, cancel := context.WithTimeout(context.Background(), d.sinks.limits.statement)
	defer cancel()
	if err := changes.ReleaseSink(limit, d.sinks.store, d.lease); err != nil {
		d.log.Warn("cannot release the sink: another node continues when the lease is over", "error", err)
	}
	d.sinks.wake() // a node may start again, with new settings or from another position
}

// open prepares the target and the filter.
func (d *delivery) open() error {
	m, err := d.sinks.opened(d.ctx, &d.claimed.SinkSettings)
	if err != nil {
		return err
	}
	if d.filter, err = newFilter(m); err != nil {
		return err
	}
	d.target, err = d.sinks.openTarget(d.ctx, m)
	return err
}

// errEnded ends the loop of a delivery.
var errEnded = errors.New("ended")

// loop reads changes and delivers them. Before each read, it retries one dead letter, if any is
// waiting. It returns nil when it was asked to end, and an error if it cannot continue.
func (d *delivery) loop() error {
	pacer := changes.NewPacer(d.sinks.store, d.lease.Namespace, d.sinks.limits.pace)
	defer pacer.Close()
	err := d.pause(d.wait)
	for err == nil {
		pacer.Begin()
		var current bool
		if current, err = d.refresh(); err != nil || !current {
			continue
		}
		var retried bool
		if retried, err = d.retry(); err != nil {
			break
		}
		var found []changes.Change
		var next changes.Cursor
		var more bool
		found, next, more, err = changes.Read(d.ctx, d.sinks.store, d.lease.Namespace, d.at,
			changes.ReadLimit{Changes: d.sinks.limits.changes, Bytes: d.sinks.limits.bytes})
		switch {
		case err != nil:
			err = d.readFailed(err)
		case len(found) == 0:
			d.offline = false
			err = d.saveIdle()
		default:
			d.offline = false
			pacer.Found()
			err = d.deliver(found, next)
		}
		if err == nil && !more && !retried {
			pacer.Wait(d.ctx, d.ending)
			err = d.pause(0)
		}
	}
	if errors.Is(err, errEnded) {
		return d.save()
	}
	return err
}

// pause waits. It returns errEnded if the delivery must end.
func (d *delivery) pause(wait time.Duration) error {
	if wait > 0 {
		timer := time.NewTimer(wait)
		defer timer.Stop()
		select {
		case <-timer.C:
		case <-d.ending:
		case <-d.ctx.Done():
		}
	}
	select {
	case <-d.ctx.Done():
		return context.Cause(d.ctx)
	case <-d.ending:
		return errEnded
	default:
		return nil
	}
}

// readFailed handles the error of a read. If changes were deleted before they were delivered, it
// sets the sink to BROKEN.
func (d *delivery) readFailed(err error) error {
	if lost, ok := errors.AsType[*process.CursorError](err); ok {
		text := "changes were deleted before they were delivered: rewind the sink to continue with those that are " +
			"left (" + lost.Message + ")"
		d.log.Error("the sink is broken", "error", text)
		return d.storeFailure(changes.SinkFailure{State: "BROKEN", Error: text})
	}
	if d.ctx.Err() != nil {
		return context.Cause(d.ctx)
	}
	if errors.Is(err, changes.ErrNewGeneration) {
		return err
	}
	if !d.offline { // log only once while the database is unavailable
		d.log.Warn("cannot read changes", "error", err)
	}
	d.offline = true
	return d.pause(d.sinks.limits.storeRetry)
}

// storeFailure stores a final failure.
func (d *delivery) storeFailure(f changes.SinkFailure) error {
	err := d.store(func(ctx context.Context) error { return changes.FailSink(ctx, d.sinks.store, d.lease, f) })
	if err == nil {
		err = errEnded
	}
	return err
}

// store repeats a statement until it succeeds, the lease is lost, or the delivery is aborted.
func (d *delivery) store(write func(context.Context) error) error {
	for {
		ctx, cancel := context.WithTimeout(d.ctx, d.sinks.limits.statement)
		err := write(ctx)
		cancel()
		if err == nil || errors.Is(err, process.ErrFenced) {
			return err
		}
		if d.ctx.Err() != nil {
			return context.Cause(d.ctx)
		}
		if !d.offline {
			d.log.Warn("cannot store the progress of the sink", "error", err)
		}
		d.offline = true
		timer := time.NewTimer(d.sinks.limits.storeRetry)
		select {
		case <-timer.C:
		case <-d.ctx.Done():
		}
		timer.Stop()
	}
}

// saveIdle stores the cursor some time after it has moved past unselected changes.
func (d *delivery) saveIdle() error {
	if time.Since(d.saved) < d.sinks.limits.save {
		return nil
	}
	return d.save()
}

func (d *delivery) save() error {
	if !d.unsaved {
		return nil
	}
	return d.advance(d.at, 0)
}

// advance stores the cursor after changes that were delivered.
func (d *delivery) advance(to changes.Cursor, delivered int) error {
	err := d.store(func(ctx context.Context) error {
		return changes.AdvanceSink(ctx, d.sinks.store, d.lease, to, delivered)
	})
	if err == nil {
		d.recordAdvance(to)
	}
	return err
}

func (d *delivery) recordAdvance(to changes.Cursor) {
	if d.failures > 0 {
		d.log.Info("the sink is delivering again", "failures", d.failures)
	}
	d.at, d.unsaved, d.saved, d.failures = to, false, time.Now(), 0
}

// deliver delivers the changes that the sink selects, and stores the cursor after all given
// changes. If the target fails, it waits before the next attempt.
func (d *delivery) deliver(found []changes.Change, next changes.Cursor) error {
	selected, rejected := d.choose(found)
	if len(selected) == 0 && len(rejected) == 0 {
		d.at, d.unsaved = next, true
		if err := d.saveIdle(); err != nil {
			return err
		}
		return d.pause(0)
	}
	delivered := len(selected)
	if delivered > 0 {
		began := time.Now()
		err := d.deliverSelected(found, selected)
		if d.ctx.Err() != nil {
			return context.Cause(d.ctx)
		}
		if err != nil {
			return d.fail(err)
		}
		d.sinks.metrics.observe(d, selected, began)
		letters := d.settled.take(selected)
		delivered -= len(letters)
		rejected = append(rejected, letters...)
	}
	if len(rejected) == 0 {
		if err := d.advance(next, delivered); err != nil {
			return err
		}
		return d.pause(0)
	}
	err := d.store(func(ctx context.Context) error {
		return changes.RejectChanges(ctx, d.sinks.store, d.lease, next, delivered, rejected)
	})
	if err != nil {
		return err
	}
	labels := d.sinks.labels(d.lease.Namespace, d.lease.SinkID)
	d.sinks.metrics.rejected.WithLabelValues(labels...).Add(float64(len(rejected)))
	d.log.Warn("changes became dead letters", "changes", len(rejected), "error", rejected[0].Reason)
	d.recordAdvance(next)
	return d.pause(0)
}

// choose returns the changes that the sink selects, and a rejection for each change that cannot be
// encoded.
func (d *delivery) choose(found []changes.Change) (selected []*progressorv1.Change, rejected []changes.Rejection) {
	for n := range found {
		m, err := wire.Change(d.lease.Namespace, &found[n])
		if err != nil {
			rejected = append(rejected, rejection(&found[n], err))
		} else if d.filter.matches(m) {
			selected = append(selected, m)
		}
	}
	return selected, rejected
}

// deliverSelected delivers the selected changes that are not settled yet. If the target rejects one
// of them permanently, it delivers them one by one.
func (d *delivery) deliverSelected(found []changes.Change, selected []*progressorv1.Change) error {
	selected = slices.DeleteFunc(slices.Clone(selected), d.settled.has)
	if len(selected) == 0 {
		return nil
	}
	err := d.target.Deliver(d.ctx, selected)
	if _, permanent := errors.AsType[*PermanentError](err); !permanent {
		return err
	}
	rows := map[int64]*changes.Change{}
	for n := range found {
		rows[found[n].ChangeID] = &found[n]
	}
	for _, m := range selected {
		err := d.target.Deliver(d.ctx, []*progressorv1.Change{m})
		var letter *changes.Rejection
		if permanent, ok := errors.AsType[*PermanentError](err); ok {
			letter = new(rejection(rows[m.GetChangeId()], permanent))
		} else if err != nil {
			return err
		}
		d.settled[m.GetChangeId()] = letter
	}
	return nil
}

// settled contains the changes that were delivered one by one. They are not delivered again if a
// later change of their batch fails. The value is nil if the target has accepted the change, and
// otherwise the dead letter of the change.
type settled map[int64]*changes.Rejection

func (s settled) has(m *progressorv1.Change) bool {
	_, ok := s[m.GetChangeId()]
	return ok
}

// take removes changes and returns their dead letters.
func (s settled) take(delivered []*progressorv1.Change) (letters []changes.Rejection) {
	for _, m := range delivered {
		if letter := s[m.GetChangeId()]; letter != nil {
			letters = append(letters, *letter)
		}
		delete(s, m.GetChangeId())
	}
	return letters
}

func rejection(c *changes.Change, err error) changes.Rejection {
	return changes.Rejection{Change: c, Reason: shorten(err.Error())}
}

// fail stores a failed attempt and waits for the next one. After ErrGone there is no next attempt.
func (d *delivery) fail(err error) error {
	if errors.Is(err, ErrGone) {
		d.log.Warn("the sink is disabled", "error", err)
		return d.storeFailure(changes.SinkFailure{State: "DISABLED", Error: shorten(err.Error())})
	}
	d.failures++
	d.sinks.metrics.failures.WithLabelValues(d.sinks.labels(d.lease.Namespace, d.lease.SinkID)...).Inc()
	wait := d.sinks.limits.retry.Interval(int32(min(d.failures, 1000)), rand.Float64())
	if d.failures == 1 {
		d.log.Warn("the sink is failing", "error", err)
	}
	f := changes.SinkFailure{State: "FAILING", Error: shorten(err.Error()), Wait: wait}
	err = d.store(func(ctx context.Context) error { return changes.FailSink(ctx, d.sinks.store, d.lease, f) })
	if err != nil {
		return err
	}
	return d.pause(wait)
}

// shorten returns the text of an error, cut to the size that is stored.
func shorten(text string) string {
	text = strings.ReplaceAll(strings.ToValidUTF8(text, "?"), "\x00", "?")
	if len(text) > maxError {
		text = strings.ToValidUTF8(text[:maxError], "") + fmt.Sprintf(" … (%d bytes)", len(text))
	}
	return text
}
